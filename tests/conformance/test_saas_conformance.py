"""The providers of hosted services keep the contract, each as its own process, against the server that stands in."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from eso_cli.testing.conformance import (
    BINARY,
    IF_ABSENT,
    OWNERSHIP,
    VERSIONS,
    Candidate,
    Judgement,
    judged,
)
from eso_cli.testing.providerprocess import serve_command
from eso_provider_akeyless.conformance import fixture as akeyless_fixture
from eso_provider_akeyless.testing.server import ACCESS_ID, ACCESS_KEY, AkeylessServer
from eso_provider_doppler.conformance import fixture as doppler_fixture
from eso_provider_doppler.testing.server import TOKEN, DopplerServer
from eso_provider_tokens import conformance as tokens
from eso_provider_tokens.testing.servers import BeyondtrustServer, CloudsmithServer, GrafanaServer, QuayServer

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


CANDIDATES = {
    "tokens": Candidate(lambda _: serve_command("tokens"), backend=tokens_backend, flags=LOOPBACK),
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
}

Backends = Callable[[str], Mapping[str, Any] | None]


@pytest.fixture(scope="module")
def backends() -> Iterator[Backends]:
    """Start the backend of each provider once for all of its profiles; yield its fixture."""
    with ExitStack() as running:

        @cache
        def started(name: str) -> Mapping[str, Any] | None:
            return running.enter_context(CANDIDATES[name].backend())

        yield started


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        *(("tokens", profile) for profile in ("generator", "tls")),
        *(("akeyless", profile) for profile in ("read", "write", "tls")),
        *(("doppler", profile) for profile in ("read", "write", "tls")),
    ],
)
async def test_a_provider_process_keeps_the_contract(
    name: str, profile: str, tmp_path: Path, backends: Backends
) -> None:
    candidate = CANDIDATES[name]

    found = judged(await candidate.tried(name, profile, tmp_path, backends(name)))

    assert found == Judgement([], candidate.without.get(profile, frozenset()))
