"""The provider `onepassword` keeps the contract, as its own process, on the stand-ins for 1Password."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from eso_cli.testing.conformance import BINARY, IF_ABSENT, OWNERSHIP, Candidate, Judgement, judged
from eso_cli.testing.providerprocess import serve_command
from eso_provider_onepassword.conformance import connect_kinds, sdk_kinds
from eso_provider_onepassword.testing.connect import TOKEN, ConnectServer
from eso_provider_onepassword.testing.core import TOKEN as ACCOUNT_TOKEN
from eso_provider_onepassword.testing.core import environment_with

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


@pytest.fixture(scope="module")
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


@pytest.mark.parametrize("profile", ["read", "write", "tls"])
async def test_the_process_keeps_the_contract(profile: str, tmp_path: Path, fixture: Mapping[str, Any]) -> None:
    results = await CANDIDATE.tried("onepassword", profile, tmp_path, fixture)

    assert judged(results) == Judgement([], CANDIDATE.without.get(profile, frozenset()))
    if profile != "tls":
        assert {one.kind for one in results} == {kind["kind"] for kind in fixture["kinds"]}
