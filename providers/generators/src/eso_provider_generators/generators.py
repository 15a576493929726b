"""The generators that need no network: fixed values, one-time passwords, passwords, SSH keys and UUIDs."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
import string
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final, TypeVar

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from eso_api.generators.local import FAKE as V1_FAKE
from eso_api.generators.local import MFA_KIND as V1_MFA
from eso_api.generators.local import PASSWORD as V1_PASSWORD
from eso_api.generators.local import SSH_KEY as V1_SSH_KEY
from eso_api.generators.local import UUID_KIND as V1_UUID
from eso_api.generators.local import FakeSpec, MFASpec, PasswordSpec, SSHKeySpec, UUIDSpec
from eso_provider_generators.kinds import FAKE, MFA, PASSWORD, SSH_KEY, UUID
from eso_sdk.errors import invalid_config
from eso_sdk.provider import Generator, generator_kind
from eso_wire.errors import ProviderError
from eso_wire.values import GenerateRequest
from kubebase.fairness import FairSlots

# --- Long work in threads: at most three at a time, and never all of them for one namespace --------------------------

T = TypeVar("T")

_SLOTS: Final = FairSlots(3, greed=1)


async def in_thread(namespace: str, make: Callable[[], T]) -> T:
    """Run `make` in a thread when it is the namespace's turn. It cannot be stopped, so its cost must be bounded."""
    async with _SLOTS.slot(namespace):
        return await asyncio.to_thread(make)


# --- Fake: fixed values, for tests and demonstrations ----------------------------------------------------------------


@generator_kind(objects=(FAKE,), bridged=(V1_FAKE,))
class FakeGenerator(Generator[FakeSpec]):
    """A generator that returns the values of its configuration."""

    async def generate(self, request: GenerateRequest) -> Mapping[str, bytes]:
        del request
        return {key: value.encode() for key, value in self.config.data.items()}


# --- MFA: time-based one-time passwords (RFC 6238) -------------------------------------------------------------------


MAX_DIGITS: Final = 32

_DEFAULT_DIGITS: Final = 6
_DEFAULT_PERIOD: Final = 30


@generator_kind(objects=(MFA,), bridged=(V1_MFA,))
class MFAGenerator(Generator[MFASpec]):
    """The present `token`, and for how many seconds it is the present one, as `timeLeft`."""

    @classmethod
    def check_config(cls, config: MFASpec) -> tuple[str, ...]:
        if config.length > MAX_DIGITS:
            raise invalid_config("/length", f"must not be more than {MAX_DIGITS}")
        if config.when:
            _time(config.when)
        return ()

    async def generate(self, request: GenerateRequest) -> Mapping[str, bytes]:
        del request
        seed = _seed(self.secret(self.config.secret).reveal())
        period = self.config.time_period if self.config.time_period > 0 else _DEFAULT_PERIOD
        length = self.config.length if self.config.length > 0 else _DEFAULT_DIGITS
        when = _time(self.config.when) if self.config.when else self.clock.now()
        step, passed = divmod(int(when.timestamp()), period)
        return {"token": token(seed, step, length).encode(), "timeLeft": str(period - passed).encode()}


def token(seed: bytes, step: int, length: int) -> str:
    """Return the token of one time step (RFC 4226, 5.3). Always SHA-1: `algorithm` never had an effect."""
    digest = hmac.new(seed, step.to_bytes(8, "big", signed=True), hashlib.sha1).digest()
    offset = digest[-1] & 0x0F
    number = int.from_bytes(digest[offset : offset + 4], "big") & 0x7FFFFFFF
    return str(number % 10**length).zfill(length)


def _seed(text: bytes) -> bytes:
    compact = b"".join(text.split()).upper()
    padding = b"=" * (-len(compact) % 8)
    try:
        seed = base64.b32decode(compact + padding)
    except binascii.Error:
        seed = b""
    if not seed or b"=" in compact:
        raise invalid_config("/secret", "the seed is no base32 text without padding")
    return seed


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = datetime.min  # noqa: DTZ901 - stands for no time; refused below
    if time.tzinfo is None:
        raise invalid_config("/when", "must be a time such as 2026-01-31T12:00:00Z")
    return time


# --- Password: random passwords --------------------------------------------------------------------------------------


