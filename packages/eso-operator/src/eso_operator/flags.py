"""The command line of the operator: the flags of the existing operator under the same names, and our own.

    argv, environment -> parse -> Settings, or SettingsError

An unknown flag is an error. A flag of the existing operator that has no effect here (`WITHOUT_EFFECT`) is accepted and
logged with the reason, so that an existing Deployment starts without edits. Values that the existing operator accepts
are accepted with the same meaning. `examine` says how this operator treats a flag of another command line.
"""

from __future__ import annotations

import argparse
import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from eso_operator import flagvalues as values
from eso_operator.build import this_build
from eso_operator.certificates.state import Lifetimes
from eso_operator.providers.bytelimits import MIB
from eso_operator.settings import (
    CertificateSettings,
    FeatureGate,
    LeaderSettings,
    LimitSettings,
    ProviderSettings,
    Reconcilers,
    Settings,
    SettingsError,
    SyncSettings,
)
from eso_operator.telemetry.settings import LogLevel, LogSettings, MetricsSettings, TimeEncoding
from eso_render.workers import WorkerSettings
from kuberun.config import SERVICE_ACCOUNT

_PROVIDER_CACHE: Final = "providers are processes of their own, with flags of their own"
_LIVE_READS: Final = "Secrets and ConfigMaps are watched as metadata and read when they are needed, never cached"
_NO_LIMIT: Final = "requests are bounded by the workers, and the API server's priority and fairness does the rest"

_DASHBOARD: Final = "the dashboard is a process of its own: run `eso dashboard`, or set dashboard.enabled in the chart"
_LONGEST_LABEL: Final = 63

WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "client-qps": _NO_LIMIT,
    "client-burst": _NO_LIMIT,
    "enable-http2": "the metrics server speaks HTTP/1.1 only",
    "enable-secrets-caching": _LIVE_READS,
    "enable-configmaps-caching": _LIVE_READS,
    "enable-managed-secrets-caching": _LIVE_READS,
    "enable-secret-api-read-on-cache-mismatch": _LIVE_READS,
    "enable-vault-token-cache": _PROVIDER_CACHE,
    "vault-token-cache-size": _PROVIDER_CACHE,
    "experimental-enable-vault-token-cache": _PROVIDER_CACHE,
    "experimental-vault-token-cache-size": _PROVIDER_CACHE,
    "experimental-enable-doppler-oidc-cache": _PROVIDER_CACHE,
    "experimental-doppler-oidc-cache-size": _PROVIDER_CACHE,
    "doppler-etag-cache-size": _PROVIDER_CACHE,
    "mysterybox-tokens-cache-size": _PROVIDER_CACHE,
    "mysterybox-connections-cache-size": _PROVIDER_CACHE,
    "dashboard-addr": _DASHBOARD,
    "dashboard-auth": _DASHBOARD,
    "dashboard-cert-dir": _DASHBOARD,
}
"""Flags of the existing operator and of our earlier versions without effect, each with the reason that is logged."""


def parse(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    *,
    service_account: Path = SERVICE_ACCOUNT,
) -> Settings:
    """Return the settings of a command line. Raises `SettingsError`, which names the flag and what to write."""
    given = parser().parse_args(arguments)
    if given.metrics_auth and not given.metrics_secure:
        raise SettingsError("--metrics-auth needs --metrics-secure: a token must not travel in the clear")
    core = given.core_namespace or own_namespace(environ, service_account)
    account = given.service_account or own_account(environ, service_account, core)
    return Settings(
        kubeconfig=given.kubeconfig,
        context=given.context,
        core_namespace=core,
        namespace=given.namespace,
        controller_class=given.controller_class,
        workers=given.concurrent,
        store_interval=given.store_requeue_interval,
        live=given.live_addr,
        logs=LogSettings(given.loglevel, values.time_encoding(given.zap_time_encoding) or TimeEncoding.EPOCH),
        metrics=_metrics(given),
        leader=_leader(given),
        reconcilers=_reconcilers(given),
        providers=_providers(given),
        certificates=_certificates(given, account),
        sync=_sync(given),
        limits=_limits(given),
        gates=given.feature_gates,
        ignored=_ignored(given),
    )


