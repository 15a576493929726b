"""A provider that misbehaves on demand. It handles raw bytes, so that a test can also send nonsense.

    ScriptedProvider    its values, its faults, its recorded calls
    LoopbackTransport   the operator's transport without sockets (codec only, virtual time)

`providerhost.py` puts the same provider behind a real gRPC server.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field

from google.protobuf.message import Message

from eso_api.values import SecretBytes
from eso_operator.providers.channels import CallOptions, Duplex
from eso_operator.providers.errors import NoResponseError
from eso_wire import codec, paths
from eso_wire._generated import provider_pb2 as pb
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    ChangeEvent,
    ChangeType,
    CheckResult,
    CleanupOutcome,
    DeleteItem,
    DeleteResult,
    FindPage,
    Found,
    Generated,
    GetItem,
    GetResult,
    Handshake,
    Heartbeat,
    KindInfo,
    Limits,
    ObjectRef,
    PushItem,
    PushOutcome,
    PushResult,
    SecretMap,
    Shape,
    SubscribeAck,
    SubscribeOpen,
    SubscribeUpdate,
    Validation,
    ValidationState,
    ValueMetadata,
    WatchItem,
)
from eso_wire.versions import SUPPORTED, ProtocolVersion, select
from kubebase.clock import Clock
from kubebase.deadline import Deadline

Nonsense = Callable[[str, bytes], bytes | None]
"""Replaces a response: gets the method and the true response; None leaves it unchanged."""


@dataclass(slots=True)
class ScriptedProvider:
    """Change the fields at any time; they hold for the next call."""

    clock: Clock
    data: dict[str, bytes] = field(default_factory=dict)
    generated: dict[str, bytes] = field(default_factory=lambda: {"password": b"generated"})
    """The values that a generator returns."""
    state: bytes | None = None
    """The state that a generator returns for the clean-up."""
    lifetime: float = 0.0
    """Seconds until a generator's values must be renewed; 0 if it does not report it."""
    instance_id: str = "instance-1"
    kinds: tuple[KindInfo, ...] = ()
    limits: Limits = field(default_factory=Limits)
    speaks: tuple[ProtocolVersion, ...] = SUPPORTED
    # --- faults
    latency: float = 0.0
    errors: deque[ProviderError] = field(default_factory=deque)
    """Each fails one call, in order."""
    broken: ProviderError | None = None
    """Fails every call but the handshake."""
    item_errors: dict[str, ProviderError] = field(default_factory=dict)
    passing_item_errors: dict[str, deque[ProviderError]] = field(default_factory=dict)
    """By remote key: each fails one item of one call, in order."""
    refused_streams: ProviderError | None = None
    """Fails every subscription, and no other call."""
    refused_tokens: set[str] = field(default_factory=set)
    """Fails subscriptions that come with one of these."""
    hangs: bool = False
    nonsense: Nonsense | None = None
    page_size: int = 100
    pages: int | None = None
    """End a find after this many pages, without the last one."""
    missing_paths: set[str] = field(default_factory=set)
    """Roots of searches that do not exist."""
    # --- recorded calls
    calls: Counter[str] = field(default_factory=Counter)
    requests: list[tuple[GetItem, ...]] = field(default_factory=list)
    identities: list[bytes] = field(default_factory=list)
    credentials: list[tuple[bytes, ...]] = field(default_factory=list, repr=False)
    """The credentials of each read."""
    configurations: list[ObjectRef] = field(default_factory=list)
    """The object that each read names as its configuration."""
    validated: list[ObjectRef] = field(default_factory=list)
    """The same of each validation of a store. Stores that other tests leave behind may come here too."""
    closed: list[ObjectRef] = field(default_factory=list)
    """The objects whose sessions had to be closed."""
    openings: list[SubscribeOpen] = field(default_factory=list)
    acks: list[str] = field(default_factory=list)
    watches: dict[str, WatchItem] = field(default_factory=dict)
    """The watches of the last opened stream; empty when it has ended."""
    events: asyncio.Queue[ChangeEvent | Heartbeat | None] = field(default_factory=asyncio.Queue)
    called: asyncio.Event = field(default_factory=asyncio.Event)

    async def until_called(self, method: str, times: int = 1) -> None:
        """Wait until the method, by its short name, was called this often."""
        while self.calls[method] < times:
            self.called.clear()
            await self.called.wait()

    async def unary(self, method: str, request: bytes) -> bytes:
        self._count(method)
        await self._misbehave(method)
        return self._spoilt(method, self._respond(method, request).SerializeToString())

    async def stream(self, method: str, request: bytes) -> AsyncGenerator[bytes, None]:
        self._count(method)
        await self._misbehave(method)
        _, query = codec.from_find_request(pb.FindSecretsRequest.FromString(request))
        if query.path in self.missing_paths:
            nothing = FindPage((), last=True, missing=f'folder "{query.path}" does not exist')
            yield self._spoilt(method, codec.to_find_page(nothing).SerializeToString())
            return
        found = [
            Found(key, SecretBytes(value)) for key, value in sorted(self.data.items()) if key.startswith(query.path)
        ]
        pages = [found[start : start + self.page_size] for start in range(0, len(found), self.page_size)] or [[]]
        for number, page in enumerate(pages):
            if number == self.pages:
                return
            last = number == len(pages) - 1
            yield self._spoilt(method, codec.to_find_page(FindPage(tuple(page), last)).SerializeToString())

    async def opened(self, request: bytes) -> None:
        """Handle the first message of a subscription."""
        self._count(paths.SUBSCRIBE)
        await self._misbehave(paths.SUBSCRIBE)
        if self.refused_streams is not None:
            raise self.refused_streams
        opening = codec.from_subscribe_request(pb.SubscribeRequest.FromString(request))
        assert isinstance(opening, SubscribeOpen)  # noqa: S101 - the protocol's first message
        if opening.resume_token in self.refused_tokens:
            raise ProviderError(ErrorReason.INVALID_REQUEST, "no such token")
        self.openings.append(opening)
        self.watches = {item.watch_id: item for item in opening.items}

    def amended(self, request: bytes) -> None:
        """Handle a further message of a subscription."""
        message = codec.from_subscribe_request(pb.SubscribeRequest.FromString(request))
        if isinstance(message, SubscribeUpdate):
            kept = {each: item for each, item in self.watches.items() if each not in message.remove}
            self.watches = kept | {item.watch_id: item for item in message.add}
        if isinstance(message, SubscribeAck):
            self.acks.append(message.resume_token)

    def changed(self, key: str, *, resume_token: str = "") -> ChangeEvent:
        """Return the event of a change of this remote key, for its watches."""
        ids = tuple(each for each, item in self.watches.items() if item.ref is not None and item.ref.key == key)
        return ChangeEvent(ChangeType.UPDATED, ids, resume_token=resume_token)

    async def next_event(self) -> bytes | None:
        event = await self.events.get()
        if event is None:
            return None
        return self._spoilt(paths.SUBSCRIBE, codec.to_subscribe_response(event).SerializeToString())

    def _count(self, method: str) -> None:
        self.calls[paths.short_name(method)] += 1
        self.called.set()

    async def _misbehave(self, method: str) -> None:
        if self.latency:
            await self.clock.sleep(self.latency)
        if self.hangs:
            await asyncio.get_running_loop().create_future()
        if method == paths.HANDSHAKE:
            return
        if self.errors:
            raise self.errors.popleft()
        if self.broken is not None:
            raise self.broken

    def _spoilt(self, method: str, response: bytes) -> bytes:
        changed = self.nonsense(method, response) if self.nonsense else None
        return response if changed is None else changed

    def _respond(self, method: str, request: bytes) -> Message:
        match paths.short_name(method):
            case "Handshake":
                return self._handshake(request)
            case "GetSecrets":
                context, items = codec.from_get_request(pb.GetSecretsRequest.FromString(request))
                self.requests.append(items)
                self.identities.append(context.config.spec_json.reveal() if context.config.spec_json else b"")
                sent = (each.value for each in context.config.credentials)
                self.credentials.append(tuple(value.reveal() for value in sent if isinstance(value, SecretBytes)))
                self.configurations.append(context.config.ref)
                return codec.to_get_response([self._get(item) for item in items])
            case "CheckSecrets":
                _, items = codec.from_check_request(pb.CheckSecretsRequest.FromString(request))
                return codec.to_check_response([self._check(each) for each in items])
            case "PushSecrets":
                return self._push(request)
            case "DeleteSecrets":
                _, gone = codec.from_delete_request(pb.DeleteSecretsRequest.FromString(request))
                return codec.to_delete_response([self._delete(each) for each in gone.items])
            case "Validate":
                context, _ = codec.from_validate_request(pb.ValidateRequest.FromString(request))
                self.validated.append(context.config.ref)
                return codec.to_validate_response(Validation(ValidationState.READY))
            case "CloseSessions":
                self.closed.append(codec.from_close_request(pb.CloseSessionsRequest.FromString(request)))
                return pb.CloseSessionsResponse()
            case "ValidateGenerator":
                return codec.to_validate_response(Validation(ValidationState.READY))
            case "Generate":
                state = None if self.state is None else SecretBytes(self.state)
                values = {key: SecretBytes(value) for key, value in self.generated.items()}
                ends = ValueMetadata(suggested_refresh=self.lifetime)
                return codec.to_generate_response(Generated(values, state=state, metadata=ends))
            case "Cleanup":
                return codec.to_cleanup_response(CleanupOutcome.CLEANED)
        raise ProviderError(ErrorReason.UNSUPPORTED_OPERATION, f"no such method: {method}")

    def _handshake(self, request: bytes) -> Message:
        hello = codec.from_hello(pb.HandshakeRequest.FromString(request))
        handshake = Handshake(
            selected=select(self.speaks, hello.supported),
            supported=self.speaks,
            provider_name="scripted",
            provider_version="1",
            instance_id=self.instance_id,
            kinds=self.kinds,
            limits=self.limits,
        )
        return codec.to_handshake(handshake)

    def _get(self, item: GetItem) -> GetResult:
        if error := self.item_errors.get(item.ref.key) or self._passing(item.ref.key):
            return GetResult(item.item_id, error)
        value = self.data.get(item.ref.key)
        if value is None:
            return GetResult(item.item_id, ProviderError(ErrorReason.SECRET_NOT_FOUND, f"{item.ref.key} is not there"))
        outcome: SecretBytes | SecretMap = SecretBytes(value)
        return GetResult(item.item_id, {"value": SecretBytes(value)} if item.shape is Shape.MAP else outcome)

    def _push(self, request: bytes) -> Message:
        _, batch = codec.from_push_request(pb.PushSecretsRequest.FromString(request))
        return codec.to_push_response([self._push_item(item) for item in batch.items])

    def _push_item(self, item: PushItem) -> PushResult:
        if error := self._passing(item.remote.key):
            return PushResult(item.item_id, error)
        self.data[item.remote.key] = item.payload.reveal() if isinstance(item.payload, SecretBytes) else b""
        return PushResult(item.item_id, PushOutcome.UPDATED)

    def _check(self, item: GetItem) -> CheckResult:
        error = self._passing(item.ref.key)
        return CheckResult(item.item_id, error is None and item.ref.key in self.data, error=error)

    def _delete(self, item: DeleteItem) -> DeleteResult:
        if error := self._passing(item.remote.key):
            return DeleteResult(item.item_id, error=error)
        return DeleteResult(item.item_id, self.data.pop(item.remote.key, None) is not None)

    def _passing(self, key: str) -> ProviderError | None:
        waiting = self.passing_item_errors.get(key)
        return waiting.popleft() if waiting else None


