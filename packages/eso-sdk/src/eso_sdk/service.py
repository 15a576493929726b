"""The responses of a provider, as values: from a decoded call to its session and author code, and back.

    handshake, validate, get, find, check, push, delete, subscribe, generate, cleanup, close_sessions

It is the same for calls over gRPC (`frame.py`) and in memory (`testing`). Every exception that leaves it is a
`ProviderError` with a redacted message. The caller handles deadlines, limits, logs and metrics.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

import msgspec

from eso_api.values import SecretBytes
from eso_sdk.addresses import ORDINARY, AddressPolicy
from eso_sdk.backend import CURRENT_CALL, Opening
from eso_sdk.credentials import Credentials, check_namespaces
from eso_sdk.errors import invalid_request
from eso_sdk.metrics import ApiCallSeries
from eso_sdk.operations import (
    Emit,
    HeartbeatSchedule,
    Reading,
    Subscription,
    Writing,
    find_operations,
    missing,
    require_results,
)
from eso_sdk.processidentity import STRICT, ProcessIdentityPolicy
from eso_sdk.provider import Provider, ServedKind, served_kind
from eso_sdk.redaction import FAILURES, CallRedactor, secrets_of
from eso_sdk.session import Session, Sessions, identity_of
from eso_sdk.store import Generator, Store, generated_of, validation_of, warnings_of
from eso_wire import pointers
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.pointers import stands_for
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

# ---------------------------------------------------------------------------------------------------------------------
# Turn the configuration of a call into the typed config of its kind: decode it, and check it and its references.


SEPARATES_CALLERS: Final = ProtocolVersion(2, 2)
"""The first protocol version in which operators do not share reads between namespaces if a kind forbids it."""

_PATH = re.compile(r" - at `([^`]*)`$")
_MISSING = re.compile(r"^Object missing required field `([^`]*)`")


def kind_of(provider: Provider, context: Context, role: KindRole) -> ServedKind:
    """Return the kind that answers this call."""
    served = provider.served.get(context.config.kind)
    if served is None or served.role is not role:
        kinds = ", ".join(str(info.kind) for info in provider.kind_infos if info.role is role) or "none"
        raise ProviderError(
            ErrorReason.UNSUPPORTED_KIND,
            f"provider {provider.name} serves no {role.lower()} kind {context.config.kind}; it serves {kinds}",
            subject=context.config.ref,
        )
    return _for_block(provider, served, context)


def _for_block(provider: Provider, served: ServedKind, context: Context) -> ServedKind:
    """Select the kind again for a v1 block: an operator that ignores conditions takes the first kind with the key."""
    config = context.config
    bridged = (config.ref.api_version, config.ref.kind) != (config.kind.api_version, config.kind.kind)
    if served.v1_when is None or not bridged or config.spec_json is None:
        return served
    block = _plain(config.spec_json.reveal())
    same_key = (served_kind(backend) for backend in provider.kinds)
    fitting = (kind for kind in same_key if kind.v1_key == served.v1_key and stands_for(kind.v1_when, block))
    return next(fitting, served)


def depends_on_caller(served: ServedKind, context: Context) -> bool:
    """Return whether a session for this configuration must not be shared between namespaces."""
    spec = context.config.spec_json
    always = any(not each.pointer for each in served.caller_dependences)
    if always or not served.caller_dependences or spec is None:
        return bool(served.caller_dependences)  # without decoding the configuration, which is slow
    return pointers.depends_on_caller(served.caller_dependences, _plain(spec.reveal()))


def check_caller(served: ServedKind, context: Context) -> None:
    """Refuse calls of an older operator that would share the reads of a cluster-scoped store between namespaces."""
    cluster_scoped = not context.store.namespace
    if cluster_scoped and context.protocol < SEPARATES_CALLERS and depends_on_caller(served, context):
        raise ProviderError(
            ErrorReason.PROTOCOL_INCOMPATIBLE,
            "what this configuration gives depends on the namespace of its user, and this operator"
            f" (protocol {context.protocol}) shares reads between namespaces; upgrade the operator, or use a namespaced"
            " store",
            subject=context.store,
        )


def _plain(spec: bytes) -> Any:
    """Decode the configuration as JSON; None if it is invalid, which `decoded` reports."""
    try:
        return msgspec.json.decode(spec)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def decoded(served: ServedKind, context: Context) -> Any:
    """Return the typed configuration of a call."""
    spec = context.config.spec_json
    if spec is None:
        raise ProviderError(
            ErrorReason.CONFIG_NOT_FOUND,
            f"the call names {context.config.ref.kind} {context.config.ref.name} without its content;"
            " this provider reads no objects, so the configuration has to be sent with the call",
            subject=context.config.ref,
        )
    try:
        config = msgspec.json.decode(spec.reveal(), type=served.config)
    except msgspec.ValidationError as exc:
        raise _invalid(_problem(str(exc)), context) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _invalid("the configuration is no JSON object", context) from None
    check_namespaces(config, context)
    return config


def _problem(text: str) -> str:
    """Return the error text with the wrong field. The decoder's own message may quote its content."""
    path = found.group(1) if (found := _PATH.search(text)) else "$"
    where = path.removeprefix("$").replace(".", "/") or "/"
    if missing := _MISSING.match(text):
        return f"{where}: the field {missing.group(1)} is missing"
    return f"{where}: has the wrong type"


def _invalid(problem: str, context: Context) -> ProviderError:
    return ProviderError(ErrorReason.CONFIG_INVALID, problem, subject=context.config.ref)


STORE, GENERATOR = KindRole.STORE, KindRole.GENERATOR
# --- The responses of a provider, as values --------------------------------------------------------------------------


_MESSAGE_OVERHEAD = 64 * 1024


@dataclass(frozen=True, slots=True)
class Service:
    """One provider, ready to be called."""

    provider: Provider
    clock: Clock
    sessions: Sessions
    api_calls: ApiCallSeries
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
