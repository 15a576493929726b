"""The controller that keeps the certificates of every provider Service: its keys are Services.

    labelled Services, demands, our own Secrets -> key -> observe -> plan -> write, issuer first -> report

A Service gets certificates when it carries the label `external-secrets.io/provider: "true"` where labels count
(`CertificateSettings.labelled_in`), when a store resolved to it (`demand`), or when it has some already. They are
looked at every ten minutes, and when something is due. Once the Service is gone, what we stored for it in the core
namespace is deleted; the server's Secret is owned by the Service and collected with it.

Every write names the version that it follows, so two operators that plan at once do not undo each other: the later one
is refused and looks again. What cannot be done becomes a `Problem` given to listeners; this module writes no status.

Needs these rights:
    services    get                                         namespaces of providers
    services    list, watch                                 the same, or the cluster
    secrets     get, create, patch                          namespaces of providers
    secrets     get, create, patch, delete                  core namespace
    secrets     list, watch (metadata, by label)            both
With `namespaces` in the settings a Role in each of them is enough.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import structlog

from eso_operator.certs import secrets
from eso_operator.certs.authority import validity_of
from eso_operator.certs.bundle import IssueLeaf, Phase, Plan, State, plan
from eso_operator.certs.issuance import carry_out
from eso_operator.certs.problems import Problem, ProblemName, alias_problem
from eso_operator.certs.secrets import CLIENT, ISSUER, SERVER, Mark, Owner, SecretKeys, SecretObject
from eso_operator.certs.settings import CertificateSettings, identity_of
from eso_operator.stores.addresses import is_alias
from eso_operator.stores.target import ServiceKey
from kuberun.cache import Change
from kuberun.client import Client
from kuberun.clock import Clock
from kuberun.controller import After, Controller, Done, Outcome, Retry
from kuberun.errors import AlreadyExists, ApiError, Conflict, NotFound
from kuberun.informer import Informer
from kuberun.meta import JsonObject, Object, ObjectKey, ObjectMeta, Resource, meta_of, metadata_of, raw
from kuberun.ownership import owner_reference
from kuberun.requests import DeleteOptions, Selection, WriteOptions
from kuberun.triggers import itself
from kuberun.workqueue import Lane, Request

SERVICES: Final = Resource("", "v1", "services", "Service")
PROVIDER_LABEL: Final = "external-secrets.io/provider"
FIELD_MANAGER: Final = "external-secrets-certificates"

MAX_DEMANDED: Final = 4096
_MAX_ROUNDS: Final = 8
_SOONEST: Final = 1.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Report:
    """How the certificates of one Service are. `expires_at` is the end of the first leaf to end."""

    service: ServiceKey
    problem: Problem | None = None
    phase: Phase | None = None
    expires_at: datetime | None = None


Listener = Callable[[Report], None]


class Issuer:
    """Add `controller` to a manager. `demand` may be called at any time, from anywhere in the loop."""

    def __init__(
        self, client: Client, settings: CertificateSettings, *, clock: Clock, listener: Listener | None = None
    ) -> None:
        self._client = client
        self._settings = settings
        self._clock = clock
        self._listeners: list[Listener] = [] if listener is None else [listener]
        self._demanded: OrderedDict[ServiceKey, None] = OrderedDict()
        self._problems: OrderedDict[ServiceKey, Problem] = OrderedDict()
        self._granted: dict[str, set[ServiceKey]] = {}
        self.controller = Controller("certificates", self.reconcile, clock=clock, workers=settings.workers)
        services = [
            Informer(client.source(metadata_of(SERVICES), selection), clock=clock, name=f"services{suffix}")
            for selection, suffix in _selections(f"{PROVIDER_LABEL}=true", settings.labelled_in)
        ]
        self._certificates = [
            Informer(client.source(metadata_of(secrets.SECRETS), selection), clock=clock, name=f"certificates{suffix}")
            for selection, suffix in _selections(secrets.ours(settings.core_namespace), _with_core(settings))
        ]
        for informer in services:
            self.controller.watch(informer, itself())
        for informer in self._certificates:
            self.controller.watch(informer, _service_of_secret)

    def demand(self, service: ServiceKey) -> None:
        """Somebody needs certificates of this Service now, label or not."""
        self._demanded[service] = None
        self._demanded.move_to_end(service)
        while len(self._demanded) > MAX_DEMANDED:
            self._demanded.popitem(last=False)
        self.controller.queue.add(Request(_key(service), "certificates are demanded", Lane.FIRST_SYNC))

    def listen(self, listener: Listener) -> None:
        """Have it told how a Service's certificates are, each time they were looked at. It must not raise nor wait."""
        self._listeners.append(listener)

    def problem_of(self, service: ServiceKey) -> Problem | None:
        """What stood in the way when this Service was looked at last."""
        return self._problems.get(service)

    async def reconcile(self, key: ObjectKey) -> Outcome:
        """Make the three Secrets of one Service what they should be by now."""
        service = ServiceKey(key.namespace, key.name)
        try:
            found = await self._service(key)
            if found is None:
                return await self._remove(service)
            metadata = meta_of(found)
            if is_alias(found):
                return self._refuse_alias(service)
            if not self._settings.allows(key.namespace):
                return self._refuse(service)
            return await self._maintain(service, metadata)
        except (Conflict, AlreadyExists):
            return Retry("somebody else wrote a certificate Secret in between")
        except ApiError as error:
            self._report(Report(service, Problem(ProblemName.SECRET_NOT_WRITABLE, str(error))))
            return Retry(f"the API server answered {error.reason or error.code}")

    # --- a Service that is there -------------------------------------------------------------------------------------

    async def _maintain(self, service: ServiceKey, metadata: ObjectMeta) -> Outcome:
        for _ in range(_MAX_ROUNDS):
            stored = await self._read(secrets.keys_of(service, self._settings.core_namespace))
            if not self._wanted(service, metadata, stored):
                return Done()
            if not self._has_room(service):
                return self._refuse_more(service)
            if problem := _foreign(stored, self._owner(service)):
                self._report(Report(service, problem))
                return After(self._settings.interval, "look whether the Secret is out of the way")
            state = _state(stored)
            due = plan(state, self._clock.now(), self._settings.lifetimes, identity_of(service, self._settings))
            if not due.steps:
                self._report(_good(service, state))
                return After(self._until(due.due), "certificates may be due")
            await self._carry_out(due, state, stored, metadata)
        return Retry("the certificates do not settle")

    async def _carry_out(self, due: Plan, state: State, stored: _Stored, metadata: ObjectMeta) -> None:
        """Do the steps and store what they changed, the issuer before all others."""
        service, now = ServiceKey(metadata.namespace, metadata.name), self._clock.now()
        owner = self._owner(service)
        after = state
        for step in due.steps:
            reason = step.reason if isinstance(step, IssueLeaf) else ""
            _log.info("certificates change", service=str(service), step=type(step).__name__, reason=reason)
            after = carry_out(step, after, now, self._settings.lifetimes, identity_of(service, self._settings))
        if after.issuer is not None and after.issuer is not state.issuer:
            await self._write(stored, Mark(ISSUER, owner, now), secrets.issuer_data(after.issuer))
        if after.server is not None and after.server is not state.server:
            mark = Mark(SERVER, owner, after.server.written_at, owner_reference(SERVICES, metadata))
            await self._write(stored, mark, secrets.leaf_data(after.server))
        if after.client is not None and after.client is not state.client:
            await self._write(stored, Mark(CLIENT, owner, after.client.written_at), secrets.leaf_data(after.client))

    async def _write(self, stored: _Stored, mark: Mark, data: dict[str, bytes]) -> None:
        key, existing = stored.keys.of(mark.part), stored.found.get(mark.part)
        options = WriteOptions(FIELD_MANAGER)
        if existing is None:
            await self._client.create(secrets.RAW_SECRETS, secrets.new_document(key, mark, data), options=options)
        else:
            patch = secrets.patch_of(existing, mark, data)
            await self._client.merge_patch(secrets.TYPED_SECRETS, key, patch, options=options)

    def _wanted(self, service: ServiceKey, metadata: ObjectMeta, stored: _Stored) -> bool:
        """Labelled, demanded, or served before: who has certificates once can rely on their renewal."""
        counts = self._settings.namespaced_providers or self._settings.is_shared(service.namespace)
        labelled = counts and metadata.labels.get(PROVIDER_LABEL) == "true"
        issuer = stored.found.get(ISSUER)
        served = issuer is not None and secrets.ownership_problem(issuer.metadata, ISSUER, self._owner(service)) is None
        return labelled or served or service in self._demanded

    def _has_room(self, service: ServiceKey) -> bool:
        """Whether one more Service of a tenant's namespace may have certificates; who has them keeps them."""
        if self._settings.is_shared(service.namespace):
            return True
        held = self._granted.setdefault(service.namespace, set())
        held |= {found for found in self._stored_services() if found.namespace == service.namespace}
        if service not in held and len(held) >= self._settings.max_namespaced:
            return False
        held.add(service)
        return True

    def _stored_services(self) -> Iterator[ServiceKey]:
        """Services that have Secrets in the core namespace. Elsewhere anybody can write what looks like one."""
        for informer in self._certificates:
            for secret in informer.store.objects():
                metadata = meta_of(secret)
                if metadata.namespace == self._settings.core_namespace and (found := secrets.service_of(metadata)):
                    yield found

    def _refuse_more(self, service: ServiceKey) -> Outcome:
        message = (
            f"Service {service} gets no certificates: {self._settings.max_namespaced} Services of its namespace have"
            " some already; delete one of them, or have the administrator raise --max-namespaced-providers"
        )
        self._report(Report(service, Problem(ProblemName.TOO_MANY_PROVIDERS, message)))
        return After(self._settings.interval, "look whether another Service has gone")

    def _refuse(self, service: ServiceKey) -> Outcome:
        message = (
            f"Service {service} gets no certificates: its namespace is none of those the operator serves"
            f" ({', '.join(self._settings.namespaces)})"
        )
        self._report(Report(service, Problem(ProblemName.NAMESPACE_NOT_ALLOWED, message)))
        return Done()

    def _refuse_alias(self, service: ServiceKey) -> Outcome:
        """Report that an ExternalName Service gets no certificate: its owner chooses the host."""
        self._report(Report(service, alias_problem(str(service))))
        return After(self._settings.interval, "look whether it has become a Service with pods")

    def _until(self, due: datetime) -> float:
        seconds = (due - self._clock.now()).total_seconds()
        return min(max(seconds, _SOONEST), self._settings.interval)

    # --- a Service that is gone --------------------------------------------------------------------------------------

    async def _remove(self, service: ServiceKey) -> Outcome:
        """Delete what nobody else will: the Secrets in the core namespace. The server's is the Service's own."""
        stored = await self._read(secrets.keys_of(service, self._settings.core_namespace))
        self._granted.get(service.namespace, set()).discard(service)
        for part in (CLIENT, ISSUER):
            secret = stored.found.get(part)
            if secret is not None and secrets.ownership_problem(secret.metadata, part, self._owner(service)) is None:
                await self._delete(secret.metadata)
        if service in self._demanded:
            message = f"Service {service} does not exist: create it, or correct the address in the store"
            self._report(Report(service, Problem(ProblemName.SERVICE_NOT_FOUND, message)))
        else:
            self._report(Report(service))  # nothing is wrong, and nothing ends any more
        return Done()

    async def _delete(self, metadata: ObjectMeta) -> None:
        options = DeleteOptions(uid=metadata.uid, resource_version=metadata.resource_version)
        try:
            await self._client.delete(secrets.TYPED_SECRETS, metadata.key, options)
        except NotFound:
            return
        _log.info("certificates removed", secret=str(metadata.key))

    # --- reading and reporting ---------------------------------------------------------------------------------------

    async def _service(self, key: ObjectKey) -> JsonObject | None:
        """Asked of the server itself: a cache that is behind must not cost anybody their certificates."""
        try:
            found = await self._client.get(raw(SERVICES), key)
        except NotFound:
            return None
        return None if meta_of(found).deletion_timestamp else found

    async def _read(self, keys: SecretKeys) -> _Stored:
        found = {}
        for part, key in keys.parts():
            try:
                found[part] = await self._client.get(secrets.TYPED_SECRETS, key)
            except NotFound:
                continue
        return _Stored(keys, found)

    def _owner(self, service: ServiceKey) -> Owner:
        return Owner(service, self._settings.core_namespace)

    def _report(self, report: Report) -> None:
        if report.problem is None:
            self._problems.pop(report.service, None)
        else:
            if self._problems.get(report.service) != report.problem:
                _log.warning("certificates not in order", service=str(report.service), problem=report.problem.name)
            self._problems[report.service] = report.problem
            self._problems.move_to_end(report.service)
            while len(self._problems) > MAX_DEMANDED:
                self._problems.popitem(last=False)
        for listener in self._listeners:
            listener(report)


