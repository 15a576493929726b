"""The HTTP kit against real servers."""

import asyncio
import base64
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from aiohttp import web
from cryptography import x509
from yarl import URL

from eso_sdk.addresses import AddressPolicy
from eso_sdk.http import (
    HttpClient,
    HttpRequest,
    HttpResponse,
    HttpSettings,
    HttpStatusError,
    Send,
    ca_bundle,
    retry_after,
    status_error,
    tls_context,
)
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.clock import SystemClock
from kubebase.testing.listening import listening
from kubebase.testing.signer import SINCE, Signed, Signer

LOOPBACK = AddressPolicy.parse(["loopback"])
CANARY = "CANARY-7f3a"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[URL]:
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    try:
        yield URL.build(scheme="https" if tls else "http", host="127.0.0.1", port=runner.addresses[0][1], path="/")
    finally:
        await runner.cleanup()


@asynccontextmanager
async def client(policy: AddressPolicy = LOOPBACK, **settings: object) -> AsyncIterator[HttpClient]:
    made = HttpClient(HttpSettings("the endpoint", **settings), policy=policy, clock=SystemClock())  # type: ignore[arg-type]  # a test names few of them
    try:
        yield made
    finally:
        await made.close()


async def refusal(sending: Awaitable[object]) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await sending
    assert CANARY not in str(caught.value)
    return caught.value


async def test_an_answer_of_any_status_comes_back_with_headers_and_body() -> None:
    async def teapot(request: web.Request) -> web.Response:
        return web.Response(status=418, body=request.method.encode(), headers={"X-Kind": "tea"})

    async with serving(teapot) as url, client() as http:
        answer = await http.send(HttpRequest("PUT", url, {}, b"leaves"))

    assert (answer.status, answer.body, answer.headers["X-Kind"]) == (418, b"PUT", "tea")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_forbidden_address_is_not_dialled_by_number_or_by_name(host: str) -> None:
    async def never(_: web.Request) -> web.Response:
        raise AssertionError("the server was reached")

    async with serving(never) as url, client(AddressPolicy(), field="/server") as http:
        error = await refusal(http.send(HttpRequest("GET", url.with_host(host) / CANARY)))

    assert error.reason is ErrorReason.CONFIG_INVALID
    assert "/server" in error.message
    assert "--allow-address" in error.message


async def test_a_redirect_to_a_forbidden_address_is_not_followed() -> None:
    async def away(_: web.Request) -> web.Response:
        raise web.HTTPFound("http://169.254.169.254/latest/")

    async with serving(away) as url, client(redirects=3) as http:
        error = await refusal(http.send(HttpRequest("GET", url, {"Authorization": CANARY})))

    assert "another host" in error.message


async def test_redirects_on_the_same_host_are_followed_up_to_the_limit() -> None:
    async def stairs(request: web.Request) -> web.Response:
        level = int(request.path.strip("/") or 0)
        if level == 2:
            return web.Response(text="top")
        raise web.HTTPFound(f"/{level + 1}")

    async with serving(stairs) as url:
        async with client(redirects=2) as http:
            assert (await http.send(HttpRequest("GET", url))).body == b"top"
        async with client(redirects=1) as http:
            assert "more than 1" in (await refusal(http.send(HttpRequest("GET", url)))).message
        async with client() as http:
            assert (await http.send(HttpRequest("GET", url))).status == 302


async def test_an_answer_beyond_the_bound_is_refused() -> None:
    async def large(_: web.Request) -> web.Response:
        return web.Response(body=CANARY.encode() * 100)

    async with serving(large) as url, client(max_response=500) as http:
        assert "larger than 500 bytes" in (await refusal(http.send(HttpRequest("GET", url)))).message


async def test_a_silent_server_is_given_up_at_the_deadline() -> None:
    asked = asyncio.Event()

    async def silent(_: web.Request) -> web.Response:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async with serving(silent) as url, client() as http:
        error = await refusal(http.send(HttpRequest("GET", url), seconds=0.2))

    assert asked.is_set()
    assert error.reason is ErrorReason.BACKEND_TIMEOUT


async def test_a_closed_port_is_unavailable_and_says_what_to_check() -> None:
    async with client(field="/server") as http:
        error = await refusal(http.send(HttpRequest("GET", URL("http://127.0.0.1:1/"))))

    assert error.reason is ErrorReason.BACKEND_UNAVAILABLE
    assert "check /server" in error.message


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_of_a_websocket_is_not_followed(status: int) -> None:
    reached: list[str] = []

    async def elsewhere(request: web.Request) -> web.StreamResponse:
        reached.append(request.headers.get("Authorization", ""))
        return web.Response(status=404)

    async with serving(elsewhere) as other:

        async def away(_: web.Request) -> web.StreamResponse:
            return web.Response(status=status, headers={"Location": str(other)})

        async with serving(away) as url, client() as http:
            with pytest.raises(ProviderError, match="redirects a websocket"):
                async with http.websocket(url, {"Authorization": "Bearer token"}):
                    pass

    assert reached == []


