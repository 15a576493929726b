"""The command line of `eso-providers`: common flags, flags of one provider, and what must differ between providers."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from eso_sdk.main import UsageError
from eso_sdk.sharedmain import members_of, parsed, run, split_names
from eso_sdk.sharedserver import Member

CLIENT = "spiffe://cluster.local/ns/external-secrets/sa/external-secrets"
COMMON = ("--tls-dir=/tls", f"--allowed-client={CLIENT}")
REVIEW = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def members(*arguments: str, environment: Mapping[str, str] | None = None) -> tuple[Member, ...]:
    names, flags = split_names(arguments)
    chosen, own = parsed(names, flags, environment or {})
    return members_of(names, chosen, own, environment or {})


def test_each_provider_has_a_port_and_a_folder_of_its_own() -> None:
    served = members("vault", "aws", "fake", *COMMON)

    assert [(one.name, one.options.listen, one.options.tls_dir) for one in served] == [
        ("vault", "0.0.0.0:8080", Path("/tls/vault")),
        ("aws", "0.0.0.0:8090", Path("/tls/aws")),
        ("fake", "0.0.0.0:8100", Path("/tls/fake")),
    ]
    assert {one.options.allowed_clients for one in served} == {(CLIENT,)}
    assert {(one.options.metrics, one.options.live, one.options.ready_file) for one in served} == {("", "", None)}


def test_a_free_port_is_taken_by_each_provider() -> None:
    assert {one.options.listen for one in members("vault", "aws", *COMMON, "--listen", "[::1]:0")} == {"[::1]:0"}


def test_a_flag_of_one_provider_does_not_count_for_the_others() -> None:
    vault, aws = members(
        "vault",
        "aws",
        *COMMON,
        "--drain=3",
        "--aws.listen=127.0.0.1:9000",
        "--aws.tls-dir=/elsewhere",
        "--aws.allowed-client=spiffe://other",
        "--aws.drain=5",
        "--aws.ready-file=/run/aws.json",
        "--aws.token-review",
        "--aws.token-audience=external-secrets-provider/aws",
        environment=REVIEW,
    )

    assert (vault.options.listen, vault.options.tls_dir, vault.options.drain_seconds) == (
        "0.0.0.0:8080",
        Path("/tls/vault"),
        3.0,
    )
    assert (vault.options.allowed_clients, vault.options.call_auth) == ((CLIENT,), None)
    assert (aws.options.listen, aws.options.tls_dir, aws.options.drain_seconds) == (
        "127.0.0.1:9000",
        Path("/elsewhere"),
        5.0,
    )
    assert aws.options.allowed_clients == (CLIENT, "spiffe://other")
    assert aws.options.ready_file == Path("/run/aws.json")
    assert aws.options.call_auth is not None
    assert aws.options.call_auth.audiences == ("external-secrets-provider/aws",)


def test_variables_are_common_to_all_providers() -> None:
    environment = {"ESO_PROVIDER_TLS_DIR": "/tls", "ESO_PROVIDER_ALLOWED_CLIENT": CLIENT, "ESO_PROVIDER_DRAIN": "7"}

    served = members("vault", "aws", environment=environment)

    assert {one.options.drain_seconds for one in served} == {7.0}
    assert [one.options.tls_dir for one in served] == [Path("/tls/vault"), Path("/tls/aws")]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        pytest.param(("vault", "vault", *COMMON), "provider vault is named twice", id="a name twice"),
        pytest.param(("Vault", "aws", *COMMON), '"Vault" is not the name of a provider', id="no name"),
        pytest.param(
            ("vault", "aws", *COMMON, "--aws.listen=127.0.0.1:8080"),
            "vault and aws listen on port 8080; set --NAME.listen",
            id="one port for two",
        ),
        pytest.param(
            ("vault", "aws", *COMMON, "--aws.tls-dir=/tls/vault"),
            "vault and aws have their certificates in /tls/vault; set --NAME.tls-dir",
            id="one certificate for two",
        ),
        pytest.param(
            ("vault", "aws", *COMMON, "--aws.listen=9000"),
            'provider aws: "9000" is not an address; write host:port',
            id="no address",
        ),
        pytest.param(
            ("vault", "aws", *COMMON, "--listen=[::]:65530"),
            'provider aws: "[::]:65540" is not an address',
            id="no port left",
        ),
        pytest.param(("vault", "aws", "--tls-dir=/tls"), "provider vault: --allowed-client is needed", id="no client"),
        pytest.param(("vault", f"--allowed-client={CLIENT}"), "provider vault: --tls-dir is needed", id="no folder"),
        pytest.param(
            ("vault", "aws", *COMMON, "--token-review", "--token-audience=a"),
            "a token for one is good for all of them; write --NAME.token-audience",
            id="one audience for all",
        ),
        pytest.param(
            ("vault", "aws", *COMMON, "--token-review", "--vault.token-audience=a"),
            "provider aws: --token-audience is needed",
            id="one without an audience",
        ),
    ],
)
def test_flags_that_cannot_work_are_refused(arguments: Sequence[str], problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        members(*arguments, environment=REVIEW)

    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        pytest.param((), "required: name", id="no provider"),
        pytest.param(
            ("vault", *COMMON, "--aws.listen=127.0.0.1:1"), 'provider "aws" does not run here', id="another provider"
        ),
        pytest.param(("vault", *COMMON, "--vault.nonsense=1"), "--nonsense=1", id="no flag of a provider"),
        pytest.param(("vault", *COMMON, "--nonsense"), "--nonsense", id="no flag"),
        pytest.param(("vault", *COMMON, "--drain", "3", "aws"), "aws: write names before the flags", id="a late name"),
        pytest.param(
            ("vault", *COMMON, "--vault.token-review", "yes"), "yes: write names before the flags", id="a loose value"
        ),
    ],
)
def test_a_wrong_flag_is_named(arguments: Sequence[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run(arguments)

    assert caught.value.code == 2
    assert problem in capsys.readouterr().err


def test_flags_that_cannot_work_end_with_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(("vault", "aws", "--tls-dir=/tls")) == 2
    assert capsys.readouterr().err == "eso-providers: provider vault: --allowed-client is needed; see --help\n"
