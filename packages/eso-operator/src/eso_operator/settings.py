"""The settings of the process as one frozen value, and the settings of its parts, which are derived from it.

`flags.py` makes `Settings` from the command line. This module reads neither the environment nor files. Times are in
seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from eso_operator.build import this_build
from eso_operator.certificates.settings import IssuerSettings
from eso_operator.certificates.state import Lifetimes
from eso_operator.changes.pace import PaceSettings
from eso_operator.controllers.refresh import SHORTEST_INTERVAL
from eso_operator.providers.bytelimits import OBJECT_BYTES, TOTAL_BYTES
from eso_operator.providers.settings import DirectorySettings, RuntimeSettings
from eso_operator.stores.resolved import ResolverSettings, ServiceKey
from eso_operator.telemetry.settings import Listener, LogSettings, MetricsSettings
from eso_render.workers import WorkerSettings
from kubebase.backoff import ExponentialBackoff


class SettingsError(ValueError):
    """Settings the process cannot start with; the message names the flag and says what to write instead."""


class FeatureGate(StrEnum):
    """Features that `--feature-gates` turns on and off. Those of `DEFAULT_GATES` are on."""

    V2_STORES = "V2Stores"
    """Stores, Providers and Generators of v2, and references to the kinds of providers."""
    UNIX_SOCKET_PROVIDERS = "UnixSocketProviders"
    """Providers on Unix sockets of the same machine; TLS stays mandatory."""
    PROVIDER_NAMING_CONVENTION = "ProviderNamingConvention"
    """Providers found by the name of their Service."""


FIELD_MANAGER: Final = "external-secrets"
"""Who writes finalizers, status, events, leases and records, in their managedFields: as the operator in Go.

Only targets, children and certificates have managers of their own. No object is applied under this name, so that fields
which another name owns, such as that of an earlier version, are taken over by the next write and never conflict.
"""
DEFAULT_GATES: Final = frozenset({FeatureGate.V2_STORES})


@dataclass(frozen=True, slots=True)
class LeaderSettings:
    enabled: bool = False
    lease: str = "external-secrets-controller"
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    shards: int = 1
    """Parts of the objects; each is held by a Lease of its own if there are several."""


@dataclass(frozen=True, slots=True)
class Reconcilers:
    """The controllers that run."""

    secret_store: bool = True
    cluster_store: bool = True
    push_secret: bool = True
    cluster_push_secret: bool = True
    cluster_external_secret: bool = True
    generator_state: bool = True


@dataclass(frozen=True, slots=True)
class Tempo:
    """Deadlines, retries and rates for provider processes. No flag changes them."""

    runtime: RuntimeSettings = field(default_factory=RuntimeSettings)
    directory: DirectorySettings = field(
        default_factory=lambda: DirectorySettings(again=ExponentialBackoff(first=1.0, cap=10.0))
    )
    pace: PaceSettings = field(default_factory=PaceSettings)


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """The provider processes that the operator may call, and how it finds them."""

    namespaces: tuple[str, ...] = ()
    """Namespaces, besides the core namespace, whose labelled Services are providers for all namespaces."""
    namespaced: bool = False
    """True if any other namespace may run providers that only that namespace can use."""
    max_namespaced: int = 10
    """The most Services of one such namespace that get certificates."""
    allowed_addresses: tuple[str, ...] = ()
    trusted: tuple[tuple[ServiceKey, str], ...] = ()
    """Services whose provider listens at another address, for example on loopback: `(service, host:port)`."""
    expected: tuple[tuple[ServiceKey, str], ...] = ()
    """The same for providers that start later: each is used once its Service exists."""
    client_folders: tuple[tuple[ServiceKey, Path], ...] = ()
    """Services whose client certificates are in a folder (`tls.crt`, `tls.key`, `ca.crt`) instead of a Secret."""
    cluster_domain: str = "cluster.local"
    tempo: Tempo = field(default_factory=Tempo)


@dataclass(frozen=True, slots=True)
class CertificateSettings:
    """Certificates issued for providers. All of them are checked once in `interval`."""

    trust_domain: str = "cluster.local"
    service_account: str = "external-secrets"
    """The operator's own account. Its client certificates name it, and providers admit that name only."""
    lifetimes: Lifetimes = field(default_factory=Lifetimes)
    interval: float = 600.0


