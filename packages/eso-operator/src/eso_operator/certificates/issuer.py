"""The controller of the certificates of provider Services; its keys are Services.

    labelled Services, demands, our own Secrets -> key -> observe -> review -> write, issuer first -> report

A Service gets certificates if it has the label `external-secrets.io/provider: "true"` in a namespace where labels count
(`IssuerSettings.labelled_in`), if a store resolved to it (`demand`), or if it already has some. They are checked
at an interval (`--cert-interval`) and when a step is due; a review of the same Secrets is reused until then. After the
Service is deleted, its Secrets in the core namespace are deleted; the server's Secret is owned by the Service and
garbage-collected with it.

Writes use optimistic locking: of two operators that write at once, one gets a Conflict and plans again. A failure
becomes a `Problem` for the listeners; this module writes no status.

Required RBAC rules:
    services    get                                         namespaces of providers
    services    list, watch                                 the same, or the cluster
    secrets     get, create, patch                          namespaces of providers
    secrets     get, create, patch, delete                  core namespace
    secrets     list, watch (metadata, by label)            both
With `namespaces` in the settings a Side in each of them is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import structlog

from eso_operator.certificates import secrets
from eso_operator.certificates.problems import Problem, ProblemName, alias_problem
from eso_operator.certificates.secrets import (
    CLIENT,
    ISSUER,
    SERVER,
    CertificateOwner,
    SecretKeys,
    SecretMetadata,
    SecretObject,
)
from eso_operator.certificates.settings import IssuerSettings, identity_of
from eso_operator.certificates.state import Phase
from eso_operator.certificates.worker import (
    CertificateWorker,
    CertificateWorkerError,
    Review,
    ReviewRequest,
    SecretContent,
)
from eso_operator.stores.addresses import is_alias
from eso_operator.stores.resolved import ServiceKey
from kubebase.bounded import BoundedDict
from kubebase.clock import Clock, parse_rfc3339
from kubebase.meta import JsonObject, Object, ObjectKey, ObjectMeta, Resource, meta_of, metadata_of, raw
from kuberun.cache import Change
from kuberun.client import Client
from kuberun.controller import Backoff, Controller, Done, Requeue, Result
from kuberun.errors import AlreadyExists, ApiError, Conflict, NotFound
from kuberun.informer import Informer
from kuberun.ownership import owner_reference
from kuberun.requests import DeleteOptions, Selection, WriteOptions
from kuberun.triggers import itself
from kuberun.workqueue import Lane, ReconcileRequest

SERVICES: Final = Resource("", "v1", "services", "Service")
PROVIDER_LABEL: Final = "external-secrets.io/provider"
FIELD_MANAGER: Final = "external-secrets-certificates"

MAX_DEMANDED: Final = 4096
_MAX_ROUNDS: Final = 8
_SOONEST: Final = 1.0
_REVIEW_HOLDS: Final = timedelta(hours=6)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CertificateReport:
    """The state of the certificates of one Service. `expires_at` is that of the leaf that expires first."""

    service: ServiceKey
    problem: Problem | None = None
    phase: Phase | None = None
    expires_at: datetime | None = None


class Issuer:
    """The issuer. Add `controller` to a manager. `demand` may be called at any time on the event loop."""

    def __init__(
        self,
        client: Client,
        settings: IssuerSettings,
        *,
        clock: Clock,
        worker: CertificateWorker,
    ) -> None:
        self._client = client
        self._settings = settings
        self._clock = clock
        self._worker = worker
        self._reviews: BoundedDict[ServiceKey, _CachedReview] = BoundedDict(MAX_DEMANDED)
        self._listeners: list[Callable[[CertificateReport], None]] = []
        self._demanded: BoundedDict[ServiceKey, None] = BoundedDict(MAX_DEMANDED)
        self._problems: BoundedDict[ServiceKey, Problem] = BoundedDict(MAX_DEMANDED)
        self._granted: dict[str, set[ServiceKey]] = {}
        self.controller = Controller(
            "certificates", lambda key, _: self.reconcile(key), clock=clock, workers=settings.workers
        )
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
        """Issue certificates for a Service, even if it has no label."""
        self._demanded[service] = None
        self.controller.queue.add(ReconcileRequest(_key(service), "certificates are demanded", Lane.FIRST_SYNC))

    def listen(self, listener: Callable[[CertificateReport], None]) -> None:
        """Call the listener with a report after each check of a Service. It must not raise or block."""
        self._listeners.append(listener)

    def problem_of(self, service: ServiceKey) -> Problem | None:
        """Return the problem that the last check of a Service found; None if there was none."""
        return self._problems.get(service)

    async def reconcile(self, key: ObjectKey) -> Result:
        """Issue, renew or remove the three Secrets of one Service as due."""
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
            return Backoff("another process wrote a certificate Secret in between")
        except ApiError as error:
            self._report(CertificateReport(service, Problem(ProblemName.SECRET_NOT_WRITABLE, str(error))))
            return Backoff(f"the API server answered {error.reason or error.code}")
        except CertificateWorkerError as error:
            message = f"the certificates of Service {service} cannot be checked: {error}; it is tried again"
            self._report(CertificateReport(service, Problem(ProblemName.NOT_ISSUED, message)))
            return Backoff(str(error))

    # --- existing Services -------------------------------------------------------------------------------------------

    async def _maintain(self, service: ServiceKey, metadata: ObjectMeta) -> Result:
        for _ in range(_MAX_ROUNDS):
            stored = await self._read(secrets.keys_of(service, self._settings.core_namespace))
            if not self._wanted(service, metadata, stored):
                return Done()
            if not self._has_room(service):
                return self._refuse_more(service)
            if problem := _ownership_problem(stored, self._owner(service)):
                self._report(CertificateReport(service, problem))
                return Requeue(self._settings.interval, "check whether the Secret was removed")
            review = await self._review(service, stored)
            if not review.steps:
                self._report(CertificateReport(service, phase=review.phase, expires_at=review.expires_at))
                return Requeue(self._until(review.due), "certificates may be due")
            await self._store(review, stored, metadata)
        return Backoff("the certificates do not settle")

    async def _review(self, service: ServiceKey, stored: _Stored) -> Review:
        """Review the Secrets, or return the review of exactly these Secrets if nothing became due since."""
        now, versions = self._clock.now(), stored.versions
        cached = self._reviews.get(service)
        if cached is not None and cached.holds(versions, now):
            return cached.review
        request = ReviewRequest(stored.contents, now, self._settings.lifetimes, identity_of(service, self._settings))
        review = await self._worker.review(request)
        if not review.steps:
            self._reviews[service] = _CachedReview(review, versions, now)
        return review

    async def _store(self, review: Review, stored: _Stored, metadata: ObjectMeta) -> None:
        """Store the Secrets that the steps of a review changed; the issuer first."""
        service = ServiceKey(metadata.namespace, metadata.name)
        for step, reason in review.steps:
            _log.info("certificates change", service=str(service), step=step, reason=reason)
        for part in (ISSUER, SERVER, CLIENT):
            if (content := review.changed.get(part)) is not None:
                owned_by = owner_reference(SERVICES, metadata) if part == SERVER else None
                mark = SecretMetadata(part, self._owner(service), parse_rfc3339(content.written_at), owned_by)
                await self._write(stored, mark, content.data)

    async def _write(self, stored: _Stored, mark: SecretMetadata, data: dict[str, bytes]) -> None:
        key, existing = stored.keys.of(mark.part), stored.found.get(mark.part)
        options = WriteOptions(FIELD_MANAGER)
        if existing is None:
            await self._client.create(secrets.RAW_SECRETS, secrets.new_document(key, mark, data), options=options)
        else:
            patch = secrets.patch_of(existing, mark, data)
            await self._client.merge_patch(secrets.TYPED_SECRETS, key, patch, options=options)

    def _wanted(self, service: ServiceKey, metadata: ObjectMeta, stored: _Stored) -> bool:
        """Return whether a Service gets certificates: it is labelled, demanded, or has certificates already."""
        counts = self._settings.namespaced_providers or self._settings.is_shared(service.namespace)
        labelled = counts and metadata.labels.get(PROVIDER_LABEL) == "true"
        issuer = stored.found.get(ISSUER)
        served = issuer is not None and secrets.ownership_problem(issuer.metadata, ISSUER, self._owner(service)) is None
        return labelled or served or service in self._demanded

    def _has_room(self, service: ServiceKey) -> bool:
        """Return whether a Service of a tenant's namespace may have certificates. Services that have some keep them."""
        if self._settings.is_shared(service.namespace):
            return True
        held = self._granted.setdefault(service.namespace, set())
        held |= {found for found in self._stored_services() if found.namespace == service.namespace}
        if service not in held and len(held) >= self._settings.max_namespaced:
            return False
        held.add(service)
        return True

    def _stored_services(self) -> Iterator[ServiceKey]:
        """Yield the Services with Secrets in the core namespace; in other namespaces users could forge such Secrets."""
        for informer in self._certificates:
            for secret in informer.cache.objects():
                metadata = meta_of(secret)
                if metadata.namespace == self._settings.core_namespace and (found := secrets.service_of(metadata)):
                    yield found

    def _refuse_more(self, service: ServiceKey) -> Result:
        message = (
            f"Service {service} gets no certificates: {self._settings.max_namespaced} Services of its namespace have"
            " some already; delete one of them, or have the administrator raise --max-namespaced-providers"
        )
        self._report(CertificateReport(service, Problem(ProblemName.TOO_MANY_PROVIDERS, message)))
        return Requeue(self._settings.interval, "check whether another Service was deleted")

    def _refuse(self, service: ServiceKey) -> Result:
        message = (
            f"Service {service} gets no certificates: its namespace is not one of those that the operator serves"
            f" ({', '.join(self._settings.namespaces)})"
        )
        self._report(CertificateReport(service, Problem(ProblemName.NAMESPACE_NOT_ALLOWED, message)))
        return Done()

    def _refuse_alias(self, service: ServiceKey) -> Result:
        """CertificateReport that an ExternalName Service gets no certificate: its owner chooses the host."""
        self._report(CertificateReport(service, alias_problem(str(service))))
        return Requeue(self._settings.interval, "check whether it has become a Service with pods")

    def _until(self, due: datetime) -> float:
        seconds = (due - self._clock.now()).total_seconds()
        return min(max(seconds, _SOONEST), self._settings.interval)

    # --- deleted Services --------------------------------------------------------------------------------------------

    async def _remove(self, service: ServiceKey) -> Result:
        """Delete the Secrets in the core namespace. The server's Secret is garbage-collected with its Service."""
        stored = await self._read(secrets.keys_of(service, self._settings.core_namespace))
        self._granted.get(service.namespace, set()).discard(service)
        self._reviews.pop(service, None)
        for part in (CLIENT, ISSUER):
            secret = stored.found.get(part)
            if secret is not None and secrets.ownership_problem(secret.metadata, part, self._owner(service)) is None:
                await self._delete(secret.metadata)
        if service in self._demanded:
            message = f"Service {service} does not exist: create it, or correct the address in the store"
            self._report(CertificateReport(service, Problem(ProblemName.SERVICE_NOT_FOUND, message)))
        else:
            self._report(CertificateReport(service))  # no problem, and no certificate that expires
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
        """Read a Service from the API server: a stale cache must not cause the removal of certificates."""
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

    def _owner(self, service: ServiceKey) -> CertificateOwner:
        return CertificateOwner(service, self._settings.core_namespace)

    def _report(self, report: CertificateReport) -> None:
        if report.problem is None:
            self._problems.pop(report.service, None)
        else:
            if self._problems.get(report.service) != report.problem:
                _log.warning("certificates not in order", service=str(report.service), problem=report.problem.name)
            self._problems[report.service] = report.problem
        for listener in self._listeners:
            listener(report)


