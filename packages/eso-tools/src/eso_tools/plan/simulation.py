"""The real operator on a private API server in memory, until every planned object has settled.

    manifests that others need, live objects -> providers -> ExternalSecrets, PushSecrets -> settled

The API server has no data directory. The folder for certificates and ready files is private and is removed. An object
has settled when the operator has reported on it and no controller has work left.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from eso_api.crd import crds
from eso_api.kinds import installed_kinds
from eso_operator.certificates.secrets import keys_of
from eso_operator.flags import parse
from eso_operator.generators.seals import SECRET_NAME as SEAL_SECRET
from eso_operator.providers.gateway import CallHooks
from eso_operator.providers.settings import DirectorySettings
from eso_operator.settings import FIELD_MANAGER, Settings
from eso_operator.telemetry.subsystems import Subsystem
from eso_operator.wiring import Operator, wire
from eso_tools.manifests import Document
from eso_tools.plan.backends import Backend, Needed
from eso_tools.plan.live import Live, is_token_request
from eso_tools.plan.needs import SYNCED, Need, identity
from eso_tools.plan.seeding import Place, Planned, Seeder, namespace_object
from eso_tools.plan.withholding import Withheld
from eso_tools.providers import CORE_NAMESPACE
from eso_tools.status.overview import ListedObjects, Overview, gather
from eso_wire.values import Handshake
from kubebase.backoff import ExponentialBackoff
from kubebase.clock import Clock
from kubebase.meta import JsonObject, ObjectKey
from kuberun import config
from kuberun.client import Client
from kuberun.errors import NotFound
from kuberun.requests import Request
from kuberun.transport import AiohttpTransport, Transport
from kuberun.workqueue import ReconcileRequest
from localkube.access.certificates import write_private
from localkube.manifests import install
from localkube.model import ListQuery
from localkube.server import LocalKube
from localkube.storage import Change

_POLL_SECONDS: Final = 0.05
_QUIET_CHECKS: Final = 6
"""After this many looks without any change or work, the operator has settled. A pause of the machine does not count."""
_PATIENT_CHECKS: Final = 40
"""The same, if the operator has not reported on every object: it does not manage some of them."""
_READABLE: Final = re.compile(r"/api/v1/namespaces/([^/]+)/(secrets|configmaps|serviceaccounts)/([^/]+)$")
_KINDS: Final = {"secrets": "Secret", "configmaps": "ConfigMap", "serviceaccounts": "ServiceAccount"}
_CHILDREN: Final = re.compile(r"/apis/external-secrets\.io/[^/]+/namespaces/([^/]+)/(externalsecrets|pushsecrets)\b")

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Order:
    """What to simulate."""

    documents: Sequence[Document]
    live: Live
    namespace: str = "default"
    operator_flags: tuple[str, ...] = ()
    seconds: float = 60.0
    tokens: Transport | None = None
    """Where tokens of service accounts are requested; None for the private API server."""
    problems: Sequence[str] = ()
    """Why files could not be read; reported together with the problems of the documents."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """The result: the objects after every refresh, and the calls that were withheld."""

    overview: Overview
    synced: list[JsonObject] = field(repr=False)
    """ExternalSecrets and PushSecrets."""
    before: dict[Place, JsonObject] = field(repr=False)
    after: dict[Place, JsonObject] = field(repr=False)
    withheld: Withheld
    skipped: dict[str, int]
    unsettled: str = ""
    """Why the time was not enough; empty if everything has settled."""


async def simulate(order: Order, backend_in: Callable[[Path], Backend], clock: Clock, report: Report) -> Simulation:
    """Run the operator until every object has settled, or until the time is over."""
    with TemporaryDirectory(prefix="eso-plan-") as name:
        backend = backend_in(Path(name))
        try:
            async with LocalKube(clock=clock) as kube:
                return await _Run(order, backend, kube, folder=Path(name), clock=clock, report=report).run()
        except ExceptionGroup as group:  # of the tasks beside the simulation
            raise _first(group) from None
        finally:
            backend.close()


def _first(error: Exception) -> Exception:
    return _first(error.exceptions[0]) if isinstance(error, ExceptionGroup) else error


class _Run:
    def __init__(
        self, order: Order, backend: Backend, kube: LocalKube, *, folder: Path, clock: Clock, report: Report
    ) -> None:
        self._order = order
        self._backend = backend
        self._cluster = kube.cluster
        self._clock = clock
        self._report = report
        self._kubeconfig = folder / "kubeconfig"
        write_private(self._kubeconfig, kube.kubeconfig_text.encode())
        self._seeder = Seeder(kube.cluster, order.live, order.namespace)
        self._quiet_checks = 0
        self._nudged = False

    async def run(self) -> Simulation:
        self._report("reading live objects")
        await install(self._cluster, crds(installed_kinds(lambda _name, _problem: None)))
        await install(self._cluster, [namespace_object(CORE_NAMESPACE)])
        planned = await self._seeder.prepare(self._order.documents, self._order.problems)
        plain = AiohttpTransport(config.load(self._kubeconfig))
        own = frozenset(
            key for service in self._backend.services() for _, key in keys_of(service, CORE_NAMESPACE).parts()
        )
        client = Client(ReadThrough(plain, self._seeder, self._order.tokens, own), field_manager=FIELD_MANAGER)
        operator = wire(self._settings(), client, self._clock, hooks=CallHooks(dial=self._backend.dial))
        stop_listening = self._cluster.store.listen(self._note_change)
        try:
            async with self._backend.running(self._cluster, client) as needed, asyncio.TaskGroup() as group:
                group.create_task(operator.manager.run())
                try:
                    unsettled = await self._operate(operator, needed, planned)
                    return await self._result(client, unsettled)
                finally:
                    operator.manager.stop()
        finally:
            stop_listening()
            await client.close()

    async def _operate(self, operator: Operator, needed: Needed, planned: Sequence[Planned]) -> str:
        """Return why time ended before everything settled; empty if everything did."""
        try:
            async with asyncio.timeout(self._order.seconds):
                await self._connect(operator, needed)
                self._report("planning")
                for one in planned:
                    await self._seeder.put(one)
                await self._settle(operator)
        except TimeoutError:
            late = f"not everything has settled within {self._order.seconds:g} s"
            return "; ".join(part for part in (late, needed.trouble()) if part)
        return ""

    async def _connect(self, operator: Operator, needed: Needed) -> None:
        self._report("starting providers")
        count = await needed.started()
        while sum(isinstance(each, Handshake) for each in operator.directory.handshakes.values()) < count:
            await self._clock.sleep(_POLL_SECONDS)

    async def _settle(self, operator: Operator) -> None:
        while True:
            await self._clock.sleep(_POLL_SECONDS)
            if _is_busy(operator) or not self._cluster.is_idle:
                self._quiet_checks = 0
            self._quiet_checks += 1
            if self._quiet_checks < _QUIET_CHECKS:
                continue
            objects = await self._synced()
            states = [_ready(obj) for obj in objects]
            if not all(states) and self._quiet_checks < _PATIENT_CHECKS:
                continue
            if self._nudged or not self._backend.withheld.pushes:
                return
            # An object may have read a remote key before its push was planned.
            self._nudged = True
            self._quiet_checks = 0
            for obj in objects:
                self._read_again(operator, obj)

    def _read_again(self, operator: Operator, obj: JsonObject) -> None:
        """Let the operator read an ExternalSecret again, as if its backend had announced the push."""
        metadata = obj["metadata"]
        key = ObjectKey(str(metadata.get("namespace", "")), str(metadata["name"]))
        record = operator.memories.external_secrets.known(key, str(metadata["uid"]))
        if record is None:
            return
        record.notified_at = self._clock.monotonic()
        for controller in operator.controllers:
            if controller.name == Subsystem.EXTERNAL_SECRET:
                controller.queue.add(ReconcileRequest(key, "a push was planned"))

    async def _synced(self) -> list[JsonObject]:
        found: list[JsonObject] = []
        for kind in self._cluster.catalog:
            resource = kind.resource
            if (resource.group, resource.kind) in SYNCED and resource.version == kind.storage_version:
                found += (await self._cluster.list(kind, ListQuery())).items
        return found

    async def _result(self, client: Client, unsettled: str) -> Simulation:
        synced = await self._synced()
        after: dict[Place, JsonObject] = {}
        for kind in self._cluster.catalog:
            resource = kind.resource
            if (resource.group, resource.kind) not in SYNCED and "list" in kind.verbs:
                for obj in (await self._cluster.list(kind, ListQuery())).items:
                    metadata = obj["metadata"]
                    place = ((resource.group, resource.kind), str(metadata.get("namespace", "")), str(metadata["name"]))
                    after[place] = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        return Simulation(
            await gather(ListedObjects(client)),
            synced,
            self._seeder.before,
            after,
            self._backend.withheld,
            self._seeder.skipped,
            unsettled,
        )

    def _settings(self) -> Settings:
        flags = ["--kubeconfig", str(self._kubeconfig), "--core-namespace", CORE_NAMESPACE]
        flags += ["--live-addr", "127.0.0.1:0", "--metrics-addr", "0"]
        flags += [f"--expected-provider={service}={address}" for service, address in self._backend.services().items()]
        settings = parse([*flags, *self._order.operator_flags], os.environ)
        # A plan ends when nothing more happens, so objects must not wait for a provider that may start later.
        directory = DirectorySettings(again=ExponentialBackoff(first=0.1, cap=0.5), start=0.0, appear=0.0)
        tempo = replace(settings.providers.tempo, directory=directory)
        return replace(settings, providers=replace(settings.providers, tempo=tempo))

    def _note_change(self, change: Change) -> None:
        del change
        self._quiet_checks = 0


class ReadThrough:
    """The operator's way to the private API server. What it misses there is copied from the live objects first.

    Secrets of its `own` are not: the live ones hold keys of the operator in the cluster.
    """

    def __init__(
        self, inner: Transport, seeder: Seeder, tokens: Transport | None, own: frozenset[ObjectKey] = frozenset()
    ) -> None:
        self._inner = inner
        self._seeder = seeder
        self._tokens = tokens
        self._own = own | {ObjectKey(CORE_NAMESPACE, SEAL_SECRET)}

    async def request(self, request: Request) -> bytes:
        if self._tokens is not None and is_token_request(request):
            return await self._tokens.request(request)
        if request.method in ("POST", "PATCH", "PUT") and (child := _CHILDREN.match(request.path)):
            await self._prepare(child[1], request.body or b"")
        try:
            return await self._inner.request(request)
        except NotFound:
            wanted = _READABLE.match(request.path)
            if wanted is None or request.method != "GET" or ObjectKey(wanted[1], wanted[3]) in self._own:
                raise
            if not await self._seeder.fetch(Need("", _KINDS[wanted[2]], wanted[1], wanted[3])):
                raise
        return await self._inner.request(request)

    async def _prepare(self, namespace: str, body: bytes) -> None:
        """Copy what a child of a fan-out needs before it exists."""
        try:
            obj: Any = json.loads(body)
        except ValueError:
            return
        if isinstance(obj, dict) and identity(obj) in SYNCED and "spec" in obj:
            await self._seeder.fetch_needs(obj, namespace)

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._inner.stream(request)

    async def close(self) -> None:
        await self._inner.close()


def _is_busy(operator: Operator) -> bool:
    stats = [controller.queue.stats() for controller in operator.controllers]
    return any(each.running or any(each.depth.values()) for each in stats)


def _ready(obj: JsonObject) -> str:
    conditions = (obj.get("status") or {}).get("conditions") or []
    return next((str(each["status"]) for each in conditions if each.get("type") == "Ready"), "")
