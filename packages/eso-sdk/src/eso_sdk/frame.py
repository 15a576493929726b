"""The frame around every call: authorization, concurrency limit, deadline, log line and metrics.

    peer identity -> in-flight limit -> token -> decode -> deadline -> bytes -> Service -> encode
        -> status, log line, metrics

Author code runs inside. Everything it does leaves the frame as a response or as a `ProviderError`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, Protocol

import structlog
from google.protobuf.message import DecodeError, Message
from structlog.contextvars import bound_contextvars

from eso_sdk.accounts import ServiceAccount, TokenGate, check_account
from eso_sdk.backend import CURRENT_CALL, Call
from eso_sdk.credentials import check_scope
from eso_sdk.errors import invalid_request
from eso_sdk.lookups import CallLookups
from eso_sdk.metrics import Metrics
from eso_sdk.operations import NoResultError
from eso_sdk.processwide import CURRENT_BYTES, CallBytes, bytes_of_call
from eso_sdk.redaction import FAILURES, CallRedactor
from eso_sdk.service import GENERATOR, STORE, Service
from eso_wire import codec
from eso_wire._generated import provider_pb2 as pb
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.options import REQUEST_ID_KEY, TRACEPARENT_KEY
from eso_wire.status import abort_details
from eso_wire.tls import peer_spiffe_ids
from eso_wire.trace import TraceParent
from eso_wire.values import CheckResult, Context, DeleteResult, GetResult, PushResult, SubscribeMessage, SubscribeOpen
from kubebase.deadline import Deadline

# ---------------------------------------------------------------------------------------------------------------------
# The calls of the protocol, one row each: how to decode the message, which method answers, how to encode the
# response.
#
#     bytes -> message -> (Context, request) -> Service -> answer -> message -> bytes
#
# Streams have rows too; `frame.py` runs them.


_PACKAGE: Final = pb.DESCRIPTOR.package
INFO: Final = f"{_PACKAGE}.ProviderInfo"
STORES: Final = f"{_PACKAGE}.SecretStoreProvider"
GENERATORS: Final = f"{_PACKAGE}.GeneratorProvider"


@dataclass(frozen=True, slots=True)
class Method:
    """A call with one request. `decode` returns the envelope (None if the message has none) and the request itself."""

    service: str
    name: str
    message: type[Message]
    decode: Callable[[Any], tuple[Context | None, Any]]
    call: Callable[[Service, Any, Any], Awaitable[Any]]
    encode: Callable[[Any], Message]

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.name}"

    def decoded(self, raw: bytes) -> tuple[Context | None, Any]:
        return self.decode(parsed(self.message, raw))


async def _handshake(service: Service, _: None, hello: Any) -> Any:
    return service.handshake(hello)


UNARY: Final = (
    Method(
        INFO,
        "Handshake",
        pb.HandshakeRequest,
        lambda message: (None, codec.from_hello(message)),
        _handshake,
        codec.to_handshake,
    ),
    Method(
        STORES,
        "Validate",
        pb.ValidateRequest,
        codec.from_validate_request,
        lambda service, context, mode: service.validate(context, mode, STORE),
        codec.to_validate_response,
    ),
    Method(STORES, "GetSecrets", pb.GetSecretsRequest, codec.from_get_request, Service.get, codec.to_get_response),
    Method(
        STORES,
        "CheckSecrets",
        pb.CheckSecretsRequest,
        codec.from_check_request,
        Service.check,
        codec.to_check_response,
    ),
    Method(STORES, "PushSecrets", pb.PushSecretsRequest, codec.from_push_request, Service.push, codec.to_push_response),
    Method(
        STORES,
        "DeleteSecrets",
        pb.DeleteSecretsRequest,
        codec.from_delete_request,
        Service.delete,
        codec.to_delete_response,
    ),
    Method(
        STORES,
        "CloseSessions",
        pb.CloseSessionsRequest,
        lambda message: (None, codec.from_close_request(message)),
        lambda service, _, holder: service.close_sessions(holder),
        lambda _: pb.CloseSessionsResponse(),
    ),
    Method(
        GENERATORS,
        "ValidateGenerator",
        pb.ValidateRequest,
        codec.from_validate_request,
        lambda service, context, mode: service.validate(context, mode, GENERATOR),
        codec.to_validate_response,
    ),
    Method(
        GENERATORS,
        "Generate",
        pb.GenerateRequest,
        codec.from_generate_request,
        Service.generate,
        codec.to_generate_response,
    ),
    Method(
        GENERATORS,
        "Cleanup",
        pb.CleanupRequest,
        codec.from_cleanup_request,
        Service.cleanup,
        codec.to_cleanup_response,
    ),
)

FIND_PATH: Final = f"/{STORES}/FindSecrets"
SUBSCRIBE_PATH: Final = f"/{STORES}/Subscribe"


def parsed(message: type[Message], raw: bytes) -> Any:
    """Parse the message. Malformed bytes are the caller's error; the parser's own message would quote them."""
    try:
        return message.FromString(raw)
    except (DecodeError, ValueError):
        raise invalid_request(f"the request is not a {message.DESCRIPTOR.name}") from None


# --- The frame around every call -------------------------------------------------------------------------------------


DEFAULT_DEADLINE: Final = 60.0
MAX_SUBSCRIPTIONS: Final = 256
OPENING_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 1.0
HANDSHAKE: Final = "Handshake"
"""Needs no token: the operator asks which kinds exist, for no particular object."""
_MAX_REQUEST_ID: Final = 128
_EARLY_SHARE: Final = 0.1
_LEAST_EARLY: Final = 0.2
_MOST_EARLY: Final = 1.0

_log = structlog.get_logger("eso_sdk.call")


class Rpc(Protocol):
    """The part of grpc.aio's servicer context that is used here."""

    def auth_context(self) -> Mapping[str, Any]: ...
    def time_remaining(self) -> float | None: ...
    def invocation_metadata(self) -> Iterable[tuple[str, str | bytes]] | None: ...
    async def abort(
        self, code: Any, details: str = "", trailing_metadata: tuple[tuple[str, bytes], ...] = ()
    ) -> NoReturn: ...
    async def write(self, message: bytes) -> None: ...
    def add_done_callback(self, callback: Callable[[Any], None]) -> None: ...


