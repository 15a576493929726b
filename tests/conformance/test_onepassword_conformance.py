"""The provider `onepassword` keeps the contract, as its own process, on the stand-ins for 1Password."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from eso_provider_onepassword.conformance import connect_kinds, sdk_kinds
from eso_provider_onepassword.testing.connect import TOKEN, ConnectServer
from eso_provider_onepassword.testing.core import TOKEN as ACCOUNT_TOKEN
from eso_provider_onepassword.testing.core import environment_with
from eso_testkit.cli.conformance import BINARY, IF_ABSENT, OWNERSHIP, Candidate, judged
from eso_testkit.cli.providerprocess import serve_command

LOGIN = {"user": "anna", "password": "first"}
KNOWN: dict[str, Any] = {
    "known": [{"key": "login", "value": "anna", "property": "user"}],
    "maps": [{"key": "login", "value": LOGIN}],
    "find": {"name": "^user$", "keys": ["user"]},
}
CANDIDATE = Candidate(
    lambda _: serve_command("onepassword"),
    without={"write": frozenset({*IF_ABSENT, *OWNERSHIP, BINARY})},
    flags=("--allow-address", "loopback"),
)


@pytest.fixture
def fixture() -> Iterator[Mapping[str, Any]]:
    """A Connect server and a service account with one item each; the provider's process inherits where they are."""
    with (
        ConnectServer.started() as server,
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patched,
    ):
        account = environment_with(Path(folder), {ACCOUNT_TOKEN: {"team": {"login": LOGIN}}}, {})
        for name, value in (account | {"NO_PROXY": "127.0.0.1"}).items():
            patched.setenv(name, value)
        server.vault("team").put("login", LOGIN)
        kinds = connect_kinds(server.url, TOKEN, "team", **KNOWN) + sdk_kinds(ACCOUNT_TOKEN, "team", **KNOWN)
        yield {"kinds": kinds}


async def test_the_process_keeps_the_contract(tmp_path: Path, fixture: Mapping[str, Any]) -> None:
    tried = await CANDIDATE.tried("onepassword", tmp_path, fixture)

    assert {profile: judged(results) for profile, results in tried.items()} == CANDIDATE.expected
    kinds = {kind["kind"] for kind in fixture["kinds"]}
    assert [{one.kind for one in tried[profile]} for profile in ("read", "write")] == [kinds, kinds]
