"""Generators that need no network, over the wire codec: defaults, bounds and errors as the Go generators have them."""

from __future__ import annotations

import base64
import string
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
    load_ssh_public_key,
)

from eso_provider_generators.generators import (
    DEFAULT_SYMBOLS,
    FakeGenerator,
    MFAGenerator,
    PasswordGenerator,
    SSHKeyGenerator,
    UUIDGenerator,
)
from eso_provider_generators.provider import PROVIDER
from eso_sdk.provider import Generator, Provider
from eso_sdk.testing import InMemory, ProviderServer, call_context
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import KindRole, Operation, ValidationState
from kubebase.testing.clock import VirtualClock

# The seed of RFC 6238's appendix B.
RFC_SEED = base64.b32encode(b"12345678901234567890").decode()


@pytest.fixture
async def client() -> AsyncIterator[InMemory]:
    async with InMemory(PROVIDER, VirtualClock()) as made:
        yield made


async def _generated(client: InMemory, generator: type[Generator[Any]], spec: Mapping[str, Any], **more: Any) -> Any:
    made = await client.generate(call_context(generator, spec, **more))
    assert made.state is None
    return {key: value.reveal() for key, value in made.data.items()}


async def _refusal(client: InMemory, generator: type[Generator[Any]], spec: Mapping[str, Any], **more: Any) -> str:
    with pytest.raises(ProviderError) as caught:
        await client.generate(call_context(generator, spec, **more))
    assert caught.value.reason is ErrorReason.CONFIG_INVALID
    return caught.value.message


def _counts(password: str) -> tuple[int, int, int]:
    """Letters, digits, symbols."""
    letters = sum(character in string.ascii_letters for character in password)
    digits = sum(character in string.digits for character in password)
    return letters, digits, len(password) - letters - digits


# --- Password --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "counts"),
    [
        pytest.param({}, (12, 6, 6), id="24 characters, a quarter digits, a quarter symbols"),
        pytest.param({"length": 0}, (12, 6, 6), id="no length means 24"),
        pytest.param({"length": 10}, (6, 2, 2), id="quarters are rounded down"),
        pytest.param({"length": 8, "digits": 0, "symbols": 0}, (8, 0, 0), id="letters only"),
        pytest.param({"length": 4, "digits": 4, "symbols": 0}, (0, 4, 0), id="digits only"),
        pytest.param({"length": 52, "digits": 0, "symbols": 0}, (52, 0, 0), id="every letter once"),
        pytest.param({"length": 100, "allowRepeat": True}, (50, 25, 25), id="more letters than there are, repeated"),
    ],
)
async def test_password_has_its_parts(client: InMemory, spec: dict[str, Any], counts: tuple[int, ...]) -> None:
    password = (await _generated(client, PasswordGenerator, spec))["password"].decode()

    assert _counts(password) == counts
    assert "allowRepeat" in spec or len(set(password)) == len(password)


async def test_password_uses_the_given_symbols(client: InMemory) -> None:
    spec = {"digits": 5, "symbols": 5, "symbolCharacters": "-_$@", "noUpper": True, "allowRepeat": True}

    password = (await _generated(client, PasswordGenerator, spec))["password"].decode()

    assert set(password) <= set(string.ascii_lowercase + string.digits + "-_$@")
    assert _counts(password) == (14, 5, 5)


async def test_password_takes_its_own_symbols_when_none_are_given(client: InMemory) -> None:
    spec = {"length": 40, "symbols": 20, "digits": 0, "symbolCharacters": ""}

    password = (await _generated(client, PasswordGenerator, spec))["password"].decode()

    assert set(password) <= set(string.ascii_letters + DEFAULT_SYMBOLS)


async def test_each_key_has_a_password_of_its_own(client: InMemory) -> None:
    made = await _generated(client, PasswordGenerator, {"secretKeys": ["a", "b"]})

    assert set(made) == {"a", "b"}
    assert made["a"] != made["b"]


