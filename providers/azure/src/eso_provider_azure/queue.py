"""A storage queue with the Event Grid events of a vault. An event is only a reason to list the vault at once.

    poll:    receive messages, which hides them for a minute
    acknowledge:  delete them, after a listing that began later

A message that is not acknowledged is delivered again, and causes one more listing. The listing always reports what
changed, so that a lost or foreign message does no harm.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from datetime import datetime
from email.utils import format_datetime
from html import unescape
from typing import Final

from yarl import URL

from eso_provider_azure.clouds import CLOUDS
from eso_provider_azure.identities import BoundIdentity
from eso_sdk.errors import invalid_config
from eso_sdk.http import HttpClient, HttpRequest, HttpResponse, status_error
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.clock import Clock

POLL_SECONDS: Final = 5.0
"""Seconds between two reads of the queue: storage queues do not let callers wait for a message."""
RETRY_SECONDS: Final = 600.0
"""Seconds until a queue that failed is read again; until then the vault is listed as without a queue."""
SCOPE: Final = "https://storage.azure.com/.default"
FIELD: Final = "/changes/queueURL"

_VERSION: Final = "2021-12-02"
_HIDDEN_SECONDS: Final = "60"
_MOST: Final = "32"
_MAX_HELD: Final = 1024
_MESSAGE: Final = re.compile(
    rb"<QueueMessage>.*?<MessageId>([\w-]+)</MessageId>.*?<PopReceipt>([^<]+)</PopReceipt>.*?</QueueMessage>", re.DOTALL
)
_PATH: Final = re.compile(r"/[a-z0-9](-?[a-z0-9]){2,62}")


def check_queue(url: str, environment: str) -> None:
    """Refuse a URL that is not a queue of this cloud: it is sent a token."""
    if environment not in CLOUDS:
        raise invalid_config(FIELD, f"queues are not supported in {environment}")
    try:
        parts = URL(url)
        host = parts.host or ""
    except ValueError:
        raise invalid_config(FIELD, "is not a URL") from None
    fits = parts.scheme == "https" and parts.explicit_port is None and not parts.query_string and parts.user is None
    domain = CLOUDS[environment].queues
    if not fits or not host.endswith(f".{domain}") or not _PATH.fullmatch(parts.path):
        raise invalid_config(FIELD, f"write the URL of a queue, as https://ACCOUNT.{domain}/NAME")


class EventQueue:
    """Tells when a vault should be listed. Shared by all streams of an identity that name the same queue."""

    def __init__(self, url: str, credential: BoundIdentity, client: HttpClient, clock: Clock) -> None:
        self.rung_at: datetime | None = None
        self.users = 0
        self.error: ProviderError | None = None
        self._url = URL(url)
        self._credential = credential
        self._client = client
        self._clock = clock
        self._lock = asyncio.Lock()
        self._next = float("-inf")
        self._held: list[tuple[str, str]] = []

    async def poll(self, every: float) -> None:
        """Look into the queue, unless another stream has just done so."""
        async with self._lock:
            if self._clock.monotonic() < self._next:
                return
            self._next = self._clock.monotonic() + every / 2
            try:
                await self._receive()
                self.error = None
            except ProviderError as failed:
                self.error = failed
                self._next = self._clock.monotonic() + max(RETRY_SECONDS, failed.retry_after)

    async def acknowledge(self, listed_at: datetime) -> None:
        """Delete the messages that came before a listing began."""
        if self.rung_at is None or listed_at < self.rung_at:
            return
        held, self._held = self._held, []
        with suppress(ProviderError):  # what is left is delivered again
            for message, receipt in held:
                await self._sent("DELETE", self._url / "messages" / message % {"popreceipt": receipt})

    async def close(self) -> None:
        await self._client.close()

    async def _receive(self) -> None:
        parameters = {"numofmessages": _MOST, "visibilitytimeout": _HIDDEN_SECONDS}
        response = await self._sent("GET", self._url / "messages" % parameters)
        if error := self._error(response):
            raise error
        found = [(name.decode(), unescape(receipt.decode())) for name, receipt in _MESSAGE.findall(response.body)]
        if found:
            self._held = [*self._held, *found][-_MAX_HELD:]
            self.rung_at = self._clock.now()

    async def _sent(self, method: str, url: URL) -> HttpResponse:
        token = await self._credential.token()
        headers = {
            "Authorization": f"Bearer {token.token}",
            "x-ms-version": _VERSION,
            "x-ms-date": format_datetime(self._clock.now(), usegmt=True),
        }
        return await self._client.send(HttpRequest(method, url, headers))

    def _error(self, response: HttpResponse) -> ProviderError | None:
        subject = f"queue {self._url}"
        if response.status in (401, 403):
            message = f'{subject} is denied; grant the role "Storage Queue Data Message Processor"'
            return ProviderError(ErrorReason.PERMISSION_DENIED, message, backend_code=str(response.status))
        if response.status == 404:
            return ProviderError(
                ErrorReason.CONFIG_NOT_FOUND, f"{subject} does not exist; create it, or correct {FIELD}"
            )
        return status_error(response, subject, self._clock)
