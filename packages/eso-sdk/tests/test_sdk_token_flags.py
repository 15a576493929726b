"""The flags for the verification of call tokens."""

import argparse
from pathlib import Path

import pytest

from eso_sdk.accounts import (
    POD_FOLDER,
    CallAuth,
    CallAuthError,
    JwksSettings,
    ReviewSettings,
    TokenPolicy,
    add_flags,
    call_auth,
)
from eso_sdk.main import run
from eso_sdk.testing.scripted import SCRIPTED
from eso_sdk.testing.server import CLIENT_ID


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        pytest.param(["--token-audience=a"], "need --token-jwks or --token-review", id="an audience alone"),
        pytest.param(["--token-jwks=/k", "--token-issuer=i"], "--token-audience is needed", id="no audience"),
        pytest.param(["--token-jwks=/k", "--token-audience=a"], "needs --token-issuer", id="no issuer"),
        pytest.param(
            ["--token-jwks=/k", "--token-issuer=i", "--token-review", "--token-audience=a"], "exclude", id="both ways"
        ),
        pytest.param(
            ["--token-jwks=http://issuer.test/k", "--token-issuer=i", "--token-audience=a"], "https://", id="plain HTTP"
        ),
        pytest.param(["--token-review", "--token-audience=a"], "in a pod only", id="a review outside of a cluster"),
    ],
)
def test_flags_that_make_no_sense_end_the_start(
    flags: list[str],
    problem: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    code = run(SCRIPTED, [f"--tls-dir={tmp_path}", f"--allowed-client={CLIENT_ID}", *flags])

    assert code == 2
    assert problem in capsys.readouterr().err


def chosen(flags: list[str], environment: dict[str, str]) -> CallAuth | None:
    parser = argparse.ArgumentParser()
    add_flags(parser, environment)
    return call_auth(
        parser.parse_args(flags), {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    )


@pytest.mark.parametrize(
    ("flags", "environment", "expected"),
    [
        pytest.param([], {}, None, id="nothing is verified unless asked for"),
        pytest.param(
            ["--token-jwks=https://i.test/k", "--token-issuer=i", "--token-audience=a", "--token-audience=b"],
            {},
            CallAuth(("a", "b"), JwksSettings("https://i.test/k", "i")),
            id="keys at an address",
        ),
        pytest.param(
            [],
            {"TOKEN_JWKS": "/k", "TOKEN_ISSUER": "i", "TOKEN_AUDIENCE": "a,b", "TOKEN_POLICY": "optional"},
            CallAuth(("a", "b"), JwksSettings("/k", "i"), TokenPolicy.OPTIONAL),
            id="all of it from the environment",
        ),
        pytest.param(
            ["--token-review", "--token-audience=a"],
            {},
            CallAuth(("a",), ReviewSettings("https://[fd00::1]:6443", POD_FOLDER / "token", POD_FOLDER / "ca.crt")),
            id="the API server of the pod",
        ),
    ],
)
def test_flags_and_environment_say_how_tokens_are_verified(
    flags: list[str], environment: dict[str, str], expected: CallAuth | None
) -> None:
    assert chosen(flags, environment) == expected


def test_an_odd_policy_of_the_environment_is_no_policy() -> None:
    with pytest.raises(CallAuthError, match="--token-policy"):
        chosen(["--token-review", "--token-audience=a"], {"TOKEN_POLICY": "sometimes"})
