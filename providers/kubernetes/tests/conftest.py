"""A provider in memory, a real API server as its backend, and identities there that may do only what a test grants."""

from __future__ import annotations

import base64
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from eso_api.values import SecretBytes
from eso_provider_kubernetes.provider import PROVIDER
from eso_provider_kubernetes.secretstore import KubernetesStore
from eso_sdk.addresses import AddressPolicy
from eso_sdk.testing import InMemory, call_context
from eso_wire.values import (
    Context,
    DeleteBatch,
    DeleteItem,
    FindQuery,
    ObjectRef,
    PushBatch,
    PushItem,
    RemoteRef,
    Shape,
    SourceSecret,
)
from kubebase.clock import SystemClock
from kubebase.testing.servers import ApiServer
from kuberun.testing.rawapi import RawApi

ALL_VERBS = ("get", "list", "watch", "create", "update", "delete")
SOURCE = SourceSecret("Opaque")


def data(values: Mapping[str, str]) -> dict[str, str]:
    return {name: base64.b64encode(text.encode()).decode() for name, text in values.items()}


@dataclass(frozen=True, slots=True)
class Remote:
    """The backend: one namespace of a cluster, read as its administrator."""

    server: ApiServer
    api: RawApi
    namespace: str

    @property
    def authority(self) -> str:
        return base64.b64encode(self.server.ca_file.read_bytes()).decode()

    @property
    def connection(self) -> dict[str, Any]:
        return {"url": self.server.url, "caBundle": self.authority}

    def path(self, name: str = "", namespace: str = "") -> str:
        return f"/api/v1/namespaces/{namespace or self.namespace}/secrets" + (f"/{name}" if name else "")

    async def put(self, name: str, values: Mapping[str, str], *, namespace: str = "", **more: Any) -> str:
        """Create a Secret; its version."""
        metadata = {"name": name, **more.pop("metadata", {})}
        answer = await self.api.post(self.path("", namespace), {"metadata": metadata, "data": data(values), **more})
        assert answer.status == 201, answer.body
        return str(answer.body["metadata"]["resourceVersion"])

    async def change(self, name: str, values: Mapping[str, str]) -> str:
        answer = await self.api.patch(self.path(name), {"data": data(values)})
        assert answer.status == 200, answer.body
        return str(answer.body["metadata"]["resourceVersion"])

    async def secret(self, name: str, namespace: str = "") -> dict[str, Any] | None:
        """A Secret with its data decoded as `text`."""
        answer = await self.api.get(self.path(name, namespace))
        if answer.status != 200:
            return None
        found = dict(answer.body)
        found["text"] = {key: base64.b64decode(raw).decode() for key, raw in (found.get("data") or {}).items()}
        return found

    async def new_namespace(self) -> str:
        name = f"test-{secrets.token_hex(5)}"
        assert (await self.api.post("/api/v1/namespaces", {"metadata": {"name": name}})).status == 201
        return name

    async def token(
        self, verbs: Sequence[str] = ALL_VERBS, *, namespace: str = "", names: Sequence[str] = (), **rule: Any
    ) -> str:
        """A token of a new ServiceAccount that may do this with Secrets, and nothing else."""
        where, name = namespace or self.namespace, f"limited-{secrets.token_hex(4)}"
        groups, resources = rule.get("groups", [""]), rule.get("resources", ["secrets"])
        granted = {"apiGroups": groups, "resources": resources, "verbs": list(verbs), "resourceNames": list(names)}
        rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{where}"
        made = [
            (f"/api/v1/namespaces/{where}/serviceaccounts", {"metadata": {"name": name}}),
            (f"{rbac}/roles", {"metadata": {"name": name}, "rules": [granted] if verbs else []}),
            (
                f"{rbac}/rolebindings",
                {
                    "metadata": {"name": name},
                    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
                    "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": where}],
                },
            ),
        ]
        for path, body in made:
            answer = await self.api.post(path, body)
            assert answer.status == 201, answer.body
        for verb in verbs:
            await self._granted(
                f"system:serviceaccount:{where}:{name}",
                {
                    "namespace": where,
                    "verb": verb,
                    "group": groups[0],
                    "resource": resources[0],
                    "name": names[0] if names else "",
                },
            )
        asked = {"spec": {"audiences": [], "expirationSeconds": 3600}}
        answer = await self.api.post(f"/api/v1/namespaces/{where}/serviceaccounts/{name}/token", asked)
        assert answer.status == 201, answer.body
        return str(answer.body["status"]["token"])

    async def _granted(self, user: str, attributes: dict[str, Any]) -> None:
        """Wait until the server knows of the new role: a real one learns of it a moment later."""
        review = {"spec": {"user": user, "resourceAttributes": attributes}}
        for _ in range(200):
            answer = await self.api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
            assert answer.status == 201, answer.body
            if answer.body["status"]["allowed"]:
                return
            await SystemClock().sleep(0.05)
        raise AssertionError(f"{user} was not granted {attributes}")


