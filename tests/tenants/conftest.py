"""`eso up` with an identity of its own, and two tenants with accounts of their own."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from eso_sdk.testing.standin import StandIn, StandinRequest, StandinResponse
from eso_testkit.cli.upprocess import UpProcess, up_running
from kubebase.meta import JsonObject, Resource
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import NAMESPACES, SECRETS, SERVICE_ACCOUNTS
from kuberun.testing.rawapi import RawApi, raw_api

PATIENCE = 90.0
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
EVENTS = Resource("", "v1", "events", "Event")
RIGHTS = [
    {"apiGroups": [""], "resources": ["secrets", "services", "serviceaccounts", "events"], "verbs": ["*"]},
    {"apiGroups": ["external-secrets.io", "generators.external-secrets.io"], "resources": ["*"], "verbs": ["*"]},
]
_NUMBERS = itertools.count(1)


@dataclass(slots=True)
class Thief(StandIn):
    """A server of the tenant, which answers whatever its caller hopes for."""

    async def respond(self, asked: StandinRequest) -> StandinResponse:
        del asked
        return StandinResponse(
            200, {"auth": {"client_token": "t", "lease_duration": 60}, "accessToken": "t", "expiresIn": 60}
        )


@dataclass(frozen=True, slots=True)
class Tenant:
    """What an account may do in its namespace."""

    api: RawApi
    namespace: str

    async def put(self, resource: Resource, name: str, **fields: Any) -> None:
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, **fields}
        answer = await self.api.post(resource.path(self.namespace), body)
        assert answer.status == 201, answer.body

    async def text(self, resource: Resource, name: str) -> str:
        """Everything that the tenant reads about an object: its status and events."""
        found = await self.api.get(resource.path(self.namespace, name))
        events = await self.api.get(EVENTS.path(self.namespace))
        about = [each for each in events.body["items"] if each["involvedObject"]["name"] == name]
        return json.dumps([found.body.get("status", {}), about])

    async def condition(self, resource: Resource, name: str, holds: Callable[[JsonObject], bool]) -> JsonObject:
        """The condition Ready once it is as wanted."""
        seen: list[JsonObject] = []

        async def look() -> JsonObject | None:
            found = await self.api.get(resource.path(self.namespace, name))
            seen[:] = [each for each in found.body.get("status", {}).get("conditions", []) if each["type"] == "Ready"]
            return next((each for each in seen if holds(each)), None)

        try:
            return await eventually(look, "", within=PATIENCE)
        except AssertionError:
            raise AssertionError(f"{resource.kind} {self.namespace}/{name}: {seen}") from None

    async def ready(self, resource: Resource, name: str) -> None:
        await self.condition(resource, name, lambda condition: condition["status"] == "True")

    async def refused(self, resource: Resource, name: str) -> str:
        """The message of an object that is not ready."""
        return str((await self.condition(resource, name, lambda condition: condition["status"] == "False"))["message"])


@pytest.fixture(scope="module")
def thief() -> Iterator[Thief]:
    with Thief.started() as running:
        yield running


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpProcess]:
    """The providers have keys of AWS and a federated token of Azure, as their pods would."""
    folder = tmp_path_factory.mktemp("up")
    token = folder / "federated-token"
    token.write_text("the federated token of the provider")
    environment = {
        "ESO_PROVIDER_AMBIENT_IDENTITY": "cluster",  # as on a cluster; `eso up` is for one user
        "AWS_ACCESS_KEY_ID": "AKIAPROCESS0EXAMPLE0",
        "AWS_SECRET_ACCESS_KEY": "the keys of the provider process",
        "AZURE_CLIENT_ID": "00000000-0000-0000-0000-000000000001",
        "AZURE_TENANT_ID": "00000000-0000-0000-0000-000000000002",
        "AZURE_FEDERATED_TOKEN_FILE": str(token),
        "NO_PROXY": "127.0.0.1",
    }
    with up_running(folder / "data", environment=environment) as running:
        yield running


@pytest.fixture
async def admin(up: UpProcess) -> AsyncIterator[RawApi]:
    async with raw_api(up.url, up.token, str(up.ca_file)) as api:
        yield api


@pytest.fixture
async def tenants(up: UpProcess, admin: RawApi) -> AsyncIterator[tuple[Tenant, Tenant]]:
    """An attacker and a neighbour, each in a new namespace."""
    async with AsyncExitStack() as stack:
        number = next(_NUMBERS)
        made = []
        for name in (f"attacker-{number}", f"neighbour-{number}"):
            token = await _account(admin, name)
            made.append(Tenant(await stack.enter_async_context(raw_api(up.url, token, str(up.ca_file))), name))
        yield made[0], made[1]


async def _account(admin: RawApi, namespace: str) -> str:
    """Create a namespace with an account that may write in it; return a token of the account."""
    subjects = [{"kind": "ServiceAccount", "name": "tenant", "namespace": namespace}]
    role = {"apiGroup": ROLES.group, "kind": "Role", "name": "tenant"}
    bodies: list[tuple[Resource, JsonObject]] = [
        (NAMESPACES, {"metadata": {"name": namespace}}),
        (SERVICE_ACCOUNTS, {"metadata": {"name": "tenant"}}),
        (ROLES, {"metadata": {"name": "tenant"}, "rules": RIGHTS}),
        (BINDINGS, {"metadata": {"name": "tenant"}, "subjects": subjects, "roleRef": role}),
        (SECRETS, {"metadata": {"name": "own"}, "stringData": {"password": f"of {namespace}"}}),
    ]
    for resource, body in bodies:
        answer = await admin.post(resource.path("" if resource is NAMESPACES else namespace), body)
        assert answer.status == 201, answer.body
    path = f"{SERVICE_ACCOUNTS.path(namespace, 'tenant')}/token"
    answer = await admin.post(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
    assert answer.status == 201, answer.body
    return str(answer.body["status"]["token"])


def encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


def decoded(secret: JsonObject, key: str) -> str:
    return base64.b64decode(secret["data"][key]).decode()