async def test_a_websocket_echoes_and_a_refused_upgrade_tells_the_status() -> None:
    async def socket(request: web.Request) -> web.StreamResponse:
        if request.path == "/missing":
            return web.Response(status=404)
        opened = web.WebSocketResponse()
        await opened.prepare(request)
        async for message in opened:
            await opened.send_str(message.data)
        return opened

    async with serving(socket) as url, client() as http:
        async with http.websocket(url, {}) as opened:
            await opened.send_str("hello")
            assert await opened.receive_str() == "hello"
        with pytest.raises(HttpStatusError) as caught:
            async with http.websocket(url / "missing", {}):
                pass

    assert caught.value.status == 404


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, ErrorReason.CREDENTIALS_REJECTED),
        (403, ErrorReason.PERMISSION_DENIED),
        (404, ErrorReason.BACKEND_ERROR),
        (413, ErrorReason.PAYLOAD_TOO_LARGE),
        (429, ErrorReason.RATE_LIMITED),
        (503, ErrorReason.BACKEND_UNAVAILABLE),
    ],
)
async def test_a_status_has_its_usual_reason_and_no_body_is_quoted(status: int, reason: ErrorReason) -> None:
    async def answering(_: web.Request) -> web.Response:
        return web.Response(status=status, text=CANARY, headers={"Retry-After": "7"})

    async with serving(answering) as url, client() as http:
        error = status_error(await http.send(HttpRequest("GET", url)), "the endpoint", SystemClock())

    assert error is not None
    assert error.reason is reason
    assert f"HTTP {status}" in error.message
    assert error.message.startswith("the endpoint ")
    assert CANARY not in error.message
    assert error.retry_after == (7.0 if status == 429 else 0.0)


def test_success_is_no_error_and_dates_count_as_retry_after() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)

    assert retry_after({"Retry-After": "Thu, 01 Jan 2026 00:01:00 GMT"}, now) == 60.0
    assert retry_after({"Retry-After": "soon"}, now) == 0.0


def test_a_bundle_may_be_encoded_once_or_twice() -> None:
    pem = b"-----BEGIN CERTIFICATE-----\n"
    once = base64.b64encode(pem).decode()
    twice = base64.b64encode(once.encode()).decode()

    assert ca_bundle(once) == pem
    assert ca_bundle(twice) == pem
    with pytest.raises(ProviderError, match="/caBundle"):
        ca_bundle("*")


def test_certificates_that_cannot_be_used_name_their_field() -> None:
    with pytest.raises(ProviderError, match="/caProvider"):
        tls_context(b"no pem", field_path="/caProvider")
    with pytest.raises(ProviderError, match="/tls"):
        tls_context(certificate=b"no", key=b"pair")


# --- logging in and reaching ------------------------------------------------------------------------------------------


async def test_a_refused_request_is_logged_in_on_the_same_connection_and_redirects_are_followed_afterwards() -> None:
    connections: list[object] = []

    async def guarded(request: web.Request) -> web.Response:
        connections.append(request.transport)
        if request.headers.get("Authorization") != "Proof 1":
            return web.Response(status=401, headers={"WWW-Authenticate": "Proof"})
        if request.path == "/":
            return web.Response(status=307, headers={"Location": "/moved"})
        return web.Response(body=await request.read())

    async def login(request: HttpRequest, refusal: HttpResponse, send: Send) -> HttpResponse:
        assert refusal.headers["WWW-Authenticate"] == "Proof"
        return await send(replace(request, headers={"Authorization": "Proof 1"}))

    async with serving(guarded) as url, client(connections=1, redirects=2, login=login) as http:
        answer = await http.send(HttpRequest("POST", url, {}, b"leaves"))

    assert (answer.status, answer.body) == (200, b"leaves")
    assert len(connections) == 4
    assert len(set(connections)) == 1


async def test_a_host_that_listens_can_be_reached_and_sees_no_request() -> None:
    async def never(_: web.Request) -> web.Response:
        raise AssertionError("a request was sent")

    async with serving(never) as url, client() as http:
        await http.reach(url)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_reaching_a_forbidden_address_is_refused_before_it_is_dialled(host: str) -> None:
    dialled = asyncio.Event()

    async def dial(*_: object) -> None:
        dialled.set()

    async with listening(dial) as port, client(AddressPolicy()) as http:
        error = await refusal(http.reach(URL.build(scheme="http", host=host, port=port)))

    assert error.reason is ErrorReason.CONFIG_INVALID
    assert "/url" in error.message
    assert not dialled.is_set()


