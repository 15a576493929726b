"""The client certificates of channels to providers.

    ManagedTls -> client Secret of the issuer, in the core namespace            informer: changes are seen at once
               -> or a folder, for a supervised process (`local.py`)            read again after `fresh` seconds
    SecretTls  -> a Secret of the user: tls.crt, tls.key, ca.crt                read again after `fresh` seconds

Material is returned only if it parses, its key fits, and it is valid now; otherwise a `CertificateError` names the
problem. Material is shared, never copied. All caches are bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn, assert_never

import structlog

from eso_api.values import SecretBytes
from eso_operator.certificates import secrets
from eso_operator.certificates.issuer import CertificateReport, Issuer
from eso_operator.certificates.problems import CertificateError, Problem, ProblemName
from eso_operator.certificates.secrets import SecretObject
from eso_operator.certificates.state import MAX_PEM_BYTES, Window, timing_problem
from eso_operator.stores.resolved import ManagedTls, SecretTls, ServiceKey, TlsSource
from eso_wire.tls import Fit, TlsMaterial, TlsMaterialError, are_certificates, fit, load_material
from kubebase.bounded import BoundedDict, ExpiringDict
from kubebase.clock import Clock
from kubebase.deadline import happens_within
from kubebase.meta import Malformed, ObjectKey
from kuberun.client import Client
from kuberun.errors import ApiError, Forbidden, NotFound
from kuberun.informer import Informer
from kuberun.requests import Selection

FAILURE_SECONDS: Final = 2.0
KEYS: Final = (secrets.CERTIFICATE, secrets.KEY, secrets.TRUST)

_log = structlog.get_logger(__name__)

Changed = Callable[[TlsSource, str], None]
"""Called with a source and the fingerprint of its new material."""


@dataclass(frozen=True, slots=True)
class ClientCertificateSettings:
    """Settings of `ClientCertificates`, times in seconds.

    The first use of a provider waits up to `wait` for certificates. A read of a user's Secret or folder is cached for
    `fresh`. `folders` hold the client certificates for supervised processes.
    """

    core_namespace: str
    wait: float = 5.0
    fresh: float = 10.0
    entries: int = 1024
    folders: Mapping[ServiceKey, Path] = field(default_factory=dict)


def client_secrets(client: Client, core_namespace: str, clock: Clock) -> Informer[SecretObject]:
    """Return the informer for `ClientCertificates`, which reads only the client Secrets that we issued."""
    selection = Selection(
        core_namespace, label_selector=f"{secrets.ours(core_namespace)},{secrets.PART_LABEL}={secrets.CLIENT}"
    )
    return Informer(client.source(secrets.TYPED_SECRETS, selection), clock=clock, name="client certificates")


class ClientCertificates:
    """The client certificates. Add `run` and `informer` to the manager; the leader and standbys both need them."""

    def __init__(
        self,
        client: Client,
        informer: Informer[SecretObject],
        settings: ClientCertificateSettings,
        *,
        clock: Clock,
        issuer: Issuer,
    ) -> None:
        self.informer = informer
        self._client = client
        self._settings = settings
        self._clock = clock
        self._issuer = issuer
        self._changes = informer.subscribe()
        self._waiting: dict[ObjectKey, set[asyncio.Event]] = {}
        self._loaded: BoundedDict[TlsSource, _Loaded] = BoundedDict(settings.entries)
        self._failed: ExpiringDict[TlsSource, Problem] = ExpiringDict(settings.entries, clock)
        self._reading: dict[TlsSource, asyncio.Lock] = {}
        self._listeners: list[Changed] = []
        self._issuer.listen(self._wake_if_refused)

    def listen(self, listener: Changed) -> None:
        """Call the listener when the material of a source in use changes. It must not raise or block."""
        self._listeners.append(listener)

    async def of(self, tls: TlsSource) -> TlsMaterial:
        """Return checked material. Raises CertificateError."""
        match tls:
            case ManagedTls(service=service) if service in self._settings.folders:
                material = await self._reread(tls)
            case ManagedTls():
                material = await self._managed(tls)
            case SecretTls():
                material = await self._reread(tls)
            case _:
                assert_never(tls)
        valid = Window(material.valid_from, material.expires_at)
        if problem := timing_problem(valid, self._clock.now(), ProblemName.CLIENT_CERT_EXPIRED):
            raise CertificateError(Problem(problem.name, f"{_described(tls)}: {problem.message}"))
        return material

    async def run(self) -> NoReturn:
        """Process changes of the informer until cancelled."""
        while True:
            for change in await self._changes.take():
                secret = change.new
                service = secrets.service_of(secret.metadata) if isinstance(secret, SecretObject) else None
                # The folder of a Service takes precedence over issued certificates.
                if isinstance(secret, SecretObject) and service and service not in self._settings.folders:
                    self._load(ManagedTls(service), secret)
                self._wake(change.key)

    # --- managed -----------------------------------------------------------------------------------------------------

    async def _managed(self, tls: ManagedTls) -> TlsMaterial:
        secret = self._stored(tls) or await self._awaited(tls)
        loaded = self._loaded.use(tls)
        if loaded is None or loaded.version != secret.metadata.resource_version:
            loaded = self._load(tls, secret)
        if loaded is None:
            raise CertificateError(_content_problem(tls, secret.data) or _not_issued(tls))
        return loaded.material

    def _stored(self, tls: ManagedTls) -> SecretObject | None:
        found = self.informer.cache.get(self._key(tls))
        if found is None or isinstance(found, Malformed):
            return None
        return found if secrets.service_of(found.metadata) == tls.service else None

    async def _awaited(self, tls: ManagedTls) -> SecretObject:
        """Demand certificates and wait for them: the first use of a provider precedes its certificates."""
        self._issuer.demand(tls.service)
        if not self._issuer.problem_of(tls.service):
            await self._wait_for_change(self._key(tls))
        if (secret := self._stored(tls)) is not None:
            return secret
        raise CertificateError(self._issuer.problem_of(tls.service) or _not_issued(tls))

    async def _wait_for_change(self, key: ObjectKey) -> None:
        """Wait until the Secret changes, the issuer refuses, or the time is over."""
        changed = asyncio.Event()
        waiting = self._waiting.setdefault(key, set())
        waiting.add(changed)
        try:
            await happens_within(self._clock, self._settings.wait, changed)
        finally:
            waiting.discard(changed)
            if not waiting and self._waiting.get(key) is waiting:
                del self._waiting[key]

    def _wake_if_refused(self, report: CertificateReport) -> None:
        """Stop waiting for certificates that the issuer refuses."""
        if report.problem is not None:
            self._wake(self._key(ManagedTls(report.service)))

    def _wake(self, key: ObjectKey) -> None:
        for changed in self._waiting.get(key, ()):
            changed.set()

    def _load(self, tls: ManagedTls, secret: SecretObject) -> _Loaded | None:
        if _content_problem(tls, secret.data) is not None:
            return None
        return self._remember(tls, _material(secret.data), secret.metadata.resource_version)

    def _key(self, tls: ManagedTls) -> ObjectKey:
        return secrets.keys_of(tls.service, self._settings.core_namespace).client

    # --- the user's own, and folders ---------------------------------------------------------------------------------

    async def _reread(self, tls: TlsSource) -> TlsMaterial:
        """Return fresh material or read it again; concurrent callers share one read."""
        if material := self._recent(tls):
            return material
        lock = self._reading.setdefault(tls, asyncio.Lock())
        try:
            async with lock:
                return self._recent(tls) or await self._read(tls)
        except CertificateError as error:
            self._fail(tls, error.problem)
            raise
        finally:
            if not lock.locked():
                self._reading.pop(tls, None)

    async def _read(self, tls: TlsSource) -> TlsMaterial:
        match tls:
            case ManagedTls(service=service):
                material, version = await self._in_folder(tls, self._settings.folders[service]), ""
            case SecretTls():
                material, version = await self._of_user_or_before(tls)
            case _:
                assert_never(tls)
        return self._remember(tls, material, version).material

    def _recent(self, tls: TlsSource) -> TlsMaterial | None:
        """Return the material of the last read, or raise its failure, if it is fresh; else return None."""
        if (problem := self._failed.get(tls)) is not None:
            raise CertificateError(problem)
        loaded = self._loaded.get(tls)
        if loaded is None or loaded.read_at + self._settings.fresh <= self._clock.monotonic():
            return None
        self._loaded.use(tls)
        return loaded.material

    async def _of_user_or_before(self, tls: SecretTls) -> tuple[TlsMaterial, str]:
        """Read the user's Secret; while the API server cannot be reached, keep using the last material."""
        try:
            return await self._of_user(tls)
        except CertificateError as error:
            loaded = self._loaded.get(tls)
            if loaded is None or error.problem.name is not ProblemName.SECRET_UNREADABLE:
                raise
            return loaded.material, loaded.version

    async def _of_user(self, tls: SecretTls) -> tuple[TlsMaterial, str]:
        key = ObjectKey(tls.namespace, tls.name)
        try:
            secret = await self._client.get(secrets.TYPED_SECRETS, key)
        except NotFound:
            hint = "create it, or remove the reference to use managed certificates"
            raise CertificateError(
                Problem(ProblemName.SECRET_NOT_FOUND, f"Secret {key} with client certificates does not exist: {hint}")
            ) from None
        except ApiError as error:
            hint = "grant the operator `get` on it" if isinstance(error, Forbidden) else "it is tried again"
            raise CertificateError(
                Problem(ProblemName.SECRET_UNREADABLE, f"Secret {key} cannot be read ({error.reason}): {hint}")
            ) from error
        if problem := _content_problem(tls, secret.data):
            raise CertificateError(problem)
        return _material(secret.data), secret.metadata.resource_version

    async def _in_folder(self, tls: ManagedTls, folder: Path) -> TlsMaterial:
        try:
            return await asyncio.to_thread(load_material, folder)
        except TlsMaterialError as error:
            message = f"{_described(tls)}: {error}"
            raise CertificateError(Problem(ProblemName.NOT_ISSUED, message)) from error

    def _fail(self, tls: TlsSource, problem: Problem) -> None:
        """Cache a failure, so that all users of a broken Secret together cause one read in `FAILURE_SECONDS`."""
        if tls not in self._failed:
            self._failed.put(tls, problem, FAILURE_SECONDS)

    # --- loaded certificates -----------------------------------------------------------------------------------------

    def _remember(self, tls: TlsSource, material: TlsMaterial, version: str) -> _Loaded:
        before = self._loaded.get(tls)
        if before is not None and before.material.fingerprint == material.fingerprint:
            material = before.material
        loaded = self._loaded[tls] = _Loaded(material, version, self._clock.monotonic())
        if before is not None and before.material is not material:
            _log.info(
                "certificates have changed",
                source=_described(tls),
                expires=material.expires_at.isoformat(timespec="seconds"),
            )
            for listener in self._listeners:
                listener(tls, material.fingerprint)
        return loaded