DEFAULT_SYMBOLS: Final = '~!@#$%^&*()_+`-={}|[]\\:"<>?,./'
MAX_LENGTH: Final = 65_536
MAX_TOTAL: Final = 1024 * 1024
"""The limit of characters of one generation; a Secret cannot hold more."""

MAX_SYMBOLS: Final = 4096

_DEFAULT_LENGTH: Final = 24
_QUICK_TOTAL: Final = 2048
"""The number of characters that take at most a few milliseconds; longer passwords are generated in a thread."""
_RANDOM: Final = secrets.SystemRandom()
_ENCODINGS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "raw": lambda raw: raw,
    "base64": base64.b64encode,
    "base64url": base64.urlsafe_b64encode,
    "base32": base64.b32encode,
    "hex": lambda raw: raw.hex().encode(),
}


@generator_kind(objects=(PASSWORD,), bridged=(V1_PASSWORD,))
class PasswordGenerator(Generator[PasswordSpec]):
    """A generator of one password for each of `secretKeys`."""

    @classmethod
    def check_config(cls, config: PasswordSpec) -> tuple[str, ...]:
        keys = config.secret_keys
        if not keys or not all(keys) or len(set(keys)) != len(keys):
            raise invalid_config("/secretKeys", "needs at least one key, none of them empty or twice")
        if config.encoding not in _ENCODINGS:
            raise invalid_config("/encoding", f"must be one of {', '.join(_ENCODINGS)}")
        if _length(config) > MAX_LENGTH or _length(config) * len(keys) > MAX_TOTAL:
            raise invalid_config("/length", f"at most {MAX_LENGTH} characters, and {MAX_TOTAL} for all keys together")
        if len(config.symbol_characters or "") > MAX_SYMBOLS:
            raise invalid_config("/symbolCharacters", f"at most {MAX_SYMBOLS} characters")
        for part in _parts(config):
            _check(part, config)
        return ()

    async def generate(self, request: GenerateRequest) -> Mapping[str, bytes]:
        del request
        if _length(self.config) * len(self.config.secret_keys) <= _QUICK_TOTAL:
            return passwords(self.config)
        return await in_thread(self.call.caller.namespace, partial(passwords, self.config))


def passwords(spec: PasswordSpec) -> Mapping[str, bytes]:
    """Return one password for each key."""
    encode = _ENCODINGS[spec.encoding]
    return {key: encode(password(spec).encode()) for key in spec.secret_keys}


def password(spec: PasswordSpec) -> str:
    """Return one password with the given numbers of digits and symbols, the rest letters, in random order."""
    chosen: list[str] = []
    for part in _parts(spec):
        _check(part, spec)
        chosen += _repeating(part) if spec.allow_repeat else _unique(part, chosen)
    return _shuffled(chosen)


@dataclass(frozen=True, slots=True)
class _Part:
    """A number of characters to draw from an alphabet. `path` is the field that sets the number."""

    path: str
    count: int
    characters: str


def _parts(spec: PasswordSpec) -> tuple[_Part, ...]:
    length = _length(spec)
    digits = length // 4 if spec.digits is None else spec.digits
    symbols = length // 4 if spec.symbols is None else spec.symbols
    if digits < 0 or symbols < 0 or digits + symbols > length:
        raise invalid_config("/digits", f"digits and symbols are negative or more than the length, {length}")
    letters = string.ascii_lowercase if spec.no_upper else string.ascii_letters
    return (
        _Part("/length", length - digits - symbols, letters),
        _Part("/digits", digits, string.digits),
        _Part("/symbols", symbols, spec.symbol_characters or DEFAULT_SYMBOLS),
    )


def _check(part: _Part, spec: PasswordSpec) -> None:
    """Raise if the alphabet is too small for unique characters; overlaps with other parts are checked later."""
    if not spec.allow_repeat and part.count > len(part.characters):
        raise _too_few(part, len(part.characters))


def _length(spec: PasswordSpec) -> int:
    return spec.length if spec.length > 0 else _DEFAULT_LENGTH