@pytest.mark.parametrize(
    ("host", "words"),
    [
        pytest.param("127.0.0.1", "cannot be reached", id="closed port"),
        pytest.param("no-such-host.invalid", "does not resolve", id="a name without an address"),
    ],
)
async def test_a_host_that_cannot_be_reached_is_unavailable(host: str, words: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    async with client() as http:
        error = await refusal(http.reach(URL.build(scheme="http", host=host, port=port)))

    assert error.reason is ErrorReason.BACKEND_UNAVAILABLE
    assert words in error.message


def server_tls(folder: Path, signed: Signed) -> ssl.SSLContext:
    (folder / "server.pem").write_bytes(signed.certificate + signed.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    return context


HERE = (x509.IPAddress(ip_address("127.0.0.1")),)
ELSEWHERE = (x509.DNSName("elsewhere.example"),)
OVER = {"since": SINCE, "until": SINCE + timedelta(days=1)}


@pytest.mark.parametrize(
    ("trusted", "names", "validity", "words"),
    [
        pytest.param(
            False,
            HERE,
            {},
            "is signed by an unknown certificate authority; set caBundle or caProvider to",
            id="an unknown authority",
        ),
        pytest.param(
            True, ELSEWHERE, {}, "is for another host name; correct the host in /server", id="another host name"
        ),
        pytest.param(True, HERE, OVER, "has expired or is not valid yet; renew it", id="an expired certificate"),
    ],
)
async def test_each_problem_of_a_certificate_has_its_own_message(
    tmp_path: Path, *, trusted: bool, names: Sequence[x509.GeneralName], validity: dict[str, datetime], words: str
) -> None:
    async def never(_: web.Request) -> web.Response:
        raise AssertionError("the request was sent")

    signer = Signer.make()
    tls = server_tls(tmp_path, signer.sign("server", names, **validity))
    bundle = (signer if trusted else Signer.make("another authority")).pem
    async with serving(never, tls) as url, client(field="/server", tls=tls_context(bundle)) as http:
        error = await refusal(http.send(HttpRequest("GET", url)))

    assert error.reason is ErrorReason.BACKEND_UNAVAILABLE
    assert words in error.message


async def test_tls_to_a_port_without_tls_says_so() -> None:
    async def never(_: web.Request) -> web.Response:
        raise AssertionError("the request was understood")

    async with serving(never) as url, client(field="/server") as http:
        error = await refusal(http.send(HttpRequest("GET", url.with_scheme("https"))))

    assert error.reason is ErrorReason.BACKEND_UNAVAILABLE
    assert error.message == ("the endpoint does not speak TLS at this port; use http:// or the port for TLS in /server")


async def test_a_name_that_does_not_resolve_says_so() -> None:
    async with client(field="/server") as http:
        error = await refusal(http.send(HttpRequest("GET", URL("https://no-such-host.invalid/"))))

    assert error.reason is ErrorReason.BACKEND_UNAVAILABLE
    assert error.message == (
        "the host name of the endpoint does not resolve; check /server, and the DNS where the provider runs"
    )


async def test_behind_a_proxy_the_proxy_is_reached_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    dialled = asyncio.Event()

    async def proxy(*_: object) -> None:
        dialled.set()

    monkeypatch.setenv("no_proxy", "")
    async with listening(proxy) as port, client() as http:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        await http.reach(URL("https://no-such-host.invalid/"))
        await dialled.wait()


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "2852039166", "0xa9fea9fe", "[fd00:ec2::254]", "localhost", "metadata.google.internal"]
)
async def test_a_proxy_is_not_asked_for_an_address_that_no_tenant_should_reach(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """The proxy may reach such addresses, and the rule saw only the proxy's own address."""
    asked: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())

    monkeypatch.setenv("no_proxy", "")
    proxied = AddressPolicy.parse(("127.0.0.1",)) if host != "localhost" else AddressPolicy()

    async with listening(proxy) as port, client(proxied) as http:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        sent = await refusal(http.send(HttpRequest("GET", URL(f"http://{host}/latest"))))
        reached = await refusal(http.reach(URL(f"http://{host}/latest")))

    assert all("stores may not reach" in error.message for error in (sent, reached))
    assert asked == []


async def test_reaching_takes_no_longer_than_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", silent)

    async with client() as http:
        error = await refusal(http.reach(URL("http://127.0.0.1:1/"), seconds=0.01))

    assert error.reason is ErrorReason.BACKEND_TIMEOUT


@pytest.mark.parametrize("sent", [{}, {"Authorization": "Bearer of-the-store"}], ids=["none", "the store's"])
async def test_credentials_of_the_machine_are_not_sent(
    sent: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A file with logins for hosts belongs to whoever runs the provider, not to the tenant who names the host."""
    (tmp_path / "netrc").write_text(f"machine 127.0.0.1 login admin password {CANARY}\n")
    (tmp_path / "netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))

    async def echo(request: web.Request) -> web.Response:
        return web.Response(text=request.headers.get("Authorization", "nothing"))

    async with serving(echo) as url, client() as http:
        answer = await http.send(HttpRequest("GET", url, sent))

    assert answer.body.decode() == sent.get("Authorization", "nothing")


async def test_requests_and_their_credentials_go_through_the_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def proxy(request: web.Request) -> web.Response:
        return web.Response(text=f"{request.headers['Host']} {request.headers.get('Proxy-Authorization')}")

    async with serving(proxy) as url, client() as http:
        monkeypatch.setenv("http_proxy", str(url.with_user("anna").with_password("pass")))
        monkeypatch.setenv("no_proxy", "")
        answers = [await http.send(HttpRequest("GET", URL(f"http://{host}.example/"))) for host in "aab"]

    login = base64.b64encode(b"anna:pass").decode()
    assert [answer.body.decode() for answer in answers] == [f"{host}.example Basic {login}" for host in "aab"]
