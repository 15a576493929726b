"""A provider without sockets: the same frame, service and author code, called in this loop.

async with InMemory(PROVIDER) as provider:
    result = await provider.get_one(call_context(Notes, {...}), "greeting")
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, NoReturn, Self

import msgspec
from grpc import aio

from eso_api.values import SecretBytes
from eso_sdk.addresses import ORDINARY, AddressPolicy
from eso_sdk.backend import Backend
from eso_sdk.errors import unsupported
from eso_sdk.frame import FIND_PATH, UNARY, Frame
from eso_sdk.metrics import Metrics
from eso_sdk.processidentity import STRICT, ProcessIdentityPolicy
from eso_sdk.provider import Provider, served_kind
from eso_sdk.service import Service
from eso_sdk.session import Sessions
from eso_sdk.testing.server import Client
from eso_wire.status import error_of
from eso_wire.values import Config, Context, Credential, ObjectRef, SecretMap, Token
from eso_wire.versions import CURRENT, SUPPORTED, ProtocolVersion
from kubebase.clock import Clock, SystemClock

# --- The envelope of a call, for tests: a test states only the fields it is about ------------------------------------


def call_context(
    backend: type[Backend[Any]],
    spec: Mapping[str, Any] | bytes | None = None,
    credentials: Mapping[str, str | bytes | Token | SecretMap] | None = None,
    *,
    namespace: str = "team",
    cluster_scoped: bool = False,
    **changes: Any,
) -> Context:
    """Build a call to one kind with this configuration; `credentials` by pointer. `changes` go to the `Context`.

    A cluster-scoped store has no namespace; its caller has one.
    """
    kind = served_kind(backend).infos[0].kind
    config_namespace = "" if cluster_scoped else namespace
    ref = ObjectRef(kind.api_version, kind.kind, config_namespace, "config", uid="uid-1", generation=1)
    caller = ObjectRef("external-secrets.io/v1", "ExternalSecret", namespace, "caller", uid="uid-2", generation=1)
    store = ObjectRef(
        "secretstore.external-secrets.io/v2alpha1",
        "ClusterSecretStore" if cluster_scoped else "SecretStore",
        config_namespace,
        "store",
        uid="uid-3",
        generation=1,
    )
    sent = tuple(Credential(pointer, _value(value)) for pointer, value in (credentials or {}).items())
    fields: dict[str, Any] = {
        "request_id": uuid.uuid4().hex,
        "protocol": CURRENT,
        "caller": caller,
        "store": store,
        "config": Config(ref, kind, _spec(spec), sent),
        "auth_namespace": namespace,
    }
    return Context(**(fields | changes))


def _spec(spec: Mapping[str, Any] | bytes | None) -> SecretBytes:
    return SecretBytes(spec if isinstance(spec, bytes) else msgspec.json.encode(spec or {}))


def _value(value: str | bytes | Token | SecretMap) -> SecretBytes | Token | SecretMap:
    match value:
        case str():
            return SecretBytes(value.encode())
        case bytes():
            return SecretBytes(value)
        case _:
            return value


# --- A provider without sockets --------------------------------------------------------------------------------------


IDENTITY: Final = "spiffe://test/ns/eso/sa/external-secrets"

_METHODS: Final = {method.path: method for method in UNARY}
_END: Final = b""  # no message of a stream is empty: each has a field that is always set
_QUEUE: Final = 16


class MemoryRpc:
    """Stands in for grpc.aio's servicer context."""

    def __init__(self, timeout: float | None = None, identity: str = IDENTITY) -> None:
        self._timeout = timeout
        self._identity = identity
        self.written: asyncio.Queue[bytes] = asyncio.Queue(_QUEUE)
        self._when_done: list[Callable[[Any], None]] = []

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._when_done.append(callback)

    def done(self) -> None:
        """End the call, after its response."""
        for callback in self._when_done:
            callback(self)

    def auth_context(self) -> Mapping[str, Any]:
        return {"peer_spiffe_id": [self._identity.encode()]} if self._identity else {}

    def time_remaining(self) -> float | None:
        return self._timeout

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()

    async def abort(
        self, code: Any, details: str = "", trailing_metadata: tuple[tuple[str, bytes], ...] = ()
    ) -> NoReturn:
        raise aio.AioRpcError(code, aio.Metadata(), aio.Metadata(*trailing_metadata), details=details)

    async def write(self, message: bytes) -> None:
        await self.written.put(message)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except aio.AioRpcError as exc:
        raise error_of(exc) from exc


class MemoryTransport:
    """Hands bytes to the frame and back."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    async def unary(self, path: str, raw: bytes, timeout: float | None) -> bytes:  # noqa: ASYNC109 - as gRPC has it
        if path not in _METHODS:
            raise unsupported(f"there is no call {path}")
        rpc = MemoryRpc(timeout)
        try:
            with _translated():
                return await self._frame.unary(_METHODS[path], raw, rpc)
        finally:
            rpc.done()

    async def stream(self, path: str, requests: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        rpc = MemoryRpc()

        async def work() -> None:
            try:
                if path == FIND_PATH:
                    await self._frame.find(await anext(requests), rpc)
                else:
                    await self._frame.subscribe(requests, rpc)
            finally:
                rpc.done()
                await rpc.written.put(_END)

        task = asyncio.get_running_loop().create_task(work())
        try:
            while (message := await rpc.written.get()) != _END:
                yield message
            with _translated():
                await task
        finally:
            task.cancel()
            while not task.done():
                # A task that writes into a full queue while it is cancelled must not wait for a reader that has left.
                while not rpc.written.empty():
                    rpc.written.get_nowait()
                await asyncio.wait((task,), timeout=0.01)


class InMemory(Client):
    """One provider, callable in this event loop."""

    def __init__(
        self,
        provider: Provider,
        clock: Clock | None = None,
        protocols: tuple[ProtocolVersion, ...] = SUPPORTED,
        *,
        addresses: AddressPolicy = ORDINARY,
        process_identity: ProcessIdentityPolicy = STRICT,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.metrics = Metrics(provider.api_name or provider.name)
        self.sessions = Sessions(self.clock, on_change=self.metrics.sessions.set)
        service = Service(
            provider,
            self.clock,
            self.sessions,
            self.metrics.api_calls,
            instance_id="memory",
            protocols=protocols,
            addresses=addresses,
            process_identity=process_identity,
        )
        self.frame = Frame(service, self.metrics, frozenset({IDENTITY}))
        super().__init__(MemoryTransport(self.frame))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _exc: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.sessions.close()
