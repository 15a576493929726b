"""Single fields, read with distrust: text and collections within limits, required parts present, times in range.

    decode_* functions raise Malformed (which field, and what is wrong with it; never its content)
    `of_request` and `of_response` turn that into the ProviderError of the side that reads

Text for people is shortened instead of refused. A number of an enum that this version does not know is UNSPECIFIED:
None here; the caller decides whether a choice was required.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import ListValue, Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp

from eso_api.values import SecretBytes
from eso_wire import bounds, values
from eso_wire._generated import provider_pb2 as pb
from eso_wire.errors import ErrorReason, ProviderError, RetryClass, Subject

M = TypeVar("M")
V = TypeVar("V")
E = TypeVar(
    "E",
    values.GetItem,
    values.GetResult,
    values.CheckResult,
    values.PushItem,
    values.PushResult,
    values.DeleteItem,
    values.DeleteResult,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NANOS = 10**9


class Malformed(Exception):  # noqa: N818 - a verdict on a message; reads as one in `raise`
    """A message violates the contract. Internal to the codec."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field} {problem}")
        self.field = field
        self.problem = problem

    def within(self, outer: str) -> Malformed:
        """Return the same problem with the field's path from the enclosing message."""
        return Malformed(f"{outer}.{self.field}", self.problem)


# --- the two sides ----------------------------------------------------------------------------------------------------


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
    """Wrap a decoder for the operator's side: a malformed response is the provider's error."""

    @functools.wraps(decode)
    def read(message: M) -> V:
        try:
            return decode(message)
        except Malformed as problem:
            error = response_error(problem)
        raise error

    return read


def response_error(problem: Malformed) -> ProviderError:
    """Return the error for a response, or for one item of it, that violates the contract."""
    return ProviderError(ErrorReason.INTERNAL, f"the provider's response breaks the protocol: {problem}")


# --- structure --------------------------------------------------------------------------------------------------------


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
    earlier: set[str] = set()
    for position, name in enumerate(names):
        if name in earlier:
            raise Malformed(f"{field}[{position}]", "has the id of an entry before it")
        earlier.add(name)


# --- scalars ----------------------------------------------------------------------------------------------------------


def identifier(field: str, value: str, limit: int = bounds.MAX_NAME_CHARS) -> str:
    """Check text that programs compare: it stays whole or is refused."""
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
    """Return the plain bytes for a message that is about to be sent. No other code may read them.

    JSON allows keys that are not valid text (half of a surrogate pair); the wire does not.
    """
    for key in values:
        if not key.isascii() and key.encode(errors="replace").decode() != key:
            raise ProviderError(ErrorReason.BACKEND_ERROR, "a key of the values is not valid Unicode text")
    return {key: value.reveal() for key, value in values.items()}


# --- time -------------------------------------------------------------------------------------------------------------


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


# --- enums ------------------------------------------------------------------------------------------------------------

W = TypeVar("W", bound=int)
W_co = TypeVar("W_co", bound=int, covariant=True)
D = TypeVar("D", bound=StrEnum)


class WireEnum(Protocol[W_co]):
    """The part of protobuf's generated enums that is used here."""

    def items(self) -> Iterable[tuple[str, W_co]]: ...


class EnumTable(Generic[W, D]):
    """An enum of the wire and the matching enum of the domain.

    The names differ only in the prefix that protobuf requires: OPERATION_GET <-> Operation.GET.
    """

    def __init__(self, wire: WireEnum[W], domain: type[D], prefix: str) -> None:
        numbers = {name.removeprefix(prefix): number for name, number in wire.items()}
        self._number_of = {member: numbers[member.value] for member in domain}
        self._member_of: dict[int, D] = {number: member for member, number in self._number_of.items()}

    def to(self, member: D) -> W:
        return self._number_of[member]

    def of(self, number: int) -> D | None:
        """Return the member; None for UNSPECIFIED and for values of newer peers."""
        return self._member_of.get(number)

    def choice(self, field: str, number: int) -> D:
        """Return the member of a required field; raise Malformed if it is unset or unknown."""
        member = self._member_of.get(number)
        if member is None:
            what = "is not set" if number == 0 else f"has a value unknown to this version ({number})"
            raise Malformed(field, what)
        return member

    def known(self, numbers: Iterable[int]) -> frozenset[D]:
        """Return the known members as a set, without unknown numbers."""
        return frozenset(self._member_of[number] for number in numbers if number in self._member_of)

    def numbers(self, members: Iterable[D]) -> list[W]:
        """Return the numbers in the order of the contract, so that equal sets are equal bytes."""
        return sorted(self._number_of[member] for member in members)


KIND_ROLE = EnumTable(pb.KindRole, values.KindRole, "KIND_ROLE_")
OPERATION = EnumTable(pb.Operation, values.Operation, "OPERATION_")
CONFIG_DELIVERY = EnumTable(pb.ConfigDelivery, values.ConfigDelivery, "CONFIG_DELIVERY_")
CREDENTIAL_KIND = EnumTable(pb.CredentialKind, values.CredentialKind, "CREDENTIAL_KIND_")
AUDIENCE_SOURCE = EnumTable(pb.AudienceSource, values.AudienceSource, "AUDIENCE_SOURCE_")
METADATA_POLICY = EnumTable(pb.MetadataPolicy, values.MetadataPolicy, "METADATA_POLICY_")
SHAPE = EnumTable(pb.ValueShape, values.Shape, "VALUE_SHAPE_")
PUSH_PRECONDITION = EnumTable(pb.PushPrecondition, values.PushPrecondition, "PUSH_PRECONDITION_")
PUSH_OUTCOME = EnumTable(pb.PushOutcome, values.PushOutcome, "PUSH_OUTCOME_")
VALIDATION_STATE = EnumTable(pb.ValidationState, values.ValidationState, "VALIDATION_STATE_")
CHANGE_TYPE = EnumTable(pb.ChangeType, values.ChangeType, "CHANGE_TYPE_")
ERROR_REASON = EnumTable(pb.ErrorReason, ErrorReason, "ERROR_REASON_")
RETRY_CLASS = EnumTable(pb.RetryClass, RetryClass, "RETRY_CLASS_")