@pytest.mark.parametrize(
    ("encoding", "decode"),
    [
        ("raw", bytes),
        ("base64", base64.b64decode),
        ("base64url", base64.urlsafe_b64decode),
        ("base32", base64.b32decode),
        ("hex", lambda text: bytes.fromhex(text.decode())),
    ],
)
async def test_password_encodings(client: InMemory, encoding: str, decode: Callable[[bytes], bytes]) -> None:
    made = await _generated(client, PasswordGenerator, {"encoding": encoding})

    assert _counts(decode(made["password"]).decode()) == (12, 6, 6)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param({"length": 4, "digits": 3, "symbols": 2}, "more than the length", id="too many parts"),
        pytest.param({"digits": -1}, "negative", id="negative digits"),
        pytest.param({"length": 60, "digits": 1, "symbols": 1}, "set allowRepeat", id="more letters than there are"),
        pytest.param({"length": 30, "digits": 1, "symbols": 1, "noUpper": True}, "/length", id="only 26 small ones"),
        pytest.param({"length": 24, "digits": 11}, "/digits", id="eleven digits"),
        pytest.param({"symbols": 3, "symbolCharacters": "!!!"}, "/symbols", id="equal symbols count once"),
        pytest.param({"symbols": 2, "symbolCharacters": "0", "digits": 10}, "/symbols", id="symbols that are taken"),
        pytest.param({"secretKeys": []}, "/secretKeys", id="no key"),
        pytest.param({"secretKeys": ["a", "a"]}, "/secretKeys", id="a key twice"),
        pytest.param({"secretKeys": ["a", ""]}, "/secretKeys", id="an empty key"),
        pytest.param({"encoding": "rot13"}, "/encoding", id="an unknown encoding"),
        pytest.param({"length": 100_000, "allowRepeat": True}, "/length", id="too long"),
    ],
)
async def test_password_refuses_what_cannot_be(client: InMemory, spec: dict[str, Any], message: str) -> None:
    assert message in await _refusal(client, PasswordGenerator, spec)


# --- the others ------------------------------------------------------------------------------------------------------


async def test_uuid_is_random_and_of_version_4(client: InMemory) -> None:
    first, second = [(await _generated(client, UUIDGenerator, {}))["uuid"].decode() for _ in range(2)]

    assert uuid.UUID(first).version == 4
    assert first == str(uuid.UUID(first))
    assert first != second


async def test_fake_gives_what_it_was_given(client: InMemory) -> None:
    made = await _generated(client, FakeGenerator, {"data": {"a": "1", "b": ""}, "controller": "any"})

    assert made == {"a": b"1", "b": b""}


@pytest.mark.parametrize(
    ("spec", "kind", "size"),
    [
        pytest.param({}, rsa.RSAPrivateKey, 2048, id="rsa with 2048 bits by default"),
        pytest.param({"keyType": "rsa", "keySize": 3072}, rsa.RSAPrivateKey, 3072, id="rsa of a size"),
        pytest.param({"keyType": "ecdsa"}, ec.EllipticCurvePrivateKey, 256, id="ecdsa"),
        pytest.param({"keyType": "ecdsa", "keySize": 521}, ec.EllipticCurvePrivateKey, 521, id="ecdsa of a size"),
        pytest.param({"keyType": "ecdsa", "keySize": 1000}, ec.EllipticCurvePrivateKey, 256, id="no such curve"),
        pytest.param({"keyType": "ed25519", "keySize": 999}, ed25519.Ed25519PrivateKey, None, id="ed25519"),
    ],
)
async def test_ssh_key(client: InMemory, spec: dict[str, Any], kind: type, size: int | None) -> None:
    made = await _generated(client, SSHKeyGenerator, spec)

    private = load_ssh_private_key(made["privateKey"], None)
    public = private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    assert isinstance(private, kind)
    assert getattr(private, "key_size", None) == size
    assert made["publicKey"] == public + b"\n"
    assert made["privateKey"].startswith(b"-----BEGIN OPENSSH PRIVATE KEY-----\n")


