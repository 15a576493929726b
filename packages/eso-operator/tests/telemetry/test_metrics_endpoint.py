"""The metrics server: plain, over TLS, and only for those the API server lets in."""

import asyncio
import ssl
import tempfile
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from structlog.testing import capture_logs

from eso_operator.telemetry.settings import Listener, MetricsSettings
from eso_operator.telemetry.webserver import Access, MetricsServer, PathAuthorizer
from kubebase.clock import SystemClock
from kubebase.testing.cancelling import leaks
from kubebase.testing.clock import VirtualClock
from kubebase.testing.servers import ApiServer
from kuberun import config
from kuberun.client import Client
from kuberun.testing.authority import Authority
from kuberun.testing.rawapi import RawApi
from kuberun.transport import AiohttpTransport

LOOPBACK = Listener("127.0.0.1", 0)


@asynccontextmanager
async def serving(server: MetricsServer) -> AsyncIterator[int]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(server.run())
        yield await server.wait_listening()
        task.cancel()


async def fetched(url: str, *, context: ssl.SSLContext | bool = True, token: str = "") -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession() as session, session.get(url, ssl=context, headers=headers) as answer:
        return answer.status, await answer.text()


def hello() -> tuple[bytes, ...]:
    return (b"up ", b"", b"1\n")


async def test_metrics_are_served_over_http() -> None:
    async with serving(MetricsServer(MetricsSettings(listen=LOOPBACK), hello, clock=SystemClock())) as port:
        assert await fetched(f"http://127.0.0.1:{port}/metrics") == (200, "up 1\n")
        assert (await fetched(f"http://127.0.0.1:{port}/elsewhere"))[0] == 404


async def test_other_tasks_run_between_two_pages() -> None:
    """Rendering 50,000 objects takes seconds: new objects must not wait for a scrape."""
    turns: list[str] = []

    def pages() -> Iterator[bytes]:
        for number in range(3):
            turns.append(f"page {number}")
            asyncio.get_running_loop().call_soon(turns.append, "another task")
            yield b"up 1\n"

    async with serving(MetricsServer(MetricsSettings(listen=LOOPBACK), pages, clock=SystemClock())) as port:
        assert await fetched(f"http://127.0.0.1:{port}/metrics") == (200, "up 1\n" * 3)

    assert turns == ["page 0", "another task", "page 1", "another task", "page 2", "another task"]


async def test_a_server_that_is_stopped_while_it_starts_leaves_its_port_free() -> None:
    def serve(port: int) -> Coroutine[None, None, None]:
        settings = MetricsSettings(listen=Listener("127.0.0.1", port))
        return MetricsServer(settings, hello, clock=SystemClock()).run()

    assert await leaks(serve) == []


async def test_metrics_are_served_with_the_certificate_of_the_folder(tmp_path: Path) -> None:
    authority = Authority(SystemClock().now())
    pair = authority.issue("localhost", address="127.0.0.1")
    (tmp_path / "cert.pem").write_bytes(pair.certificate)
    (tmp_path / "key.pem").write_bytes(pair.key)
    settings = MetricsSettings(
        listen=LOOPBACK,
        secure=True,
        certificate_folder=tmp_path,
        certificate_name="cert.pem",
        key_name="key.pem",
    )
    trusting = ssl.create_default_context(cadata=authority.pem.decode())

    async with serving(MetricsServer(settings, hello, clock=SystemClock())) as port:
        assert await fetched(f"https://127.0.0.1:{port}/metrics", context=trusting) == (200, "up 1\n")


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(MetricsSettings(listen=LOOPBACK, secure=True), id="no folder"),
        pytest.param(
            MetricsSettings(
                listen=LOOPBACK,
                secure=True,
                certificate_folder=Path("/nonexistent/tls"),
                certificate_name="/nonexistent/tls/tls.crt",
                key_name="/nonexistent/tls/tls.key",
            ),
            id="a folder without files",
        ),
    ],
)
async def test_without_files_the_certificate_is_self_signed(
    settings: MetricsSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R166: also where no folder can be written, as in a pod with a read-only root file system."""
    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")

    async with serving(MetricsServer(settings, hello, clock=SystemClock())) as port:
        assert await fetched(f"https://127.0.0.1:{port}/metrics", context=False) == (200, "up 1\n")


async def test_files_that_appear_later_replace_the_self_signed_certificate(tmp_path: Path) -> None:
    clock, authority = VirtualClock(), Authority(SystemClock().now())
    settings = MetricsSettings(listen=LOOPBACK, secure=True, certificate_folder=tmp_path)
    pair = authority.issue("localhost", address="127.0.0.1")
    trusting = ssl.create_default_context(cadata=authority.pem.decode())

    with capture_logs() as lines:
        async with serving(MetricsServer(settings, hello, clock=clock)) as port:
            url = f"https://127.0.0.1:{port}/metrics"
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await fetched(url, context=trusting)
            await clock.advance(60.0)
            (tmp_path / "tls.crt").write_bytes(pair.certificate)
            (tmp_path / "tls.key").write_bytes(pair.key)
            await clock.advance(60.0)
            assert await fetched(url, context=trusting) == (200, "up 1\n")

    (line,) = lines
    assert line["files"] == (str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"))


@pytest.mark.live
async def test_only_whom_the_api_server_lets_in_may_read(api_server: ApiServer, api: RawApi, namespace: str) -> None:
    client = Client(AiohttpTransport(config.load(api_server.kubeconfig)))
    authorizer = PathAuthorizer(client, SystemClock())
    await api.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "scraper"}})
    asked = await api.post(
        f"/api/v1/namespaces/{namespace}/serviceaccounts/scraper/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}},
    )
    settings = MetricsSettings(listen=LOOPBACK, secure=True, authenticated=True)
    server = MetricsServer(settings, hello, clock=SystemClock(), authorize=authorizer.authorize)

    async with serving(server) as port:
        url = f"https://127.0.0.1:{port}/metrics"
        tokens = ("", "nonsense", asked.body["status"]["token"], api_server.token)
        answers = [await fetched(url, context=False, token=token) for token in tokens]
    await client.close()

    assert [status for status, _ in answers] == [
        Access.UNKNOWN.value,
        Access.UNKNOWN.value,
        Access.FORBIDDEN.value,
        Access.ALLOWED.value,
    ]
