"""Typed calls to one provider over one transport.

    values -> eso_wire.codec -> bytes -> transport -> bytes -> eso_wire.codec -> checked values

Providers are not trusted: answers must match the request and stay within bounds, and values and credentials of the
call are removed from their texts. A client makes one try of one call; the dispatcher has retries, limits and budgets.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, nullcontext
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from google.protobuf.message import DecodeError, EncodeError, Message

from eso_operator.providers import transport as methods
from eso_operator.providers.errors import answered_wrongly
from eso_operator.providers.protection.weights import current_hold
from eso_operator.providers.redaction import ResponseRedactor, secrets_of_config, secrets_of_push, secrets_of_results
from eso_operator.providers.settings import CallSettings
from eso_operator.providers.transport import CallOptions, Duplex, Transport, short_name
from eso_wire import bounds, codec
from eso_wire._generated import provider_pb2 as pb
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    ChangeEvent,
    CheckResult,
    CleanupOutcome,
    CleanupRequest,
    Context,
    DeleteBatch,
    DeleteResult,
    FindPage,
    FindQuery,
    Found,
    Generated,
    GenerateRequest,
    GetItem,
    GetResult,
    Handshake,
    Heartbeat,
    Hello,
    KindRole,
    ObjectRef,
    PushBatch,
    PushResult,
    SubscribeMessage,
    SubscribeOpen,
    Validation,
    ValidationMode,
)
from kuberun.permit import permitted

M = TypeVar("M", bound=Message)
V = TypeVar("V")

_CHANGING = frozenset({methods.PUSH, methods.DELETE, methods.GENERATE, methods.CLEANUP})
"""Calls with side effects; only the leader sends them."""
_REDACTED_FOUND = 1000
"""The number of last found values that are removed from the text of a later error: all could take seconds."""


class _Answer(Protocol):
    @property
    def item_id(self) -> str: ...


A = TypeVar("A", bound=_Answer)


@dataclass(frozen=True, slots=True)
class ProviderClient:
    """A client for one try of one call. `label` names the provider in messages."""

    transport: Transport
    label: str
    options: CallOptions
    settings: CallSettings
    token: str = field(default="", repr=False)

    async def handshake(self, hello: Hello) -> Handshake:
        return await self._ask(
            methods.HANDSHAKE, lambda: codec.to_hello(hello), pb.HandshakeResponse, codec.from_handshake
        )

    async def get(self, context: Context, items: Sequence[GetItem]) -> tuple[GetResult, ...]:
        names = [item.ref.key for item in items]
        with _Redacted(lambda: self.secrets(context), names):
            results = await self._ask(
                methods.GET,
                lambda: codec.to_get_request(context, items),
                pb.GetSecretsResponse,
                codec.from_get_response,
            )
        results = self._matched(results, [item.item_id for item in items])
        if not any(isinstance(result.outcome, ProviderError) for result in results):
            return results
        redactor = ResponseRedactor((*self.secrets(context), *secrets_of_results(results)), names)
        return tuple(_redacted_result(result, redactor) for result in results)

    async def find(self, context: Context, query: FindQuery) -> FindPage:
        """Return all pages as one. A stream that is too large or cut off is an error, never a shorter answer."""
        found: list[Found] = []
        size, hold = 0, current_hold()
        released = nullcontext() if hold is None else hold.released_on_error()

        def secrets() -> Iterator[bytes]:
            yield from self.secrets(context)
            yield from (each.value.reveal() for each in found[-_REDACTED_FOUND:])

        with _Redacted(secrets), released:
            request = self.encoded(methods.FIND, lambda: codec.to_find_request(context, query))
            async with aclosing(self._pages(request)) as pages:
                async for page, weight in pages:
                    found += page.found
                    size += weight
                    self._check_size(len(found), size)
                    if hold is not None:
                        hold.add(weight)
                    if page.last:
                        missing = ResponseRedactor(secrets()).text(page.missing) if page.missing else ""
                        return FindPage(tuple(found), last=True, considered=page.considered, missing=missing)
        raise answered_wrongly(self.label, "the list of found secrets ended before its last page")

    async def check(self, context: Context, items: Sequence[GetItem]) -> tuple[CheckResult, ...]:
        names = [item.ref.key for item in items]
        with _Redacted(lambda: self.secrets(context), names):
            results = await self._ask(
                methods.CHECK,
                lambda: codec.to_check_request(context, items),
                pb.CheckSecretsResponse,
                codec.from_check_response,
            )
        redactor = _lazy_redactor(lambda: self.secrets(context), names)
        matched = self._matched(results, [item.item_id for item in items])
        return tuple(
            each if each.error is None else replace(each, error=redactor().error(each.error)) for each in matched
        )

    async def push(self, context: Context, batch: PushBatch) -> tuple[PushResult, ...]:
        def secrets() -> Iterator[bytes]:
            yield from self.secrets(context)
            yield from secrets_of_push(batch)

        names = [item.remote.key for item in batch.items]
        with _Redacted(secrets, names):
            results = await self._ask(
                methods.PUSH,
                lambda: codec.to_push_request(context, batch),
                pb.PushSecretsResponse,
                codec.from_push_response,
            )
        redactor = _lazy_redactor(secrets, names)
        return tuple(
            replace(each, outcome=redactor().error(each.outcome)) if isinstance(each.outcome, ProviderError) else each
            for each in self._matched(results, [item.item_id for item in batch.items])
        )

    async def delete(self, context: Context, batch: DeleteBatch) -> tuple[DeleteResult, ...]:
        names = [item.remote.key for item in batch.items]
        with _Redacted(lambda: self.secrets(context), names):
            results = await self._ask(
                methods.DELETE,
                lambda: codec.to_delete_request(context, batch),
                pb.DeleteSecretsResponse,
                codec.from_delete_response,
            )
        redactor = _lazy_redactor(lambda: self.secrets(context), names)
        matched = self._matched(results, [item.item_id for item in batch.items])
        return tuple(
            each if each.error is None else replace(each, error=redactor().error(each.error)) for each in matched
        )

    async def validate(self, context: Context, mode: ValidationMode, role: KindRole) -> Validation:
        method = methods.VALIDATE if role is KindRole.STORE else methods.VALIDATE_GENERATOR
        with _Redacted(lambda: self.secrets(context)):
            validation = await self._ask(
                method,
                lambda: codec.to_validate_request(context, mode),
                pb.ValidateResponse,
                codec.from_validate_response,
            )
        return ResponseRedactor(self.secrets(context)).validation(validation)

    async def generate(self, context: Context, request: GenerateRequest) -> Generated:
        def secrets() -> Iterator[bytes]:
            yield from self.secrets(context)
            if request.previous_state is not None:
                yield request.previous_state.reveal()

        with _Redacted(secrets):
            return await self._ask(
                methods.GENERATE,
                lambda: codec.to_generate_request(context, request),
                pb.GenerateResponse,
                codec.from_generate_response,
            )

    async def cleanup(self, context: Context, request: CleanupRequest) -> CleanupOutcome:
        def secrets() -> Iterator[bytes]:
            yield from self.secrets(context)
            yield request.state.reveal()

        with _Redacted(secrets):
            return await self._ask(
                methods.CLEANUP,
                lambda: codec.to_cleanup_request(context, request),
                pb.CleanupResponse,
                codec.from_cleanup_response,
            )

    async def subscribe(self, opening: SubscribeOpen) -> ChangeStream:
        with _Redacted(lambda: self.secrets(opening.context)):
            stream = ChangeStream(await self.transport.duplex(methods.SUBSCRIBE, self.options), self, opening.context)
            try:
                await stream.send(opening)
            except BaseException:
                stream.cancel()
                raise
        return stream

    async def close_sessions(self, config: ObjectRef) -> None:
        await self._ask(
            methods.CLOSE_SESSIONS, lambda: codec.to_close_request(config), pb.CloseSessionsResponse, lambda _: None
        )

    def secrets(self, context: Context) -> Iterator[bytes]:
        """Yield the secrets of a call, which must not appear in any text of the provider."""
        yield from secrets_of_config(context.config)
        yield self.token.encode()

    # --- one message -------------------------------------------------------------------------------------------------

    async def _ask(self, method: str, request: Callable[[], Message], answer: type[M], decode: Callable[[M], V]) -> V:
        if method in _CHANGING and not permitted():
            raise ProviderError(ErrorReason.BACKEND_UNAVAILABLE, "not sent: this process does not lead any more")
        raw = await self.transport.unary(method, self.encoded(method, request), self.options)
        return self.decoded(raw, answer, decode)

    def encoded(self, method: str, request: Callable[[], Message]) -> bytes:
        try:
            raw = request().SerializeToString()
        except (ValueError, TypeError, EncodeError):  # the exception shows the value it could not encode
            text = f"the request {short_name(method)} holds something that cannot be sent"
            raise ProviderError(ErrorReason.INVALID_REQUEST, text) from None
        if len(raw) > bounds.MAX_MESSAGE_BYTES:
            text = (
                f"the request {short_name(method)} for provider {self.label} has {len(raw)} bytes,"
                f" more than the {bounds.MAX_MESSAGE_BYTES} that one message may have"
            )
            raise ProviderError(ErrorReason.PAYLOAD_TOO_LARGE, text)
        return raw

    def decoded(self, raw: bytes, answer: type[M], decode: Callable[[M], V]) -> V:
        """Decode a message. Raises ProviderError if it is malformed or breaks the protocol."""
        try:
            return decode(answer.FromString(raw))
        except DecodeError:
            pass
        except ProviderError as error:
            raise answered_wrongly(self.label, error.message) from None
        raise answered_wrongly(self.label, "the message cannot be decoded")

    async def _pages(self, request: bytes) -> AsyncGenerator[tuple[FindPage, int], None]:
        stream = self.transport.stream(methods.FIND, request, self.options)
        async with aclosing(stream) as messages:
            async for raw in messages:
                yield self.decoded(raw, pb.FindSecretsResponse, codec.from_find_page), len(raw)

    def _check_size(self, items: int, size: int) -> None:
        if items > self.settings.max_found_items or size > self.settings.max_found_bytes:
            raise ProviderError(
                ErrorReason.PAYLOAD_TOO_LARGE,
                f"provider {self.label} found more than {self.settings.max_found_items} secrets or"
                f" {self.settings.max_found_bytes} bytes: narrow the search by name, tags or path",
            )

    def _matched(self, results: Iterable[A], asked: Sequence[str]) -> tuple[A, ...]:
        """Return the answers in the order of the items. Raises ProviderError unless each item has exactly one."""
        by_id: dict[str, A] = {}
        for result in results:
            if result.item_id in by_id:
                raise answered_wrongly(self.label, "it answered one item twice")
            by_id[result.item_id] = result
        if len(by_id) > len(asked) or not by_id.keys() <= set(asked):
            raise answered_wrongly(self.label, "it answered an item that was not asked for")
        if len(by_id) < len(asked):
            raise answered_wrongly(self.label, f"it answered {len(by_id)} of {len(asked)} items")
        return tuple(by_id[item_id] for item_id in asked)


@dataclass(frozen=True, slots=True)
class ChangeStream:
    """An open subscription."""

    duplex: Duplex
    client: ProviderClient
    context: Context

    async def send(self, message: SubscribeMessage) -> None:
        raw = self.client.encoded(methods.SUBSCRIBE, lambda: codec.to_subscribe_request(message))
        await self.duplex.send(raw)

    async def receive(self) -> ChangeEvent | Heartbeat | None:
        """Return the next event or heartbeat; None if the provider ended the stream."""
        with _Redacted(lambda: self.client.secrets(self.context)):
            raw = await self.duplex.receive()
            if raw is None:
                return None
            event = self.client.decoded(raw, pb.SubscribeResponse, codec.from_subscribe_response)
        if isinstance(event, ChangeEvent) and event.condition is not None:
            redactor = ResponseRedactor(self.client.secrets(self.context))
            return replace(event, condition=redactor.condition(event.condition))
        return event

    def cancel(self) -> None:
        self.duplex.cancel()


@dataclass(slots=True)
class _Redacted:
    """Removes the secrets of a call from errors that leave the block. The secrets are collected only then."""

    secrets: Callable[[], Iterable[bytes]]
    names: Sequence[str] = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: object, _trace: object) -> None:
        if isinstance(error, ProviderError):
            raise ResponseRedactor(self.secrets(), self.names).error(error) from None


def _lazy_redactor(secrets: Callable[[], Iterable[bytes]], names: Sequence[str]) -> Callable[[], ResponseRedactor]:
    made: list[ResponseRedactor] = []

    def redactor() -> ResponseRedactor:
        if not made:
            made.append(ResponseRedactor(secrets(), names))
        return made[0]

    return redactor


def _redacted_result(result: GetResult, redactor: ResponseRedactor) -> GetResult:
    if isinstance(result.outcome, ProviderError):
        return replace(result, outcome=redactor.error(result.outcome))
    return result
