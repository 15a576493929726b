"""Answers of providers, recorded with stand-ins and replayed without a provider.

    RecordingTransport(inner)   passes calls on and records their answers
    ReplayingTransport          answers from a recording; an unknown question is an error that names store and key

The transports see only the calls that `withholding.py` sends. Messages are stored in protobuf's JSON form.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NoReturn

from google.protobuf import json_format
from google.protobuf.message import Message

from eso_api.values import SecretBytes
from eso_operator.providers.channels import CallOptions, Transport
from eso_operator.providers.redaction import ResponseRedactor, secrets_of_config
from eso_operator.stores.resolved import Endpoint
from eso_tools.plan.recording import RecordedResponse, Recording, canonical, unrecorded
from eso_tools.plan.standins import StandIns
from eso_tools.plan.withholding import store_name
from eso_wire import codec, paths
from eso_wire._generated import provider_pb2 as pb
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.paths import short_name
from eso_wire.values import (
    Context,
    FindPage,
    Found,
    Generated,
    GetItem,
    GetResult,
    KindId,
    ValueMetadata,
)
from kubebase.meta import JsonObject

_ERROR: Final = "error"
Description = Mapping[str, Any]


@dataclass(slots=True)
class Recorder:
    """The recording in progress. The last answer to a question counts."""

    recording: Recording
    standins: StandIns
    responses: dict[tuple[str, str], RecordedResponse] = field(default_factory=dict)
    dependent: set[KindId] = field(default_factory=set)

    def note(self, context: Context, description: Description, response: JsonObject) -> None:
        store = store_name(context.store)
        if store not in self.recording.stores:
            self.recording.stores[store] = self.recording.config_digest(context.config)
        recorded_call = {**description, **_scope(context, self.dependent)}
        self.responses[store, canonical(recorded_call)] = RecordedResponse(store, recorded_call, response)

    def finish(self) -> Recording:
        self.recording.responses = [self.responses[key] for key in sorted(self.responses)]
        return self.recording


class RecordingTransport:
    """Records the answers of one provider."""

    def __init__(self, inner: Transport, endpoint: Endpoint, recorder: Recorder) -> None:
        self._inner = inner
        self._service = str(endpoint.service or endpoint.label)
        self._recorder = recorder
        self._standins = recorder.standins

    async def unary(self, method: str, request: bytes, options: CallOptions) -> bytes:
        if method == paths.HANDSHAKE:
            response = await self._inner.unary(method, request, options)
            message = pb.HandshakeResponse.FromString(response)
            _note_dependent(message, self._recorder.dependent)
            self._recorder.recording.providers[self._service] = _json(message)
            return response
        _check_planned(method)
        context = _context(method, request)
        try:
            response = await self._inner.unary(method, request, options)
        except ProviderError as error:
            self._fail(method, request, context, error)
            raise
        self._note(method, request, context, response)
        return response

    async def stream(self, method: str, request: bytes, options: CallOptions) -> AsyncGenerator[bytes, None]:
        context, query = codec.from_find_request(pb.FindSecretsRequest.FromString(request))
        found: list[Found] = []
        try:
            async for raw in self._inner.stream(method, request, options):
                page = codec.from_find_page(pb.FindSecretsResponse.FromString(raw))
                found += [Found(each.key, self._secret(each.value)) for each in page.found]
                if page.last:
                    missing = (
                        ResponseRedactor(secrets_of_config(context.config)).text(page.missing) if page.missing else ""
                    )
                    whole = FindPage(tuple(found), last=True, considered=page.considered, missing=missing)
                    self._recorder.note(context, _find_description(query), _json(codec.to_find_page(whole)))
                yield raw
        except ProviderError as error:
            self._recorder.note(context, _find_description(query), self._error(context, error))
            raise

    async def duplex(self, method: str, options: CallOptions) -> NoReturn:
        del options
        raise ProviderError(ErrorReason.UNSUPPORTED_OPERATION, f"a plan does not send {short_name(method)}")

    async def close(self) -> None:
        await self._inner.close()

    def _note(self, method: str, request: bytes, context: Context, response: bytes) -> None:
        match method:
            case paths.GET:
                results = {
                    each.item_id: each for each in codec.from_get_response(_parsed(pb.GetSecretsResponse, response))
                }
                for item in _items(method, request):
                    if (result := results.get(item.item_id)) is not None:
                        masked = codec.to_get_response([self._masked(context, result)]).results[0]
                        self._recorder.note(context, _item_description(method, item), _json(masked))
            case paths.CHECK:
                checks = _parsed(pb.CheckSecretsResponse, response).results
                by_id = {each.item_id: each for each in checks}
                for item in _items(method, request):
                    if (check := by_id.get(item.item_id)) is not None:
                        said = {"itemId": "0", "exists": check.exists} if not check.HasField("error") else None
                        error = None if said else self._error(context, codec.from_error(check.error))
                        self._recorder.note(context, _item_description(method, item), said or error or {})
            case paths.GENERATE:
                made = codec.from_generate_response(_parsed(pb.GenerateResponse, response))
                data = {name: self._secret(value) for name, value in made.data.items()}
                self._recorder.note(
                    context, {"call": short_name(method)}, _json(codec.to_generate_response(Generated(data)))
                )
            case _:
                validation = codec.from_validate_response(_parsed(pb.ValidateResponse, response))
                redacted = ResponseRedactor(secrets_of_config(context.config)).validation(validation)
                self._recorder.note(context, {"call": short_name(method)}, _json(codec.to_validate_response(redacted)))

    def _fail(self, method: str, request: bytes, context: Context, error: ProviderError) -> None:
        said = self._error(context, error)
        descriptions: Iterable[Description] = ({"call": short_name(method)},)
        if method in (paths.GET, paths.CHECK):
            descriptions = (_item_description(method, item) for item in _items(method, request))
        for description in descriptions:
            self._recorder.note(context, description, said)

    def _masked(self, context: Context, result: GetResult) -> GetResult:
        match result.outcome:
            case SecretBytes() as value:
                outcome: Any = self._secret(value)
            case Mapping() as data:
                outcome = {name: self._secret(value) for name, value in data.items()}
            case ProviderError() as error:
                outcome = ResponseRedactor(secrets_of_config(context.config)).error(error)
            case other:
                outcome = other
        return replace(result, item_id="0", outcome=outcome, metadata=ValueMetadata())

    def _secret(self, value: SecretBytes) -> SecretBytes:
        return SecretBytes(self._standins.of(value.reveal()))

    def _error(self, context: Context, error: ProviderError) -> JsonObject:
        redacted = ResponseRedactor(secrets_of_config(context.config)).error(error)
        return {_ERROR: _json(codec.to_error(redacted)), "itemId": "0"}


@dataclass(frozen=True, slots=True)
class Replay:
    """A recording, ready for questions. `is_recorded` tells whether an object of the plan came from the recording."""

    recording: Recording
    is_recorded: Callable[[str], bool]
    responses: Mapping[tuple[str, str], JsonObject]
    dependent: frozenset[KindId]

    @classmethod
    def of(cls, recording: Recording, is_recorded: Callable[[str], bool]) -> Replay:
        responses = {(each.store, canonical(each.recorded_call)): each.response for each in recording.responses}
        dependent: set[KindId] = set()
        for handshake in recording.providers.values():
            _note_dependent(json_format.ParseDict(handshake, pb.HandshakeResponse()), dependent)
        return cls(recording, is_recorded, responses, frozenset(dependent))

    def find(self, context: Context, description: Description, what: str) -> JsonObject:
        """Return the recorded answer. Raises ProviderError if there is none, or if it is an error."""
        store = store_name(context.store)
        recorded = self.recording.stores.get(store)
        if recorded is not None and not self._is_configured_alike(context, recorded):
            raise unrecorded("the present configuration", store)
        found = self.responses.get((store, canonical({**description, **_scope(context, self.dependent)})))
        if found is None:
            raise unrecorded(what, store)
        if _ERROR in found:
            raise codec.from_error(json_format.ParseDict(found[_ERROR], pb.ErrorDetail()))
        return found

    def _is_configured_alike(self, context: Context, recorded: str) -> bool:
        names = {store_name(context.store), store_name(context.config.ref)}
        # The recorded copy of a configuration has stand-ins for values, so its digest would differ.
        return all(map(self.is_recorded, names)) or recorded == self.recording.config_digest(context.config)


class ReplayingTransport:
    """Answers for one provider from a recording."""

    def __init__(self, endpoint: Endpoint, replay: Replay) -> None:
        self._service = str(endpoint.service or endpoint.label)
        self._replay = replay

    async def unary(self, method: str, request: bytes, options: CallOptions) -> bytes:
        del options
        if method == paths.HANDSHAKE:
            found = self._replay.recording.providers.get(self._service)
            if found is None:
                raise unrecorded("the handshake", f"provider {self._service}")
            return _serialised(found, pb.HandshakeResponse())
        _check_planned(method)
        context = _context(method, request)
        match method:
            case paths.GET:
                gets = pb.GetSecretsResponse(results=self._each(context, method, request, pb.GetResult))
                return gets.SerializeToString()
            case paths.CHECK:
                checks = pb.CheckSecretsResponse(results=self._each(context, method, request, pb.CheckResult))
                return checks.SerializeToString()
            case paths.GENERATE:
                return self._whole(context, method, pb.GenerateResponse(), "generated values")
            case paths.VALIDATE | paths.VALIDATE_GENERATOR:
                return self._whole(context, method, pb.ValidateResponse(), "the validation")
            case _:
                raise ProviderError(ErrorReason.UNSUPPORTED_OPERATION, f"a replay does not answer {short_name(method)}")

    async def stream(self, method: str, request: bytes, options: CallOptions) -> AsyncGenerator[bytes, None]:
        del method, options
        context, query = codec.from_find_request(pb.FindSecretsRequest.FromString(request))
        found = self._replay.find(context, _find_description(query), "this find")
        yield _serialised(found, pb.FindSecretsResponse())

    async def duplex(self, method: str, options: CallOptions) -> NoReturn:
        del options
        raise ProviderError(ErrorReason.UNSUPPORTED_OPERATION, f"a replay does not answer {short_name(method)}")

    async def close(self) -> None:
        """Close nothing."""

    def _whole(self, context: Context, method: str, response: Message, what: str) -> bytes:
        return _serialised(self._replay.find(context, {"call": short_name(method)}, what), response)

    def _each(self, context: Context, method: str, request: bytes, result: type[Any]) -> Iterator[Any]:
        for item in _items(method, request):
            try:
                found = self._replay.find(context, _item_description(method, item), _named(item))
                response = json_format.ParseDict(found, result())
            except ProviderError as error:
                response = result(error=codec.to_error(error))
            response.item_id = item.item_id
            yield response


# --- questions --------------------------------------------------------------------------------------------------------


def _item_description(method: str, item: GetItem) -> Description:
    ref = item.ref
    description = {"call": short_name(method), "key": ref.key, "property": ref.property, "version": ref.version}
    return {**description, "shape": item.shape.value, "metadata": ref.metadata_policy.value}


def _find_description(query: Any) -> Description:
    return {"call": "FindSecrets", "path": query.path, "name": query.name_regexp, "tags": dict(query.tags)}


def _named(item: GetItem) -> str:
    return f'key "{item.ref.key}"' + (f' property "{item.ref.property}"' if item.ref.property else "")


def _scope(context: Context, dependent: Iterable[KindId]) -> dict[str, str]:
    """Return the namespace, if the answer depends on it."""
    by_caller = context.caller.namespace if context.config.kind in dependent else ""
    namespace = by_caller or ("" if context.auth_namespace_pinned else context.auth_namespace)
    return {"namespace": namespace} if namespace else {}


def _note_dependent(message: pb.HandshakeResponse, dependent: set[KindId]) -> None:
    dependent.update(info.kind for info in codec.from_handshake(message).kinds if info.caller_dependences)


def _check_planned(method: str) -> None:
    if method == paths.CLOSE_SESSIONS:
        raise ProviderError(ErrorReason.UNSUPPORTED_OPERATION, "a plan closes no sessions of a provider")


def _context(method: str, request: bytes) -> Context:
    match method:
        case paths.GET:
            return codec.from_get_request(pb.GetSecretsRequest.FromString(request))[0]
        case paths.CHECK:
            return codec.from_check_request(pb.CheckSecretsRequest.FromString(request))[0]
        case paths.GENERATE:
            return codec.from_generate_request(pb.GenerateRequest.FromString(request))[0]
        case _:
            return codec.from_validate_request(pb.ValidateRequest.FromString(request))[0]


def _items(method: str, request: bytes) -> tuple[GetItem, ...]:
    if method == paths.GET:
        return codec.from_get_request(pb.GetSecretsRequest.FromString(request))[1]
    return codec.from_check_request(pb.CheckSecretsRequest.FromString(request))[1]


# --- messages ---------------------------------------------------------------------------------------------------------


def _parsed(kind: type[Any], raw: bytes) -> Any:
    return kind.FromString(raw)


def _json(message: Message) -> JsonObject:
    return json_format.MessageToDict(message)


def _serialised(found: JsonObject, message: Message) -> bytes:
    """Return the message. Raises ProviderError if the recorded answer is malformed."""
    try:
        return json_format.ParseDict(found, message).SerializeToString()
    except json_format.ParseError:
        raise ProviderError(ErrorReason.INVALID_REQUEST, "an answer of the recording is malformed") from None
