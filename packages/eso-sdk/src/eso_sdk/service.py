"""The responses of a provider, as values: from a decoded call to its session and author code, and back.

    handshake, validate, get, find, check, push, delete, subscribe, generate, cleanup, close_sessions

It is the same for calls over gRPC (`handlers.py`) and in memory (`testing`). Every exception that leaves it is a
`ProviderError` with a redacted message. The caller handles deadlines, limits, logs and metrics.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from eso_api.values import SecretBytes
from eso_sdk.addresses import ORDINARY, AddressPolicy
from eso_sdk.backend import CURRENT_CALL, ApiCalls, Opening
from eso_sdk.batches import require_results
from eso_sdk.configuration import check_caller, decoded, depends_on_caller, kind_of
from eso_sdk.credentials import Credentials
from eso_sdk.errors import invalid_request
from eso_sdk.generator import Generator
from eso_sdk.kinds import ServedKind
from eso_sdk.processidentity import STRICT, ProcessIdentityPolicy
from eso_sdk.provider import Provider
from eso_sdk.reading import Reading, find_operations, missing
from eso_sdk.redaction import CallRedactor, secrets_of
from eso_sdk.results import generated_of, validation_of, warnings_of
from eso_sdk.session import Session, Sessions, identity_of
from eso_sdk.store import Store
from eso_sdk.subscription import Emit, HeartbeatSchedule, Subscription
from eso_sdk.tracebacks import FAILURES
from eso_sdk.writing import Writing
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    CheckResult,
    CleanupOutcome,
    CleanupRequest,
    ConditionReport,
    Context,
    DeleteBatch,
    DeleteResult,
    FindPage,
    FindQuery,
    Generated,
    GenerateRequest,
    GetItem,
    GetResult,
    Handshake,
    Hello,
    KindRole,
    ObjectRef,
    Operation,
    PushBatch,
    PushResult,
    Shape,
    SubscribeMessage,
    SubscribeOpen,
    Validation,
    ValidationMode,
    ValidationState,
)
from eso_wire.versions import SUPPORTED, ProtocolVersion, select, spelled
from kubebase.clock import Clock
from kubebase.redaction import PartlyPublic

STORE, GENERATOR = KindRole.STORE, KindRole.GENERATOR
_MESSAGE_OVERHEAD = 64 * 1024


@dataclass(frozen=True, slots=True)
class Service:
    """One provider, ready to be called."""

    provider: Provider
    clock: Clock
    sessions: Sessions
    api_calls: ApiCalls
    instance_id: str
    protocols: tuple[ProtocolVersion, ...] = SUPPORTED
    heartbeats: HeartbeatSchedule = field(init=False)
    heartbeat_seconds: float = 30.0
    addresses: AddressPolicy = ORDINARY
    process_identity: ProcessIdentityPolicy = STRICT

    def __post_init__(self) -> None:
        object.__setattr__(self, "heartbeats", HeartbeatSchedule(self.clock, self.heartbeat_seconds))

    def handshake(self, hello: Hello) -> Handshake:
        """Describe this provider and select the highest protocol version of both sides; None if they share none."""
        provider = self.provider
        return Handshake(
            selected=select(self.protocols, hello.supported),
            supported=self.protocols,
            provider_name=provider.name,
            provider_version=provider.version,
            instance_id=self.instance_id,
            kinds=provider.kind_infos,
            features=tuple(feature for feature in provider.features if feature in hello.features),
            limits=provider.limits,
        )

    # --- stores ------------------------------------------------------------------------------------------------------

    async def validate(self, context: Context, mode: ValidationMode, role: KindRole = STORE) -> Validation:
        """Validate a configuration. A problem of the configuration is a response; being unable to tell is an error."""
        redactor = self._redactor(secrets_of(context))
        with redactor.guard():
            self._check_protocol(context)
            served = kind_of(self.provider, context, role)
            if mode is ValidationMode.STATIC:
                return checked(served, context, redactor)

            async def validate_backend() -> Validation:
                async with self._session(context, role, redactor) as session, session.gate:
                    return validation_of(await session.backend.validate())

            return await examined(served, validate_backend, context, redactor)

    async def get(self, context: Context, items: tuple[GetItem, ...]) -> tuple[GetResult, ...]:
        redactor = self._redactor(secrets_of(context), (item.ref.key for item in items))
        # A single unsupported item is refused alone; a call that consists of one unsupported operation fails as a
        # whole.
        operations = {Operation.GET_MAP if item.shape is Shape.MAP else Operation.GET for item in items}
        async with self._store(context, redactor, len(items), operations if len(operations) == 1 else ()) as (
            store,
            session,
        ):
            results = await self._reading(store, session, redactor).get(items)
            self._weigh(session, [result.outcome for result in results])
            return results

    async def check(self, context: Context, items: tuple[GetItem, ...]) -> tuple[CheckResult, ...]:
        redactor = self._redactor(secrets_of(context), (item.ref.key for item in items))
        async with self._store(context, redactor, len(items), {Operation.EXISTS}) as (store, session):
            results = await self._reading(store, session, redactor).check(items)
            self._weigh(session, [result.error for result in results])
            return results

    async def find(self, context: Context, query: FindQuery) -> AsyncGenerator[FindPage, None]:
        redactor = self._redactor(secrets_of(context))
        async with self._store(context, redactor, 1, find_operations(query)) as (store, session):
            if not store.OPERATIONS & _FINDS:
                raise missing(store, {Operation.FIND_BY_NAME}) or invalid_request("nothing to find by")
            async with aclosing(self._reading(store, session, redactor).find(query)) as pages:
                async for page in pages:
                    yield page

    async def push(self, context: Context, batch: PushBatch) -> tuple[PushResult, ...]:
        resolved = (credential for item in batch.items for credential in item.resolved)
        payloads = (item.payload for item in batch.items)
        redactor = self._redactor(secrets_of(context, payloads, resolved), (item.remote.key for item in batch.items))
        _repeatable(batch.idempotency_key)
        async with self._store(context, redactor, len(batch.items), {Operation.PUSH}) as (store, session):
            results = await Writing(store, session.gate, redactor).push(batch)
            self._weigh(session, [result.outcome for result in results])
            return results

    async def delete(self, context: Context, batch: DeleteBatch) -> tuple[DeleteResult, ...]:
        redactor = self._redactor(secrets_of(context), (item.remote.key for item in batch.items))
        _repeatable(batch.idempotency_key)
        async with self._store(context, redactor, len(batch.items), {Operation.DELETE}) as (store, session):
            results = await Writing(store, session.gate, redactor).delete(batch.items)
            self._weigh(session, [result.error for result in results])
            return results

    async def subscribe(self, opened: SubscribeOpen, incoming: AsyncIterator[SubscribeMessage], emit: Emit) -> None:
        """Run until the author's changes end or the caller leaves. It only waits, so it takes no place in the gate."""
        context = opened.context
        redactor = self._redactor(secrets_of(context))
        async with self._store(context, redactor, 1, {Operation.SUBSCRIBE}) as (store, _session):
            await Subscription(store, opened, emit, self.heartbeats).run(incoming)

    # --- generators --------------------------------------------------------------------------------------------------

    async def generate(self, context: Context, request: GenerateRequest) -> Generated:
        previous = () if request.previous_state is None else (request.previous_state,)
        redactor = self._redactor(secrets_of(context, previous))
        _repeatable(request.idempotency_key)
        with redactor.guard():
            async with self._session(context, GENERATOR, redactor) as session, session.gate:
                return generated_of(await cast(Generator[Any], session.backend).generate(request))

    async def cleanup(self, context: Context, request: CleanupRequest) -> CleanupOutcome:
        redactor = self._redactor(secrets_of(context, (request.state,)))
        _repeatable(request.idempotency_key)
        with redactor.guard():
            served = kind_of(self.provider, context, GENERATOR)
            if Operation.CLEANUP not in served.operations:
                raise ProviderError(ErrorReason.UNSUPPORTED_OPERATION, "this generator leaves nothing to clean up")
            async with self._session(context, GENERATOR, redactor) as session, session.gate:
                generator = cast(Generator[Any], session.backend)
                lost = not request.state
                existed = await (
                    generator.cleanup_lost(request.idempotency_key) if lost else generator.cleanup(request.state)
                )
        return CleanupOutcome.ALREADY_GONE if existed is False else CleanupOutcome.CLEANED

    async def close_sessions(self, holder: ObjectRef) -> None:
        """Close the sessions of a configuration whose object is gone."""
        self.sessions.forget_holder(holder)

    # --- sessions ----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _store(
        self, context: Context, redactor: CallRedactor, count: int, needed: Iterable[Operation] = ()
    ) -> AsyncIterator[tuple[Store[Any], Session]]:
        """Open the store of a call after checking that it supports the operations."""
        with redactor.guard():
            if count > (limit := self.provider.limits.max_batch_items) > 0:
                raise invalid_request(f"a call takes at most {limit} items")
            served = kind_of(self.provider, context, STORE)
            if refusal := missing(cast(Any, served.backend), needed):
                raise refusal
            async with self._session(context, STORE, redactor) as session:
                yield cast(Store[Any], session.backend), session

    @asynccontextmanager
    async def _session(self, context: Context, role: KindRole, redactor: CallRedactor) -> AsyncIterator[Session]:
        self._check_protocol(context)
        served = kind_of(self.provider, context, role)
        key = _key(served, context)
        owner = context.config.ref.namespace or context.store.namespace
        with redactor.guard():
            check_caller(served, context)
            try:
                async with self.sessions.use(key, lambda: self._opening(key, served, context), owner) as session:
                    session.backend.renew(context.config.credentials)
                    yield session
            except ProviderError as exc:
                self._recall(key, (exc,))
                raise

    def _opening(self, key: bytes, served: ServedKind, context: Context) -> Session:
        config = decoded(served, context)
        served.backend.check_config(config)
        credentials = Credentials(config, context.config.credentials)
        backend = served.backend(
            Opening(
                config,
                context.config.ref,
                credentials,
                self.clock,
                self.api_calls,
                self.addresses,
                self.process_identity,
            )
        )
        return Session(key, backend, asyncio.Semaphore(served.concurrency))

    def _weigh(self, session: Session, outcomes: list[object]) -> None:
        """Draw conclusions for the session and the call from the outcomes of all items."""
        self._recall(session.key, outcomes)
        require_results(outcomes)

    def _recall(self, key: bytes, outcomes: Iterable[object]) -> None:
        """Drop a session whose login the backend no longer accepts; the next call logs in again."""
        for outcome in outcomes:
            if isinstance(outcome, ProviderError) and outcome.reason is ErrorReason.CREDENTIALS_REJECTED:
                self.sessions.forget(key)
                return

    def _reading(self, store: Store[Any], session: Session, redactor: CallRedactor) -> Reading:
        room = (self.provider.limits.max_message_bytes or 4 * 1024 * 1024) - _MESSAGE_OVERHEAD
        return Reading(store, session.gate, redactor, max(room, 1024))

    def _redactor(self, secrets: Iterable[SecretBytes | PartlyPublic], names: Iterable[str] = ()) -> CallRedactor:
        return CallRedactor(secrets, names, self.provider.packages)

    def _check_protocol(self, context: Context) -> None:
        if context.protocol not in self.protocols:
            raise ProviderError(
                ErrorReason.PROTOCOL_INCOMPATIBLE,
                f"the call speaks protocol {context.protocol}; this provider speaks {spelled(self.protocols)}",
            )