def parser() -> argparse.ArgumentParser:
    """Return a parser of every flag. Flags of the existing operator keep their defaults."""
    flags = _Parser(prog="eso-operator", allow_abbrev=False, description="External Secrets Operator")
    _add_process_flags(flags)
    _add_metrics_flags(flags)
    _add_leader_flags(flags)
    _add_reconciler_flags(flags)
    _add_provider_flags(flags)
    _add_certificate_flags(flags)
    _add_limit_flags(flags)
    quiet = flags.add_argument_group("accepted, without effect here")
    for name, reason in WITHOUT_EFFECT.items():
        quiet.add_argument(f"--{name}", nargs="?", const="true", help=reason)
    return flags


# --- the flags --------------------------------------------------------------------------------------------------------


def _add_process_flags(flags: argparse.ArgumentParser) -> None:
    add = flags.add_argument
    add("--version", action="version", version=f"eso-operator {this_build()}", help="print the version")
    add("--kubeconfig", type=Path, help="kubeconfig file; else KUBECONFIG, the pod, ~/.kube/config")
    add("--context", default="", help="context of the kubeconfig")
    add("--namespace", default="", help="watch this namespace only")
    add("--core-namespace", default="", help="where the operator lives; default POD_NAMESPACE")
    add("--controller-class", default="default", help="handle stores of this class or without one")
    add("--concurrent", type=values.workers, default=1, help="reconciles at once in a controller; never below 32")
    add("--live-addr", type=values.probes, default=":8082", help="where /healthz and /readyz listen; 0 for nowhere")
    add("--loglevel", type=values.level, default="info", help=values.listed(LogLevel))
    add("--zap-time-encoding", default="epoch", help=values.listed(TimeEncoding))
    add(
        "--feature-gates",
        type=values.gates,
        default="",
        help=f"NAME=true,NAME=false,…: {values.listed(FeatureGate)}; only V2Stores is on by default",
    )


def _add_metrics_flags(flags: argparse.ArgumentParser) -> None:
    add = flags.add_argument
    switch = partial(values.add_switch, flags)
    add("--metrics-addr", type=values.metrics, default=":8080", help="where /metrics listens; 0 for nowhere")
    switch("metrics-secure", "serve metrics over TLS", default="false")
    switch("metrics-auth", "ask the API server who may read metrics", default="false")
    add("--metrics-cert-dir", default="", help="folder with the certificate of the metrics server")
    add("--metrics-cert-name", default="tls.crt", help="file name of the certificate")
    add("--metrics-key-name", default="tls.key", help="file name of the key")
    switch("enable-extended-metric-labels", "add app.kubernetes.io labels to metrics", default="false")


def _add_leader_flags(flags: argparse.ArgumentParser) -> None:
    add = flags.add_argument
    switch = partial(values.add_switch, flags)
    duration = partial(values.add_duration, flags)
    switch("enable-leader-election", "elect a leader; the other replicas stand by", default="false")
    add("--leader-election-id", default="external-secrets-controller", help="name of the Lease")
    duration("leader-election-lease-duration", "15s", "a standby takes over a lease not renewed for this long")
    duration("leader-election-renew-deadline", "10s", "a leader that fails to renew this long stops leading")
    duration("leader-election-retry-period", "2s", "time between attempts to acquire or renew the lease")
    add(
        "--shards",
        type=values.shards,
        default=1,
        help="parts of the objects, divided by namespace, that as many replicas work on at the same time",
    )


