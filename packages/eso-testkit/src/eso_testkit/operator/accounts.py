"""Operators of live tests with the rights of a manifest instead of an administrator's, and a record of their needs.

ESO_TEST_RIGHTS=FILE     accounts, roles and bindings; operator-namespace in it stands for the namespace of the operator
ESO_TEST_REQUESTS=FILE   where each distinct request is appended: a JSON line [group, resource, verb, status]

Without the first variable operators are administrators, as usual. `tests/deploy/test_rights.py` sets both.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from eso_testkit.operator.transports import Between
from kubebase.clock import SystemClock
from kubebase.meta import JsonObject, Resource
from kuberun import config
from kuberun.errors import ApiError, Forbidden
from kuberun.requests import Request
from kuberun.testing.rawapi import RawApi
from kuberun.transport import AiohttpTransport, Transport

PLACEHOLDER: Final = "operator-namespace"
WITHIN_SECONDS: Final = 60.0
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_RBAC: Final = "rbac.authorization.k8s.io"
_ACCOUNT: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount")
_KINDS: Final = {
    one.kind: one
    for one in (
        _ACCOUNT,
        Resource(_RBAC, "v1", "roles", "Role"),
        Resource(_RBAC, "v1", "rolebindings", "RoleBinding"),
        Resource(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False),
        Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    )
}


@dataclass(frozen=True, slots=True)
class NeededRight:
    """What a request needs a right for; a subresource follows its resource after a slash."""

    group: str
    resource: str
    verb: str

    @classmethod
    def of(cls, request: Request) -> NeededRight | None:
        """Return None for discovery and other paths that every account may read."""
        root, *parts = request.path.strip("/").split("/")
        group = "" if root == "api" else parts.pop(0) if root == "apis" and parts else None
        if group is None or len(parts) < 2:
            return None
        _, *rest = parts
        if rest[0] == "namespaces" and len(rest) > 2:
            rest = rest[2:]
        resource, name, *below = (*rest, "") if len(rest) == 1 else rest
        read = "get" if name else "watch" if ("watch", "true") in request.query else "list"
        verb = read if request.method == "GET" else _VERBS[request.method]
        return cls(group, "/".join((resource, *below)), "deletecollection" if verb == "delete" and not name else verb)


class Noting(Between):
    """Records the distinct requests of an operator with their result: 0 for success, else the HTTP status."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.seen: set[tuple[NeededRight, int]] = set()

    async def request(self, request: Request) -> bytes:
        try:
            response = await self.inner.request(request)
        except ApiError as refused:
            self._note(request, _status(refused))
            raise
        self._note(request, 0)
        return response

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._noted(request)

    @asynccontextmanager
    async def _noted(self, request: Request) -> AsyncGenerator[AsyncIterator[bytes], None]:
        try:
            async with self.inner.stream(request) as lines:
                self._note(request, 0)
                yield lines
        except ApiError as refused:
            self._note(request, _status(refused))
            raise

    def _note(self, request: Request, status: int) -> None:
        needed = NeededRight.of(request)
        if needed is None or (needed, status) in self.seen:
            return
        self.seen.add((needed, status))
        with self.file.open("a") as lines:
            lines.write(json.dumps([needed.group, needed.resource, needed.verb, status]) + "\n")


def _status(refused: ApiError) -> int:
    """Return the status; a namespace that is going refuses new objects like a missing right, and is not one."""
    return 409 if "being terminated" in refused.message else refused.code


async def kubeconfig_of(api: RawApi, administrator: Path, namespace: str) -> Path:
    """Return the kubeconfig for an operator of that namespace: an administrator's, unless the run names rights."""
    rights = os.environ.get("ESO_TEST_RIGHTS")
    return (
        await as_account(api, administrator, namespace, _objects(Path(rights), namespace)) if rights else administrator
    )


async def as_account(
    api: RawApi, administrator: Path, namespace: str, objects: list[JsonObject], *, until: Sequence[str] = ()
) -> Path:
    """Create the account and its rights; return a kubeconfig with a token of it, once the rights are in force.

    `until` are paths that the account may read; by default those of an operator.
    """
    for each in objects:
        path = _KINDS[each["kind"]].path(each["metadata"].get("namespace", ""))
        response = await api.post(path, each)
        assert response.status in (201, 409), response.body  # noqa: S101 - this is a test kit
    file = _limited(administrator, namespace, await _token(api, objects))
    of_operator = ("/api/v1/services", f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/none")
    await _in_force(file, until or of_operator)
    return file


def noting() -> Noting | Between:
    """Return the layer that records requests, if the run asks for a record."""
    file = os.environ.get("ESO_TEST_REQUESTS")
    return Noting(Path(file)) if file else Between()


def _objects(rights: Path, namespace: str) -> list[JsonObject]:
    return list(yaml.safe_load_all(rights.read_text().replace(PLACEHOLDER, namespace)))


def _limited(administrator: Path, namespace: str, token: str) -> Path:
    config_of = yaml.safe_load(administrator.read_text())
    config_of["users"][0]["user"] = {"token": token}
    file = administrator.with_name(f"{namespace}.kubeconfig")
    file.write_text(json.dumps(config_of))
    file.chmod(0o600)
    return file


async def _token(api: RawApi, objects: list[JsonObject]) -> str:
    (account,) = (each["metadata"] for each in objects if each["kind"] == "ServiceAccount")
    path = _ACCOUNT.path(account["namespace"], account["name"])
    response = await api.post(f"{path}/token", {"spec": {"expirationSeconds": 3600}})
    return str(response.body["status"]["token"])


async def _in_force(kubeconfig: Path, paths: Sequence[str]) -> None:
    """Wait until the server applies the bindings, which it learns from a watch of its own."""
    clock = SystemClock()
    end = clock.monotonic() + WITHIN_SECONDS
    transport = AiohttpTransport(config.load(kubeconfig))
    try:
        for path in paths:
            while await _forbidden(transport, path):
                assert clock.monotonic() < end, f"the rights are not in force: {path}"  # noqa: S101 - this is a test kit
                await clock.sleep(0.05)
    finally:
        await transport.close()


async def _forbidden(transport: Transport, path: str) -> bool:
    try:
        await transport.request(Request("GET", path))
    except Forbidden:
        return True
    except ApiError:
        pass
    return False
