"""The transport on a real socket: responses, faults, credentials, proxies."""

import asyncio
import logging
from collections.abc import AsyncIterator

import msgspec
import pytest

from kuberun.connection import Connection, Credential, FixedCredentials
from kuberun.errors import (
    ApiError,
    BadRequest,
    BadResponse,
    ConfigError,
    Gone,
    NotFound,
    Throttled,
    Unauthorized,
    Unreachable,
)
from kuberun.permit import work_by
from kuberun.requests import Request
from kuberun.testing import scriptedserver as script
from kuberun.testing.scriptedserver import ScriptedResponse, ScriptedServer, scripted_server, transport_to
from kuberun.transport import AiohttpTransport, TransportLimits

PLANTED = "PLANTED-value-0815"
GET = Request("GET", "/api/v1/things")


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as running:
        yield running


async def test_an_answer_is_its_body(server: ScriptedServer) -> None:
    server.will(script.json({"a": 1}))

    async with transport_to(server.url) as transport:
        body = await transport.request(GET)

    assert body == b'{"a":1}'


async def test_the_request_arrives_as_it_was_built(server: ScriptedServer) -> None:
    server.will(script.json({}))
    request = Request(
        "PATCH",
        "/api/v1/namespaces/a/things/system:x",
        query=(("labelSelector", "a in (b, c),!d"), ("force", "true")),
        content_type="application/merge-patch+json",
        body=b'{"x":1}',
    )

    async with transport_to(server.url + "/prefix/", headers=(("Impersonate-User", "jane"),)) as transport:
        await transport.request(request)

    (received,) = server.received
    assert received.method == "PATCH"
    assert received.target == (
        "/prefix/api/v1/namespaces/a/things/system:x?labelSelector=a%20in%20(b,%20c),!d&force=true"
    )
    assert received.body == b'{"x":1}'
    assert received.headers["Content-Type"] == "application/merge-patch+json"
    assert received.headers["Impersonate-User"] == "jane"
    assert "Authorization" not in received.headers


async def test_only_lists_are_asked_for_compressed_and_both_arrive_plain(server: ScriptedServer) -> None:
    server.will(script.gzipped({"items": ["x"] * 1000}))

    async with transport_to(server.url) as transport:
        compressed = await transport.request(msgspec.structs.replace(GET, compressed=True))
        plain = await transport.request(GET)

    assert compressed == plain
    assert [received.headers["Accept-Encoding"] for received in server.received] == ["gzip", "identity"]


async def test_a_body_of_several_megabytes_is_sent_whole(server: ScriptedServer) -> None:
    server.will(script.json({}))
    body = b'"' + b"x" * (3 << 20) + b'"'

    async with transport_to(server.url) as transport:
        await transport.request(Request("POST", "/x", body=body))

    assert server.received[0].body == body


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        pytest.param(script.failure(404, "NotFound"), NotFound, id="a status"),
        pytest.param(script.failure(429, "TooManyRequests", headers={"Retry-After": "2"}), Throttled, id="throttled"),
        pytest.param(script.text(b"<html>", code=502), ApiError, id="a proxy's error page"),
        pytest.param(
            script.text(b"", code=302, headers={"Location": "https://example.com"}), BadResponse, id="redirect"
        ),
        pytest.param(script.cut(b'{"a":'), Unreachable, id="cut in the middle of the response"),
        pytest.param(script.closed(), Unreachable, id="closed without a response"),
        pytest.param(script.not_http(), Unreachable, id="not HTTP"),
        pytest.param(
            script.text(b"not gzip", headers={"Content-Encoding": "gzip"}), Unreachable, id="broken compression"
        ),
    ],
)
async def test_whatever_else_comes_back_is_an_api_error(
    server: ScriptedServer, response: ScriptedResponse, expected: type[ApiError]
) -> None:
    server.will(response)

    async with transport_to(server.url) as transport:
        with pytest.raises(expected, match=r"POST /api/v1/things: ") as caught:
            await transport.request(Request("POST", "/api/v1/things", body=f'{{"data": "{PLANTED}"}}'.encode()))

    assert PLANTED not in str(caught.value)


async def test_a_redirect_is_not_followed(server: ScriptedServer) -> None:
    server.will(script.text(b"", code=307, headers={"Location": "/elsewhere"}))

    async with transport_to(server.url) as transport:
        with pytest.raises(BadResponse):
            await transport.request(GET)

    assert len(server.received) == 1


async def test_a_server_that_echoes_the_body_cannot_make_us_repeat_it(server: ScriptedServer) -> None:
    server.will(script.failure(400, "BadRequest", message=f"cannot use {PLANTED}"))

    async with transport_to(server.url) as transport:
        with pytest.raises(BadRequest) as caught:
            await transport.request(Request("POST", "/x", body=f'{{"data": "{PLANTED}"}}'.encode()))

    assert caught.value.message == "cannot use …"