def _add_reconciler_flags(flags: argparse.ArgumentParser) -> None:
    add = flags.add_argument
    switch = partial(values.add_switch, flags)
    duration = partial(values.add_duration, flags)
    for name in ("cluster-store", "secret-store", "cluster-external-secret", "cluster-push-secret", "push-secret"):
        switch(f"enable-{name}-reconciler", f"run the {name} controller", default="true")
    duration("store-requeue-interval", "5m", "time between validations of a store without refreshInterval")
    duration("min-refresh-interval", "1s", "shorter refresh intervals are raised to this; a condition reports it")
    add(
        "--push-refresh-multiplier",
        type=values.factor,
        default="1",
        metavar="NUMBER",
        help="factor on the refresh interval of objects whose providers announce every change",
    )
    switch("enable-flood-gate", "do not call the provider of a store that is not ready", default="true")
    switch("enable-generator-state", "keep the state of generators", default="true")
    duration("generator-gc-grace-period", "2m", "replaced generator state is kept this long")
    switch("unsafe-allow-generic-targets", "allow targets that are not Secrets", default="false")
    add("--template-left-delimiter", default="{{", help="begins an action of a template")
    add("--template-right-delimiter", default="}}", help="ends an action of a template")
    add(
        "--template-workers",
        type=values.count,
        default=2,
        help="processes for slow templates and patterns; one is always left for other namespaces",
    )
    duration("template-timeout", "10s", "a template or pattern that takes more processor time is stopped")


def _add_provider_flags(flags: argparse.ArgumentParser) -> None:
    add = flags.add_argument
    switch = partial(values.add_switch, flags)
    add("--provider-namespace", action="append", default=[], help="namespace with providers for all")
    switch("namespaced-providers", "let any namespace run providers that only that namespace can use", default="false")
    add(
        "--max-namespaced-providers",
        type=values.count,
        default=10,
        help="Services of one such namespace that get certificates",
    )
    add(
        "--allowed-provider-address",
        action="append",
        default=[],
        help="pattern of provider hosts that are not Services",
    )
    add(
        "--trusted-provider",
        action="append",
        type=values.trusted,
        default=[],
        metavar="NAMESPACE/SERVICE=HOST:PORT",
        help="a Service whose provider listens at another address",
    )
    add(
        "--expected-provider",
        action="append",
        type=values.trusted,
        default=[],
        metavar="NAMESPACE/SERVICE=HOST:PORT",
        help="like --trusted-provider, for a provider that starts later: it is used once its Service exists",
    )
    add(
        "--trusted-provider-tls",
        action="append",
        type=values.client_folder,
        default=[],
        metavar="NAMESPACE/SERVICE=FOLDER",
        help="client certificates for that Service, instead of issued ones",
    )
    add("--cluster-domain", default="cluster.local", help="DNS domain of the cluster")


def _add_limit_flags(flags: argparse.ArgumentParser) -> None:
    add = flags.add_argument
    duration = partial(values.add_duration, flags)
    add("--max-object-values", type=values.count, default=8, metavar="MIB", help="values one object may read")
    add("--max-held-values", type=values.count, default=64, metavar="MIB", help="values held at a time")
    duration("max-provider-call-timeout", "5m", "the largest timeouts.call that a store may set")


def _add_certificate_flags(flags: argparse.ArgumentParser) -> None:
    add = flags.add_argument
    duration = partial(values.add_duration, flags)
    add(
        "--service-account",
        default="",
        help="the operator's service account, named in its certificates; default POD_SERVICE_ACCOUNT, then its token",
    )
    add("--trust-domain", default="cluster.local", help="SPIFFE trust domain of operator and providers")
    duration("cert-authority-validity", "8760h", "lifetime of a provider's certificate authority")
    duration("cert-authority-renew-before", "1440h", "an authority is replaced this long before it expires")
    duration("cert-validity", "2160h", "lifetime of a certificate")
    duration("cert-renew-before", "840h", "a certificate is replaced this long before it expires")
    duration("cert-settle", "1h", "time within which providers load a changed Secret")
    duration("cert-connection-age", "15m", "longest life of a connection; a change of the authority waits for it")
    duration("cert-interval", "10m", "time between checks of all certificates")


# --- from flags to settings -------------------------------------------------------------------------------------------


def _metrics(given: argparse.Namespace) -> MetricsSettings:
    return MetricsSettings(
        listen=given.metrics_addr,
        secure=given.metrics_secure,
        authenticated=given.metrics_auth,
        certificate_folder=Path(given.metrics_cert_dir) if given.metrics_cert_dir else None,
        certificate_name=given.metrics_cert_name,
        key_name=given.metrics_key_name,
        extended_labels=given.enable_extended_metric_labels,
    )


