"""One vault, as one identity: Microsoft's clients with shared connections, and the pause that the vault requests.

Stores with the same vault and identity share it.
"""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import Any, Final

from azure.keyvault.certificates.aio import CertificateClient
from azure.keyvault.keys.aio import KeyClient
from azure.keyvault.secrets.aio import SecretClient

from eso_provider_azure.identities import BoundIdentity
from eso_provider_azure.transport import KitTransport
from eso_sdk.http import HttpClient
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.clock import Clock

SHORTEST_PAUSE: Final = 1.0
"""Seconds without calls after a 429 that names no time."""
LONGEST_PAUSE: Final = 32.0


class Vault:
    """Clients of one vault."""

    def __init__(self, url: str, credential: BoundIdentity, client: HttpClient, clock: Clock) -> None:
        self.url = url
        self.credential = credential
        self.clock = clock
        self.users = 0
        self.met = asyncio.Event()
        """Set once the vault was called: then the clients know its challenge."""
        self.meeting = asyncio.Lock()
        self._client = client
        self._until = float("-inf")
        self._limits = 0
        """Limits in a row."""

    @cached_property
    def secrets(self) -> SecretClient:
        return SecretClient(self.url, self.credential, **self._settings())

    @cached_property
    def keys(self) -> KeyClient:
        return KeyClient(self.url, self.credential, **self._settings())

    @cached_property
    def certificates(self) -> CertificateClient:
        return CertificateClient(self.url, self.credential, **self._settings())

    async def close(self) -> None:
        await self._client.close()

    def check_pause(self) -> None:
        """Fail at once while the vault limits calls: each further one would count against its quota."""
        left = self._until - self.clock.monotonic()
        if left > 0:
            raise self._limited(left)

    def pause(self, seconds: float) -> ProviderError:
        """Make no calls for this time; return the error of the call that met the limit.

        If the vault names no time, pauses double, as Microsoft recommends.
        """
        now = self.clock.monotonic()
        if now >= self._until:
            self._limits += 1
        doubled = min(SHORTEST_PAUSE * 2 ** (self._limits - 1), LONGEST_PAUSE)
        wait = max(seconds, SHORTEST_PAUSE) if seconds else doubled
        self._until = max(self._until, now + wait)
        return self._limited(wait)

    def served(self) -> None:
        """Record that the vault served a call."""
        self._limits = 0

    def _limited(self, left: float) -> ProviderError:
        message = f"vault {self.url} limits its calls (HTTP 429); retried later"
        return ProviderError(ErrorReason.RATE_LIMITED, message, retry_after=left, backend_code="429")

    def _settings(self) -> dict[str, Any]:
        return {
            "transport": KitTransport(self._client),
            "retry_total": 0,  # the operator retries
            "permit_redirects": False,
            # `clouds.check_vault` has compared the host, and the identity ignores the resource of the challenge.
            "verify_challenge_resource": False,
        }
