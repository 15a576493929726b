"""A whole operator on a live API server, with a scripted provider behind a Service of it.

bench = Bench(api, core namespace)        the cluster's side: objects, conditions, the provider's Service
async with bench.operator() as operator   the operator, in this process
await bench.install(provider)             the Service is created, certificates are issued, the provider listens
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.kinds import KINDS
from eso_api.pushsecret import PUSH_SECRET
from eso_api.shapes import Fragment, JsonMap
from eso_api.v2.owned import GENERATOR_CONFIG_GROUP, STORE_CONFIG_GROUP, OwnedStatus, namespaced_config
from eso_api.values import SecretBytes
from eso_operator.providers.gateway import CallHooks
from eso_operator.settings import FIELD_MANAGER, ProviderSettings, Settings
from eso_operator.stores.resolved import ServiceKey
from eso_operator.telemetry.settings import Listener, MetricsSettings
from eso_operator.wiring import Operator, wire
from eso_testkit.operator.accounts import kubeconfig_of, noting
from eso_testkit.operator.providerhost import ProviderHost
from eso_testkit.operator.scriptedprovider import ScriptedProvider
from eso_wire.tls import TlsMaterial
from eso_wire.values import CredentialKind, CredentialPath, KindId, KindInfo, KindRole, Operation
from kubebase.clock import SystemClock
from kubebase.meta import Condition, JsonObject, Object, Resource, raw
from kubebase.testing.servers import ApiServer, free_ports
from kubebase.testing.waiting import WITHIN_SECONDS, eventually
from kuberun import config
from kuberun.client import Client
from kuberun.errors import AlreadyExists
from kuberun.testing.builders import SECRETS, document
from kuberun.testing.rawapi import MERGE_PATCH, RawApi
from kuberun.transport import AiohttpTransport, RequestTally, Transport

T = TypeVar("T")

SERVICE = "provider-scripted"
PORT = 8080
LABEL = {"external-secrets.io/provider": "true"}
SERVICES = Resource("", "v1", "services", "Service")
_CRDS = raw(
    Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)
)


_INSTALLED: set[Path] = set()
"""The kubeconfigs of servers that have our kinds. A test run has few servers."""


class BackendSpec(Fragment, frozen=True, kw_only=True):
    """A configuration with one reference to a credential."""

    url: str = ""
    auth: JsonMap = {}  # noqa: RUF012 - msgspec gives every object one of its own


class Backend(Object, kw_only=True):
    """A provider's own kind."""

    spec: BackendSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


class Maker(Object, kw_only=True):
    """A provider's own generator."""

    spec: BackendSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


BACKEND = namespaced_config(Backend, STORE_CONFIG_GROUP, "backends")
MAKER = namespaced_config(Maker, GENERATOR_CONFIG_GROUP, "makers")

BACKEND_ID = KindId(STORE_CONFIG_GROUP, "v2alpha1", "Backend")
MAKER_ID = KindId(GENERATOR_CONFIG_GROUP, "v2alpha1", "Maker")
TOKEN_PATH = CredentialPath("/auth/tokenSecretRef", CredentialKind.SECRET_KEY)
READS = frozenset({Operation.GET, Operation.GET_MAP, Operation.FIND_BY_NAME, Operation.NOT_FOUND_SEMANTICS})
KIND_INFOS = (
    KindInfo(BACKEND_ID, KindRole.STORE, READS, v1_provider_key="fake", credentials=(TOKEN_PATH,)),
    KindInfo(MAKER_ID, KindRole.GENERATOR, frozenset({Operation.GENERATE})),
)


def scripted(**fields: Any) -> ScriptedProvider:
    """Return a provider of `Backend` (in v1 stores: `fake`) and `Maker`."""
    return ScriptedProvider(SystemClock(), kinds=KIND_INFOS, **fields)


def free_port() -> int:
    return free_ports(1)[0]


