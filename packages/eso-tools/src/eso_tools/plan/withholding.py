"""A transport to a provider that sends reads only. Calls with effects are answered here, and remembered.

    handshake, validation, reads       sent
    Generate of a local generator      sent: it computes a value and keeps nothing
    Push, Delete                       not sent: noted, and answered as if they had succeeded
    every other call                   refused

A value whose push was withheld is what later reads of that remote key return, so that an object that reads the value
back is planned as it would work. The list of calls that are sent is closed: a new call is refused until it is added.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, NoReturn

from eso_api.references import GENERATORS_GROUP
from eso_api.v2.owned import GENERATOR_CONFIG_GROUP
from eso_api.values import SecretBytes
from eso_operator.providers.channels import CallOptions, Transport
from eso_wire import codec, paths
from eso_wire._generated import provider_pb2 as pb
from eso_wire.errors import NOT_FOUND_REASONS, ErrorReason, ProviderError
from eso_wire.paths import short_name
from eso_wire.values import (
    CheckResult,
    Context,
    DeleteResult,
    GetItem,
    GetResult,
    KindId,
    ObjectRef,
    Operation,
    PushItem,
    PushOutcome,
    PushPrecondition,
    PushResult,
    RemoteRef,
    SecretMap,
    Shape,
)
from kubebase.bounded import BoundedDict

MAX_NOTED: Final = 100_000
NOT_CALLED: Final = "a plan does not call this generator"
LOCAL_GENERATORS: Final = frozenset({"Fake", "MFA", "Password", "SSHKey", "UUID"})
"""Generators that compute their values: nothing outside the provider changes."""
_GENERATOR_GROUPS: Final = frozenset({GENERATORS_GROUP, GENERATOR_CONFIG_GROUP})
_SENT: Final = frozenset({paths.HANDSHAKE, paths.VALIDATE, paths.VALIDATE_GENERATOR})

Value = SecretBytes | SecretMap


class Unread:
    """The current remote value is not known: the store could not read it."""


class Place(NamedTuple):
    """One remote value of one store."""

    store: str
    key: str
    property: str


@dataclass(frozen=True, slots=True)
class WouldPush:
    """A withheld push. `before` is the current remote value; None if there is none."""

    caller: ObjectRef
    place: Place
    value: Value = field(repr=False)
    before: Value | Unread | None = field(repr=False)
    outcome: PushOutcome = PushOutcome.UPDATED


@dataclass(frozen=True, slots=True)
class WouldDelete:
    """A withheld deletion of a remote value."""

    caller: ObjectRef
    place: Place


@dataclass(slots=True)
class Withheld:
    """Every call of a plan that was not sent. The last one for a place counts."""

    pushes: BoundedDict[Place, WouldPush | WouldDelete] = field(default_factory=lambda: BoundedDict(MAX_NOTED))
    generators: BoundedDict[str, None] = field(default_factory=lambda: BoundedDict(MAX_NOTED))
    """The generators that were not called."""


class WithholdingTransport:
    """Sends the reads of one transport."""

    def __init__(self, inner: Transport, withheld: Withheld) -> None:
        self._inner = inner
        self._withheld = withheld

    async def unary(self, method: str, request: bytes, options: CallOptions) -> bytes:
        match method:
            case paths.HANDSHAKE:
                return _without_streams(await self._inner.unary(method, request, options))
            case paths.GET:
                return await self._get(request, options)
            case paths.CHECK:
                return await self._check(request, options)
            case paths.PUSH:
                return await self._push(request, options)
            case paths.DELETE:
                return self._delete(request)
            case paths.GENERATE:
                self._admit_generator(request)
                return await self._inner.unary(method, request, options)
            case _ if method in _SENT:
                return await self._inner.unary(method, request, options)
            case _:
                raise _refusal(method)

    async def stream(self, method: str, request: bytes, options: CallOptions) -> AsyncGenerator[bytes, None]:
        if method != paths.FIND:
            raise _refusal(method)
        async for message in self._inner.stream(method, request, options):
            yield message

    async def duplex(self, method: str, options: CallOptions) -> NoReturn:
        del options
        raise _refusal(method)

    async def close(self) -> None:
        await self._inner.close()

    # --- reads, with withheld values over them ------------------------------------------------------------------------

    async def _get(self, request: bytes, options: CallOptions) -> bytes:
        context, items = codec.from_get_request(pb.GetSecretsRequest.FromString(request))
        known = {item.item_id: found for item in items if (found := self._pushed(context, item)) is not None}
        rest = tuple(item for item in items if item.item_id not in known)
        read = await self._read(context, rest, options) if rest else ()
        results = (*(GetResult(name, value) for name, value in known.items()), *read)
        return codec.to_get_response(results).SerializeToString()

    async def _read(self, context: Context, items: tuple[GetItem, ...], options: CallOptions) -> tuple[GetResult, ...]:
        request = codec.to_get_request(context, items).SerializeToString()
        response = await self._inner.unary(paths.GET, request, options)
        return codec.from_get_response(pb.GetSecretsResponse.FromString(response))

    async def _check(self, request: bytes, options: CallOptions) -> bytes:
        context, items = codec.from_check_request(pb.CheckSecretsRequest.FromString(request))
        rest = tuple(item for item in items if self._pushed(context, item) is None)
        results = [CheckResult(item.item_id, exists=True) for item in items if item not in rest]
        if rest:
            reads = codec.to_check_request(context, rest).SerializeToString()
            response = await self._inner.unary(paths.CHECK, reads, options)
            results += codec.from_check_response(pb.CheckSecretsResponse.FromString(response))
        return codec.to_check_response(results).SerializeToString()

    def _pushed(self, context: Context, item: GetItem) -> Value | None:
        noted = self._withheld.pushes.get(_place(context, item.ref))
        if not isinstance(noted, WouldPush) or noted.outcome is PushOutcome.SKIPPED_EXISTS:
            return None
        fits = isinstance(noted.value, SecretBytes) is (item.shape is Shape.SINGLE)
        return noted.value if fits else None

    # --- calls that are not sent --------------------------------------------------------------------------------------

    async def _push(self, request: bytes, options: CallOptions) -> bytes:
        context, batch = codec.from_push_request(pb.PushSecretsRequest.FromString(request))
        results = []
        for item in batch.items:
            place = _place(context, item.remote)
            before = await self._current(context, item, options)
            outcome = _outcome(item, before)
            self._withheld.pushes[place] = WouldPush(context.caller, place, item.payload, before, outcome)
            results.append(PushResult(item.item_id, outcome))
        return codec.to_push_response(results).SerializeToString()

    async def _current(self, context: Context, item: PushItem, options: CallOptions) -> Value | Unread | None:
        """Read the remote value that a push would replace."""
        earlier = self._withheld.pushes.get(_place(context, item.remote))
        if isinstance(earlier, WouldPush):
            return earlier.before
        shape = Shape.SINGLE if isinstance(item.payload, SecretBytes) else Shape.MAP
        wanted = GetItem("0", RemoteRef(item.remote.key, property=item.remote.property), shape)
        try:
            (result,) = await self._read(context, (wanted,), options)
        except (ProviderError, ValueError):
            return Unread()
        match result.outcome:
            case ProviderError() as error:
                return None if error.reason in NOT_FOUND_REASONS else Unread()
            case SecretBytes() | dict() as value:
                return value
            case _:
                return Unread()

    def _delete(self, request: bytes) -> bytes:
        context, batch = codec.from_delete_request(pb.DeleteSecretsRequest.FromString(request))
        for item in batch.items:
            place = _place(context, item.remote)
            self._withheld.pushes[place] = WouldDelete(context.caller, place)
        return codec.to_delete_response(
            DeleteResult(item.item_id, existed=True) for item in batch.items
        ).SerializeToString()

    def _admit_generator(self, request: bytes) -> None:
        context, _ = codec.from_generate_request(pb.GenerateRequest.FromString(request))
        if not is_local(context.config.kind):
            named = f"{context.config.kind.kind} {context.store.name}"
            self._withheld.generators[named] = None
            message = f"{named}: {NOT_CALLED}, because it acts outside of the provider; its keys are not known"
            raise ProviderError(ErrorReason.INVALID_REQUEST, message)


def is_local(kind: KindId) -> bool:
    """Return whether a generator of this kind computes its values without any effect."""
    return kind.group in _GENERATOR_GROUPS and kind.kind in LOCAL_GENERATORS


def store_name(store: ObjectRef) -> str:
    """Return kind, namespace and name of a store."""
    group = store.api_version.partition("/")[0]
    where = f"{store.namespace}/{store.name}" if store.namespace else store.name
    return f"{store.kind}.{group} {where}"


def bytes_of(value: Value) -> bytes:
    """Return one text for a value of either shape, to compare and to digest it."""
    if isinstance(value, SecretBytes):
        return value.reveal()
    parts = sorted(value.items())
    return b"".join(
        b"%d:%b%d:%b" % (len(name), name.encode(), len(each.reveal()), each.reveal()) for name, each in parts
    )


def _outcome(item: PushItem, before: Value | Unread | None) -> PushOutcome:
    if before is None:
        return PushOutcome.CREATED
    if item.precondition is PushPrecondition.IF_ABSENT and not isinstance(before, Unread):
        return PushOutcome.SKIPPED_EXISTS
    if not isinstance(before, Unread) and bytes_of(before) == bytes_of(item.payload):
        return PushOutcome.UNCHANGED
    return PushOutcome.UPDATED


def _place(context: Context, ref: RemoteRef) -> Place:
    return Place(store_name(context.store), ref.key, ref.property)


def _without_streams(response: bytes) -> bytes:
    """Remove Subscribe from a handshake: a stream can leave something behind in a backend."""
    handshake = codec.from_handshake(pb.HandshakeResponse.FromString(response))
    kinds = tuple(replace(info, operations=info.operations - {Operation.SUBSCRIBE}) for info in handshake.kinds)
    return codec.to_handshake(replace(handshake, kinds=kinds)).SerializeToString()


def _refusal(method: str) -> ProviderError:
    return ProviderError(ErrorReason.UNSUPPORTED_OPERATION, f"a plan does not send {short_name(method)}")
