"""Planted values and credentials never appear in a log, error, trailer, metric or condition of a provider."""

import io
import json
import logging
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from grpc import aio

from eso_api.values import SecretBytes
from eso_sdk.errors import backend_error, rejected
from eso_sdk.frame import UNARY
from eso_sdk.logs import configure, loop_exception_handler
from eso_sdk.testing import ProviderServer, call_context
from eso_sdk.testing.scripted import SCRIPTED, Script, Scripted, ScriptedMaker
from eso_sdk.testing.server import CLIENT_ID
from eso_wire import codec
from eso_wire.errors import ProviderError
from eso_wire.values import (
    ConditionReport,
    Context,
    FindQuery,
    Found,
    GenerateRequest,
    GetItem,
    PushBatch,
    PushItem,
    RemoteRef,
    Token,
    Validation,
    ValidationState,
)
from kubebase.clock import SystemClock

CANARIES = {
    name: f"CANARY-{name}-7c1e9b" for name in ("token", "jwt", "whole", "pushed", "state", "read", "inner", "spec")
}
SPEC = {
    "tokenRef": {"name": "n", "key": "k"},
    "accountRef": {"name": "a"},
    "wholeRef": {"name": "w"},
    "note": CANARIES["spec"],
}
CREDENTIALS: dict[str, Any] = {
    "/tokenRef": CANARIES["token"],
    "/accountRef": Token(SecretBytes(CANARIES["jwt"].encode())),
    "/wholeRef": {"x": SecretBytes(json.dumps({"deep": CANARIES["whole"]}).encode())},
}
EVERYTHING = " ".join(CANARIES[name] for name in ("token", "jwt", "whole"))


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """Capture everything that would go to standard error."""
    stream = io.StringIO()
    hooks, handlers, level = _hooks(), logging.root.handlers[:], logging.root.level
    configure(SystemClock(), stream)
    yield stream
    structlog.reset_defaults()
    sys.excepthook, sys.unraisablehook, threading.excepthook = hooks
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def _hooks() -> tuple[Any, Any, Any]:
    return sys.excepthook, sys.unraisablehook, threading.excepthook


@dataclass
class Witness:
    """Collects every text that leaves the provider."""

    words: list[str] = field(default_factory=list)

    async def of(self, call: Any) -> None:
        try:
            self.words.append(repr(await call))
        except ProviderError as exc:
            self.words += [exc.message, exc.backend_code, repr(exc)]

    def shows(self) -> set[str]:
        everything = "\n".join(self.words)
        return {name for name, canary in CANARIES.items() if canary in everything}


def leaky(where: str) -> Script:
    """Return a script that puts everything it knows into its messages."""

    async def opening(_: Any) -> None:
        if where == "open":
            raise rejected(f"login with {EVERYTHING} failed", backend_code=CANARIES["token"])

    async def get(store: Scripted, _: RemoteRef) -> bytes:
        assert store.config.token_ref is not None
        token = store.secret(store.config.token_ref).reveal().decode()
        match where:
            case "get":
                raise backend_error(f"GET /?token={token} {EVERYTHING}", backend_code=token)
            case "bug":
                raise RuntimeError(f"{token} {CANARIES['read']} {CANARIES['inner']}")
        return CANARIES["read"].encode()

    async def find(_: Any, __: FindQuery) -> AsyncIterator[Found]:
        yield Found("a", SecretBytes(CANARIES["read"].encode()))
        raise ValueError(EVERYTHING + CANARIES["read"])

    async def push(_: Any, item: PushItem) -> Any:
        assert isinstance(item.payload, SecretBytes)
        raise backend_error(f"body was {item.payload.reveal()!r} {EVERYTHING}")

    async def validate(_: Any) -> Validation:
        condition = ConditionReport("Reachable", "False", "Refused", f"saw {EVERYTHING}")
        error = rejected(EVERYTHING)
        return Validation(ValidationState.INVALID, (f"warning {EVERYTHING}",), error, conditions=(condition,))

    async def generate(_: Any, request: GenerateRequest) -> Any:
        assert request.previous_state is not None
        raise backend_error(f"state was {request.previous_state.reveal()!r}")

    return Script.new(open=opening, get=get, find=find, push=push, validate=validate, generate=generate)


@pytest.mark.parametrize("where", ["open", "get", "bug", "quiet"])
async def test_no_word_of_a_provider_shows_what_it_was_given(where: str, logged: io.StringIO) -> None:
    witness = Witness()
    script = leaky(where)
    context = call_context(Scripted, {"script": script.name, **SPEC}, CREDENTIALS)
    maker = call_context(ScriptedMaker, {"script": script.name, **SPEC}, CREDENTIALS)
    pushed = PushItem("1", RemoteRef("a"), SecretBytes(CANARIES["pushed"].encode()))
    async with ProviderServer(SCRIPTED) as server:
        client = server.client
        await witness.of(client.get(context, [GetItem("1", RemoteRef("a"))]))
        await witness.of(client.find(context, FindQuery(name_regexp="a")))
        await witness.of(client.push(context, PushBatch((pushed,))))
        await witness.of(client.validate(context))
        await witness.of(client.generate(maker, GenerateRequest("k", SecretBytes(CANARIES["state"].encode()))))
        await witness.of(client.get_one(call_context(Scripted, {"script": 7, **SPEC}, CREDENTIALS), "a"))
        await witness.of(raw_trailers(server, context))
        witness.words.append(server.server.metrics.exposition().decode())
    witness.words.append(logged.getvalue())

    assert "call handled" in logged.getvalue()
    assert len(witness.words) > 8
    assert witness.shows() == set()


async def raw_trailers(server: ProviderServer, context: Context) -> str:
    """Return the bytes on the wire of a failed call."""
    channel: Any = await server.channel(server.authority.leaf(CLIENT_ID))
    request = codec.to_get_request(context, [GetItem("1", RemoteRef("a", property="x"))]).SerializeToString()
    try:
        await channel.unary_unary(UNARY[2].path)(request[:-3], timeout=10)
    except aio.AioRpcError as exc:
        return f"{exc.details()} {exc.trailing_metadata()} {exc.debug_error_string()}"
    return ""


def test_the_witness_would_see_a_leak() -> None:
    """Prove that the checks above can fail."""
    assert Witness([f"x {CANARIES['token']} y"]).shows() == {"token"}


def test_crashes_and_libraries_are_heard_without_their_words(logged: io.StringIO) -> None:
    error = RuntimeError(CANARIES["token"])

    sys.excepthook(RuntimeError, error, None)
    thread = threading.Thread(target=int, args=(CANARIES["token"],))
    thread.start()
    thread.join()
    sys.unraisablehook(SimpleNamespace(exc_value=error))
    logging.getLogger("some.library").error("token %s", CANARIES["token"], exc_info=error)
    loop_exception_handler(None, {"message": CANARIES["token"], "exception": error})  # type: ignore[arg-type]  # unused
    structlog.get_logger().info("event", value=SecretBytes(CANARIES["token"].encode()), data={"k": CANARIES["token"]})

    lines = [json.loads(line) for line in logged.getvalue().splitlines()]
    assert [line["msg"] for line in lines] == [
        "the process ends with an error",
        "work aside failed",
        "work aside failed",
        "a library reports a problem",
        "background work failed",
        "event",
    ]
    assert CANARIES["token"] not in logged.getvalue()
