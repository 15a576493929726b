"""The command line: every flag of the existing operator is known, with its default; bad input is named."""

import base64
import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from eso_operator.flags import WITHOUT_EFFECT, parse, parser
from eso_operator.settings import (
    FeatureGate,
    LeaderSettings,
    Reconcilers,
    Settings,
    SettingsError,
    issuer_settings,
)
from eso_operator.stores.resolved import ServiceKey
from eso_operator.telemetry.settings import Listener, LogLevel, LogSettings, MetricsSettings, TimeEncoding

NOWHERE = Path("/nonexistent")

UPSTREAM = {
    "metrics-addr": Listener("", 8080),
    "metrics-secure": False,
    "metrics-auth": False,
    "metrics-cert-dir": "",
    "metrics-cert-name": "tls.crt",
    "metrics-key-name": "tls.key",
    "live-addr": Listener("", 8082),
    "controller-class": "default",
    "enable-leader-election": False,
    "leader-election-id": "external-secrets-controller",
    "leader-election-lease-duration": 15.0,
    "leader-election-renew-deadline": 10.0,
    "leader-election-retry-period": 2.0,
    "concurrent": 1,
    "loglevel": LogLevel.INFO,
    "zap-time-encoding": TimeEncoding.EPOCH,
    "namespace": "",
    "enable-cluster-store-reconciler": True,
    "enable-secret-store-reconciler": True,
    "enable-cluster-external-secret-reconciler": True,
    "enable-cluster-push-secret-reconciler": True,
    "enable-push-secret-reconciler": True,
    "store-requeue-interval": 300.0,
    "enable-flood-gate": True,
    "enable-generator-state": True,
    "enable-extended-metric-labels": False,
    "unsafe-allow-generic-targets": False,
    "template-left-delimiter": "{{",
    "template-right-delimiter": "}}",
    "generator-gc-grace-period": 120.0,
}
WITHOUT_MEANING = {
    "client-qps",
    "client-burst",
    "enable-secrets-caching",
    "enable-configmaps-caching",
    "enable-managed-secrets-caching",
    "enable-secret-api-read-on-cache-mismatch",
    "enable-http2",
    "enable-vault-token-cache",
    "vault-token-cache-size",
    "experimental-enable-vault-token-cache",
    "experimental-vault-token-cache-size",
    "experimental-enable-doppler-oidc-cache",
    "experimental-doppler-oidc-cache-size",
    "doppler-etag-cache-size",
    "mysterybox-tokens-cache-size",
    "mysterybox-connections-cache-size",
    "dashboard-addr",
    "dashboard-auth",
    "dashboard-cert-dir",
}


def timed(encoding: TimeEncoding) -> Settings:
    return replace(Settings(), logs=LogSettings(time=encoding))


def metered(**fields: Any) -> Settings:
    return replace(Settings(), metrics=MetricsSettings(**fields))


def parsed(*arguments: str, **environ: str) -> Settings:
    return parse(arguments, environ, service_account=NOWHERE)


@pytest.mark.parametrize(("name", "default"), UPSTREAM.items(), ids=UPSTREAM)
def test_a_flag_of_the_existing_operator_keeps_its_name_and_default(name: str, default: object) -> None:
    assert getattr(parser().parse_args([]), name.replace("-", "_")) == default


def test_flags_that_mean_nothing_here_are_accepted_and_explained() -> None:
    assert set(WITHOUT_EFFECT) == WITHOUT_MEANING

    settings = parsed("--client-qps=100", "--enable-vault-token-cache")

    assert [name for name, _ in settings.ignored] == ["--client-qps", "--enable-vault-token-cache"]
    assert all(reason for _, reason in settings.ignored)


def test_defaults_are_those_of_the_settings() -> None:
    assert parsed() == Settings()


