"""MFA: time-based one-time passwords (RFC 6238)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from eso_api.generators.local import MFA_KIND as V1_MFA
from eso_api.generators.local import MFASpec
from eso_provider_generators.kinds import MFA
from eso_sdk.errors import invalid_config
from eso_sdk.provider import Generator, generator_kind
from eso_wire.values import GenerateRequest

MAX_LENGTH: Final = 32

_DEFAULT_LENGTH: Final = 6
_DEFAULT_PERIOD: Final = 30


@generator_kind(objects=(MFA,), bridged=(V1_MFA,))
class MFAGenerator(Generator[MFASpec]):
    """The present `token`, and for how many seconds it is the present one, as `timeLeft`."""

    @classmethod
    def check_config(cls, config: MFASpec) -> tuple[str, ...]:
        if config.length > MAX_LENGTH:
            raise invalid_config("/length", f"must not be more than {MAX_LENGTH}")
        if config.when:
            _time(config.when)
        return ()

    async def generate(self, request: GenerateRequest) -> Mapping[str, bytes]:
        del request
        seed = _seed(self.secret(self.config.secret).reveal())
        period = self.config.time_period if self.config.time_period > 0 else _DEFAULT_PERIOD
        length = self.config.length if self.config.length > 0 else _DEFAULT_LENGTH
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
