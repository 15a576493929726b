"""Password: random passwords."""

from __future__ import annotations

import base64
import secrets
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from eso_api.generators.local import PASSWORD as V1_PASSWORD
from eso_api.generators.local import PasswordSpec
from eso_provider_generators.kinds import PASSWORD
from eso_provider_generators.turns import in_thread
from eso_sdk.errors import invalid_config
from eso_sdk.provider import Generator, generator_kind
from eso_wire.errors import ProviderError
from eso_wire.values import GenerateRequest

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