async def test_a_silent_server_is_given_up_at_the_deadline(server: ScriptedServer) -> None:
    server.will(server.hang())

    async with transport_to(server.url) as transport:
        with pytest.raises(Unreachable, match=r"no response within 0\.05 s"):
            await transport.request(msgspec.structs.replace(GET, deadline=0.05))


async def test_a_port_without_a_listener_is_unreachable() -> None:
    async with scripted_server() as gone:
        url = gone.url

    async with transport_to(url) as transport:
        with pytest.raises(Unreachable, match="cannot connect"):
            await transport.request(GET)


async def test_an_unknown_host() -> None:
    async with transport_to("http://no-such-host.invalid") as transport:
        with pytest.raises(Unreachable, match="cannot resolve"):
            await transport.request(GET)


@pytest.mark.parametrize("compressed", [False, True])
async def test_an_answer_larger_than_the_bound_is_refused(server: ScriptedServer, compressed: bool) -> None:
    server.will(script.gzipped("x" * 100_000))

    async with transport_to(server.url, TransportLimits(response_bytes=50_000)) as transport:
        with pytest.raises(BadResponse, match="larger than 50000 bytes"):
            await transport.request(msgspec.structs.replace(GET, compressed=compressed))


async def test_a_call_can_be_cancelled(server: ScriptedServer) -> None:
    server.will(server.hang())

    async with transport_to(server.url) as transport:
        task = asyncio.create_task(transport.request(GET))
        await server.first.wait()
        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task


# --- streams ---------------------------------------------------------------------------------------------------------


async def test_a_stream_gives_line_by_line(server: ScriptedServer) -> None:
    server.will(server.lines(b'{"n":1}\n{"n"', b':2}\n\n{"n":3}\n'))

    async with transport_to(server.url) as transport, transport.stream(GET) as lines:
        received = [line async for line in lines]

    assert received == [b'{"n":1}', b'{"n":2}', b'{"n":3}']


async def test_a_line_of_a_megabyte_is_one_line(server: ScriptedServer) -> None:
    long = b'"' + b"x" * (1 << 20) + b'"'
    server.will(server.lines(long + b"\n", b"1\n"))

    async with transport_to(server.url) as transport, transport.stream(GET) as lines:
        received = [line async for line in lines]

    assert received == [long, b"1"]


async def test_a_line_without_end_is_a_bad_answer(server: ScriptedServer) -> None:
    server.will(server.lines(b"x" * 100_000))

    async with transport_to(server.url, TransportLimits(line_bytes=1 << 14)) as transport:
        with pytest.raises(BadResponse, match="too long"):
            await _read(transport, GET)


async def test_a_stream_cut_in_the_middle_keeps_what_came_before(server: ScriptedServer) -> None:
    server.will(script.cut(b'{"n":1}\n{"n":'))
    seen: list[bytes] = []

    async with transport_to(server.url) as transport:
        with pytest.raises(Unreachable, match="cut short"):
            await _read(transport, GET, seen)

    assert seen[:1] == [b'{"n":1}']


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(msgspec.structs.replace(GET, idle=0.05), id="silence"),
        pytest.param(msgspec.structs.replace(GET, deadline=0.05), id="a stream that outlives its time"),
    ],
)
async def test_a_half_open_stream_is_given_up(server: ScriptedServer, request_: Request) -> None:
    server.will(server.lines(b"1\n", then_hang=True))
    seen: list[bytes] = []

    async with transport_to(server.url) as transport:
        with pytest.raises(Unreachable, match=r"no response within 0\.05 s"):
            await _read(transport, request_, seen)

    assert seen == [b"1"]


async def test_a_refused_stream_raises_before_the_first_line(server: ScriptedServer) -> None:
    server.will(script.failure(410, "Expired"))

    async with transport_to(server.url) as transport:
        with pytest.raises(Gone):
            await _read(transport, GET)


async def test_leaving_a_stream_early_leaves_the_transport_usable(server: ScriptedServer) -> None:
    server.will(server.lines(b"1\n", then_hang=True), script.json({}))

    async with transport_to(server.url) as transport:
        async with transport.stream(GET) as lines:
            assert await anext(lines) == b"1"
        assert await transport.request(GET) == b"{}"


async def _read(transport: AiohttpTransport, request: Request, seen: list[bytes] | None = None) -> None:
    async with transport.stream(request) as lines:
        async for line in lines:
            if seen is not None:
                seen.append(line)


# --- credentials -----------------------------------------------------------------------------------------------------


class Rotating:
    """Credentials with a new token after each rejection, until they run out."""

    def __init__(self, *tokens: str) -> None:
        self.tokens = list(tokens)

    async def current(self) -> Credential:
        return Credential(f"Bearer {self.tokens[0]}")

    async def refreshed(self, rejected: Credential) -> Credential | None:
        assert rejected == await self.current()
        self.tokens = self.tokens[1:] or self.tokens
        other = await self.current()
        return other if other != rejected else None


