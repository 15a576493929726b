"""A dashboard of a running operator, with objects that work and objects that fail with hostile texts."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_operator.telemetry.settings import Listener
from eso_testkit.operator.operators import Bench, scripted
from eso_tools.dashboard.process import Dashboard
from eso_tools.dashboard.settings import MetricsEndpoint, Settings
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.clock import SystemClock
from kubebase.testing.waiting import eventually
from kuberun import config

CANARY = "CANARY-3f9d"
HOSTILE = '<script>window.hacked=1</script><img src=x onerror="window.hacked=1">\'"&{{7*7}}'
SECRETS_PATH = "externalsecrets.external-secrets.io"


@dataclass(frozen=True, slots=True)
class Page:
    status: int
    text: str
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class Site:
    """A running dashboard."""

    bench: Bench
    url: str

    async def get(self, path: str = "/", *, method: str = "GET", **options: Any) -> Page:
        """Ask for a page; certificates are not verified, because the server made its own."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        async with (
            aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
            session.request(method, f"{self.url}{path}", ssl=context, allow_redirects=False, **options) as response,
        ):
            headers = {name.lower(): value for name, value in response.headers.items()}
            return Page(response.status, await response.text(), headers)

    def object_path(self, name: str, resource: str = SECRETS_PATH) -> str:
        return f"/objects/{resource}/{self.bench.namespace}/{name}"

    async def until_shown(self, path: str, text: str, **options: Any) -> Page:
        """Wait until a page has a text."""

        async def read_state() -> Page | None:
            page = await self.get(path, **options)
            return page if text in page.text else None

        return await eventually(read_state, f"{path} does not show {text!r}")

    async def secret(self, name: str, key: str = "db/pw", **spec: Any) -> None:
        entries = [{"secretKey": "pw", "remoteRef": {"key": key}}]
        await self.bench.create(
            EXTERNAL_SECRET.resource(), name, spec={"secretStoreRef": {"name": "vault"}, "data": entries, **spec}
        )


@asynccontextmanager
async def served(settings: Settings, kubeconfig: Path) -> AsyncIterator[str]:
    """Run a dashboard; yield its URL without a path."""
    dashboard = Dashboard(settings, config.load(kubeconfig), SystemClock())
    running = asyncio.ensure_future(dashboard.run())
    try:
        yield f"{'https' if settings.authenticated else 'http'}://127.0.0.1:{await dashboard.wait_listening()}"
    finally:
        running.cancel()
        await asyncio.wait([running])


@asynccontextmanager
async def dashboard_running(bench: Bench, *, authenticated: bool = False) -> AsyncIterator[Site]:
    """Run an operator and a dashboard, with a good ExternalSecret `db` and a failed one `hostile`."""
    provider = scripted(data={"db/pw": CANARY.encode()})
    async with bench.operator() as operator:
        metrics = MetricsEndpoint(f"http://127.0.0.1:{await operator.metrics_server.wait_listening()}/metrics")
        settings = Settings(Listener("127.0.0.1", 0), authenticated, core_namespace=bench.namespace, metrics=metrics)
        async with served(settings, bench.kubeconfig) as url:
            site = Site(bench, url)
            await bench.install(provider)
            await bench.create(SECRET_STORE.resource(), "vault", spec={"provider": {"fake": {"data": []}}})
            template = {"template": {"data": {"url": "db://{{ .pw }}"}}}
            await site.secret("db", target=template)
            await bench.ready(EXTERNAL_SECRET.resource(), "db", lambda ready: ready.status == "True")
            provider.broken = ProviderError(ErrorReason.PERMISSION_DENIED, f"{HOSTILE} refused")
            await site.secret("hostile", key="other")
            await bench.ready(EXTERNAL_SECRET.resource(), "hostile", lambda ready: ready.status == "False")
            yield site