@dataclass(slots=True)
class LoopbackTransport:
    """Calls without sockets: the same bytes, deadlines on the clock. `down` simulates a process that does not run."""

    provider: ScriptedProvider
    down: Callable[[], ProviderError | None] = lambda: None
    closed: bool = False

    async def unary(self, method: str, request: bytes, options: CallOptions) -> bytes:
        self._reach()
        if options.timeout is None:
            return await self.provider.unary(method, request)
        try:
            if not self.provider.hangs and not self.provider.latency:
                return await self.provider.unary(method, request)
            async with Deadline(self.provider.clock, options.timeout):
                return await self.provider.unary(method, request)
        except TimeoutError:
            raise NoResponseError(f"the provider did not answer {paths.short_name(method)} in time") from None

    async def stream(self, method: str, request: bytes, options: CallOptions) -> AsyncGenerator[bytes, None]:
        del options
        self._reach()
        async for message in self.provider.stream(method, request):
            yield message

    async def duplex(self, method: str, options: CallOptions) -> LoopbackDuplex:
        del method, options
        self._reach()
        return LoopbackDuplex(self.provider)

    async def close(self) -> None:
        self.closed = True

    def _reach(self) -> None:
        if (failure := self.down()) is not None:
            raise failure


@dataclass(slots=True)
class LoopbackDuplex(Duplex):
    provider: ScriptedProvider
    started: bool = False

    async def send(self, message: bytes) -> None:
        if not self.started:
            self.started = True
            await self.provider.opened(message)
        else:
            self.provider.amended(message)

    async def receive(self) -> bytes | None:
        return await self.provider.next_event()

    def cancel(self) -> None:
        return