@dataclass(frozen=True, slots=True)
class _Stored:
    """The existing Secrets of one Service, by part."""

    keys: SecretKeys
    found: dict[str, SecretObject]

    @property
    def versions(self) -> dict[str, tuple[str, str]]:
        return {part: (each.metadata.uid, each.metadata.resource_version) for part, each in self.found.items()}

    @property
    def contents(self) -> dict[str, SecretContent]:
        return {
            part: SecretContent(each.data, each.metadata.annotations.get(secrets.WRITTEN_ANNOTATION, ""))
            for part, each in self.found.items()
        }


@dataclass(frozen=True, slots=True)
class _CachedReview:
    """A review that found nothing to do, and the versions of the Secrets that it is about."""

    review: Review
    versions: dict[str, tuple[str, str]]
    at: datetime

    def holds(self, versions: dict[str, tuple[str, str]], now: datetime) -> bool:
        """Return whether a new review would find the same. Not for long, in case a due time is ever wrong."""
        return self.versions == versions and self.at <= now < min(self.review.due, self.at + _REVIEW_HOLDS)


def _ownership_problem(stored: _Stored, owner: CertificateOwner) -> Problem | None:
    verdicts = (secrets.ownership_problem(secret.metadata, part, owner) for part, secret in stored.found.items())
    return next((problem for problem in verdicts if problem is not None), None)


def _service_of_secret(change: Change[Object]) -> Iterable[ReconcileRequest]:
    """Return requests for the Services of a created, changed or deleted Secret."""
    states: list[Any] = [state for state in (change.old, change.new) if state is not None]
    services = {service for state in states if (service := secrets.service_of(meta_of(state))) is not None}
    return [ReconcileRequest(_key(service), f"Secret {change.key} changed") for service in services]


def _key(service: ServiceKey) -> ObjectKey:
    return ObjectKey(service.namespace, service.name)


def _with_core(settings: IssuerSettings) -> tuple[str, ...]:
    return tuple(dict.fromkeys((settings.core_namespace, *settings.namespaces))) if settings.namespaces else ()


def _selections(labels: str, namespaces: tuple[str, ...]) -> list[tuple[Selection, str]]:
    """Return one selection for each namespace, or one for the cluster."""
    return [(Selection(name, label_selector=labels), f" in {name}") for name in namespaces] or [
        (Selection(label_selector=labels), "")
    ]
