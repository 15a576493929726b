"""Bitwarden without a companion server: its own SDK, in a worker process for each machine account (`worker.py`).

The package `bitwarden-sdk` is optional (`pip install eso-provider-bitwarden[native]`). It connects by itself, over
HTTPS only: the address rule of the process is applied before its login. Stores with the same token and addresses share
one login, which the SDK renews, and send one request at a time.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
from yarl import URL

from eso_api.stores.bitwarden import BitwardenProvider
from eso_api.values import SecretBytes
from eso_provider_bitwarden.client import MISSING, Draft, Entry, Listed, failure_of, meaning
from eso_provider_bitwarden.worker import MISSING_PACKAGE
from eso_sdk.backend import Backend
from eso_sdk.errors import invalid_config, not_found, timed_out, unavailable, unsupported
from eso_sdk.logins import REFUSALS, REFUSED, Refusals, digest, header_text
from eso_sdk.processwide import shared_table
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.clock import Clock
from kubebase.deadline import Deadline

# ---------------------------------------------------------------------------------------------------------------------
# The connection to a worker process (`worker.py`): one request at a time; a missed deadline ends the process.


SECONDS = 30.0
MAX_LINE: Final = 16 * 1024 * 1024
COMMAND: Final = (sys.executable, "-m", "eso_provider_bitwarden.worker")


class Process:
    """A worker process, started with the first request. It receives credentials on its standard input only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seconds = SECONDS
        self._running: asyncio.subprocess.Process | None = None

    async def send(self, request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            async with Deadline(self._clock, self._seconds):
                return await self._exchange(request)
        except TimeoutError:
            await self.close()
            raise timed_out(f"Bitwarden did not respond within {self._seconds:g} s") from None
        except (OSError, ValueError):
            await self.close()
            raise unavailable("the process of Bitwarden's SDK ended; the next call starts it again") from None
        except asyncio.CancelledError:
            # The response of an abandoned request must not be taken for that of the next one.
            await self.close()
            raise

    async def close(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            with suppress(ProcessLookupError):
                running.kill()
            await running.wait()

    async def _exchange(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if self._running is None:
            self._running = await asyncio.create_subprocess_exec(
                *COMMAND, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=MAX_LINE
            )
        reader, writer = self._running.stdout, self._running.stdin
        if reader is None or writer is None:
            raise OSError("no pipes")
        writer.write(json.dumps(request).encode() + b"\n")
        await writer.drain()
        response: dict[str, Any] = json.loads(await reader.readline())
        return response


# --- Bitwarden without a companion server ----------------------------------------------------------------------------


SUBJECT: Final = "Bitwarden"
API: Final = "https://api.bitwarden.com"
IDENTITY: Final = "https://identity.bitwarden.com"
MAX_CLIENTS: Final = 16
"""Machine accounts, each with a worker process of some 30 MiB."""


class _MissingError(Exception):
    """Bitwarden itself responds with 404."""


class Client:
    """One machine account: its worker process and its login."""

    def __init__(self, key: bytes, clock: Clock) -> None:
        self.users = 0
        self._key = key
        self._clock = clock
        self._lock = asyncio.Lock()
        self._channel: Process | None = None

    async def send(self, login: dict[str, str], call: str, *arguments: Any) -> Any:
        """Make one call, after a login if there is none."""
        refusals = shared_table("eso_provider_bitwarden.refusals", self._clock, Refusals)
        async with self._lock:
            refusals.check(self._key, self._clock.monotonic())
            try:
                if self._channel is None:
                    await self._log_in(login)
                return await self._exchange({"call": call, "arguments": arguments})
            except ProviderError as failed:
                if failed.reason is ErrorReason.CREDENTIALS_REJECTED or failed.reason not in REFUSALS:
                    await self.close()
                if failed.reason is ErrorReason.CREDENTIALS_REJECTED:
                    refusals.add(self._key, failed, REFUSED, self._clock.monotonic())
                raise

    async def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def _log_in(self, login: dict[str, str]) -> None:
        self._channel = Process(self._clock)
        await self._exchange({"login": login}, login=True)

    async def _exchange(self, request: dict[str, Any], *, login: bool = False) -> Any:
        if self._channel is None:
            raise unsupported("the login of this store is closed")
        response = await self._channel.send(request)
        if (text := response.get("error")) is None:
            return response["data"]
        if text == MISSING_PACKAGE:
            await self.close()
            raise invalid_config(
                "/bitwardenServerSDKURL",
                "is needed: this provider was installed without Bitwarden's SDK; name a companion server, or install"
                " eso-provider-bitwarden[native]",
            )
        if not login and meaning(text) == MISSING:
            raise _MissingError
        if login:
            await self.close()
        raise failure_of(text, SUBJECT, login=login)


class Native:
    """Calls of one session."""

    def __init__(self, store: Backend[BitwardenProvider], token: SecretBytes) -> None:
        config = store.config
        self._config = config
        self._store = store
        self._addresses = {
            "/apiURL": config.api_url.rstrip("/") or API,
            "/identityURL": config.identity_url.rstrip("/") or IDENTITY,
        }
        api, identity = self._addresses.values()
        text = header_text(SecretBytes(token.reveal().strip()), "/auth/secretRef/credentials")
        self._login = {"token": text, "apiUrl": api, "identityUrl": identity}
        self._reached = False
        self._key = digest(api, identity, text)
        self._client = _join(self._key, store.clock)

    def __repr__(self) -> str:
        return "<Native>"

    async def listed(self) -> list[Listed]:
        return msgspec.convert(await self._send("ListSecrets", "list", self._config.organization_id), list[Listed])

    async def get(self, identifier: str) -> Entry | None:
        try:
            return msgspec.convert(await self._send("GetSecret", "get", identifier), Entry)
        except _MissingError:
            return None

    async def get_all(self, identifiers: Sequence[str]) -> list[Entry]:
        if not identifiers:
            return []
        try:
            return msgspec.convert(await self._send("GetSecretsByIds", "get_by_ids", list(identifiers)), list[Entry])
        except _MissingError:  # one of them is gone, and Bitwarden refuses all
            found = [await self.get(each) for each in identifiers]
            return [entry for entry in found if entry is not None]

    async def create(self, draft: Draft) -> None:
        await self._write("CreateSecret", "create", draft)

    async def update(self, identifier: str, draft: Draft) -> None:
        await self._write("UpdateSecret", "update", draft, identifier)

    async def delete(self, identifier: str) -> None:
        try:
            errors = await self._send("DeleteSecret", "delete", [identifier])
        except _MissingError:
            return
        for error in filter(None, errors):
            raise failure_of(error, SUBJECT)

    async def close(self) -> None:
        await _leave(self._key, self._store.clock)

    async def _write(self, name: str, call: str, draft: Draft, *identifier: str) -> None:
        parts = (self._config.organization_id, *identifier, draft.key, draft.value, draft.note)
        try:
            await self._send(name, call, *parts, [self._config.project_id])
        except _MissingError:
            raise not_found(draft.key) from None

    async def _send(self, name: str, call: str, *arguments: Any) -> Any:
        await self._reach()
        with self._store.observe(name):
            return await self._client.send(self._login, call, *arguments)

    async def _reach(self) -> None:
        """Apply the address rule of the process to the addresses of the spec."""
        if self._reached:
            return
        for field, address in self._addresses.items():
            http = self._store.http_client(f"{SUBJECT} {URL(address).host}", field=field)
            try:
                await http.reach(URL(address))
            finally:
                await http.close()
        self._reached = True


def _clients(clock: Clock) -> dict[bytes, Client]:
    return shared_table("eso_provider_bitwarden.clients", clock, dict[bytes, Client])


def _join(key: bytes, clock: Clock) -> Client:
    clients = _clients(clock)
    if key not in clients:
        if len(clients) >= MAX_CLIENTS:
            raise unsupported(
                f"this provider serves {MAX_CLIENTS} machine accounts without a companion server already; set"
                " bitwardenServerSDKURL, or let stores share machine accounts"
            )
        clients[key] = Client(key, clock)
    clients[key].users += 1
    return clients[key]


async def _leave(key: bytes, clock: Clock) -> None:
    client = _clients(clock)[key]
    client.users -= 1
    if not client.users:
        del _clients(clock)[key]
        await client.close()
