"""Password: random passwords."""

from __future__ import annotations

import base64
import secrets
import string
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from eso_api.generators.password import PASSWORD as V1_PASSWORD
from eso_api.generators.password import PasswordSpec
from eso_api.v2.generator import GENERATOR_CATEGORIES
from eso_api.v2.owned import GENERATOR_CONFIG_GROUP, OwnedStatus, namespaced_config
from eso_sdk.errors import invalid_config
from eso_sdk.provider import Generator, generator_kind
from eso_wire.values import GenerateRequest
from kuberun.meta import Object

DEFAULT_SYMBOLS: Final = '~!@#$%^&*()_+`-={}|[]\\:"<>?,./'
MAX_LENGTH: Final = 65_536
MAX_TOTAL: Final = 1024 * 1024
"""All passwords of one generation, in characters: more than that no Secret can hold."""

_DEFAULT_LENGTH: Final = 24
_RANDOM: Final = secrets.SystemRandom()
_ENCODINGS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "raw": lambda raw: raw,
    "base64": base64.b64encode,
    "base64url": base64.urlsafe_b64encode,
    "base32": base64.b32encode,
    "hex": lambda raw: raw.hex().encode(),
}


class Password(Object, kw_only=True):
    """Random passwords, for v2 generators."""

    spec: PasswordSpec = msgspec.field(default_factory=PasswordSpec)
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


PASSWORD = namespaced_config(Password, GENERATOR_CONFIG_GROUP, "passwords", GENERATOR_CATEGORIES)


@generator_kind(objects=(PASSWORD,), bridged=(V1_PASSWORD,))
class PasswordGenerator(Generator[PasswordSpec]):
    """For each of `secretKeys` a password of its own."""

    @classmethod
    def check_config(cls, config: PasswordSpec) -> tuple[str, ...]:
        keys = config.secret_keys
        if not keys or not all(keys) or len(set(keys)) != len(keys):
            raise invalid_config("/secretKeys", "needs at least one key, none of them empty or twice")
        if config.encoding not in _ENCODINGS:
            raise invalid_config("/encoding", f"must be one of {', '.join(_ENCODINGS)}")
        if _length(config) > MAX_LENGTH or _length(config) * len(keys) > MAX_TOTAL:
            raise invalid_config("/length", f"at most {MAX_LENGTH} characters, and {MAX_TOTAL} for all keys together")
        password(config)
        return ()

    async def generate(self, request: GenerateRequest) -> Mapping[str, bytes]:
        del request
        encode = _ENCODINGS[self.config.encoding]
        return {key: encode(password(self.config).encode()) for key in self.config.secret_keys}


def password(spec: PasswordSpec) -> str:
    """One password: so many digits and symbols, the rest letters, in random order."""
    length = _length(spec)
    digits = length // 4 if spec.digits is None else spec.digits
    symbols = length // 4 if spec.symbols is None else spec.symbols
    if digits < 0 or symbols < 0 or digits + symbols > length:
        raise invalid_config("/digits", f"digits and symbols are negative or more than the length, {length}")
    letters = string.ascii_lowercase if spec.no_upper else string.ascii_letters
    chosen: list[str] = []
    for path, count, characters in (
        ("/length", length - digits - symbols, letters),
        ("/digits", digits, string.digits),
        ("/symbols", symbols, spec.symbol_characters or DEFAULT_SYMBOLS),
    ):
        chosen += _repeating(characters, count) if spec.allow_repeat else _unique(path, characters, count, chosen)
    _RANDOM.shuffle(chosen)
    return "".join(chosen)


def _length(spec: PasswordSpec) -> int:
    return spec.length if spec.length > 0 else _DEFAULT_LENGTH


def _repeating(characters: str, count: int) -> list[str]:
    return [_RANDOM.choice(characters) for _ in range(count)]


def _unique(path: str, characters: str, count: int, taken: list[str]) -> list[str]:
    """Characters that the password does not have yet."""
    free = sorted(set(characters) - set(taken))
    if count > len(free):
        raise invalid_config(path, f"needs {count} different characters of {len(free)}; set allowRepeat")
    return _RANDOM.sample(free, count)
