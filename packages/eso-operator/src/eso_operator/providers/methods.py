"""The calls of the protocol, one row each: how to encode the request, how to check the response, when to retry.

    request -> eso_wire.codec -> bytes -> Transport -> bytes -> eso_wire.codec -> matched and redacted response

Providers are not trusted: responses must match the request and stay within bounds, and values and credentials of the
call are removed from their texts. A method makes one try of one call; `gateway.py` has the retries, limits and budgets.
The provider's side has the same table (`eso_sdk/methods.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final, Generic, TypeVar, cast

from google.protobuf.message import DecodeError, EncodeError, Message

from eso_operator.providers.bytelimits import HeldBytes
from eso_operator.providers.channels import CallOptions, Duplex, Transport
from eso_operator.providers.errors import invalid_response, is_transient
from eso_operator.providers.limits import Urgency
from eso_operator.providers.redaction import ResponseRedactor, secrets_of_config, secrets_of_push, secrets_of_results
from eso_operator.providers.settings import CallSettings
from eso_wire import bounds, codec, paths
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
    ObjectRef,
    PushBatch,
    PushResult,
    SubscribeMessage,
    SubscribeOpen,
    Validation,
    ValidationMode,
)
from kuberun.permit import permitted

Q = TypeVar("Q")
R = TypeVar("R")
I = TypeVar("I", GetResult, CheckResult, PushResult, DeleteResult)  # noqa: E741 - an item

_REDACTED_FOUND: Final = 1000
"""The number of last found values that are removed from the text of a later error: all could take seconds."""
_OF_IDENTITY: Final = frozenset(
    {
        ErrorReason.RATE_LIMITED,
        ErrorReason.CREDENTIALS_NOT_FOUND,
        ErrorReason.CREDENTIALS_REJECTED,
        ErrorReason.BACKEND_UNAVAILABLE,
        ErrorReason.BACKEND_TIMEOUT,
    }
)
"""Reasons of one item that can concern the whole identity."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a call. `label` names the provider in messages; only handshakes and closings have no context."""

    transport: Transport
    label: str
    options: CallOptions
    settings: CallSettings
    context: Context | None = None
    token: str = field(default="", repr=False)
    held: HeldBytes | None = None

    def secrets(self) -> Iterator[bytes]:
        """Yield the credentials of the call, which must not appear in any text of the provider."""
        if self.context is not None:
            yield from secrets_of_config(self.context.config)
        yield self.token.encode()


def _nothing(_: object) -> Sequence[Any]:
    return ()


