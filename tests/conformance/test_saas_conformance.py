"""The providers of hosted services keep the contract, each as its own process, against the server that stands in."""

from __future__ import annotations

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
from eso_provider_doppler.conformance import fixture as doppler_fixture
from eso_provider_doppler.testing.server import TOKEN, DopplerServer

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


CANDIDATES = {
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
        *(("doppler", profile) for profile in ("read", "write", "tls")),
    ],
)
async def test_a_provider_process_keeps_the_contract(
    name: str, profile: str, tmp_path: Path, backends: Backends
) -> None:
    candidate = CANDIDATES[name]

    found = judged(await candidate.tried(name, profile, tmp_path, backends(name)))

    assert found == Judgement([], candidate.without.get(profile, frozenset()))
