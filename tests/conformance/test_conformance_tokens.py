"""The suite on a provider that requires the token of a service account."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from eso_conformance import CaseResult, Profile, Target, UnreachableError, Verdict, run
from eso_conformance.fixture import Fixture, from_plain
from eso_conformance.subject import Identity, TokenError, namespace_of, read_token
from eso_sdk.accounts import CallAuth, JwksSettings
from eso_sdk.testing.issuer import AUDIENCE, ISSUER, Issuer
from eso_sdk.testing.scripted import SCRIPTED, Script
from eso_sdk.testing.server import CLIENT_ID, ProviderServer
from kubebase.testing.clock import VirtualClock


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    return tmp_path / "token"


@pytest.fixture
def known() -> Fixture:
    script = Script.new(values={"greeting": b"hello"})
    return from_plain({"kinds": [{"kind": "Scripted", "spec": {"script": script.name}}]})


def write(path: Path, text: str) -> None:
    path.write_text(text, encoding="ascii")


@asynccontextmanager
async def requiring_tokens() -> AsyncIterator[tuple[Target, Issuer]]:
    async with Issuer.publishing() as issuer:
        auth = CallAuth((AUDIENCE,), JwksSettings(issuer.address, ISSUER))
        async with ProviderServer(SCRIPTED, VirtualClock(), call_auth=auth) as server:
            client = server.authority.leaf(CLIENT_ID)
            identity = Identity(client.ca, client.certificate, client.key.reveal())
            yield Target(server.address, identity, authority=(server.authority.pem, server.authority.key_pem)), issuer


async def test_a_provider_that_requires_tokens_is_tried_with_one(token_file: Path, known: Fixture) -> None:
    """The account is of another namespace than the suite would take by itself."""
    async with requiring_tokens() as (target, issuer):
        token = issuer.token()
        write(token_file, f"{token}\n")
        trying = replace(target, token_file=token_file)

        results = [result async for result in run(trying, [Profile.READ, Profile.TLS], known)]

    assert [str(each.case) for each in results if each.verdict is Verdict.FAILED] == []
    assert sum(each.verdict is Verdict.PASSED for each in results) > 10
    assert token not in f"{trying!r} {results!r}"


async def test_the_file_is_read_for_every_call(token_file: Path, known: Fixture) -> None:
    async with requiring_tokens() as (target, issuer):
        write(token_file, issuer.token())
        failed: list[CaseResult] = []
        passed = 0
        async for result in run(replace(target, token_file=token_file), [Profile.READ], known):
            if result.verdict is Verdict.FAILED:
                failed.append(result)
                write(token_file, issuer.token())
            elif not failed:
                write(token_file, "of-no-use")
            else:
                passed += result.verdict is Verdict.PASSED

    assert len(failed) == 1
    assert passed > 5


async def test_without_a_token_the_run_ends_at_once_and_names_the_option(known: Fixture) -> None:
    async with requiring_tokens() as (target, _):
        with pytest.raises(UnreachableError, match=r"carry a service account's token.*--token-file"):
            [result async for result in run(target, [Profile.READ], known)]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(None, id="no file"),
        pytest.param(b"", id="an empty one"),
        pytest.param(b"CANARY one\nCANARY two", id="more than a token"),
        pytest.param(b"CANARY-\xff\x00", id="bytes that are none"),
    ],
)
def test_a_file_without_a_token_is_named_and_not_shown(token_file: Path, content: bytes | None) -> None:
    if content is not None:
        token_file.write_bytes(content)

    with pytest.raises(TokenError) as caught:
        read_token(token_file)

    assert str(token_file) in str(caught.value)
    assert "CANARY" not in str(caught.value)


@pytest.mark.parametrize("token", ["opaque", "a.b.c", "a.e30.c", "a.W10.c", "a.eyJzdWIiOiJhbm5hIn0.c", "a.ÿ.c"])
def test_a_token_that_names_no_account_is_of_no_namespace(token: str) -> None:
    assert namespace_of(token) == ""