async def test_ssh_key_carries_its_comment(client: InMemory) -> None:
    made = await _generated(client, SSHKeyGenerator, {"keyType": "ed25519", "comment": "me@host"})

    assert made["publicKey"].endswith(b" me@host\n")
    load_ssh_public_key(made["publicKey"])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param({"keySize": 512}, "/keySize", id="an rsa key too small to be one"),
        pytest.param({"keySize": 9000}, "/keySize", id="too large"),
        pytest.param({"keyType": "dsa"}, "/keyType", id="an unknown type"),
        pytest.param({"keyType": "ed25519", "comment": "a\nssh-rsa AAAA"}, "/comment", id="a comment of two lines"),
    ],
)
async def test_ssh_key_refuses(client: InMemory, spec: dict[str, Any], message: str) -> None:
    assert message in await _refusal(client, SSHKeyGenerator, spec)


def _mfa(seed: str = RFC_SEED, **spec: Any) -> dict[str, Any]:
    return {"spec": {"secret": {"name": "seed", "key": "totp"}} | spec, "credentials": {"/secret": seed}}


@pytest.mark.parametrize(
    ("when", "token"),
    [
        ("1970-01-01T00:00:59Z", "94287082"),
        ("2005-03-18T01:58:29Z", "07081804"),
        ("2009-02-13T23:31:30Z", "89005924"),
        ("2603-10-11T11:33:20Z", "65353130"),
    ],
)
async def test_mfa_makes_the_tokens_of_the_rfc(client: InMemory, when: str, token: str) -> None:
    made = await _generated(client, MFAGenerator, **_mfa(when=when, length=8, algorithm="sha512"))

    assert made["token"].decode() == token


async def test_mfa_takes_the_clock_and_says_how_long_a_token_lasts() -> None:
    clock = VirtualClock(datetime(1970, 1, 1, 0, 0, 59, tzinfo=UTC))

    async with InMemory(PROVIDER, clock) as client:
        made = await _generated(client, MFAGenerator, **_mfa())

    assert made == {"token": b"287082", "timeLeft": b"1"}


async def test_mfa_reads_seeds_as_people_write_them(client: InMemory) -> None:
    spaced = " ".join(RFC_SEED[start : start + 4].lower() for start in range(0, len(RFC_SEED), 4))

    made = await _generated(client, MFAGenerator, **_mfa(spaced, when="1970-01-01T00:00:59Z", timePeriod=0))

    assert made["token"] == b"287082"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param(_mfa("MFRGG==="), "/secret", id="padding"),
        pytest.param(_mfa("CANARY!"), "/secret", id="no base32"),
        pytest.param(_mfa(""), "/secret", id="nothing"),
        pytest.param(_mfa(length=33), "/length", id="too long"),
        pytest.param(_mfa(when="yesterday"), "/when", id="no time"),
    ],
)
async def test_mfa_refuses(client: InMemory, given: dict[str, Any], message: str) -> None:
    refusal = await _refusal(client, MFAGenerator, **given)

    assert message in refusal
    assert "CANARY" not in refusal


# --- the provider ----------------------------------------------------------------------------------------------------


def test_both_generations_of_the_api_are_served() -> None:
    served = {(info.kind.group, info.kind.version, info.kind.kind) for info in PROVIDER.kind_infos}

    names = {"Fake", "MFA", "Password", "SSHKey", "UUID"}
    assert served == {
        *(("generators.external-secrets.io", "v1alpha1", name) for name in names),
        *(("provider.generator.external-secrets.io", "v2alpha1", name) for name in names),
    }
    assert all(info.operations == {Operation.GENERATE} for info in PROVIDER.kind_infos)


async def test_admission_hears_what_is_wrong(client: InMemory) -> None:
    context = call_context(PasswordGenerator, {"length": 1, "digits": 2})

    assert (await client.validate(context, role=KindRole.GENERATOR)).state is ValidationState.INVALID


async def test_passwords_come_through_mutual_tls() -> None:
    provider: Provider = PROVIDER

    async with ProviderServer(provider) as server:
        made = await server.client.generate(call_context(PasswordGenerator))

    assert len(made.data["password"]) == 24
