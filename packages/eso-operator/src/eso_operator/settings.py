"""What the process was told at start: one frozen value, read once. `flags.py` makes it from the command line.

Nothing here reads the environment or a file; times are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from eso_operator.certs.bundle import Lifetimes
from eso_operator.providers.directory import DirectorySettings
from eso_operator.providers.settings import RuntimeSettings
from eso_operator.providers.weights import OBJECT_BYTES, TOTAL_BYTES
from eso_operator.stores.target import ServiceKey
from eso_operator.sync.floor import SHORTEST_INTERVAL
from eso_operator.sync.pace import PaceSettings
from eso_operator.telemetry.settings import Listener, LogSettings, MetricsSettings
from eso_render.workers import WorkerSettings
from kuberun.backoff import Backoff


class SettingsError(ValueError):
    """Settings the process cannot start with; the message names the flag and says what to write instead."""


class FeatureGate(StrEnum):
    """Behaviour that is off unless `--feature-gates` turns it on."""

    UNIX_SOCKET_PROVIDERS = "UnixSocketProviders"
    """Providers on Unix sockets of the same machine; TLS stays mandatory."""
    PROVIDER_NAMING_CONVENTION = "ProviderNamingConvention"
    """Providers found by the name of their Service."""


@dataclass(frozen=True, slots=True)
class LeaderSettings:
    enabled: bool = False
    lease: str = "external-secrets-controller"
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0


@dataclass(frozen=True, slots=True)
class Reconcilers:
    """Which controllers run."""

    secret_store: bool = True
    cluster_store: bool = True
    push_secret: bool = True
    cluster_push_secret: bool = True
    cluster_external_secret: bool = True
    generator_state: bool = True


@dataclass(frozen=True, slots=True)
class Tempo:
    """How patient the operator is with provider processes. No flag changes it."""

    runtime: RuntimeSettings = field(default_factory=RuntimeSettings)
    directory: DirectorySettings = field(default_factory=lambda: DirectorySettings(again=Backoff(first=1.0, cap=10.0)))
    pace: PaceSettings = field(default_factory=PaceSettings)


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """Which provider processes may be reached, and how they are found."""

    namespaces: tuple[str, ...] = ()
    """Besides the core namespace: where labelled Services are providers for everybody."""
    namespaced: bool = False
    """Whether every other namespace may have providers of its own, for itself alone."""
    max_namespaced: int = 10
    """Services of one such namespace that may have certificates."""
    allowed_addresses: tuple[str, ...] = ()
    trusted: tuple[tuple[ServiceKey, str], ...] = ()
    """Services whose provider listens somewhere else, say on loopback: `(service, host:port)`."""
    expected: tuple[tuple[ServiceKey, str], ...] = ()
    """The same for providers that may start later: each counts as a provider once its Service exists."""
    client_folders: tuple[tuple[ServiceKey, Path], ...] = ()
    """Services whose client certificates are in a folder (`tls.crt`, `tls.key`, `ca.crt`) instead of a Secret."""
    cluster_domain: str = "cluster.local"
    tempo: Tempo = field(default_factory=Tempo)


@dataclass(frozen=True, slots=True)
class CertificateSettings:
    """Certificates issued for providers; `interval` is the time between two looks at all of them."""

    trust_domain: str = "cluster.local"
    lifetimes: Lifetimes = field(default_factory=Lifetimes)
    interval: float = 600.0


@dataclass(frozen=True, slots=True)
class SyncSettings:
    """What syncing ExternalSecrets and PushSecrets goes by."""

    flood_gate: bool = True
    generic_targets: bool = False
    left_delimiter: str = "{{"
    right_delimiter: str = "}}"
    generator_grace: float = 120.0
    push_refresh_multiplier: float = 1.0
    """How much longer the interval is for what hears of every change."""
    shortest_interval: float = SHORTEST_INTERVAL
    """An ExternalSecret or PushSecret refreshes no more often than this, whatever it says."""
    workers: WorkerSettings = field(default_factory=WorkerSettings)
    """The processes that templates and patterns go to which may be slow."""


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """What one object, or all of them, may cost the operator."""

    object_bytes: int = OBJECT_BYTES
    """Values that one object may read."""
    total_bytes: int = TOTAL_BYTES
    """Values that all objects may hold at a time."""
    call_timeout: float = 300.0
    """The most that a store may ask for in `timeouts.call`."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything. `ignored` holds flags that were given and mean nothing here, with the reason, to be logged once."""

    kubeconfig: Path | None = None
    context: str = ""
    core_namespace: str = "external-secrets"
    namespace: str = ""
    controller_class: str = "default"
    workers: int = 1
    store_interval: float = 300.0
    live: Listener = field(default_factory=lambda: Listener("", 8082))
    logs: LogSettings = field(default_factory=LogSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    leader: LeaderSettings = field(default_factory=LeaderSettings)
    reconcilers: Reconcilers = field(default_factory=Reconcilers)
    providers: ProviderSettings = field(default_factory=ProviderSettings)
    certificates: CertificateSettings = field(default_factory=CertificateSettings)
    sync: SyncSettings = field(default_factory=SyncSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    gates: frozenset[FeatureGate] = frozenset()
    ignored: tuple[tuple[str, str], ...] = ()

    @property
    def namespaces(self) -> tuple[str, ...]:
        """All that an operator of one namespace has to do with: that, its own, the providers'. Empty: the cluster."""
        if not self.namespace:
            return ()
        return tuple(dict.fromkeys((self.namespace, self.core_namespace, *self.providers.namespaces)))