@dataclass(frozen=True, slots=True)
class Opened:
    """A store, with everything that its tests say again and again."""

    client: InMemory
    context: Context

    async def read(self, key: str, **ref: Any) -> Any:
        """The text of a value, its members, or the error."""
        outcome = (await self.client.get_one(self.context, key, **ref)).outcome
        if isinstance(outcome, SecretBytes):
            return outcome.reveal().decode()
        if isinstance(outcome, Mapping):
            return {name: value.reveal().decode() for name, value in outcome.items()}
        return outcome

    async def read_map(self, key: str, **ref: Any) -> Any:
        return await self.read(key, shape=Shape.MAP, **ref)

    async def find(self, **query: Any) -> dict[str, str]:
        found = await self.client.find(self.context, FindQuery(**query))
        return {one.key: one.value.reveal().decode() for one in found}

    async def push(self, *items: PushItem, source: SourceSecret = SOURCE) -> list[Any]:
        return [one.outcome for one in await self.client.push(self.context, PushBatch(items, source))]

    async def delete(self, *refs: RemoteRef) -> list[Any]:
        items = tuple(DeleteItem(str(at), ref) for at, ref in enumerate(refs))
        return [one.error or one.existed for one in await self.client.delete(self.context, DeleteBatch(items))]


@dataclass(frozen=True, slots=True)
class Kube:
    """The provider, and the remote cluster."""

    remote: Remote
    client: InMemory

    def store(self, spec: Mapping[str, Any], credentials: Mapping[str, Any], *, namespace: str = "team") -> Opened:
        store = ObjectRef("external-secrets.io/v1", "SecretStore", namespace, "store", uid="uid-3")
        return Opened(self.client, call_context(KubernetesStore, spec, credentials, namespace=namespace, store=store))

    def with_token(
        self, token: str, *, namespace: str = "", cluster: bool = False, allowed: Sequence[str] = ()
    ) -> Opened:
        """A store that shows this token, of one namespace or (`cluster`) of the cluster."""
        ref = {"name": "credentials", "key": "token"} | ({"namespace": "admin"} if cluster else {})
        spec = {
            "server": self.remote.connection,
            "auth": {"token": {"bearerToken": ref}},
            "remoteNamespace": namespace or self.remote.namespace,
            "allowedRemoteNamespaces": list(allowed),
        }
        return self.store(spec, {"/auth/token/bearerToken": token}, namespace="" if cluster else "team")

    async def limited(self, *verbs: str, namespace: str = "", names: Sequence[str] = ()) -> Opened:
        """A store whose identity may only do this."""
        return self.with_token(await self.remote.token(verbs, names=names), namespace=namespace)

    async def full(self, *, cluster: bool = False) -> Opened:
        return self.with_token(await self.remote.token(), cluster=cluster)


@pytest.fixture
def remote(api_server: ApiServer, api: RawApi, namespace: str) -> Remote:
    return Remote(api_server, api, namespace)


@pytest.fixture
async def kube(remote: Remote) -> AsyncIterator[Kube]:
    async with InMemory(PROVIDER, addresses=AddressPolicy.parse(["loopback"])) as client:
        yield Kube(remote, client)


@pytest.fixture
async def store(kube: Kube) -> Opened:
    """A store that may do everything with Secrets of its namespace."""
    return await kube.full()
