"""The only place of the SDK that opens connections: to verify tokens.

One bounded answer to one request, or `UnreachedError` with a message that quotes nothing. Calls to backends do not use
it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, urlsplit

from kubebase.clock import Clock
from kubebase.deadline import Deadline

if TYPE_CHECKING:
    import aiohttp

MAX_RESPONSE_BYTES: Final = 1024 * 1024
RESPONSE_SECONDS: Final = 5.0
_CHUNK: Final = 64 * 1024


class UnreachedError(Exception):
    """No response arrived; the text says why."""


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Outbound:
    """Sends requests to one server and verifies its certificate with `ca_file` (None: the system's authorities)."""

    clock: Clock
    ca_file: Path | None = None

    async def get(self, url: str) -> Response:
        return await self._send("GET", url, {}, b"")

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Response:
        return await self._send("POST", url, headers, body)

    async def _send(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Response:
        # Most providers verify no tokens and do not need this import.
        import aiohttp

        host = urlsplit(url).hostname or ""
        try:
            async with Deadline(self.clock, RESPONSE_SECONDS):
                trust = await asyncio.to_thread(self._trust) if url.startswith("https:") else False
                # Not force_close: aiohttp would forget the connection during its TLS shutdown instead of closing it.
                connector = aiohttp.TCPConnector(ssl=trust, limit=1)
                async with (
                    aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session,
                    session.request(method, url, headers=headers, data=body, allow_redirects=False) as response,
                ):
                    return Response(response.status, await _bounded(response))
        except TimeoutError:
            raise UnreachedError(f"{host} did not answer within {RESPONSE_SECONDS:.0f} seconds") from None
        except aiohttp.ClientConnectorCertificateError:
            raise UnreachedError(f"the certificate of {host} is not trusted") from None
        except (aiohttp.ClientError, OSError, ValueError) as exc:
            raise UnreachedError(f"{host} was not reached ({type(exc).__name__})") from None

    def _trust(self) -> ssl.SSLContext:
        """Create the context for each request: requests are rare, and authorities change."""
        return ssl.create_default_context(cafile=self.ca_file)


def is_trustworthy(url: str) -> bool:
    """Return whether responses of an address arrive unmodified: over TLS, or from this machine itself."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and (parts.scheme == "https" or (parts.scheme == "http" and _is_here(parts)))
    except ValueError:
        return False


def _is_here(parts: SplitResult) -> bool:
    if parts.hostname == "localhost":
        return True
    try:
        return ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK):
        body += chunk
        if len(body) > MAX_RESPONSE_BYTES:
            raise UnreachedError(f"{response.url.host} answered with more than {MAX_RESPONSE_BYTES} bytes")
    return bytes(body)
