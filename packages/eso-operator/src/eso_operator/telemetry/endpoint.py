"""`/metrics` over HTTP, or over TLS with a certificate that may be replaced while we serve."""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

import structlog
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from prometheus_client import CONTENT_TYPE_LATEST

from eso_operator.telemetry.access import Admission
from eso_operator.telemetry.settings import MetricsSettings
from kuberun.clock import Clock

Exposition = Callable[[], bytes]
Admits = Callable[[str, str], Awaitable[Admission]]

_RELOAD_SECONDS: Final = 60.0
_SELF_SIGNED_FOR: Final = timedelta(days=365)

_log = structlog.get_logger(__name__)


async def anybody(_: str, __: str) -> Admission:
    return Admission.ALLOWED


class MetricsServer:
    """Serves what `exposition` gives, to those whom `admits` lets in."""

    def __init__(
        self, settings: MetricsSettings, exposition: Exposition, *, clock: Clock, admits: Admits = anybody
    ) -> None:
        self._settings = settings
        self._exposition = exposition
        self._admits = admits
        self._clock = clock
        self._port = settings.listen.port
        self._listening = asyncio.Event()

    async def wait_listening(self) -> int:
        """The port, once it answers."""
        await self._listening.wait()
        return self._port

    async def run(self) -> None:
        """Serve until cancelled."""
        app = web.Application()
        app.router.add_get("/metrics", self._answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            context = self._context()
            site = web.TCPSite(runner, self._settings.listen.host or None, self._port, ssl_context=context)
            await site.start()
            self._port = runner.addresses[0][1]
            self._listening.set()
            await self._keep(context)
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        admission = await self._admits(request.headers.get("Authorization", ""), "/metrics")
        if admission is not Admission.ALLOWED:
            return web.Response(status=admission.value, text=f"{admission.name.lower()}\n")
        return web.Response(body=self._exposition(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    def _context(self) -> ssl.SSLContext | None:
        if not self._settings.secure:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        if self._settings.certificate_folder is None:
            _load_self_signed(context, self._clock)
        else:
            context.load_cert_chain(*self._files(self._settings.certificate_folder))
        return context

    async def _keep(self, context: ssl.SSLContext | None) -> None:
        """For ever; a replaced certificate counts from the next connection on."""
        folder = self._settings.certificate_folder
        while True:
            await self._clock.sleep(_RELOAD_SECONDS)
            if context is None or folder is None:
                continue
            try:
                context.load_cert_chain(*self._files(folder))
            except (OSError, ssl.SSLError) as error:
                _log.warning("metrics certificate not reloaded", error=type(error).__name__)

    def _files(self, folder: Path) -> tuple[Path, Path]:
        return folder / self._settings.certificate_name, folder / self._settings.key_name


def _load_self_signed(context: ssl.SSLContext, clock: Clock) -> None:
    """A certificate nobody else has, for scrapers that do not verify; it lives as long as the process."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "external-secrets-metrics")])
    now = clock.now()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + _SELF_SIGNED_FOR)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    with tempfile.TemporaryDirectory() as folder:  # the ssl module reads files only
        chain = Path(folder) / "tls.pem"
        chain.touch(mode=0o600)
        chain.write_bytes(
            certificate.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        context.load_cert_chain(chain)
