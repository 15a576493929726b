"""Single fields, read with distrust: text and collections within limits, required parts present, times in range.

    decode_* functions raise Malformed (which field, and what is wrong with it; never its content)
    `of_request` and `of_response` turn that into the ProviderError of the side that reads

Text for people is shortened instead of refused.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from datetime import UTC, datetime, timedelta
from typing import Protocol, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from eso_api.values import SecretBytes
from eso_wire import bounds
from eso_wire.errors import ErrorReason, ProviderError

M = TypeVar("M")
V = TypeVar("V")
E = TypeVar("E", bound="Identified")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NANOS = 10**9


class Malformed(Exception):  # noqa: N818 - a verdict on a message; reads as one in `raise`
    """A message violates the contract. Internal to the codec."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field} {problem}")
        self.field = field
        self.problem = problem

    def within(self, outer: str) -> Malformed:
        """Return the same problem with the field's path seen from the enclosing message."""
        return Malformed(f"{outer}.{self.field}", self.problem)


# --- the two sides ---------------------------------------------------------------------------------------------------


def of_request(decode: Callable[[M], V]) -> Callable[[M], V]:
    """Wrap a decoder for the provider's side: a malformed request is the caller's error."""

    @functools.wraps(decode)
    def read(message: M) -> V:
        try:
            return decode(message)
        except Malformed as problem:
            text = f"the request breaks the protocol: {problem}"
        raise ProviderError(ErrorReason.INVALID_REQUEST, text)

    return read


def of_response(decode: Callable[[M], V]) -> Callable[[M], V]:
    """Wrap a decoder for the operator's side: a malformed answer is the provider's error."""

    @functools.wraps(decode)
    def read(message: M) -> V:
        try:
            return decode(message)
        except Malformed as problem:
            error = answer_error(problem)
        raise error

    return read


def answer_error(problem: Malformed) -> ProviderError:
    """Return the error for an answer, or for one item of it, that violates the contract."""
    return ProviderError(ErrorReason.INTERNAL, f"the provider's answer breaks the protocol: {problem}")


# --- structure -------------------------------------------------------------------------------------------------------


def required(message: Message, field: str) -> None:
    if not message.HasField(field):
        raise Malformed(field, "is not set")


def part(field: str, message: M, decode: Callable[[M], V]) -> V:
    """Decode a message inside a message; problems name the path from the outer message."""
    try:
        return decode(message)
    except Malformed as problem:
        raise problem.within(field) from None


def each(field: str, messages: Sequence[M], limit: int, decode: Callable[[M], V]) -> tuple[V, ...]:
    """Decode all entries of a repeated field; refuse too many."""
    counted(field, messages, limit)
    values = []
    for position, message in enumerate(messages):
        try:
            values.append(decode(message))
        except Malformed as problem:
            raise problem.within(f"{field}[{position}]") from None
    return tuple(values)


class Identified(Protocol):
    """An item or a result of a batch."""

    @property
    def item_id(self) -> str: ...


def batch(field: str, messages: Sequence[M], decode: Callable[[M], E]) -> tuple[E, ...]:
    """Decode the items or results of a batch; refuse too many, and two with one id."""
    entries = each(field, messages, bounds.MAX_BATCH_ITEMS, decode)
    distinct(field, (entry.item_id for entry in entries))
    return entries


def counted(field: str, values: Sized, limit: int) -> None:
    if len(values) > limit:
        raise Malformed(field, f"has {len(values)} entries; at most {limit} are allowed")


def distinct(field: str, names: Iterable[str]) -> None:
    """Refuse duplicate names: results are matched to items by name."""
    seen: set[str] = set()
    for position, name in enumerate(names):
        if name in seen:
            raise Malformed(f"{field}[{position}]", "has the id of an entry before it")
        seen.add(name)


# --- scalars ---------------------------------------------------------------------------------------------------------


def identifier(field: str, value: str, limit: int = bounds.MAX_NAME_CHARS) -> str:
    """Check text that programs compare: it is kept whole or refused."""
    if len(value) > limit:
        raise Malformed(field, f"has {len(value)} characters; at most {limit} are allowed")
    return value


def remote_key(field: str, value: str) -> str:
    return identifier(field, value, bounds.MAX_KEY_CHARS)


def prose(value: str, limit: int = bounds.MAX_MESSAGE_CHARS) -> str:
    """Clean text for people: shorten it, and remove control characters that could forge a log line."""
    short = value if len(value) <= limit else value[: limit - 1] + "…"
    return short if short.isprintable() else "".join(c if c.isprintable() or c == "\n" else " " for c in short)


def identifiers(field: str, values: Sequence[str], limit: int = bounds.MAX_SHORT_LIST) -> tuple[str, ...]:
    counted(field, values, limit)
    return tuple(identifier(f"{field}[{position}]", value) for position, value in enumerate(values))


def labels(field: str, values: Mapping[str, str], limit: int = bounds.MAX_SHORT_LIST) -> dict[str, str]:
    """Check a map of names: labels, annotations, tags. Errors do not repeat its keys."""
    counted(field, values, limit)
    for key, value in values.items():
        identifier(f"a key of {field}", key)
        identifier(f"a value of {field}", value, bounds.MAX_TOKEN_CHARS)
    return dict(values)


def document(field: str, value: bytes, limit: int) -> SecretBytes:
    """Check the size of JSON that may contain secrets, and wrap it."""
    if len(value) > limit:
        raise Malformed(field, f"has {len(value)} bytes; at most {limit} are allowed")
    return SecretBytes(value)


def secret_map(field: str, values: Mapping[str, bytes]) -> dict[str, SecretBytes]:
    counted(field, values, bounds.MAX_MAP_ENTRIES)
    for key in values:
        remote_key(f"a key of {field}", key)
    return {key: SecretBytes(value) for key, value in values.items()}


def revealed(values: Mapping[str, SecretBytes]) -> dict[str, bytes]:
    """Return the plain bytes for a message that is about to be sent. No other code may see them.

    JSON allows keys that are not valid text (half of a surrogate pair); the wire does not.
    """
    for key in values:
        if not key.isascii() and key.encode(errors="replace").decode() != key:
            raise ProviderError(ErrorReason.BACKEND_ERROR, "a key of the values is not valid Unicode text")
    return {key: value.reveal() for key, value in values.items()}


# --- time ------------------------------------------------------------------------------------------------------------


def to_duration(seconds: float) -> Duration | None:
    """Encode seconds; None, which omits the field, for 0 (unspecified)."""
    if not math.isfinite(seconds) or seconds <= 0:
        return None
    whole, nanos = divmod(round(min(seconds, bounds.MAX_SECONDS) * _NANOS), _NANOS)
    return Duration(seconds=whole, nanos=nanos)


def seconds_of(duration: Duration) -> float:
    """Decode seconds: 0 for an unset or negative duration, never more than the limit."""
    return min(max((duration.seconds * _NANOS + duration.nanos) / _NANOS, 0.0), bounds.MAX_SECONDS)


def to_timestamp(moment: datetime | None) -> Timestamp | None:
    if moment is None:
        return None
    since = moment.astimezone(UTC) - _EPOCH
    return Timestamp(seconds=since.days * 86_400 + since.seconds, nanos=since.microseconds * 1000)


def moment_of(field: str, timestamp: Timestamp) -> datetime:
    try:
        return _EPOCH + timedelta(seconds=timestamp.seconds, microseconds=timestamp.nanos // 1000)
    except OverflowError:
        raise Malformed(field, "is not a point in time") from None