@dataclass(frozen=True, slots=True)
class _Loaded:
    material: TlsMaterial = field(repr=False)
    version: str
    read_at: float


def _material(data: Mapping[str, bytes]) -> TlsMaterial:
    return TlsMaterial(
        ca=data[secrets.TRUST], certificate=data[secrets.CERTIFICATE], key=SecretBytes(data[secrets.KEY])
    )


def _content_problem(tls: TlsSource, data: Mapping[str, bytes]) -> Problem | None:
    """Return what is wrong with the content of the three keys; expiry is checked elsewhere."""
    where = _described(tls)
    if missing := [key for key in KEYS if not data.get(key)]:
        hint = f"it needs {', '.join(KEYS)}, as a Secret of cert-manager has"
        return Problem(ProblemName.SECRET_KEY_MISSING, f"{where} lacks {', '.join(missing)}: {hint}")
    for key in (secrets.CERTIFICATE, secrets.TRUST):
        if len(data[key]) > MAX_PEM_BYTES or not are_certificates(data[key]):
            return Problem(ProblemName.MALFORMED, f"{where}: {key} holds no PEM certificates")
    if fit(data[secrets.CERTIFICATE], data[secrets.KEY]) is not Fit.FITS:
        message = f"{where}: {secrets.KEY} is not the key of {secrets.CERTIFICATE}, or not an unencrypted PEM key"
        return Problem(ProblemName.KEY_MISMATCH, message)
    return None


def _not_issued(tls: ManagedTls) -> Problem:
    message = (
        f"no client certificate is issued for Service {tls.service} yet: see that the operator's issuer runs and may"
        f" write Secrets in the namespaces of the operator and of the Service"
    )
    return Problem(ProblemName.NOT_ISSUED, message)


def _described(tls: TlsSource) -> str:
    match tls:
        case ManagedTls(service=service):
            return f"managed client certificate of Service {service}"
        case SecretTls(namespace=namespace, name=name):
            return f"Secret {namespace}/{name}"
        case _:
            assert_never(tls)