@dataclass(slots=True)
class _Record:
    """The data of one call for its log line."""

    method: str
    request_id: str = ""
    trace: TraceParent | None = None
    account: ServiceAccount | None = None
    kind: str = ""
    store: str = ""
    code: str = "OK"
    reason: str = ""
    location: str = ""
    failed: str = ""

    def ids(self) -> dict[str, str]:
        """Return the ids that connect this call to the caller's log."""
        trace = {} if self.trace is None else {"trace_id": self.trace.trace_id}
        return {"request_id": self.request_id, **trace}

    def of(self, context: Context) -> None:
        self.request_id = context.request_id or self.request_id
        self.kind = context.config.kind.kind
        self.store = f"{context.store.kind} {context.store.namespace}/{context.store.name}".replace(" /", " ")


@dataclass(slots=True)
class Frame:
    """The calls of one process."""

    service: Service
    metrics: Metrics
    allowed_clients: frozenset[str]
    tokens: TokenGate = field(default_factory=TokenGate)
    draining: asyncio.Event = field(default_factory=asyncio.Event)
    _running: int = 0
    _subscriptions: int = 0

    # --- one entry for each form of call -----------------------------------------------------------------------------

    async def unary(self, method: Method, raw: bytes, rpc: Rpc) -> bytes:
        """Handle one request with one response."""
        response = b""

        async def work(record: _Record) -> None:
            nonlocal response
            context, request = method.decoded(raw)
            async with self._deadline(rpc, record, context):
                if context is not None:
                    self._hold(rpc, context, len(raw))
                result = await method.call(self.service, context, request)
                record.failed = failed_items(result)
                response = encoded(method.encode(result))
                if (held := CURRENT_BYTES.get()) is not None:
                    held.count(len(response))

        await self._call(method.name, rpc, work)
        return response

    async def find(self, raw: bytes, rpc: Rpc) -> None:
        """Handle one request with pages until the last."""

        async def work(record: _Record) -> None:
            context, query = codec.from_find_request(parsed(pb.FindSecretsRequest, raw))
            async with self._deadline(rpc, record, context), aclosing(self.service.find(context, query)) as pages:
                held = self._hold(rpc, context, len(raw))
                async for page in pages:
                    message = encoded(codec.to_find_page(page))
                    held.count(len(message))
                    await rpc.write(message)
                    held.release()

        await self._call("FindSecrets", rpc, work)

    async def subscribe(self, incoming: AsyncIterator[bytes], rpc: Rpc) -> None:
        """Handle a bidirectional stream until the caller leaves or the process drains. It has no deadline of ours.

        The first message is read before any decision, as for every other call: a client that is refused while it still
        writes sees a broken stream instead of the reason.
        """
        first = await self._first(incoming)

        async def work(record: _Record) -> None:
            if self._subscriptions >= MAX_SUBSCRIPTIONS:
                raise busy(f"{MAX_SUBSCRIPTIONS} subscriptions")
            opened = None if first is None else _message(first)
            if not isinstance(opened, SubscribeOpen):
                raise invalid_request("a subscription begins with its opening message")
            self._enter(record, opened.context, float("inf"))
            await self._before(record.method, opened.context)
            self._subscriptions += 1
            try:
                await self._until_draining(self.service.subscribe(opened, _messages(incoming), emit))
            finally:
                self._subscriptions -= 1

        async def emit(event: Any) -> None:
            await rpc.write(encoded(codec.to_subscribe_response(event)))

        await self._call("Subscribe", rpc, work)

    # --- around every call -------------------------------------------------------------------------------------------

    async def _call(self, method: str, rpc: Rpc, work: Callable[[_Record], Awaitable[None]]) -> None:
        record = _Record(method, request_id=_request_id(rpc), trace=TraceParent.parsed(_metadata(rpc, TRACEPARENT_KEY)))
        error: ProviderError | None = None
        clock = self.service.clock
        begun = clock.monotonic()
        self.metrics.started.labels(method).inc()
        self._running += 1
        self.metrics.in_flight.set(self._running)
        try:
            with bound_contextvars(provider=self.service.provider.name, **record.ids()):
                self._admit(rpc)
                if method != HANDSHAKE:
                    record.account = await self.tokens.account(rpc.invocation_metadata() or ())
                await work(record)
        except FAILURES as exc:  # the outermost frame: nothing passes it in another form
            error = CallRedactor(()).of_exception(exc)
            record.code, record.reason = abort_details(error).code.name, error.reason.value
            record.location = error.message if error.reason is ErrorReason.INTERNAL else ""
        except asyncio.CancelledError:
            record.code = "CANCELLED"
            raise
        finally:
            self._running -= 1
            self.metrics.in_flight.set(self._running)
            self._report(record, clock.monotonic() - begun)
        if error is not None:
            await rpc.abort(*abort_details(error))

    def _admit(self, rpc: Rpc) -> None:
        """Check that the client may call, and that the in-flight limit allows it. TLS has verified the certificate."""
        if self.allowed_clients.isdisjoint(names := peer_spiffe_ids(rpc.auth_context())):
            client = ", ".join(names) or "without a name"
            raise ProviderError(
                ErrorReason.PERMISSION_DENIED,
                f"client {client} is not allowed to call the provider: let it admit this name (--allowed-client), or"
                " start the operator with --service-account=ACCOUNT, if it admits another account of that namespace",
            )
        if self._running - self._subscriptions > (limit := self.service.provider.limits.max_in_flight) > 0:
            raise busy(f"{limit} calls")

    @asynccontextmanager
    async def _deadline(self, rpc: Rpc, record: _Record, context: Context | None) -> AsyncIterator[None]:
        """Apply the caller's deadline or ours, whichever is earlier. A call without a deadline gets ours.

        It ends slightly before the caller's: a caller whose deadline has passed does not see the reason. First author
        code runs out of time; when half of the margin is left, the call does.
        """
        longest = self.service.provider.limits.max_deadline or DEFAULT_DEADLINE
        remaining = rpc.time_remaining()
        most = longest if remaining is None else min(remaining, longest)
        early = earliness(most)
        if context is not None:
            self._enter(record, context, most - early)
        deadline = Deadline(self.service.clock, most - early / 2)
        try:
            async with deadline:
                await self._before(record.method, context)
                yield
        except TimeoutError:
            raise NoResultError from None

    def _hold(self, rpc: Rpc, context: Context, size: int) -> CallBytes:
        """Count a call's bytes until its response is sent. Raises ProviderError if the process holds too much."""
        held = bytes_of_call(self.service.clock, context.caller.namespace)
        held.take(size)
        rpc.add_done_callback(held.end)
        CURRENT_BYTES.set(held)
        return held

    async def _before(self, method: str, context: Context | None) -> None:
        if (before := self.service.provider.before_call) is not None:
            await before(method, context, self.service.clock)

    def _enter(self, record: _Record, context: Context, seconds: float) -> None:
        record.of(context)
        check_scope(context)
        check_account(record.account, context)
        deadline = self.service.clock.monotonic() + seconds
        CURRENT_CALL.set(
            Call(
                request_id=context.request_id,
                caller=context.caller,
                store=context.store,
                deadline=deadline,
                max_retries=context.max_backend_retries,
                retry_interval=context.backend_retry_interval,
                account=record.account,
                lookups=CallLookups(self.service.clock, context.caller.namespace, deadline),
                traceparent="" if record.trace is None else str(record.trace),
            )
        )

    async def _first(self, incoming: AsyncIterator[bytes]) -> bytes | None:
        """Return the first message of a stream; None if none arrives in time."""
        try:
            async with Deadline(self.service.clock, OPENING_SECONDS):
                return await anext(aiter(incoming), None)
        except TimeoutError:
            return None

    async def _until_draining(self, streaming: Coroutine[Any, Any, None]) -> None:
        """Run a stream until the process drains: an endless stream must not delay a shutdown."""
        stream = asyncio.ensure_future(streaming)
        drained = asyncio.ensure_future(self.draining.wait())
        try:
            await asyncio.wait((stream, drained), return_when=asyncio.FIRST_COMPLETED)
            if not stream.done():
                raise ProviderError(ErrorReason.BACKEND_UNAVAILABLE, "the provider shuts down; subscribe again")
            stream.result()
        finally:
            for task in (stream, drained):
                task.cancel()
            await asyncio.gather(stream, drained, return_exceptions=True)

    def _report(self, record: _Record, seconds: float) -> None:
        self.metrics.handled.labels(record.method, record.code, record.reason).inc()
        self.metrics.latency.labels(record.method).observe(seconds)
        _log.info(
            "call handled",
            provider=self.service.provider.name,
            method=record.method,
            **record.ids(),
            kind=record.kind,
            store=record.store,
            code=record.code,
            reason=record.reason,
            duration=round(seconds, 6),
            **({} if record.account is None else {"account": f"{record.account.namespace}/{record.account.name}"}),
            **({"failed": record.failed} if record.failed else {}),
            **({"error": record.location} if record.location else {}),
        )