def _authorizations(server: ScriptedServer) -> list[str]:
    return [received.headers["Authorization"] for received in server.received]


async def test_a_refused_token_is_refreshed_once_and_the_call_repeated(server: ScriptedServer) -> None:
    server.will(script.failure(401, "Unauthorized"), script.json({}))

    async with transport_to(server.url, credentials=Rotating("old", "new")) as transport:
        assert await transport.request(GET) == b"{}"

    assert _authorizations(server) == ["Bearer old", "Bearer new"]


async def test_a_refused_stream_is_opened_again_with_new_credentials(server: ScriptedServer) -> None:
    server.will(script.failure(401, "Unauthorized"), server.lines(b"1\n"))
    seen: list[bytes] = []

    async with transport_to(server.url, credentials=Rotating("old", "new")) as transport:
        await _read(transport, GET, seen)

    assert seen == [b"1"]


@pytest.mark.parametrize(
    ("tokens", "calls"),
    [
        pytest.param(["one"], 1, id="no other credential: one call"),
        pytest.param(["one", "two", "three"], 2, id="the second is refused too: no third call"),
    ],
)
async def test_refusal_is_reported_after_one_new_try(server: ScriptedServer, tokens: list[str], calls: int) -> None:
    server.will(script.failure(401, "Unauthorized"))

    async with transport_to(server.url, credentials=Rotating(*tokens)) as transport:
        with pytest.raises(Unauthorized):
            await transport.request(GET)

    assert len(server.received) == calls


async def test_credentials_that_fail_for_a_while_are_an_api_error_like_any_other(server: ScriptedServer) -> None:
    class Broken(Rotating):
        async def current(self) -> Credential:
            raise ConfigError("user 'u': the plugin failed")

    async with transport_to(server.url, credentials=Broken()) as transport:
        with pytest.raises(Unreachable, match="the plugin failed"):
            await transport.request(GET)
        with pytest.raises(Unreachable, match="the plugin failed"):
            await _read(transport, GET)


async def test_no_credential_reaches_log_or_repr(server: ScriptedServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server.will(script.failure(403, "Forbidden"))
    connection = Connection(
        server.url, FixedCredentials(Credential(f"Bearer {PLANTED}")), proxy=f"http://u:{PLANTED}@p"
    )

    async with transport_to(server.url, credentials=connection.credentials) as transport:
        with pytest.raises(ApiError) as caught:
            await transport.request(GET)

    assert _authorizations(server) == [f"Bearer {PLANTED}"]
    for text in (caplog.text, repr(connection), repr(Credential(f"Bearer {PLANTED}")), repr(caught.value)):
        assert PLANTED not in text


# --- proxies ---------------------------------------------------------------------------------------------------------


async def test_a_proxy_gets_the_request_for_the_server(server: ScriptedServer) -> None:
    server.will(script.json({}))

    async with transport_to("http://kube.test", proxy=server.url) as transport:
        assert await transport.request(GET) == b"{}"

    assert server.received[0].headers["Host"] == "kube.test"


async def test_a_proxy_that_refuses_the_tunnel(server: ScriptedServer) -> None:
    server.will(script.text(PLANTED.encode(), code=403))

    async with transport_to("https://kube.test", proxy=server.url) as transport:
        with pytest.raises(Unreachable, match="the proxy does not let us through"):
            await transport.request(GET)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_without_a_permit_nothing_is_changed(server: ScriptedServer, method: str) -> None:
    server.will(script.json({"a": 1}))
    work_by(lambda: False)

    async with transport_to(server.url) as transport:
        with pytest.raises(Unreachable, match="does not lead any more"):
            await transport.request(Request(method, "/api/v1/things", body=b"{}"))
        assert await transport.request(GET) == b'{"a":1}'

    assert [received.method for received in server.received] == ["GET"]


async def test_an_address_that_is_refused_is_never_connected_to(server: ScriptedServer) -> None:
    """This includes an address written as a number, which no resolver sees."""
    seen: list[str] = []

    def vet(address: str) -> None:
        seen.append(address)
        raise OSError(1, "not allowed here")

    transport = AiohttpTransport(Connection(server.url, FixedCredentials(Credential())), vet=vet)
    try:
        with pytest.raises(Unreachable, match="not allowed here"):
            await transport.request(GET)
    finally:
        await transport.close()

    assert seen == ["127.0.0.1"]
    assert not server.first.is_set()


async def test_an_address_that_is_allowed_is_connected_to(server: ScriptedServer) -> None:
    server.will(script.json({}))
    seen: list[str] = []

    transport = AiohttpTransport(Connection(server.url, FixedCredentials(Credential())), vet=seen.append)
    try:
        await transport.request(GET)
    finally:
        await transport.close()

    assert seen == ["127.0.0.1"]