@dataclass(frozen=True, slots=True)
class SyncSettings:
    """Rules for syncing ExternalSecrets and PushSecrets."""

    flood_gate: bool = True
    generic_targets: bool = False
    left_delimiter: str = "{{"
    right_delimiter: str = "}}"
    generator_grace: float = 120.0
    push_refresh_multiplier: float = 1.0
    """Factor on the refresh interval of objects whose providers announce every change."""
    shortest_interval: float = SHORTEST_INTERVAL
    """Shorter refresh intervals of ExternalSecrets and PushSecrets are raised to this one."""
    workers: WorkerSettings = field(default_factory=WorkerSettings)
    """Worker processes for templates and patterns that may be slow."""


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """Limits of what one object, or all objects together, may cost the operator."""

    object_bytes: int = OBJECT_BYTES
    """Bytes of values that one object may read."""
    total_bytes: int = TOTAL_BYTES
    """Bytes of values that all objects together may hold at a time."""
    call_timeout: float = 300.0
    """The largest `timeouts.call` that a store may set."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings. `ignored` holds the given flags that have no effect, each with the reason to log."""

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
    gates: frozenset[FeatureGate] = DEFAULT_GATES
    ignored: tuple[tuple[str, str], ...] = ()

    @property
    def v2_stores(self) -> bool:
        return FeatureGate.V2_STORES in self.gates

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Return the watched, core and provider namespaces of an operator of one namespace; empty if it has all."""
        if not self.namespace:
            return ()
        return tuple(dict.fromkeys((self.namespace, self.core_namespace, *self.providers.namespaces)))


# --- settings of the parts --------------------------------------------------------------------------------------------


FEWEST_WORKERS: Final = 32


def workers(settings: Settings) -> int:
    """Return the number of concurrent reconciles: at least 32, so that one silent provider cannot block the rest."""
    return max(settings.workers, FEWEST_WORKERS)


def runtime_settings(settings: Settings) -> RuntimeSettings:
    runtime = settings.providers.tempo.runtime
    calls = replace(runtime.calls, longest_timeout=settings.limits.call_timeout)
    return replace(runtime, core_version=this_build().version, calls=calls)


def resolver_settings(settings: Settings) -> ResolverSettings:
    return ResolverSettings(
        core_namespace=settings.core_namespace,
        controller_class=settings.controller_class,
        provider_namespaces=settings.providers.namespaces,
        namespaced_providers=settings.providers.namespaced,
        cluster_domain=settings.providers.cluster_domain,
        allowed_addresses=settings.providers.allowed_addresses,
        trusted=dict((*settings.providers.trusted, *settings.providers.expected)),
        expected=frozenset(service for service, _ in settings.providers.expected),
        unix_sockets=FeatureGate.UNIX_SOCKET_PROVIDERS in settings.gates,
        naming_convention=FeatureGate.PROVIDER_NAMING_CONVENTION in settings.gates,
        flood_gate=settings.sync.flood_gate,
        v2_stores=settings.v2_stores,
    )


def issuer_settings(settings: Settings) -> IssuerSettings:
    return IssuerSettings(
        core_namespace=settings.core_namespace,
        service_account=settings.certificates.service_account,
        cluster_domain=settings.providers.cluster_domain,
        trust_domain=settings.certificates.trust_domain,
        namespaces=settings.namespaces,
        shared=settings.providers.namespaces,
        namespaced_providers=settings.providers.namespaced,
        max_namespaced=settings.providers.max_namespaced,
        interval=settings.certificates.interval,
        lifetimes=settings.certificates.lifetimes,
    )
