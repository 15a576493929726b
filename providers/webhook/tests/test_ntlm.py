"""NTLM: the examples of MS-NLMP and RFC 1320, and a login at an endpoint that checks it."""

from __future__ import annotations

import asyncio
import base64
import hmac
import struct
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web

from eso_api.values import SecretBytes
from eso_provider_webhook.generator import WebhookGenerator
from eso_provider_webhook.ntlm import (
    Challenge,
    Login,
    authenticate,
    challenge_of,
    md4,
    nt_response,
    response_key,
    scheme_of,
)
from eso_provider_webhook.store import WebhookStore
from eso_sdk.testing import InMemory, call_context
from eso_sdk.testing.server import Authority
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import GetItem, RemoteRef

NONCE = bytes.fromhex("0123456789abcdef")
TARGET_INFO = bytes.fromhex("02000c0044006f006d00610069006e0001000c00530065007200760065007200") + bytes(4)
WITH_TIME = TARGET_INFO[:-4] + struct.pack("<HHQ", 7, 8, 0x1DB_0000_0000_0000) + bytes(4)
FLAGS = 0xE2888233
NOW = datetime(2026, 1, 1, tzinfo=UTC)
AUTH = {"ntlm": {"usernameSecret": {"name": "s", "key": "u"}, "passwordSecret": {"name": "s", "key": "p"}}}


def challenge_message(info: bytes = TARGET_INFO) -> str:
    fixed = struct.pack("<8sIHHII8s8xHHI", b"NTLMSSP\0", 2, 0, 0, 48, FLAGS, NONCE, len(info), len(info), 48)
    return base64.b64encode(fixed + info).decode()


def is_proof(text: str, login: Login) -> bool:
    """Return whether an authenticate message proves that password, as a server checks it."""
    raw = base64.b64decode(text)
    size, _, at = struct.unpack_from("<HHI", raw, 20)
    domain, user = (_field(raw, place).decode("utf-16-le") for place in (28, 36))
    proof, blob = raw[at : at + 16], raw[at + 16 : at + size]
    said = f"{domain}\\{user}" if domain else user
    key = response_key(login.password, user, domain)
    return said == login.user and proof == hmac.digest(key, NONCE + blob, "md5")


def _field(raw: bytes, place: int) -> bytes:
    size, _, at = struct.unpack_from("<HHI", raw, place)
    return raw[at : at + size]


@pytest.mark.parametrize(
    ("text", "digest"),
    [
        (b"", "31d6cfe0d16ae931b73c59d7e0c089c0"),
        (b"abc", "a448017aaf21d8525fc10ae87aa6729d"),
        (b"1234567890" * 8, "e33b4ddc9c38f2199c3e7b164fcc0536"),
    ],
    ids=["nothing", "short", "two blocks"],
)
def test_md4_has_the_digests_of_the_rfc(text: bytes, digest: str) -> None:
    assert md4(text).hex() == digest


def test_the_response_is_that_of_the_specification() -> None:
    key = response_key("Password", "User", "Domain")
    response = nt_response(key, Challenge(NONCE, TARGET_INFO, FLAGS), b"\xaa" * 8, bytes(8))

    assert key.hex() == "0c868a403bfd7a93a3001ef22ef02e3f"
    assert response[:16].hex() == "68cd0ab851e51c96aabc927bebef6a1c"


@pytest.mark.parametrize("info", [TARGET_INFO, WITH_TIME], ids=["our time", "the server's time"])
@pytest.mark.parametrize("user", ["anna", "CORP\\anna"])
def test_a_message_proves_the_password(info: bytes, user: str) -> None:
    challenge = challenge_of([f"NTLM {challenge_message(info)}"], "NTLM")
    assert challenge is not None
    login = Login(user, "pässword")

    message = authenticate(login, challenge, NOW)

    assert is_proof(message, login)
    assert not is_proof(message, Login(user, "other"))
    lm = _field(base64.b64decode(message), 12)
    assert (lm == bytes(24)) == (info is WITH_TIME)