@dataclass(frozen=True, slots=True)
class Method(Generic[Q, R]):
    """One call. `secrets` and `names` are the secrets and the remote keys of a request, for the redaction of texts."""

    path: str
    encode: Callable[[Any, Q], Message]
    response: type[Message]
    decode: Callable[[Any], Any]
    secrets: Callable[[Q], Iterable[bytes]] = _nothing
    names: Callable[[Q], Sequence[str]] = _nothing
    reads: bool = False
    """Reads only: it is cancelled when the object that it is made for is deleted."""
    changes: bool = False
    """Has side effects: only the leader sends it."""
    urgency: Urgency = Urgency.WHEN_DUE
    repeatable: Callable[[Q], bool] = lambda _: True

    @property
    def name(self) -> str:
        return paths.short_name(self.path)

    async def send(self, attempt: Attempt, request: Q) -> R:
        """Send the request once. Returns the checked response; raises ProviderError."""
        redactor = ResponseRedactor(chain(attempt.secrets(), self.secrets(request)), self.names(request))
        if self.changes and not permitted():
            raise ProviderError(ErrorReason.BACKEND_UNAVAILABLE, "not sent: this process does not lead any more")
        try:
            raw = await attempt.transport.unary(self.path, self.encoded(attempt, request), attempt.options)
            response = self.decoded(attempt, raw)
        except ProviderError as error:
            raise redactor.error(error) from None
        return self.checked(attempt, request, response, redactor)

    def encoded(self, attempt: Attempt, request: Q) -> bytes:
        try:
            raw = self.encode(attempt.context, request).SerializeToString()
        except (ValueError, TypeError, EncodeError):  # the exception shows the value it could not encode
            text = f"the request {self.name} holds something that cannot be sent"
            raise ProviderError(ErrorReason.INVALID_REQUEST, text) from None
        if len(raw) > bounds.MAX_MESSAGE_BYTES:
            text = (
                f"the request {self.name} for provider {attempt.label} has {len(raw)} bytes,"
                f" more than the {bounds.MAX_MESSAGE_BYTES} that one message may have"
            )
            raise ProviderError(ErrorReason.PAYLOAD_TOO_LARGE, text)
        return raw

    def decoded(self, attempt: Attempt, raw: bytes) -> Any:
        """Decode a message. Raises ProviderError if it is malformed or breaks the protocol."""
        try:
            return self.decode(self.response.FromString(raw))
        except DecodeError:
            pass
        except ProviderError as error:
            raise invalid_response(attempt.label, error.message) from None
        raise invalid_response(attempt.label, "the message cannot be decoded")

    def checked(self, attempt: Attempt, request: Q, response: R, redactor: ResponseRedactor) -> R:
        """Check that the response matches the request, and redact its texts."""
        del attempt, request, redactor
        return response

    # --- several tries -----------------------------------------------------------------------------------------------

    def transient_error(self, response: R) -> ProviderError | None:
        """Return an error inside the response that is worth a retry."""
        del response
        return None

    def identity_error(self, response: R) -> ProviderError | None:
        """Return an error inside the response that concerns the whole identity."""
        del response
        return None

    def remaining(self, request: Q, response: R) -> Q:
        """Return the part of the request that a retry has to send again."""
        del response
        return request

    def merged(self, earlier: R | None, latest: R) -> R:
        """Return the response to the whole request, after a retry of its remaining part."""
        del earlier
        return latest


class _BatchMethod(Method[Q, tuple[I, ...]]):
    """A call with several items: each has exactly one result, and a retry sends the failed items alone."""

    __slots__ = ()

    def checked(
        self, attempt: Attempt, request: Q, response: tuple[I, ...], redactor: ResponseRedactor
    ) -> tuple[I, ...]:
        results = _matched(attempt.label, response, [item.item_id for item in _items(request)])
        if all(_error_of(each) is None for each in results):
            return results
        if self.path == paths.GET:  # the values of other items, too
            values = secrets_of_results(cast("Sequence[GetResult]", results))
            redactor = ResponseRedactor(chain(attempt.secrets(), self.secrets(request), values), self.names(request))
        return tuple(_redacted(each, redactor) for each in results)

    def transient_error(self, response: tuple[I, ...]) -> ProviderError | None:
        """Return the failure of an item that is worth a retry; of several, the one that requires the longest pause."""
        errors = [error for each in response if (error := _error_of(each)) is not None and is_transient(error)]
        return max(errors, key=lambda error: error.retry_after, default=None)

    def identity_error(self, response: tuple[I, ...]) -> ProviderError | None:
        """Return throttling of any item, or an error that all items have and that concerns the identity."""
        errors: list[ProviderError] = []
        others = 0
        for error in map(_error_of, response):
            if error is None or error.reason not in _OF_IDENTITY:
                others += 1
            elif error.reason is ErrorReason.RATE_LIMITED:
                return error
            else:
                errors.append(error)
        return errors[0] if errors and not others else None

    def remaining(self, request: Q, response: tuple[I, ...]) -> Q:
        again = {each.item_id for each in response if is_transient(_error_of(each))}
        items = tuple(item for item in _items(request) if item.item_id in again)
        if isinstance(request, PushBatch | DeleteBatch):
            return replace(request, items=items)  # type: ignore[arg-type]  # items of that batch
        return cast("Q", items)

    def merged(self, earlier: tuple[I, ...] | None, latest: tuple[I, ...]) -> tuple[I, ...]:
        by_id = {each.item_id: each for each in latest}
        return latest if earlier is None else tuple(by_id.get(each.item_id, each) for each in earlier)


class _ValidateMethod(Method[ValidationMode, Validation]):
    __slots__ = ()

    def checked(
        self, attempt: Attempt, request: ValidationMode, response: Validation, redactor: ResponseRedactor
    ) -> Validation:
        del attempt, request
        return redactor.validation(response)

    def transient_error(self, response: Validation) -> ProviderError | None:
        return response.error if is_transient(response.error) else None

    def identity_error(self, response: Validation) -> ProviderError | None:
        return response.error


