"""Errors: structured, correct about unsupported operations, without values."""

from __future__ import annotations

import copy
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from typing import Any

from grpc import aio

from eso_api.references import GENERATORS_GROUP
from eso_conformance.cases import NotApplicable, Profile, case, expect, violated
from eso_conformance.subject import CALL_SECONDS, Subject, detail_of, item, reason_name, remote
from eso_wire._generated import provider_pb2 as pb
from eso_wire.errors import ErrorReason
from eso_wire.status import CODE_OF
from eso_wire.versions import CURRENT

_FINDS = (pb.OPERATION_FIND_BY_NAME, pb.OPERATION_FIND_BY_TAGS, pb.OPERATION_FIND_BY_PATH)
_LEAST_VALUE = 4
_STATES = (pb.VALIDATION_STATE_READY, pb.VALIDATION_STATE_UNKNOWN, pb.VALIDATION_STATE_INVALID)


@case(Profile.READ, "validate", "finds the configuration of this run usable")
async def validates(subject: Subject) -> None:
    response = await validate(subject)

    expect(response.state in _STATES, "the state is unspecified")
    expect(
        response.state != pb.VALIDATION_STATE_INVALID,
        f"the configuration is refused: {subject.describe_error(response.error)}",
    )


@case(Profile.READ, "validate", "narrows operations, never widens them")
async def narrows_operations(subject: Subject) -> None:
    response = await validate(subject)

    expect(set(response.operations) <= set(subject.kind.operations), "validation offers what the handshake does not")


@case(Profile.READ, "validate", "refuses configurations that cannot work, with the reason")
async def refuses_invalid(subject: Subject) -> None:
    if not subject.fixture.invalid:
        raise NotApplicable("the fixture names no invalid configuration")
    for spec in subject.fixture.invalid:
        try:
            response = await validate(subject, subject.with_spec(spec))
        except aio.AioRpcError as error:
            detail = _required_detail(error)
            expect(detail.reason == pb.ERROR_REASON_CONFIG_INVALID, f"the reason is {reason_name(detail)}")
        else:
            expect(response.state == pb.VALIDATION_STATE_INVALID, "an invalid configuration is not refused")


@case(Profile.READ, "errors", "refuses a kind it does not serve with UNSUPPORTED_KIND")
async def unsupported_kind(subject: Subject) -> None:
    context = subject.context()
    context.config.kind.kind = "ConformanceNoSuchKind"
    context.config.ref.uid = str(uuid.uuid4())

    await fails(subject.get([item("only", "key")], context=context), pb.ERROR_REASON_UNSUPPORTED_KIND)


@case(Profile.READ, "errors", "refuses a protocol version it does not speak with PROTOCOL_INCOMPATIBLE")
async def unknown_protocol(subject: Subject) -> None:
    context = subject.context(protocol=pb.ProtocolVersion(major=CURRENT.major + 7, minor=0))

    await fails(any_call(subject, context), pb.ERROR_REASON_PROTOCOL_INCOMPATIBLE)


@case(Profile.READ, "errors", "refuses a configuration that is not JSON with CONFIG_INVALID")
async def broken_config(subject: Subject) -> None:
    context = subject.context()
    context.config.inline.spec_json = b"{not json"
    context.config.ref.uid = str(uuid.uuid4())

    await fails(any_call(subject, context), pb.ERROR_REASON_CONFIG_INVALID)


@case(Profile.READ, "errors", "answers every operation it does not offer with UNSUPPORTED_OPERATION")
async def honest_about_operations(subject: Subject) -> None:
    """The declared operations are exactly the supported ones."""
    if subject.kind.role != pb.KIND_ROLE_STORE:
        raise NotApplicable("this kind is a generator")
    context, entry = subject.context(), item("only", "key")
    push = pb.PushItem(item_id="only", remote=remote("key"), value=b"v", precondition=pb.PUSH_PRECONDITION_NONE)
    removal = pb.DeleteItem(item_id="only", remote=remote("key"))
    calls: dict[pb.Operation.ValueType, Callable[[], Awaitable[object]]] = {
        pb.OPERATION_GET: lambda: subject.get([entry]),
        pb.OPERATION_EXISTS: lambda: subject.stores.CheckSecrets(
            pb.CheckSecretsRequest(context=context, items=[entry]), timeout=CALL_SECONDS
        ),
        pb.OPERATION_PUSH: lambda: subject.stores.PushSecrets(
            pb.PushSecretsRequest(context=context, items=[push], idempotency_key="conformance"), timeout=CALL_SECONDS
        ),
        pb.OPERATION_DELETE: lambda: subject.stores.DeleteSecrets(
            pb.DeleteSecretsRequest(context=context, items=[removal], idempotency_key="conformance"),
            timeout=CALL_SECONDS,
        ),
        pb.OPERATION_SUBSCRIBE: lambda: _drained(subject.stores.Subscribe(_opening(context), timeout=CALL_SECONDS)),
    }
    if not set(_FINDS) & set(subject.kind.operations):
        search = pb.FindSecretsRequest(context=context, name_regexp=".")
        calls[pb.OPERATION_FIND_BY_NAME] = lambda: _drained(subject.stores.FindSecrets(search, timeout=CALL_SECONDS))
    tried = False
    for operation, call in calls.items():
        if not subject.offers(operation):
            tried = True
            await fails(call(), pb.ERROR_REASON_UNSUPPORTED_OPERATION)
    if not tried:
        raise NotApplicable("it offers every operation")