# --- errors and tokens ------------------------------------------------------------------------------------------------


def to_error(error: ProviderError) -> pb.ErrorDetail:
    return pb.ErrorDetail(
        reason=ERROR_REASON.to(error.reason),
        message=prose(error.message),
        retry=RETRY_CLASS.to(error.retry),
        retry_after=to_duration(error.retry_after),
        backend_code=prose(error.backend_code, bounds.MAX_NAME_CHARS),
        subject=None if error.subject is None else pb.ObjectRef(**dataclasses.asdict(error.subject)),
    )


def from_error(detail: pb.ErrorDetail) -> ProviderError:
    """Decode an error. This never fails: whatever a peer sends, a failure happened and must be reported.

    A reason or retry class unknown to this version becomes UNSPECIFIED. The subject is text for people here.
    """
    return ProviderError(
        ERROR_REASON.of(detail.reason) or ErrorReason.UNSPECIFIED,
        prose(detail.message),
        retry=RETRY_CLASS.of(detail.retry) or RetryClass.UNSPECIFIED,
        retry_after=seconds_of(detail.retry_after),
        backend_code=prose(detail.backend_code, bounds.MAX_NAME_CHARS),
        subject=_subject(detail.subject) if detail.HasField("subject") else None,
    )


def _subject(message: pb.ObjectRef) -> Subject:
    names = (field.name for field in dataclasses.fields(Subject) if field.name != "generation")
    texts = {name: prose(getattr(message, name), bounds.MAX_NAME_CHARS) for name in names}
    return Subject(**texts, generation=message.generation)


def token_text(token: SecretBytes) -> str:
    """Return the text of a service account token for a message."""
    try:
        text = token.reveal().decode("ascii")
    except UnicodeDecodeError:
        text = ""
    if not text:
        # Not chained: the cause would contain the token.
        raise ProviderError(ErrorReason.INVALID_REQUEST, "a service account token has to be ASCII text")
    return text


def token_of(text: str) -> SecretBytes:
    if len(text) > bounds.MAX_TOKEN_CHARS or not text.isascii():
        raise Malformed("token", f"has to be ASCII text of at most {bounds.MAX_TOKEN_CHARS} characters")
    return SecretBytes(text.encode("ascii"))


# --- documents --------------------------------------------------------------------------------------------------------

_EXACT = 2**53


def to_struct(document: Mapping[str, Any]) -> Struct:
    """Encode a JSON-like document, such as the provider metadata of a pushed value.

    Protobuf has one number type; whole numbers are decoded to int, as the manifest had them.
    """
    return Struct(fields={str(key): _encode(value) for key, value in document.items()})


def decode_struct(message: Struct) -> dict[str, Any]:
    """Decode a document; refuse one that is deeper or larger than the limits."""
    return _Reader().members(message, 1)


def _encode(value: Any) -> Value:
    match value:
        case None:
            return Value(null_value=0)  # type: ignore[arg-type]  # the stubs want the enum's alias for 0
        case bool():
            return Value(bool_value=value)
        case int() | float():
            return Value(number_value=_exact(value))
        case str():
            return Value(string_value=value)
        case Mapping():
            return Value(struct_value=to_struct(value))
        case Sequence() if not isinstance(value, bytes | bytearray):
            return Value(list_value=ListValue(values=[_encode(entry) for entry in value]))
        case _:
            raise _refused(f"a {type(value).__name__} is no JSON value")


def _exact(number: float) -> float:
    if isinstance(number, int):
        if abs(number) > _EXACT:
            raise _refused("a whole number beyond 2^53 would lose digits; write it as text")
    elif not math.isfinite(number):
        raise _refused("a number has to be finite")
    return number


def _refused(problem: str) -> ProviderError:
    return ProviderError(ErrorReason.INVALID_REQUEST, f"the metadata of a pushed value cannot be sent: {problem}")


class _Reader:
    """Decodes one document and counts its nodes."""

    def __init__(self) -> None:
        self._nodes = 0

    def members(self, message: Struct, depth: int) -> dict[str, Any]:
        self._enter(depth)
        return {key: self._value(value, depth) for key, value in message.fields.items()}

    def _value(self, message: Value, depth: int) -> Any:
        self._nodes += 1
        match message.WhichOneof("kind"):
            case "number_value":
                return _plain(message.number_value)
            case "string_value":
                return message.string_value
            case "bool_value":
                return message.bool_value
            case "struct_value":
                return self.members(message.struct_value, depth + 1)
            case "list_value":
                self._enter(depth + 1)
                return [self._value(entry, depth + 1) for entry in message.list_value.values]
            case "null_value" | None:
                return None

    def _enter(self, depth: int) -> None:
        if depth > bounds.MAX_STRUCT_DEPTH:
            raise Malformed("provider_metadata", f"is nested deeper than {bounds.MAX_STRUCT_DEPTH} levels")
        if self._nodes > bounds.MAX_STRUCT_NODES:
            raise Malformed("provider_metadata", f"has more than {bounds.MAX_STRUCT_NODES} values")


def _plain(number: float) -> int | float:
    if not math.isfinite(number):
        raise Malformed("provider_metadata", "has a number that is not finite")
    return int(number) if number.is_integer() and abs(number) <= _EXACT else number