class _FindMethod(Method[FindQuery, FindPage]):
    __slots__ = ()

    async def send(self, attempt: Attempt, request: FindQuery) -> FindPage:
        """Return all pages as one. A stream that is too large or cut off is an error, never a shorter response."""
        found: list[Found] = []
        size, held = 0, attempt.held

        def redactor() -> ResponseRedactor:
            return ResponseRedactor([*attempt.secrets(), *(each.value.reveal() for each in found[-_REDACTED_FOUND:])])

        try:
            with nullcontext() if held is None else held.released_on_error():
                stream = attempt.transport.stream(self.path, self.encoded(attempt, request), attempt.options)
                async with aclosing(stream) as messages:
                    async for raw in messages:
                        page: FindPage = self.decoded(attempt, raw)
                        found += page.found
                        size += len(raw)
                        _check_size(attempt, len(found), size)
                        if held is not None:
                            held.add(len(raw))
                        if page.last:
                            missing = redactor().text(page.missing) if page.missing else ""
                            return FindPage(tuple(found), last=True, considered=page.considered, missing=missing)
        except ProviderError as error:
            raise redactor().error(error) from None
        raise invalid_response(attempt.label, "the list of found secrets ended before its last page")


class _SubscribeMethod(Method[SubscribeOpen, "ChangeStream"]):
    __slots__ = ()

    async def send(self, attempt: Attempt, request: SubscribeOpen) -> ChangeStream:
        try:
            stream = ChangeStream(await attempt.transport.duplex(self.path, attempt.options), attempt)
            try:
                await stream.send(request)
            except BaseException:
                stream.cancel()
                raise
        except ProviderError as error:
            raise ResponseRedactor(attempt.secrets()).error(error) from None
        return stream


@dataclass(frozen=True, slots=True)
class ChangeStream:
    """An open subscription."""

    duplex: Duplex
    attempt: Attempt

    async def send(self, message: SubscribeMessage) -> None:
        await self.duplex.send(SUBSCRIBE.encoded(self.attempt, cast("SubscribeOpen", message)))

    async def receive(self) -> ChangeEvent | Heartbeat | None:
        """Return the next event or heartbeat; None if the provider ended the stream."""
        redactor = ResponseRedactor(self.attempt.secrets())
        try:
            raw = await self.duplex.receive()
            if raw is None:
                return None
            event: ChangeEvent | Heartbeat = SUBSCRIBE.decoded(self.attempt, raw)
        except ProviderError as error:
            raise redactor.error(error) from None
        if isinstance(event, ChangeEvent) and event.condition is not None:
            return replace(event, condition=redactor.condition(event.condition))
        return event

    def cancel(self) -> None:
        self.duplex.cancel()


# --- the table ------------------------------------------------------------------------------------------------------


def _ref_keys(items: Sequence[GetItem]) -> list[str]:
    return [item.ref.key for item in items]


def _remote_keys(batch: PushBatch | DeleteBatch) -> list[str]:
    return [item.remote.key for item in batch.items]


def _has_key(request: PushBatch | DeleteBatch | GenerateRequest) -> bool:
    """Return whether a write may be made again: only with an idempotency key."""
    return bool(request.idempotency_key)


def _never(_: object) -> bool:
    return False


