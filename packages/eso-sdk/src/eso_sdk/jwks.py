"""Verify tokens by their signature, with the public keys that an issuer publishes (JWKS, RFC 7517).

    token -> algorithm allowed? -> key by its id -> signature -> issuer, audience, times -> ServiceAccount

Keys come from a file or an address. They are read again every few minutes, and at once for an unknown key id, but never
more often than every few seconds, whatever tokens arrive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jwt
import msgspec
import structlog

from eso_sdk.accounts import (
    MAX_RESPONSE_BYTES,
    JwksSettings,
    Outbound,
    ServiceAccount,
    UnreachedError,
    account_of,
    refused,
    undecided,
)
from kubebase.clock import Clock

if TYPE_CHECKING:
    from jwt.types import Options

ALGORITHMS: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "ES512", "EdDSA"})
"""Signatures by a private key. Never a shared secret, and never `none`."""
REFRESH_SECONDS: Final = 300.0
PAUSE_SECONDS: Final = 5.0
KEEP_SECONDS: Final = 3600.0
LEEWAY_SECONDS: Final = 30.0
MAX_KEYS: Final = 64

_CHECKS: Final[Options] = {
    "require": ["exp", "iss", "aud", "sub"],
    # Times are compared with our clock instead of the library's.
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
}

_log = structlog.get_logger("eso_sdk.jwks")

ReadKeys = Callable[[], Awaitable[bytes]]


class JwksVerifier:
    """Accepts tokens of one issuer for some audiences."""

    def __init__(self, settings: JwksSettings, audiences: tuple[str, ...], clock: Clock) -> None:
        self._issuer = settings.issuer
        self._audiences = audiences
        self._clock = clock
        self._keys = Keys(_reader(settings, clock), clock)

    async def verify(self, token: str) -> ServiceAccount:
        algorithm, key_id = _header(token)
        if algorithm not in ALGORITHMS:
            raise refused(f"it is not signed with one of {', '.join(sorted(ALGORITHMS))}")
        key = await self._keys.key(key_id)
        if key is None or key.algorithm_name != algorithm:
            raise refused("it is signed with a key that its issuer does not publish")
        claims = self._claims(token, key, algorithm)
        self._check_times(claims)
        return account_of(claims["sub"], _uid(claims))

    def _claims(self, token: str, key: jwt.PyJWK, algorithm: str) -> dict[str, Any]:
        try:
            return jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self._audiences,
                issuer=self._issuer,
                options=_CHECKS,
            )
        except jwt.InvalidAudienceError:
            raise refused(f"it is not meant for this provider, whose audience is {_listed(self._audiences)}") from None
        except jwt.InvalidIssuerError:
            raise refused(f'its issuer is not "{self._issuer}"') from None
        except jwt.InvalidSignatureError:
            raise refused("its signature is wrong") from None
        except jwt.MissingRequiredClaimError as exc:
            raise refused(f'it has no claim "{exc.claim}"') from None
        except (jwt.PyJWTError, ValueError, TypeError):
            raise refused("it is malformed") from None

    def _check_times(self, claims: Mapping[str, Any]) -> None:
        now = self._clock.now().timestamp()
        if now >= _moment(claims["exp"]) + LEEWAY_SECONDS:
            raise refused("it has expired")
        if now < _moment(claims.get("nbf", 0)) - LEEWAY_SECONDS:
            raise refused("it is not valid yet; compare the clocks of the nodes")


class Keys:
    """The public keys of an issuer, refreshed as needed."""

    def __init__(self, read: ReadKeys, clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self._known: dict[str, jwt.PyJWK] = {}
        self._read_at = float("-inf")
        self._tried_at = float("-inf")
        self._problem = ""
        self._reading = asyncio.Lock()

    async def key(self, key_id: str) -> jwt.PyJWK | None:
        """Return the key with that id; None if the issuer has none. Raises `undecided` if that is unknown."""
        if self._clock.monotonic() - self._read_at >= REFRESH_SECONDS or key_id not in self._known:
            await self._refresh()
        if self._clock.monotonic() - self._read_at >= KEEP_SECONDS or (self._problem and key_id not in self._known):
            raise undecided(self._problem)
        return self._known.get(key_id)

    async def _refresh(self) -> None:
        """Read the keys once for all waiting callers, and not again at once."""
        asked_at = self._clock.monotonic()
        async with self._reading:
            if self._tried_at >= asked_at or self._clock.monotonic() - self._tried_at < PAUSE_SECONDS:
                return
            try:
                self._known = _parsed(await self._read())
            except UnreachedError as exc:
                self._problem = str(exc)
                _log.warning("keys for tokens not read", problem=self._problem)
            else:
                self._problem = ""
                self._read_at = self._clock.monotonic()
            self._tried_at = self._clock.monotonic()


def _reader(settings: JwksSettings, clock: Clock) -> ReadKeys:
    if "://" not in settings.source:
        return lambda: asyncio.to_thread(_file, Path(settings.source))
    outbound = Outbound(clock, settings.ca_file)

    async def fetched() -> bytes:
        response = await outbound.get(settings.source)
        if response.status != 200:
            raise UnreachedError(f"{settings.source} answered with status {response.status}")
        return response.body

    return fetched


def _file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_RESPONSE_BYTES + 1)
    except OSError as exc:
        raise UnreachedError(f"{path} cannot be read: {exc.strerror}") from None
    if len(raw) > MAX_RESPONSE_BYTES:
        raise UnreachedError(f"{path} has more than {MAX_RESPONSE_BYTES} bytes")
    return raw


def _parsed(raw: bytes) -> dict[str, jwt.PyJWK]:
    """Return the usable keys by id. The set may contain others, because an issuer also serves other clients."""
    try:
        document = msgspec.json.decode(raw, type=_Document)
    except (msgspec.DecodeError, RecursionError):
        raise UnreachedError("the key set is not a JWKS document") from None
    found = {key.key_id: key for entry in document.keys[:MAX_KEYS] if (key := _key(entry)) is not None and key.key_id}
    if not found:
        raise UnreachedError("the key set holds no public key for signatures")
    return found


class _Document(msgspec.Struct):
    keys: list[dict[str, Any]]


def _key(entry: dict[str, Any]) -> jwt.PyJWK | None:
    if entry.get("kty") not in ("RSA", "EC", "OKP") or entry.get("use", "sig") != "sig":
        return None
    try:
        return jwt.PyJWK(entry)
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None


def _header(token: str) -> tuple[str, str]:
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, TypeError):
        raise refused("it is not a signed JWT") from None
    match header:
        case {"alg": str() as algorithm, "kid": str() as key_id}:
            return algorithm, key_id
        case _:
            raise refused("its header names no algorithm or no key")


def _moment(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refused("one of its times is not a number")
    return value


def _uid(claims: Mapping[str, Any]) -> object:
    match claims.get("kubernetes.io"):
        case {"serviceaccount": {"uid": uid}}:
            return uid
        case _:
            return ""


def _listed(audiences: tuple[str, ...]) -> str:
    return " or ".join(f'"{audience}"' for audience in audiences)