def test_our_own_flags_reach_the_settings() -> None:
    settings = parsed(
        "--core-namespace=eso",
        "--provider-namespace=a",
        "--provider-namespace=b",
        "--allowed-provider-address=*.example.com",
        "--trusted-provider=eso/provider-fake=127.0.0.1:4000",
        "--expected-provider=eso/provider-late=127.0.0.1:4001",
        "--feature-gates=UnixSocketProviders=true,ProviderNamingConvention=false",
        "--cluster-domain=corp.local",
        "--trust-domain=corp",
        "--cert-validity=1h",
        "--cert-renew-before=10m",
        "--cert-authority-renew-before=20m",
        "--cert-settle=1m",
        "--cert-connection-age=2m",
        "--trusted-provider-tls=eso/provider-fake=/certs",
        "--kubeconfig=/tmp/kubeconfig",
        "--context=dev",
        "--push-refresh-multiplier=2.5",
    )

    assert settings.core_namespace == "eso"
    assert settings.sync.push_refresh_multiplier == 2.5
    assert settings.providers.namespaces == ("a", "b")
    assert settings.providers.allowed_addresses == ("*.example.com",)
    assert settings.providers.trusted == ((ServiceKey("eso", "provider-fake"), "127.0.0.1:4000"),)
    assert settings.providers.expected == ((ServiceKey("eso", "provider-late"), "127.0.0.1:4001"),)
    assert settings.gates == {FeatureGate.UNIX_SOCKET_PROVIDERS, FeatureGate.V2_STORES}
    assert settings.providers.cluster_domain == "corp.local"
    assert (settings.certificates.trust_domain, settings.certificates.lifetimes.leaf) == ("corp", timedelta(hours=1))
    assert settings.providers.client_folders == ((ServiceKey("eso", "provider-fake"), Path("/certs")),)
    assert (settings.kubeconfig, settings.context) == (Path("/tmp/kubeconfig"), "dev")  # noqa: S108 - never opened


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        pytest.param(["--nonsense"], "--nonsense", id="unknown flag"),
        pytest.param(["--experimental-enable-aws-session-cache"], "aws-session", id="documented but never existed"),
        pytest.param(["--metrics-auth"], "--metrics-secure", id="tokens over plain HTTP"),
        pytest.param(["--loglevel=loud"], "loud", id="unknown level"),
        pytest.param(["--store-requeue-interval=5"], "store-requeue-interval", id="a duration without unit"),
        pytest.param(["--store-requeue-interval=-5m"], "store-requeue-interval", id="a negative duration"),
        pytest.param(["--concurrent=many"], "--concurrent", id="a word for workers"),
        pytest.param(["--push-refresh-multiplier=0.5"], "--push-refresh-multiplier", id="read more often"),
        pytest.param(["--push-refresh-multiplier=nan"], "--push-refresh-multiplier", id="no number"),
        pytest.param(["--push-refresh-multiplier=often"], "--push-refresh-multiplier", id="a word for a number"),
        pytest.param(["--metrics-addr=8080"], "--metrics-addr", id="a port without a colon"),
        pytest.param(["--live-addr=8082"], "--live-addr", id="probes on a port without a colon"),
        pytest.param(["--enable-flood-gate=maybe"], "maybe", id="a switch that is neither"),
        pytest.param(
            ["--feature-gates=Unknown=true"], "Unknown.*none of V2Stores, UnixSocketProviders", id="unknown gate"
        ),
        pytest.param(["--feature-gates=V2Stores=maybe"], "maybe", id="a gate that is neither on nor off"),
        pytest.param(["--trusted-provider=fake=127.0.0.1:1"], "--trusted-provider", id="trusted without namespace"),
        pytest.param(["--trusted-provider=a/b"], "--trusted-provider", id="trusted without address"),
        pytest.param(["--expected-provider=a/b"], "--expected-provider", id="expected without address"),
        pytest.param(
            ["--enable-leader-election", "--leader-election-retry-period=1m"],
            "leader-election",
            id="retry longer than the lease",
        ),
        pytest.param(["--shards=2"], "--shards needs --enable-leader-election", id="shards without leases"),
        pytest.param(["--enable-leader-election", "--shards=0"], "--shards.*from 1 to 64", id="no shards"),
        pytest.param(["--enable-leader-election", "--shards=65"], "--shards.*from 1 to 64", id="too many shards"),
        pytest.param(
            ["--enable-leader-election", "--shards=2", f"--leader-election-id={'x' * 64}"],
            "--leader-election-id may have at most 63",
            id="a lease name that is too long for a label",
        ),
        pytest.param(["--cert-renew-before=9999h"], "--cert-", id="renewed before it begins"),
        pytest.param(["--metrics"], "--metrics", id="an abbreviation"),
    ],
)
def test_a_bad_command_line_is_refused_by_name(arguments: list[str], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        parsed(*arguments)


@pytest.mark.parametrize(
    ("arguments", "enabled"),
    [
        pytest.param(["--enable-flood-gate=false"], False, id="=false"),
        pytest.param(["--enable-flood-gate"], True, id="bare"),
        pytest.param(["--enable-flood-gate=T"], True, id="=T, as Go reads it"),
    ],
)
def test_switches_are_spelled_as_in_go(arguments: list[str], enabled: bool) -> None:
    assert parsed(*arguments).sync.flood_gate is enabled


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        pytest.param("--loglevel=DEBUG", replace(Settings(), logs=LogSettings(LogLevel.DEBUG)), id="upper case"),
        pytest.param("--loglevel=Warning", replace(Settings(), logs=LogSettings(LogLevel.WARN)), id="warning"),
        pytest.param("--loglevel=", Settings(), id="an empty level is info"),
        pytest.param("--loglevel=DPanic", replace(Settings(), logs=LogSettings(LogLevel.DPANIC)), id="a level of zap"),
        pytest.param("--zap-time-encoding=ISO8601", timed(TimeEncoding.ISO8601), id="ISO8601"),
        pytest.param("--zap-time-encoding=RFC3339", timed(TimeEncoding.RFC3339), id="RFC3339"),
        pytest.param("--zap-time-encoding=RFC3339Nano", timed(TimeEncoding.RFC3339NANO), id="RFC3339Nano"),
        pytest.param("--zap-time-encoding=nanos", timed(TimeEncoding.NANO), id="nanos"),
        pytest.param("--live-addr=0", replace(Settings(), live=Listener("", -1)), id="probes on 0 are off"),
        pytest.param("--live-addr=", replace(Settings(), live=Listener("", -1)), id="probes on nothing are off"),
        pytest.param("--live-addr=:0", replace(Settings(), live=Listener("", 0)), id="probes on any port"),
        pytest.param("--metrics-addr=0", metered(listen=Listener("", -1)), id="metrics on 0 are off"),
        pytest.param("--metrics-addr=", Settings(), id="metrics on nothing keep the default"),
        pytest.param("--concurrent=0", Settings(), id="0 workers are 1"),
        pytest.param("--concurrent=-3", Settings(), id="fewer workers than 0 are 1"),
        pytest.param(
            "--leader-election-retry-period=1m",
            replace(Settings(), leader=LeaderSettings(retry_period=60.0)),
            id="times of an election that is off are not compared",
        ),
        pytest.param(
            "--metrics-cert-name=/etc/tls/tls.crt", metered(certificate_name="/etc/tls/tls.crt"), id="an absolute name"
        ),
    ],
)
def test_a_value_that_starts_the_existing_operator_means_the_same(argument: str, expected: Settings) -> None:
    assert parsed(argument) == expected