async def install_crds(kubeconfig: Path) -> None:
    """Install every kind of the API and those of the test provider, once for each server."""
    if kubeconfig in _INSTALLED:
        return
    client = Client(AiohttpTransport(config.load(kubeconfig)))
    try:
        for kind in (*KINDS, BACKEND, MAKER):
            try:
                await client.create(_CRDS, kind.crd())
            except AlreadyExists:
                continue
        for kind in (*KINDS, BACKEND, MAKER):
            await eventually(lambda kind=kind: _served(client, kind.resource()), f"{kind.name} is not served")  # type: ignore[misc]  # bound per turn
    finally:
        await client.close()
    _INSTALLED.add(kubeconfig)


@dataclass(slots=True)
class Bench:
    """One test's part of a live cluster: `namespace` is that of operator and provider."""

    api: RawApi
    kubeconfig: Path
    namespace: str
    port: int
    host: ProviderHost | None = None

    @property
    def settings(self) -> Settings:
        """Return settings in which the provider's Service is dialled on loopback."""
        trusted = ((ServiceKey(self.namespace, SERVICE), f"127.0.0.1:{self.port}"),)
        return Settings(
            core_namespace=self.namespace,
            workers=4,
            live=Listener("127.0.0.1", 0),
            metrics=MetricsSettings(listen=Listener("127.0.0.1", 0)),
            providers=ProviderSettings(trusted=trusted),
        )

    @property
    def impatient(self) -> Settings:
        """Return the settings of an operator that gives no provider time to start."""
        directory = replace(self.settings.providers.tempo.directory, start=0.0)
        tempo = replace(self.settings.providers.tempo, directory=directory)
        return replace(self.settings, providers=replace(self.settings.providers, tempo=tempo))

    async def tenant(self, name: str = "tenant") -> Bench:
        """Create another namespace and return a bench for it."""
        namespace = f"{self.namespace}-{name}"
        response = await self.api.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
        assert response.status == 201, response.body  # noqa: S101 - this is a test kit
        return replace(self, namespace=namespace)

    @asynccontextmanager
    async def operator(
        self,
        settings: Settings | None = None,
        *,
        through: Callable[[Transport], Transport] = lambda plain: plain,
        hooks: CallHooks | None = None,
    ) -> AsyncIterator[Operator]:
        """Run an operator. `through` intercepts its requests to the API server, `hooks` those to providers."""
        tally, settings = RequestTally(), settings or self.settings
        kubeconfig = await kubeconfig_of(self.api, self.kubeconfig, settings.core_namespace)
        plain = AiohttpTransport(config.load(kubeconfig), tally=tally)
        client = Client(through(noting().over(plain)), field_manager=FIELD_MANAGER)
        operator = wire(settings, client, SystemClock(), hooks=hooks or CallHooks(), tally=tally)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(operator.manager.run())
                try:
                    yield operator
                finally:
                    operator.manager.stop()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None  # the test's own complaint reads better without the group
        finally:
            await client.close()

    # --- the provider -------------------------------------------------------------------------------------------------

    async def install(self, provider: ScriptedProvider, **annotations: str) -> ProviderHost:
        """Create its Service, wait for its certificates, listen."""
        named = {f"external-secrets.io/{name.replace('_', '-')}": text for name, text in annotations.items()}
        metadata = {"labels": LABEL, "annotations": named}
        await self.create(SERVICES, SERVICE, metadata=metadata, spec={"ports": [{"name": "grpc", "port": PORT}]})
        material = await eventually(self.server_material, "no certificates were issued for the provider")
        return await self.listen(provider, material)

    async def listen(self, provider: ScriptedProvider, material: TlsMaterial) -> ProviderHost:
        self.host = ProviderHost(provider, material, port=self.port)
        await self.host.start()
        return self.host

    async def server_material(self, service: str = SERVICE) -> TlsMaterial | None:
        """Return the certificates that the operator issued for the provider, as its pod would mount them."""
        found = await self.find(SECRETS, f"{service}-provider-tls")
        if found is None:
            return None
        data = {name: base64.b64decode(value) for name, value in found["data"].items()}
        return TlsMaterial(data["ca.crt"], data["tls.crt"], SecretBytes(data["tls.key"]))

    # --- objects ------------------------------------------------------------------------------------------------------

    async def create(self, resource: Resource, name: str, **fields: Any) -> JsonObject:
        """Create an object. Keyword arguments are top-level fields; `metadata` is merged."""
        response = await self.api.post(
            resource.path(self._namespace_for(resource)), document(resource, name, self.namespace, **fields)
        )
        assert response.status == 201, response.body  # noqa: S101 - this is a test kit
        return dict(response.body)

    async def patch(self, resource: Resource, name: str, patch: JsonObject) -> None:
        response = await self.api.patch(self._path(resource, name), patch, MERGE_PATCH)
        assert response.status == 200, response.body  # noqa: S101 - this is a test kit

    async def delete(self, resource: Resource, name: str) -> None:
        response = await self.api.delete(self._path(resource, name))
        assert response.status == 200, response.body  # noqa: S101 - this is a test kit

    async def find(self, resource: Resource, name: str) -> JsonObject | None:
        response = await self.api.get(self._path(resource, name))
        return dict(response.body) if response.status == 200 else None

    async def ready(
        self, resource: Resource, name: str, wanted: Callable[[Condition], bool], *, within: float = WITHIN_SECONDS
    ) -> JsonObject:
        """Return the object as soon as its Ready condition has the expected status."""
        conditions: list[Any] = []

        async def read_state() -> JsonObject | None:
            found = await self.find(resource, name) or {}
            conditions[:] = (found.get("status") or {}).get("conditions") or []
            ready = [msgspec.convert(condition, Condition) for condition in conditions if condition["type"] == "Ready"]
            return found if any(map(wanted, ready)) else None

        try:
            return await eventually(read_state, name, within=within)
        except AssertionError:
            raise AssertionError(f"{resource.kind} {name} is not as wanted; its conditions are {conditions}") from None

    async def events(self, name: str) -> list[tuple[str, str]]:
        """Type and reason of the events about an object of that name, in the core and the default namespace."""
        return [(event["type"], event["reason"]) for event in await self._events(name)]

    async def until_event(self, name: str, type_: str, reason: str, message: str = "") -> None:
        """Wait for one event. Others about the same object may come earlier, and all of them come after the status."""

        async def read_state() -> bool:
            return any(
                (event["type"], event["reason"]) == (type_, reason) and message in event["message"]
                for event in await self._events(name)
            )

        await eventually(read_state, f"no {type_} event {reason} {message!r} about {name}")

    async def _events(self, name: str) -> list[JsonObject]:
        lists = [await self.api.get(f"/api/v1/namespaces/{each}/events") for each in (self.namespace, "default")]
        return [event for listed in lists for event in listed.body["items"] if event["involvedObject"]["name"] == name]

    def _namespace_for(self, resource: Resource) -> str:
        return self.namespace if resource.namespaced else ""

    def _path(self, resource: Resource, name: str) -> str:
        return resource.path(self._namespace_for(resource), name)


@asynccontextmanager
async def bench_on(api_server: ApiServer, api: RawApi, namespace: str) -> AsyncIterator[Bench]:
    """Install our kinds, and leave no work for the operator of the next test."""
    await install_crds(api_server.kubeconfig)
    bench = Bench(api, api_server.kubeconfig, namespace, free_port())
    yield bench
    if bench.host is not None:
        await bench.host.stop()
    # A namespace ends slowly on a real API server: the operator of the next test must find no work in it.
    for kind in (EXTERNAL_SECRET, PUSH_SECRET):
        await api.delete(kind.resource().path(namespace))


async def _served(client: Client, resource: Resource) -> bool:
    page = await client.source(raw(resource)).list_page(limit=1, continue_token="", resource_version="")
    return page.resource_version != ""


def with_interval(settings: Settings, seconds: float) -> Settings:
    return replace(settings, store_interval=seconds)