_FINDS = frozenset({Operation.FIND_BY_NAME, Operation.FIND_BY_TAGS, Operation.FIND_BY_PATH})


def _key(served: ServedKind, context: Context) -> bytes:
    """Return the key of the session that a call uses."""
    namespace = context.caller.namespace if depends_on_caller(served, context) else ""
    return identity_of(context, CURRENT_CALL.get().account, caller_namespace=namespace)


def _repeatable(idempotency_key: str) -> None:
    """Let author code recognise a repeated call."""
    CURRENT_CALL.set(replace(CURRENT_CALL.get(), idempotency_key=idempotency_key))


VERDICTS: Final = frozenset(
    {
        ErrorReason.CONFIG_INVALID,
        ErrorReason.CONFIG_NOT_FOUND,
        ErrorReason.CREDENTIALS_NOT_FOUND,
        ErrorReason.CREDENTIALS_REJECTED,
        ErrorReason.PERMISSION_DENIED,
        ErrorReason.NAMESPACE_DENIED,
    }
)
"""Reasons that concern the configuration, and hold until it changes."""


# --- validation ------------------------------------------------------------------------------------------------------

# A problem of the configuration is a result; if the provider cannot decide, the call fails.


def checked(served: ServedKind, context: Context, redactor: CallRedactor) -> Validation:
    """Validate the configuration alone, without session or backend: admission uses this."""
    try:
        warnings = warnings_of(served.backend.check_config(decoded(served, context)))
    except FAILURES as exc:  # sorted into answers and errors right here
        return _verdict(redactor.of_exception(exc), served)
    return _fit(Validation(ValidationState.READY, warnings=warnings), served, redactor)