def test_the_arguments_of_the_chart_in_go_are_accepted_as_they_are() -> None:
    """With a certificate folder, a scope, and everything that can be off turned off."""
    settings = parsed(
        "--enable-leader-election=true",
        "--namespace=team",
        "--enable-cluster-store-reconciler=false",
        "--enable-cluster-external-secret-reconciler=false",
        "--enable-cluster-push-secret-reconciler=false",
        "--enable-push-secret-reconciler=false",
        "--store-requeue-interval=1m",
        "--controller-class=mine",
        "--enable-extended-metric-labels=true",
        "--enable-http2=true",
        "--enable-vault-token-cache=true",
        "--vault-token-cache-size=262144",
        "--concurrent=1",
        "--unsafe-allow-generic-targets=true",
        "--client-burst=100",
        "--metrics-addr=:8080",
        "--loglevel=info",
        "--zap-time-encoding=epoch",
        "--live-addr=:8082",
        "--metrics-secure=true",
        "--metrics-cert-dir=/etc/tls",
        "--metrics-cert-name=/etc/tls/tls.crt",
        "--metrics-key-name=/etc/tls/tls.key",
        "--metrics-auth=true",
    )

    assert settings.leader.enabled
    assert (settings.namespace, settings.controller_class, settings.store_interval) == ("team", "mine", 60.0)
    assert settings.reconcilers == Reconcilers(
        cluster_store=False, cluster_external_secret=False, cluster_push_secret=False, push_secret=False
    )
    assert (settings.metrics.secure, settings.metrics.authenticated, settings.metrics.extended_labels) == (True,) * 3
    assert len(settings.ignored) == 4