def _repeating(part: _Part) -> list[str]:
    """Draw characters with equal probability, in bulk: single draws take seconds for a long password."""
    size = len(part.characters)
    width = 1 if size <= 128 else 4
    fits = 256**width // size * size
    chosen: list[str] = []
    while len(chosen) < part.count:
        drawn = secrets.token_bytes(width * (part.count - len(chosen)))
        numbers = drawn if width == 1 else memoryview(drawn).cast("I")
        chosen += [part.characters[number % size] for number in numbers if number < fits]
    return chosen


def _unique(part: _Part, taken: list[str]) -> list[str]:
    """Draw characters that the password does not contain yet."""
    free = sorted(set(part.characters) - set(taken))
    if part.count > len(free):
        raise _too_few(part, len(free))
    return _RANDOM.sample(free, part.count)


def _too_few(part: _Part, free: int) -> ProviderError:
    return invalid_config(part.path, f"needs {part.count} different characters of {free}; set allowRepeat")


def _shuffled(chosen: list[str]) -> str:
    """Shuffle by sorting random 64-bit numbers, one for each character; equal numbers are practically impossible."""
    keys = memoryview(secrets.token_bytes(8 * len(chosen))).cast("Q")
    return "".join(chosen[at] for at in sorted(range(len(chosen)), key=keys.__getitem__))


# --- SSHKey: pairs of SSH keys ---------------------------------------------------------------------------------------


PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey

_RSA_BITS: Final = 2048
_QUICK: Final = frozenset({"ed25519", "ecdsa"})
_CURVES: Final[Mapping[int, ec.EllipticCurve]] = {256: ec.SECP256R1(), 384: ec.SECP384R1(), 521: ec.SECP521R1()}


@generator_kind(objects=(SSH_KEY,), bridged=(V1_SSH_KEY,), concurrency=2)
class SSHKeyGenerator(Generator[SSHKeySpec]):
    """A pair: `privateKey` in OpenSSH's form, `publicKey` as a line of authorized_keys."""

    @classmethod
    def check_config(cls, config: SSHKeySpec) -> tuple[str, ...]:
        if not config.comment.isprintable():
            # A line break would make it two keys.
            raise invalid_config("/comment", "must be one line of printable characters")
        if config.key_size is not None and not 256 <= config.key_size <= 8192:
            raise invalid_config("/keySize", "must be between 256 and 8192")
        return ()

    async def open(self) -> None:
        self._unclaimed: list[asyncio.Task[PrivateKey]] = []

    async def close(self) -> None:
        for making in self._unclaimed:
            making.cancel()

    async def generate(self, request: GenerateRequest) -> Mapping[str, bytes]:
        del request
        key = await self._key()
        private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        comment = f" {self.config.comment}".encode() if self.config.comment else b""
        return {"privateKey": private, "publicKey": public + comment + b"\n"}

    async def _key(self) -> PrivateKey:
        """Return a key that was never returned before.

        Elliptic curves are quick. Large RSA keys take seconds; other calls do not wait for them. A key may take longer
        than the deadline of a call: then the next call waits for the same key, because a new one would take as long
        again.
        """
        if self.config.key_type in _QUICK:
            return _private_key(self.config)
        if self._unclaimed:
            making = self._unclaimed.pop()
        else:
            making = asyncio.create_task(in_thread(self.call.caller.namespace, partial(_private_key, self.config)))
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            self._unclaimed.append(making)
            raise


def _private_key(spec: SSHKeySpec) -> PrivateKey:
    match spec.key_type:
        case "ed25519":
            return ed25519.Ed25519PrivateKey.generate()
        case "ecdsa":
            return ec.generate_private_key(_CURVES.get(spec.key_size or 256, ec.SECP256R1()))
        case "rsa" | "":
            try:
                return rsa.generate_private_key(65537, spec.key_size or _RSA_BITS)
            except ValueError:
                raise invalid_config("/keySize", "is too small for an RSA key; use 2048 or more") from None
        case _:
            raise invalid_config("/keyType", "must be rsa, ecdsa or ed25519")


# --- UUID: random identifiers of version 4 ---------------------------------------------------------------------------


@generator_kind(objects=(UUID,), bridged=(V1_UUID,))
class UUIDGenerator(Generator[UUIDSpec]):
    """One identifier, under `uuid`."""

    async def generate(self, request: GenerateRequest) -> Mapping[str, bytes]:
        del request
        return {"uuid": str(uuid.uuid4()).encode()}