@case(Profile.READ, "errors", "shows no credential in an error")
async def shows_no_credential(subject: Subject) -> None:
    canary = f"CANARY-{uuid.uuid4()}"
    context = subject.context()
    context.config.inline.spec_json = f'{{"conformanceUnknown": "{canary}", '.encode()
    context.config.inline.resolved.add(json_pointer="/conformance/secretRef", secret_value=canary.encode())
    context.config.ref.uid = str(uuid.uuid4())

    try:
        await any_call(subject, context)
    except aio.AioRpcError as error:
        shown = [str(error.details()), *(str(value) for _, value in error.trailing_metadata() or ())]
        expect(not any(canary in text for text in shown), "the error repeats what was sent as a secret")
    else:
        violated("a configuration that is not JSON was accepted")


@case(Profile.READ, "errors", "shows no value in an error")
async def shows_no_value(subject: Subject) -> None:
    subject.need(pb.OPERATION_GET)
    known = await subject.known()
    if len(known.value) < _LEAST_VALUE or known.value in known.key:
        raise NotApplicable("the known value could stand in an error by chance")

    results = await subject.get(
        [
            item("value", known.key, version=known.version),
            item("property", known.key, version=known.version, prop="conformance.no.such.property"),
            item("version", known.key, version="conformance-no-such-version"),
            item("map", known.key, version=known.version, shape=pb.VALUE_SHAPE_MAP),
        ]
    )

    shown = [result.error.message for result in results if result.WhichOneof("outcome") == "error"]
    expect(not any(known.value in text for text in shown), "an error repeats the value of its key")


@case(Profile.READ, "errors", "never gives an error page of its backend as a value")
async def gives_no_error_page(subject: Subject) -> None:
    """An HTTP client that ignores the status returns the body: an HTML page, or JSON with a message."""
    subject.need(pb.OPERATION_GET)
    for key in (subject.fixture.absent, *subject.fixture.failing):
        for shape in _shapes(subject):
            results = await _results_or_none(subject.get([item("only", key, shape=shape)]))
            expect(
                all(result.WhichOneof("outcome") == "error" for result in results),
                f'"{key}" has no value, and a read gave one; look at the status of an answer before its body',
            )
    await _refuses_wrong_credentials(subject)


async def _refuses_wrong_credentials(subject: Subject) -> None:
    """A backend that ignores credentials returns the true value; anything else must be an error."""
    fixture = subject.fixture
    if not fixture.credentials or not (fixture.known or subject.offers(pb.OPERATION_PUSH)):
        return
    known = await subject.known()
    context = subject.with_spec(fixture.spec)
    for resolved in context.config.inline.resolved:
        resolved.secret_value = f"conformance-wrong-{uuid.uuid4()}".encode()
    asked = item("only", known.key, version=known.version, prop=known.property)
    results = await _results_or_none(subject.get([asked], context=context))
    expect(
        all(result.WhichOneof("outcome") == "error" or result.value == known.value.encode() for result in results),
        "a read with wrong credentials gave another value than the known one: the answer to the login, perhaps",
    )


def _shapes(subject: Subject) -> list[pb.ValueShape.ValueType]:
    maps = [pb.VALUE_SHAPE_MAP] if subject.offers(pb.OPERATION_GET_MAP) else []
    return [pb.VALUE_SHAPE_SINGLE, *maps]


async def _results_or_none(call: Awaitable[list[pb.GetResult]]) -> list[pb.GetResult]:
    """Return the results of a read; none if the whole call failed, which is an error too."""
    try:
        return await call
    except aio.AioRpcError:
        return []


