"""An opened store: one vault, as one identity."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import ClassVar, Final

from eso_provider_azure.changes import SCOPE, EventQueue, Watcher, check_queue
from eso_provider_azure.identities import check_vault, cloud_of
from eso_provider_azure.kinds import STORES, KeyVaultConfig
from eso_provider_azure.login import Login, check_auth, log_in, runtime_of
from eso_provider_azure.reading import Finder, Reader
from eso_provider_azure.vault import Api, Vault
from eso_provider_azure.writing import Writer
from eso_sdk.provider import Check, DelegatingStore, finds, pushes, reads, store_kind
from eso_wire.values import (
    ChangeEvent,
    Heartbeat,
    Operation,
    RemoteRef,
    Validation,
    ValidationState,
    WatchItem,
)

CONCURRENCY: Final = 32
"""Calls of one session to its vault at a time."""


@store_kind(objects=STORES, v1_key="azurekv", concurrency=CONCURRENCY)
@reads("metadata", "not_found")
@finds("name", "tags", "path")
@pushes("whole_secret")
class KeyVaultStore(DelegatingStore[KeyVaultConfig]):
    """Secrets, keys and certificates of one vault."""

    reader: Reader

    API_NAME: ClassVar[str] = "Azure/KeyVault"

    @classmethod
    def check_config(cls, config: KeyVaultConfig) -> tuple[str, ...]:
        check_vault(config.vault_url, cloud_of(config))
        if config.queue_url:
            check_queue(config.queue_url, config.environment_type)
        check_auth(config)
        return ()

    async def open(self) -> None:
        cloud = cloud_of(self.config)
        url = check_vault(self.config.vault_url, cloud)
        self._runtime = runtime_of(self.clock)
        # Kept whole: the identity reads the token of a service account from here.
        self._login: Login = log_in(self, self._runtime, self.config)
        credential = self._login.identity.bind(self._runtime.logins, cloud.vault_scope)
        self._vault: Vault = self._runtime.join(url, credential, self.addresses)
        self.resources.push_async_callback(self._runtime.leave, self._vault)
        api = Api(self._vault, self.observe)
        self.reader = Reader(api, asyncio.Semaphore(CONCURRENCY))
        self.finder = Finder(api, self.reader)
        self.writer = Writer(api, self.reader)
        self._queue: EventQueue | None = None
        if self.config.queue_url:
            check_queue(self.config.queue_url, self.config.environment_type)
            requesting = self._login.identity.bind(self._runtime.logins, SCOPE)
            self._queue = self._runtime.join_queue(self.config.queue_url, requesting, self.addresses)
            self.resources.push_async_callback(self._runtime.leave_queue, self._queue)
        self._watcher = Watcher(api, self._queue)

    async def close(self) -> None:
        self.__dict__.pop("_login", None)  # the token of a service account goes with it
        await super().close()

    async def validate(self) -> Validation:
        """Obtain a token. The vault itself is not called, because an identity may have rights to single secrets."""
        await self._vault.credential.token()
        offered = self.OPERATIONS - {Operation.SUBSCRIBE} if self._watcher.is_refused else None
        return Validation(ValidationState.READY, operations=offered, conditions=self._watcher.conditions())

    async def get_map(self, ref: RemoteRef) -> Mapping[str, bytes]:
        return await self.reader.read_map(ref)

    async def check(self, ref: RemoteRef) -> Check:
        return await self.reader.check(ref)

    def subscribe(self, items: Sequence[WatchItem], resume_token: str) -> AsyncIterator[ChangeEvent | Heartbeat]:
        return self._watcher.subscribe(items, resume_token)
