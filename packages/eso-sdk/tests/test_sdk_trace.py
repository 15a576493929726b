"""The ids that connect a provider's log to the log of the operator that called it."""

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from eso_sdk.logs import configure
from eso_sdk.testing import ProviderServer, call_context
from eso_sdk.testing.scripted import SCRIPTED, Script, Scripted
from eso_sdk.testing.server import CLIENT_ID, Metadata
from eso_wire.values import RemoteRef
from kubebase.clock import SystemClock

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
HEADER = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    configure(SystemClock(), stream)
    yield stream
    structlog.reset_defaults()


def lines(logged: io.StringIO, event: str) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, logged.getvalue().splitlines()) if line["msg"] == event]


async def called(metadata: Metadata, request_id: str) -> list[str]:
    """Make one call whose author logs a line; return the trace that the author saw."""
    seen: list[str] = []

    async def get(store: Scripted, _: RemoteRef) -> bytes:
        seen.append(store.call.traceparent)
        structlog.get_logger("author").info("asked the backend")
        return b"1"

    context = call_context(Scripted, {"script": Script.new(get=get).name}, request_id=request_id)
    async with ProviderServer(SCRIPTED) as server:
        client = await server.connect(server.authority.leaf(CLIENT_ID), metadata)
        await client.get_one(context, "a")
    return seen


async def test_lines_of_a_call_carry_its_trace_and_its_request(logged: io.StringIO) -> None:
    metadata = (("traceparent", HEADER), ("x-eso-request-id", "request-1"))

    seen = await called(metadata, "request-1")

    (ours,), (author,) = lines(logged, "call handled"), lines(logged, "asked the backend")
    assert (ours["trace_id"], ours["request_id"]) == (TRACE, "request-1")
    assert (author["trace_id"], author["request_id"]) == (TRACE, "request-1")
    assert seen == [HEADER]


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param((), id="none"),
        pytest.param((("traceparent", "CANARY"),), id="rubbish"),
    ],
)
async def test_a_call_without_a_usable_trace_is_served_like_any_other(metadata: Metadata, logged: io.StringIO) -> None:
    seen = await called(metadata, "request-1")

    (line,) = lines(logged, "call handled")
    assert (line["code"], line["request_id"]) == ("OK", "request-1")
    assert "trace_id" not in line
    assert "CANARY" not in logged.getvalue()
    assert seen == [""]


async def test_the_trace_of_a_call_ends_with_it(logged: io.StringIO) -> None:
    await called((("traceparent", HEADER),), "request-1")

    (stopped,) = lines(logged, "stopped")
    assert "trace_id" not in stopped