async def examined(
    served: ServedKind, validate_backend: Callable[[], Awaitable[Validation]], context: Context, redactor: CallRedactor
) -> Validation:
    """Validate the configuration alone, then ask the backend."""
    alone = checked(served, context, redactor)
    if alone.state is not ValidationState.READY:
        return alone
    try:
        validation = await validate_backend()
    except FAILURES as exc:  # sorted into answers and errors right here
        return _verdict(redactor.of_exception(exc), served)
    return _fit(replace(validation, warnings=(*alone.warnings, *validation.warnings)), served, redactor)


def _verdict(error: ProviderError, served: ServedKind) -> Validation:
    if error.reason not in VERDICTS:
        raise error
    return Validation(ValidationState.INVALID, error=error, operations=served.operations)


def _fit(validation: Validation, served: ServedKind, redactor: CallRedactor) -> Validation:
    """Redact the texts and remove operations that the kind does not have."""
    narrowed = served.operations if validation.operations is None else validation.operations & served.operations
    return replace(
        validation,
        warnings=tuple(redactor.text(warning) for warning in validation.warnings),
        error=None if validation.error is None else redactor.error(validation.error),
        operations=narrowed,
        conditions=tuple(_condition(condition, redactor) for condition in validation.conditions),
    )


def _condition(condition: ConditionReport, redactor: CallRedactor) -> ConditionReport:
    return replace(condition, message=redactor.text(condition.message))
