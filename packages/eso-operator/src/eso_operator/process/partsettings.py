"""Settings of the operator's parts, derived from the settings of the process."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from eso_operator.certificates.settings import CertificateSettings
from eso_operator.process.build import this_build
from eso_operator.process.settings import FeatureGate, Settings
from eso_operator.providers.settings import RuntimeSettings
from eso_operator.stores.inputs import ResolverSettings

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


def certificate_settings(settings: Settings) -> CertificateSettings:
    return CertificateSettings(
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