HANDSHAKE: Final[Method[Hello, Handshake]] = Method(
    paths.HANDSHAKE,
    lambda _, hello: codec.to_hello(hello),
    pb.HandshakeResponse,
    codec.from_handshake,
    urgency=Urgency.NOW,
)
GET: Final[_BatchMethod[tuple[GetItem, ...], GetResult]] = _BatchMethod(
    paths.GET, codec.to_get_request, pb.GetSecretsResponse, codec.from_get_response, names=_ref_keys, reads=True
)
CHECK: Final[_BatchMethod[tuple[GetItem, ...], CheckResult]] = _BatchMethod(
    paths.CHECK, codec.to_check_request, pb.CheckSecretsResponse, codec.from_check_response, names=_ref_keys, reads=True
)
FIND: Final = _FindMethod(paths.FIND, codec.to_find_request, pb.FindSecretsResponse, codec.from_find_page, reads=True)
PUSH: Final[_BatchMethod[PushBatch, PushResult]] = _BatchMethod(
    paths.PUSH,
    codec.to_push_request,
    pb.PushSecretsResponse,
    codec.from_push_response,
    secrets_of_push,
    _remote_keys,
    changes=True,
    repeatable=_has_key,
)
DELETE: Final[_BatchMethod[DeleteBatch, DeleteResult]] = _BatchMethod(
    paths.DELETE,
    codec.to_delete_request,
    pb.DeleteSecretsResponse,
    codec.from_delete_response,
    names=_remote_keys,
    changes=True,
    repeatable=_has_key,
)
VALIDATE, VALIDATE_GENERATOR = (
    _ValidateMethod(
        path,
        codec.to_validate_request,
        pb.ValidateResponse,
        codec.from_validate_response,
        reads=True,
        urgency=Urgency.NOW,
    )
    for path in (paths.VALIDATE, paths.VALIDATE_GENERATOR)
)
GENERATE: Final[Method[GenerateRequest, Generated]] = Method(
    paths.GENERATE,
    codec.to_generate_request,
    pb.GenerateResponse,
    codec.from_generate_response,
    lambda request: () if request.previous_state is None else (request.previous_state.reveal(),),
    changes=True,
    repeatable=_has_key,
)
CLEANUP: Final[Method[CleanupRequest, CleanupOutcome]] = Method(
    paths.CLEANUP,
    codec.to_cleanup_request,
    pb.CleanupResponse,
    codec.from_cleanup_response,
    lambda request: (request.state.reveal(),),
    changes=True,
)
SUBSCRIBE: Final = _SubscribeMethod(
    paths.SUBSCRIBE,
    lambda _, message: codec.to_subscribe_request(message),
    pb.SubscribeResponse,
    codec.from_subscribe_response,
    repeatable=_never,
)
CLOSE_SESSIONS: Final[Method[ObjectRef, None]] = Method(
    paths.CLOSE_SESSIONS,
    lambda _, config: codec.to_close_request(config),
    pb.CloseSessionsResponse,
    lambda _: None,
    urgency=Urgency.NOW,
    repeatable=_never,
)


# --- items and results ----------------------------------------------------------------------------------------------


def _items(request: Any) -> Sequence[Any]:
    return request.items if isinstance(request, PushBatch | DeleteBatch) else cast("Sequence[Any]", request)


def _matched(label: str, results: Iterable[I], requested: Sequence[str]) -> tuple[I, ...]:
    """Return the results in the order of the items. Raises ProviderError unless each item has exactly one."""
    by_id: dict[str, I] = {}
    for result in results:
        if result.item_id in by_id:
            raise invalid_response(label, "it has two results for one item")
        by_id[result.item_id] = result
    if len(by_id) > len(requested) or not by_id.keys() <= set(requested):
        raise invalid_response(label, "it has a result for an item that was not requested")
    if len(by_id) < len(requested):
        raise invalid_response(label, f"it has results for {len(by_id)} of {len(requested)} items")
    return tuple(by_id[item_id] for item_id in requested)


def _error_of(result: GetResult | CheckResult | PushResult | DeleteResult) -> ProviderError | None:
    outcome = result.error if isinstance(result, CheckResult | DeleteResult) else result.outcome
    return outcome if isinstance(outcome, ProviderError) else None


def _redacted(result: I, redactor: ResponseRedactor) -> I:
    if (error := _error_of(result)) is None:
        return result
    if isinstance(result, CheckResult | DeleteResult):
        return replace(result, error=redactor.error(error))
    return replace(result, outcome=redactor.error(error))


def _check_size(attempt: Attempt, items: int, size: int) -> None:
    settings = attempt.settings
    if items > settings.max_found_items or size > settings.max_found_bytes:
        raise ProviderError(
            ErrorReason.PAYLOAD_TOO_LARGE,
            f"provider {attempt.label} found more than {settings.max_found_items} secrets or"
            f" {settings.max_found_bytes} bytes: narrow the search by name, tags or path",
        )
