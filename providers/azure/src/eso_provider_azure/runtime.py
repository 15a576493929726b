"""State shared by all sessions of a provider process: identities, vaults, and the trusted authorities."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Hashable
from functools import cached_property
from typing import Final
from weakref import WeakKeyDictionary

from eso_provider_azure.identities import BoundIdentity, Logins
from eso_provider_azure.queue import FIELD, EventQueue
from eso_provider_azure.vault import Vault
from eso_sdk.addresses import AddressPolicy
from eso_sdk.errors import unsupported
from eso_sdk.http import HttpClient, HttpSettings, tls_context
from kubebase.clock import Clock

MAX_QUEUES: Final = 128
CONNECTIONS: Final = 64
"""The maximum number of connections to one vault as one identity, for all stores."""


class Runtime:
    """The state of one process."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.logins = Logins(clock)
        self._vaults: dict[Hashable, Vault] = {}
        self._queues: dict[Hashable, EventQueue] = {}

    @cached_property
    def tls(self) -> ssl.SSLContext:
        """Return the trust in the authorities of the system; reading them takes longer than a connection."""
        return tls_context()

    def http_client(self, subject: str, field: str, addresses: AddressPolicy) -> HttpClient:
        """Return a new client; its user closes it."""
        settings = HttpSettings(subject, field=field, tls=self.tls, connections=CONNECTIONS)
        return HttpClient(settings, policy=addresses, clock=self.clock)

    def join(self, url: str, credential: BoundIdentity, addresses: AddressPolicy) -> Vault:
        """Return the vault, as one identity; every `join` needs a `leave`."""
        key = (url, credential.identity.key, credential.scope, addresses)
        if key not in self._vaults:
            client = self.http_client(f"vault {url}", "/vaultUrl", addresses)
            self._vaults[key] = Vault(url, credential, client, self.clock)
        vault = self._vaults[key]
        vault.users += 1
        return vault

    async def leave(self, vault: Vault) -> None:
        """Release a vault; the last user closes its connections."""
        vault.users -= 1
        if vault.users == 0:
            for key in [key for key, each in self._vaults.items() if each is vault]:
                del self._vaults[key]
            await vault.close()

    def join_queue(self, url: str, credential: BoundIdentity, addresses: AddressPolicy) -> EventQueue:
        """Return the bell of a queue, as one identity; every call needs a `leave_queue`."""
        key = (url, credential.identity.key, addresses)
        if key not in self._queues:
            if len(self._queues) >= MAX_QUEUES:
                raise unsupported(f"this provider polls {MAX_QUEUES} queues already; let stores share queues")
            client = self.http_client(f"queue {url}", FIELD, addresses)
            self._queues[key] = EventQueue(url, credential, client, self.clock)
        queue = self._queues[key]
        queue.users += 1
        return queue

    async def leave_queue(self, queue: EventQueue) -> None:
        """Release a bell; the last user closes its connections."""
        queue.users -= 1
        if queue.users == 0:
            for key in [key for key, each in self._queues.items() if each is queue]:
                del self._queues[key]
            await queue.close()


_RUNTIMES: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, Runtime]]] = WeakKeyDictionary()


def runtime_of(clock: Clock) -> Runtime:
    """Return the runtime of this event loop and clock: in a provider process there is one of each."""
    known = _RUNTIMES.setdefault(asyncio.get_running_loop(), {})
    if id(clock) not in known:
        known[id(clock)] = Runtime(clock)
    return known[id(clock)]
