"""The providers of hosted services keep the contract, each as its own process, against the server that stands in."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from eso_provider_akeyless.conformance import fixture as akeyless_fixture
from eso_provider_akeyless.testing.server import ACCESS_ID, ACCESS_KEY, AkeylessServer
from eso_provider_bitwarden.conformance import fixture as bitwarden_fixture
from eso_provider_bitwarden.testing.server import ORGANIZATION, PROJECT, CompanionServer
from eso_provider_bitwarden.testing.server import TOKEN as BITWARDEN_TOKEN
from eso_provider_doppler.conformance import fixture as doppler_fixture
from eso_provider_doppler.testing.server import TOKEN, DopplerServer
from eso_provider_github.testing.conformance import WITHOUT as GITHUB_WITHOUT
from eso_provider_github.testing.conformance import github_backend
from eso_provider_gitlab.testing.conformance import gitlab_backend
from eso_provider_infisical.conformance import fixture as infisical_fixture
from eso_provider_infisical.testing.server import CLIENT_ID, CLIENT_SECRET, MAIN, InfisicalServer
from eso_provider_tokens import conformance as tokens
from eso_provider_tokens.testing.servers import BeyondtrustServer, CloudsmithServer, GrafanaServer, QuayServer
from eso_testkit.cli.conformance import (
    BINARY,
    EXISTS,
    IF_ABSENT,
    OWNERSHIP,
    VERSIONS,
    Candidate,
)
from eso_testkit.cli.providerprocess import serve_command

LOOPBACK = ("--allow-address", "loopback")
LOGIN = '{"user":"anna","realm":"test"}'


@contextmanager
def doppler_backend() -> Iterator[Mapping[str, Any]]:
    with DopplerServer.started() as doppler, pytest.MonkeyPatch.context() as patched:
        patched.setenv("DOPPLER_BASE_URL", doppler.url)
        doppler.configs["shop", "prd"] = {"GREETING": "hello", "LOGIN": LOGIN}
        yield doppler_fixture(
            TOKEN,
            "shop",
            "prd",
            known=[{"key": "GREETING", "value": "hello"}],
            maps=[{"key": "LOGIN", "value": {"user": "anna", "realm": "test"}}],
            find={"name": "^GREET", "keys": ["GREETING"]},
            ownership=False,
        )


@contextmanager
def akeyless_backend() -> Iterator[Mapping[str, Any]]:
    with AkeylessServer.started() as akeyless:
        akeyless.put("/shop/greeting", "hello")
        akeyless.put("/shop/login", '{"user":"first"}', LOGIN)
        yield akeyless_fixture(
            akeyless.url,
            (ACCESS_ID, ACCESS_KEY),
            "/shop",
            known=[
                {"key": "/shop/greeting", "value": "hello"},
                {"key": "/shop/login", "value": "first", "property": "user", "version": "1"},
            ],
            maps=[{"key": "/shop/login", "value": {"user": "anna", "realm": "test"}}],
            find={"name": "/greet", "keys": ["/shop/greeting"]},
        )


@contextmanager
def tokens_backend() -> Iterator[Mapping[str, Any]]:
    with ExitStack() as running, tempfile.TemporaryDirectory() as folder:
        quay = running.enter_context(QuayServer.started(tls_folder=Path(folder), robots={"shop+ci": "jwt"}))
        smith = running.enter_context(CloudsmithServer.started(services={("shop", "ci"): "jwt"}))
        grafana = running.enter_context(GrafanaServer.started())
        beyondtrust = running.enter_context(BeyondtrustServer.started(secrets={("aws", "reader")}))
        (Path(folder) / "ca.pem").write_bytes(quay.ca)
        running.enter_context(pytest.MonkeyPatch.context()).setenv("SSL_CERT_FILE", str(Path(folder) / "ca.pem"))
        kinds = [
            tokens.quay(quay.url, "shop+ci", "jwt"),
            tokens.cloudsmith(smith.url, "shop", "ci", "jwt"),
            tokens.grafana(grafana.url, grafana.token),
            tokens.beyondtrust(beyondtrust.url, beyondtrust.site, beyondtrust.token, "aws/reader"),
        ]
        yield {"kinds": kinds}


@contextmanager
def infisical_backend(*, has_v4: bool = True) -> Iterator[Mapping[str, Any]]:
    with InfisicalServer.started(has_v4=has_v4) as infisical:
        infisical.project().put("/LOGIN", '{"user":"first"}')
        infisical.project().put("/LOGIN", LOGIN)
        infisical.project().put("/app/GREETING", "hello")
        scope = {"projectSlug": MAIN, "environmentSlug": "dev", "recursive": True}
        known = {
            "known": [
                {"key": "LOGIN", "value": "anna", "property": "user"},
                {"key": "app/GREETING", "value": "hello"},
                {"key": "LOGIN", "value": "first", "property": "user", "version": "1"},
            ],
            "maps": [{"key": "LOGIN", "value": {"user": "anna", "realm": "test"}}],
            "find": {"name": "^GREET", "keys": ["GREETING"]},
        }
        yield infisical_fixture(infisical.url, scope, (CLIENT_ID, CLIENT_SECRET), known)


@contextmanager
def bitwarden_backend() -> Iterator[Mapping[str, Any]]:
    with CompanionServer.started() as bitwarden:
        login = bitwarden.put("login", LOGIN)
        place = {"organizationID": ORGANIZATION, "projectID": PROJECT, "bitwardenServerSDKURL": bitwarden.url}
        known = {
            "known": [{"key": "login", "value": "anna", "property": "user"}, {"key": login, "value": LOGIN}],
            "maps": [{"key": "login", "value": {"user": "anna", "realm": "test"}}],
            "find": {"name": "^log", "keys": [login]},
        }
        yield bitwarden_fixture(place, BITWARDEN_TOKEN, known)


CANDIDATES = {
    "tokens": Candidate(
        lambda _: serve_command("tokens"), backend=tokens_backend, flags=LOOPBACK, profiles=("generator", "tls")
    ),
    "bitwarden": Candidate(
        lambda _: serve_command("bitwarden"),
        without={
            "read": frozenset({VERSIONS}),
            "write": frozenset({*IF_ABSENT, *OWNERSHIP, BINARY}),
        },
        backend=bitwarden_backend,
        flags=LOOPBACK,
    ),
    "infisical": Candidate(
        lambda _: serve_command("infisical"),
        without={"write": frozenset({*IF_ABSENT, *OWNERSHIP, BINARY})},
        backend=infisical_backend,
        flags=LOOPBACK,
    ),
    "akeyless": Candidate(
        lambda _: serve_command("akeyless"),
        without={"write": frozenset({*IF_ABSENT, BINARY})},
        backend=akeyless_backend,
        flags=LOOPBACK,
    ),
    "doppler": Candidate(
        lambda _: serve_command("doppler"),
        without={
            "read": frozenset({VERSIONS}),
            "write": frozenset({*IF_ABSENT, *OWNERSHIP, BINARY}),
        },
        backend=doppler_backend,
        flags=LOOPBACK,
    ),
    "gitlab": Candidate(
        lambda _: serve_command("gitlab"),
        without={"read": frozenset({EXISTS, VERSIONS})},
        backend=gitlab_backend,
        flags=LOOPBACK,
        profiles=("read", "generator", "tls"),
    ),
    "github": Candidate(
        lambda _: serve_command("github"),
        without=GITHUB_WITHOUT,
        backend=github_backend,
        flags=LOOPBACK,
        profiles=("read", "write", "generator", "tls"),
    ),
}


@pytest.mark.timeout(900)  # all profiles of a provider, one after the other
@pytest.mark.parametrize("name", CANDIDATES)
async def test_a_provider_process_keeps_the_contract(name: str, tmp_path: Path) -> None:
    candidate = CANDIDATES[name]

    with candidate.backend() as fixture:
        found = await candidate.judged(name, tmp_path, fixture)

    assert found == candidate.expected


@pytest.mark.timeout(900)
async def test_the_infisical_provider_keeps_the_contract_on_a_server_without_the_api_v4(tmp_path: Path) -> None:
    candidate = CANDIDATES["infisical"]

    with infisical_backend(has_v4=False) as fixture:
        found = await candidate.judged("infisical", tmp_path, fixture)

    assert found == candidate.expected