async def validate(subject: Subject, context: pb.RequestContext | None = None) -> pb.ValidateResponse:
    """Validate a configuration; by default that of this run."""
    request = pb.ValidateRequest(context=context or subject.context())
    call = subject.stores.Validate if subject.kind.role == pb.KIND_ROLE_STORE else subject.generators.ValidateGenerator
    response: pb.ValidateResponse = await call(request, timeout=CALL_SECONDS)
    return response


async def any_call(subject: Subject, context: pb.RequestContext) -> object:
    """Make a call that most kinds support."""
    if subject.kind.role == pb.KIND_ROLE_GENERATOR:
        request = pb.GenerateRequest(context=context, idempotency_key="conformance")
        return await subject.generators.Generate(request, timeout=CALL_SECONDS)
    if subject.offers(pb.OPERATION_GET):
        return await subject.get([item("only", "key")], context=context)
    raise NotApplicable("it can neither read nor generate")


async def fails(call: Awaitable[object], reason: pb.ErrorReason.ValueType) -> None:
    """Check that the call fails as a whole with this reason."""
    wanted = reason_name(pb.ErrorDetail(reason=reason))
    try:
        await call
    except aio.AioRpcError as error:
        detail = _required_detail(error)
        expect(detail.reason == reason, f"the reason is {reason_name(detail)}, not {wanted}")
        due = CODE_OF[ErrorReason(wanted)]
        expect(error.code() is due, f"{wanted} comes with {error.code().name}, not {due.name}")
        expect(detail.message, "the error says nothing to its reader")
    else:
        violated(f"the call succeeded; {wanted} was due")


async def _drained(stream: AsyncIterable[object]) -> None:
    async for _ in stream:
        return


async def _opening(context: pb.RequestContext) -> AsyncIterator[pb.SubscribeRequest]:
    yield pb.SubscribeRequest(open=pb.SubscribeOpen(context=context))


def _required_detail(error: aio.AioRpcError) -> pb.ErrorDetail:
    detail = detail_of(error)
    if detail is None:
        violated(f"the call failed with {error.code().name} and no ErrorDetail")
    return detail


ERRORS = (
    validates,
    narrows_operations,
    refuses_invalid,
    unsupported_kind,
    unknown_protocol,
    broken_config,
    honest_about_operations,
    shows_no_credential,
    shows_no_value,
    gives_no_error_page,
)


# ---------------------------------------------------------------------------------------------------------------------
# Namespaces: the provider refuses forbidden calls too, although the operator has already refused them.


_ELSEWHERE = "conformance-elsewhere"


@case(Profile.READ, "namespaces", "serves a namespaced store with what is of its own namespace only")
async def stays_in_its_namespace(subject: Subject) -> None:
    for move in _MOVES:
        context = subject.context()
        move(context)

        await fails(any_call(subject, context), pb.ERROR_REASON_NAMESPACE_DENIED)


@case(Profile.READ, "namespaces", "refuses a reference of a namespaced configuration to another namespace")
async def confines_references(subject: Subject) -> None:
    if subject.kind.gvk.group == GENERATORS_GROUP:
        raise NotApplicable("references of these generators have no namespace that counts")
    specs = [spec for pointer in subject.fixture.credentials if (spec := _pointing_away(subject.fixture.spec, pointer))]
    if not specs:
        raise NotApplicable("the fixture names no credential of a reference")
    for spec in specs:
        await fails(any_call(subject, subject.with_spec(spec)), pb.ERROR_REASON_NAMESPACE_DENIED)


def _move_caller(context: pb.RequestContext) -> None:
    context.caller.namespace = _ELSEWHERE


def _move_configuration(context: pb.RequestContext) -> None:
    context.config.ref.namespace = _ELSEWHERE
    context.config.ref.uid = str(uuid.uuid4())


def _move_credentials(context: pb.RequestContext) -> None:
    context.auth_namespace = _ELSEWHERE


_MOVES: tuple[Callable[[pb.RequestContext], None], ...] = (_move_caller, _move_configuration, _move_credentials)


def _pointing_away(spec: dict[str, Any], pointer: str) -> dict[str, Any] | None:
    """Return the configuration with the reference at the pointer naming another namespace; None without a reference."""
    moved = copy.deepcopy(spec)
    found: Any = moved
    for part in pointer.removeprefix("/").split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and name.isdigit() and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, dict) and name in found:
            found = found[name]
        else:
            return None
    if not isinstance(found, dict):
        return None
    found["namespace"] = _ELSEWHERE
    return moved


SCOPING = (stays_in_its_namespace, confines_references)