def test_an_unknown_time_encoding_means_epoch_and_is_reported() -> None:
    settings = parsed("--zap-time-encoding=sundial")

    assert settings.logs.time is TimeEncoding.EPOCH
    ((flag, reason),) = settings.ignored
    assert flag == "--zap-time-encoding"
    assert "'sundial' is unknown" in reason


@pytest.mark.parametrize(
    ("value", "on"),
    [
        pytest.param("", {"V2Stores"}, id="the defaults"),
        pytest.param("V2Stores=false", set(), id="off"),
        pytest.param("V2Stores=false,V2Stores=true", {"V2Stores"}, id="the last one counts"),
        pytest.param("V2Stores=false, UnixSocketProviders=T", {"UnixSocketProviders"}, id="a list"),
    ],
)
def test_gates_change_the_defaults(value: str, on: set[str]) -> None:
    assert parsed(f"--feature-gates={value}").gates == on


def test_the_core_namespace_is_that_of_the_pod(tmp_path: Path) -> None:
    (tmp_path / "namespace").write_text("from-account\n")

    assert parse([], {"POD_NAMESPACE": "from-env"}, service_account=tmp_path).core_namespace == "from-env"
    assert parse([], {}, service_account=tmp_path).core_namespace == "from-account"
    assert parse([], {}, service_account=NOWHERE).core_namespace == "external-secrets"


def token_of(subject: str) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"sub": subject}).encode()).decode().rstrip("=")
    return f"header.{claims}.signature"


@pytest.mark.parametrize(
    ("arguments", "environ", "token", "account"),
    [
        pytest.param([], {}, "", "external-secrets", id="outside a pod"),
        pytest.param([], {}, token_of("system:serviceaccount:eso:core"), "core", id="the account of the token"),
        pytest.param(
            [], {}, token_of("system:serviceaccount:other:core"), "external-secrets", id="of another namespace"
        ),
        pytest.param([], {}, token_of("alice"), "external-secrets", id="a token of a user"),
        pytest.param([], {}, "not a token", "external-secrets", id="nonsense"),
        pytest.param([], {}, "a.b\u00e9.c", "external-secrets", id="nonsense with dots"),
        pytest.param(
            [], {"POD_SERVICE_ACCOUNT": "env"}, token_of("system:serviceaccount:eso:core"), "env", id="variable"
        ),
        pytest.param(["--service-account=flag"], {"POD_SERVICE_ACCOUNT": "env"}, "", "flag", id="flag"),
    ],
)
def test_the_certificates_name_the_service_account_of_the_pod(
    arguments: list[str], environ: dict[str, str], token: str, account: str, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(token)

    settings = parse(["--core-namespace=eso", *arguments], environ, service_account=tmp_path)

    assert settings.certificates.service_account == account
    assert issuer_settings(settings).client_identity == f"spiffe://cluster.local/ns/eso/sa/{account}"