def _leader(given: argparse.Namespace) -> LeaderSettings:
    leader = LeaderSettings(
        enabled=given.enable_leader_election,
        lease=given.leader_election_id,
        lease_duration=given.leader_election_lease_duration,
        renew_deadline=given.leader_election_renew_deadline,
        retry_period=given.leader_election_retry_period,
        shards=given.shards,
    )
    _check_shards(leader)
    if leader.enabled and not 0 < leader.retry_period < leader.renew_deadline < leader.lease_duration:
        raise SettingsError(
            "leader election needs 0 < --leader-election-retry-period < --leader-election-renew-deadline"
            " < --leader-election-lease-duration"
        )
    return leader


def _check_shards(leader: LeaderSettings) -> None:
    if leader.shards > 1 and not leader.enabled:
        raise SettingsError("--shards needs --enable-leader-election: a Lease decides which replica has a shard")
    if leader.shards > 1 and len(leader.lease) > _LONGEST_LABEL:
        raise SettingsError(f"with --shards, --leader-election-id may have at most {_LONGEST_LABEL} characters")


def _reconcilers(given: argparse.Namespace) -> Reconcilers:
    return Reconcilers(
        secret_store=given.enable_secret_store_reconciler,
        cluster_store=given.enable_cluster_store_reconciler,
        push_secret=given.enable_push_secret_reconciler,
        cluster_push_secret=given.enable_cluster_push_secret_reconciler,
        cluster_external_secret=given.enable_cluster_external_secret_reconciler,
        generator_state=given.enable_generator_state,
    )


def _providers(given: argparse.Namespace) -> ProviderSettings:
    return ProviderSettings(
        namespaces=tuple(given.provider_namespace),
        namespaced=given.namespaced_providers,
        max_namespaced=given.max_namespaced_providers,
        allowed_addresses=tuple(given.allowed_provider_address),
        trusted=tuple(given.trusted_provider),
        expected=tuple(given.expected_provider),
        client_folders=tuple(given.trusted_provider_tls),
        cluster_domain=given.cluster_domain,
    )


def _certificates(given: argparse.Namespace, account: str) -> CertificateSettings:
    try:
        lifetimes = Lifetimes(
            authority=timedelta(seconds=given.cert_authority_validity),
            authority_renewal=timedelta(seconds=given.cert_authority_renew_before),
            leaf=timedelta(seconds=given.cert_validity),
            leaf_renewal=timedelta(seconds=given.cert_renew_before),
            settle=timedelta(seconds=given.cert_settle),
            connection_age=timedelta(seconds=given.cert_connection_age),
        )
    except (ValueError, OverflowError) as error:
        raise SettingsError(f"the --cert-* times do not fit together: {error}") from None
    return CertificateSettings(given.trust_domain, account, lifetimes, given.cert_interval)


def _sync(given: argparse.Namespace) -> SyncSettings:
    return SyncSettings(
        flood_gate=given.enable_flood_gate,
        generic_targets=given.unsafe_allow_generic_targets,
        left_delimiter=given.template_left_delimiter,
        right_delimiter=given.template_right_delimiter,
        generator_grace=given.generator_gc_grace_period,
        push_refresh_multiplier=given.push_refresh_multiplier,
        shortest_interval=given.min_refresh_interval,
        workers=WorkerSettings(processes=given.template_workers, seconds=given.template_timeout),
    )


def _limits(given: argparse.Namespace) -> LimitSettings:
    return LimitSettings(
        object_bytes=given.max_object_values * MIB,
        total_bytes=given.max_held_values * MIB,
        call_timeout=given.max_provider_call_timeout,
    )


def _ignored(given: argparse.Namespace) -> tuple[tuple[str, str], ...]:
    ignored = [
        (f"--{name}", reason)
        for name, reason in WITHOUT_EFFECT.items()
        if getattr(given, name.replace("-", "_")) is not None
    ]
    if values.time_encoding(given.zap_time_encoding) is None:
        reason = (
            f"{given.zap_time_encoding!r} is unknown, so that epoch is used; known are {values.listed(TimeEncoding)}"
        )
        ignored.append(("--zap-time-encoding", reason))
    return tuple(ignored)


class _Parser(argparse.ArgumentParser):
    """A parser that raises `SettingsError` instead of exiting."""

    def error(self, message: str) -> NoReturn:
        raise SettingsError(f"{message}; see {self.prog} --help")