@pytest.mark.parametrize(
    ("offered", "scheme"),
    [
        (["NTLM"], "NTLM"),
        (["Negotiate", "NTLM"], "NTLM"),
        (["Negotiate, Basic realm=x"], "Negotiate"),
        (['Basic realm="x"'], None),
        ([], None),
        (["", ","], None),
    ],
)
def test_the_scheme_to_log_in_with(offered: list[str], scheme: str | None) -> None:
    assert scheme_of(offered) == scheme


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("!", id="no base64"),
        pytest.param(base64.b64encode(b"NTLMSSP\0").decode(), id="too short"),
        pytest.param(base64.b64encode(b"x" * 64).decode(), id="something else"),
        pytest.param(base64.b64encode(base64.b64decode(challenge_message())[:-6]).decode(), id="cut off"),
    ],
)
def test_a_challenge_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ProviderError, match="cannot be read"):
        challenge_of([f"NTLM {text}"], "NTLM")


# --- at an endpoint ---------------------------------------------------------------------------------------------------


def guarded(login: Login) -> Callable[[web.Request], Any]:
    """An endpoint that wants an NTLM login, on one connection, as servers do."""
    challenged: set[object] = set()

    async def answer(request: web.Request) -> web.Response:
        scheme, _, text = request.headers.get("Authorization", "").partition(" ")
        if scheme != "NTLM":
            return web.Response(status=401, headers={"WWW-Authenticate": "NTLM"})
        if base64.b64decode(text)[8:12] == b"\x01\0\0\0":
            challenged.add(request.transport)
            return web.Response(status=401, headers={"WWW-Authenticate": f"NTLM {challenge_message(WITH_TIME)}"})
        if request.transport not in challenged or not is_proof(text, login):
            return web.Response(status=401, headers={"WWW-Authenticate": "NTLM"})
        return web.Response(text='{"a": "1"}')

    return answer


@pytest.mark.parametrize("password", ["right", "wrong"])
async def test_a_login_at_an_endpoint(client: InMemory, endpoint: Any, password: str) -> None:
    endpoint.answers["/"] = guarded(Login("CORP\\anna", "right"))
    spec = {"url": endpoint.url, "method": "POST", "body": "b", "auth": AUTH, "result": {}}
    sent = {"/auth/ntlm/usernameSecret": "CORP\\anna", "/auth/ntlm/passwordSecret": password}
    context = call_context(WebhookGenerator, spec, sent)

    if password == "right":
        assert (await client.generate(context)).data["a"].reveal() == b"1"
    else:
        with pytest.raises(ProviderError) as caught:
            await client.generate(context)
        assert caught.value.reason is ErrorReason.CREDENTIALS_REJECTED
    assert [asked.body for asked in endpoint.asked] == ["b"] * 3


async def test_an_endpoint_without_ntlm_never_sees_the_password(client: InMemory, endpoint: Any) -> None:
    endpoint.status(401, WWW_Authenticate='Basic realm="x"')
    sent = {"/auth/ntlm/usernameSecret": "anna", "/auth/ntlm/passwordSecret": "right"}

    with pytest.raises(ProviderError) as caught:
        await client.generate(call_context(WebhookGenerator, {"url": endpoint.url, "auth": AUTH, "result": {}}, sent))

    assert caught.value.reason is ErrorReason.CREDENTIALS_REJECTED
    (asked,) = endpoint.asked
    assert "Authorization" not in asked.headers


async def test_a_store_logs_in_at_an_endpoint_with_a_private_authority(
    client: InMemory, tls_endpoint: Any, authority: Authority
) -> None:
    tls_endpoint.answers["/"] = guarded(Login("CORP\\anna", "right"))
    spec = {
        "url": tls_endpoint.url,
        "auth": AUTH,
        "caBundle": base64.b64encode(authority.pem).decode(),
        "result": {"jsonPath": "$.a"},
    }

    async def read(password: str) -> object:
        sent = {"/auth/ntlm/usernameSecret": "CORP\\anna", "/auth/ntlm/passwordSecret": password}
        (result,) = await client.get(call_context(WebhookStore, spec, sent), [GetItem("only", RemoteRef("db"))])
        return result.outcome

    several = await asyncio.gather(*(read("right") for _ in range(5)))
    wrong = await read("CANARY-wrong")

    assert [value.reveal() for value in several if isinstance(value, SecretBytes)] == [b"1"] * 5
    assert isinstance(wrong, ProviderError)
    assert wrong.reason is ErrorReason.CREDENTIALS_REJECTED
    assert "CANARY" not in wrong.message