def busy(what: str) -> ProviderError:
    return ProviderError(ErrorReason.RATE_LIMITED, f"the provider already runs {what}", retry_after=RETRY_SECONDS)


def earliness(seconds: float) -> float:
    """Return how long before the deadline a response must be sent."""
    return min(max(seconds * _EARLY_SHARE, _LEAST_EARLY), _MOST_EARLY, max(seconds, 0.0) / 2)


def failed_items(response: object) -> str:
    """Count the failed items by reason. The call itself succeeds, so the log would not mention them otherwise."""
    results = response if isinstance(response, tuple) else ()
    reasons = Counter(reason for result in results if (reason := _reason(result)))
    return ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))


def _reason(result: object) -> str:
    match result:
        case (
            GetResult(outcome=ProviderError() as error)
            | PushResult(outcome=ProviderError() as error)
            | CheckResult(error=ProviderError() as error)
            | DeleteResult(error=ProviderError() as error)
        ):
            return error.reason.value
        case _:
            return ""


def encoded(message: Message) -> bytes:
    return message.SerializeToString()


def _request_id(rpc: Rpc) -> str:
    """Read the id from the metadata: a handshake has no envelope, and an envelope may be malformed."""
    found = _metadata(rpc, REQUEST_ID_KEY)
    return found[:_MAX_REQUEST_ID] if isinstance(found, str) else ""


def _metadata(rpc: Rpc, name: str) -> str | bytes:
    return next((value for key, value in rpc.invocation_metadata() or () if key == name), "")


async def _messages(incoming: AsyncIterator[bytes]) -> AsyncIterator[SubscribeMessage]:
    async for raw in incoming:
        yield _message(raw)


def _message(raw: bytes) -> SubscribeMessage:
    return codec.from_subscribe_request(parsed(pb.SubscribeRequest, raw))