# --- namespace and service account of this pod ------------------------------------------------------------------------


DEFAULT_NAMESPACE: Final = "external-secrets"
DEFAULT_ACCOUNT: Final = "external-secrets"


class _PodTokenClaims(msgspec.Struct):
    sub: str = ""


def own_namespace(environ: Mapping[str, str], folder: Path) -> str:
    """Return the namespace of this pod. `folder` is where Kubernetes mounts the service account."""
    return environ.get("POD_NAMESPACE") or _content(folder / "namespace") or DEFAULT_NAMESPACE


def own_account(environ: Mapping[str, str], folder: Path, namespace: str) -> str:
    """Return the service account of this pod in the core namespace."""
    if named := environ.get("POD_SERVICE_ACCOUNT"):
        return named
    home, account = _subject_of(_content(folder / "token"))
    return account if account and home == namespace else DEFAULT_ACCOUNT


def _subject_of(token: str) -> tuple[str, str]:
    """Return the namespace and the name of the service account that a token belongs to; empty if it names none."""
    _, _, rest = token.partition(".")
    payload = rest.partition(".")[0]
    try:
        claims = msgspec.json.decode(
            base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), type=_PodTokenClaims
        )
    except (binascii.Error, msgspec.MsgspecError, ValueError):
        return "", ""
    match claims.sub.split(":"):
        case ["system", "serviceaccount", namespace, name]:
            return namespace, name
        case _:
            return "", ""


def _content(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


# --- flags of another command line ------------------------------------------------------------------------------------


_DIFFERENT: Final = {
    "concurrent": "a number below 32 means 32",
}
"""Flags of the existing operator that act here, but in another way."""
_EXPANDED: Final = "$("
"""Begins a value that the kubelet replaces, so that its text is not the value."""


class Verdict(Enum):
    ACCEPTED = "accepted"
    DIFFERENT = "different"
    WITHOUT_EFFECT = "without effect"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class FlagVerdict:
    """`reason` is for every verdict but `ACCEPTED`."""

    flag: str
    verdict: Verdict
    reason: str = ""


def flags_in(arguments: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yield name and value of each flag, spelled `--name=value`, `--name value` or `--name`; skip other words."""
    for position, argument in enumerate(arguments):
        name, equals, value = argument.lstrip("-").partition("=")
        if not argument.startswith("-") or not name:
            continue
        following = arguments[position + 1 : position + 2]
        if not equals and following and not following[0].startswith("-"):
            yield name, following[0]
        else:
            yield name, value if equals else None


def examine(name: str, value: str | None) -> FlagVerdict:
    """Return what happens if the operator is started with this flag. The value is not repeated."""
    flag = f"--{name}"
    try:
        _, unknown = parser().parse_known_args(list(filter(None, [_argument(name, value)])))
    except SettingsError as problem:
        return FlagVerdict(flag, Verdict.REFUSED, _redact_value(value or "", str(problem)))
    if unknown:
        return FlagVerdict(flag, Verdict.UNKNOWN, "this operator has no such flag")
    if name in WITHOUT_EFFECT:
        return FlagVerdict(flag, Verdict.WITHOUT_EFFECT, WITHOUT_EFFECT[name])
    if name in _DIFFERENT:
        return FlagVerdict(flag, Verdict.DIFFERENT, _DIFFERENT[name])
    return FlagVerdict(flag, Verdict.ACCEPTED)


def contradiction(arguments: Sequence[str]) -> str:
    """Return why flags that are accepted one by one are refused together; empty if they are not."""
    judged = [word for name, value in flags_in(arguments) if (word := _argument(name, value))]
    try:
        parse(judged, {"POD_NAMESPACE": "any"})
    except SettingsError as problem:
        return str(problem)
    return ""


def _argument(name: str, value: str | None) -> str:
    """Return the flag as one word; empty if the kubelet replaces its value."""
    if value is None:
        return f"--{name}"
    return "" if _EXPANDED in value else f"--{name}={value}"


def _redact_value(value: str, text: str) -> str:
    """Cut out the value as the parser quotes it."""
    return text.replace(repr(value), "its value").replace(f'"{value}"', "its value")