@dataclass(frozen=True, slots=True)
class _Stored:
    """The Secrets of one Service as they were read; by part, those that are there."""

    keys: SecretKeys
    found: dict[str, SecretObject]


def _foreign(stored: _Stored, owner: Owner) -> Problem | None:
    verdicts = (secrets.ownership_problem(secret.metadata, part, owner) for part, secret in stored.found.items())
    return next((problem for problem in verdicts if problem is not None), None)


def _state(stored: _Stored) -> State:
    issuer, server, client = (stored.found.get(part) for part in (ISSUER, SERVER, CLIENT))
    return State(
        issuer=None if issuer is None else secrets.issuer_of(issuer.data),
        server=None if server is None else secrets.leaf_of(server.data, _written(server)),
        client=None if client is None else secrets.leaf_of(client.data, _written(client)),
    )


def _written(secret: SecretObject) -> str:
    return secret.metadata.annotations.get(secrets.WRITTEN_ANNOTATION, "")


def _good(service: ServiceKey, state: State) -> Report:
    ends = [validity_of(leaf.credential.certificate).not_after for leaf in state.leaves]
    return Report(
        service, phase=None if state.issuer is None else state.issuer.phase, expires_at=min(ends, default=None)
    )


def _service_of_secret(change: Change[Object]) -> Iterable[Request]:
    """The Service whose Secret came, changed or went."""
    states: list[Any] = [state for state in (change.old, change.new) if state is not None]
    services = {service for state in states if (service := secrets.service_of(meta_of(state))) is not None}
    return [Request(_key(service), f"Secret {change.key} changed") for service in services]


def _key(service: ServiceKey) -> ObjectKey:
    return ObjectKey(service.namespace, service.name)


def _with_core(settings: CertificateSettings) -> tuple[str, ...]:
    return tuple(dict.fromkeys((settings.core_namespace, *settings.namespaces))) if settings.namespaces else ()


def _selections(labels: str, namespaces: tuple[str, ...]) -> list[tuple[Selection, str]]:
    """One selection for each namespace, or one for the cluster."""
    return [(Selection(name, label_selector=labels), f" in {name}") for name in namespaces] or [
        (Selection(label_selector=labels), "")
    ]
