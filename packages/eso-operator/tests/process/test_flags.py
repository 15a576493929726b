"""The command line: every flag of the existing operator is known, with its default; bad input is named."""

from datetime import timedelta
from pathlib import Path

import pytest

from eso_operator.process.flags import WITHOUT_EFFECT, parse, parser
from eso_operator.process.settings import FeatureGate, Settings, SettingsError
from eso_operator.resolving.resolved import ServiceKey
from eso_operator.telemetry.settings import Listener, LogLevel, TimeEncoding

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
}


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
    assert settings.gates == {FeatureGate.UNIX_SOCKET_PROVIDERS}
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
        pytest.param(["--zap-time-encoding=sundial"], "sundial", id="unknown time encoding"),
        pytest.param(["--store-requeue-interval=5"], "store-requeue-interval", id="a duration without unit"),
        pytest.param(["--store-requeue-interval=-5m"], "store-requeue-interval", id="a negative duration"),
        pytest.param(["--concurrent=0"], "--concurrent", id="no workers"),
        pytest.param(["--push-refresh-multiplier=0.5"], "--push-refresh-multiplier", id="read more often"),
        pytest.param(["--push-refresh-multiplier=nan"], "--push-refresh-multiplier", id="no number"),
        pytest.param(["--push-refresh-multiplier=often"], "--push-refresh-multiplier", id="a word for a number"),
        pytest.param(["--metrics-addr=8080"], "--metrics-addr", id="a port without a colon"),
        pytest.param(["--live-addr=0"], "--live-addr", id="no probes"),
        pytest.param(["--enable-flood-gate=maybe"], "maybe", id="a switch that is neither"),
        pytest.param(["--feature-gates=Unknown=true"], "Unknown", id="unknown gate"),
        pytest.param(["--trusted-provider=fake=127.0.0.1:1"], "--trusted-provider", id="trusted without namespace"),
        pytest.param(["--trusted-provider=a/b"], "--trusted-provider", id="trusted without address"),
        pytest.param(["--expected-provider=a/b"], "--expected-provider", id="expected without address"),
        pytest.param(["--leader-election-retry-period=1m"], "leader-election", id="retry longer than the lease"),
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


def test_metrics_can_be_switched_off() -> None:
    assert parsed("--metrics-addr=0").metrics.listen.disabled


def test_the_core_namespace_is_that_of_the_pod(tmp_path: Path) -> None:
    (tmp_path / "namespace").write_text("from-account\n")

    assert parse([], {"POD_NAMESPACE": "from-env"}, service_account=tmp_path).core_namespace == "from-env"
    assert parse([], {}, service_account=tmp_path).core_namespace == "from-account"
    assert parse([], {}, service_account=NOWHERE).core_namespace == "external-secrets"
