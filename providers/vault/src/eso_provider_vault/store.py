"""An opened store: the key/value engine that either block describes.

A store is ready if its token is accepted, and its engine exists and is kv. A store whose `version` is not that of the
engine is ready, with a warning: version v1 on a version 2 engine reads "data/KEY", and existing manifests do that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, TypeVar

from eso_api.stores.vault import OpenBaoProvider, VaultProvider
from eso_provider_vault.api import Api, Connection, Mounts, connect
from eso_provider_vault.auth.login import check_auth, open_tokens
from eso_provider_vault.changes import Watcher
from eso_provider_vault.identities import TokenSource
from eso_provider_vault.kinds import OPEN_BAO, VAULT
from eso_provider_vault.reading import Finder, Reader, ReadRequest, Secret, value_in
from eso_provider_vault.replies import accepts_token, dead_token, refusal
from eso_provider_vault.settings import settings_of
from eso_provider_vault.writing import Writer
from eso_sdk.operations import side_by_side
from eso_sdk.provider import Check, DelegatingStore, Value, finds, pushes, reads, store_kind
from eso_wire.errors import ProviderError
from eso_wire.values import (
    ChangeEvent,
    ConditionReport,
    Heartbeat,
    Operation,
    RemoteRef,
    Validation,
    ValidationState,
    WatchItem,
)

C = TypeVar("C", VaultProvider, OpenBaoProvider)

CONCURRENCY: Final = 32
"""Requests to one server at a time, for each session."""


@finds("name", "tags", "path")
@pushes("whole_secret", "if_absent", "if_version")
class KvStore(DelegatingStore[C]):
    """One key/value engine. `VaultStore` and `OpenBaoStore` differ only in the block that configures them."""

    @classmethod
    def check_config(cls, config: C) -> tuple[str, ...]:
        settings_of(config)
        return check_auth(config)

    async def open(self) -> None:
        connection = connect(self, self.config)
        tokens = self.token_source(connection)
        self.api = self.close_later(Api(connection, tokens, observe=self.observe, clock=self.clock))
        self.mounts = Mounts(self.api)
        self._reader = Reader(self.api, self.mounts)
        self.finder = Finder(self.api, self.mounts, self._reader)
        self.writer = Writer(self.api, self.mounts)
        self.watcher = Watcher(self.api, self.finder)
        self._requests = asyncio.Semaphore(CONCURRENCY)

    def token_source(self, connection: Connection) -> TokenSource:
        """Choose the login of the configuration."""
        return open_tokens(self, self.config, connection)

    async def validate(self) -> Validation:
        return await examined(self.api, self.mounts, self.watcher, self.OPERATIONS)

    # --- reading -----------------------------------------------------------------------------------------------------

    @reads("metadata", "not_found")
    async def get_many(self, refs: Sequence[RemoteRef]) -> Sequence[Value | ProviderError]:
        """Read every key and version of the batch once."""
        keys: dict[ReadRequest, str] = {}
        requests: list[ReadRequest | ProviderError] = []
        for ref in refs:
            try:
                request = self._reader.request_for(ref)
            except ProviderError as wrong:
                requests.append(wrong)
                continue
            keys.setdefault(request, ref.key)
            requests.append(request)
        results = await self._read_all(keys)
        return [
            await _value(found if isinstance(found, ProviderError) else results[found], ref)
            for found, ref in zip(requests, refs, strict=True)
        ]

    async def _read_all(self, keys: dict[ReadRequest, str]) -> dict[ReadRequest, Secret | ProviderError]:
        async def read_one(request: ReadRequest) -> Secret | ProviderError:
            try:
                return await self._reader.read(request, keys[request])
            except ProviderError as failed:
                return failed

        def late(_request: ReadRequest, error: ProviderError) -> ProviderError:
            return error

        distinct = tuple(keys)
        results = await side_by_side(distinct, read_one, late=late, gate=self._requests, clock=self.clock)
        return dict(zip(distinct, results, strict=True))

    async def check(self, ref: RemoteRef) -> Check:
        """Check whether the key exists and, if the reference names a property, has it."""
        try:
            found = await value_in(await self._reader.read(self._reader.request_for(ref), ref.key), ref)
        except ProviderError as missing:
            if missing.is_not_found:
                return Check(exists=False)
            raise
        return Check(exists=True, version=found.metadata.provider_version)

    # --- writing -----------------------------------------------------------------------------------------------------

    # --- changes -----------------------------------------------------------------------------------------------------

    async def subscribe(self, items: Sequence[WatchItem], resume_token: str) -> AsyncIterator[ChangeEvent | Heartbeat]:
        async for event in self.watcher.subscribe(items, resume_token):
            yield event


@store_kind(objects=VAULT, v1_key="vault", concurrency=CONCURRENCY)
class VaultStore(KvStore[VaultProvider]):
    """A store of `spec.provider.vault`, `Vault` or `ClusterVault`."""


@store_kind(objects=OPEN_BAO, v1_key="openBao", concurrency=CONCURRENCY)
class OpenBaoStore(KvStore[OpenBaoProvider]):
    """A store of `spec.provider.openBao`, `OpenBao` or `ClusterOpenBao`."""


async def _value(result: Secret | ProviderError, ref: RemoteRef) -> Value | ProviderError:
    if isinstance(result, ProviderError):
        return result
    try:
        return await value_in(result, ref)
    except ProviderError as missing:
        return missing


_VERSION_2_ONLY: Final = frozenset({Operation.METADATA_FETCH, Operation.FIND_BY_TAGS})


async def examined(api: Api, mounts: Mounts, watcher: Watcher, operations: frozenset[Operation]) -> Validation:
    """Validate the store at the server; return its operations, or raise its error."""
    warning = ""
    if api.settings.mount:
        warning = await _check_mount(api, mounts)
    else:
        await _check_token(api)
    offered = operations - _VERSION_2_ONLY if api.settings.version == "v1" else operations
    if warning or not await _reports_changes(watcher):
        offered -= {Operation.SUBSCRIBE}
    if not warning:
        return Validation(ValidationState.READY, operations=offered)
    condition = ConditionReport("VersionMismatch", "True", "EngineVersionDiffers", warning)
    return Validation(ValidationState.READY, operations=offered, warnings=(warning,), conditions=(condition,))


async def _check_mount(api: Api, mounts: Mounts) -> str:
    """Check token and mount together: every token with any right below the mount may read the mount's description.

    Returns what differs between the versions of store and engine.
    """
    reply = await mounts.fetch(api.settings.mount)
    if reply.status == 403 and not await api.token_is_good():
        raise dead_token(api.endpoint(api.settings.mount))
    engine = mounts.described(reply, api.settings.mount)
    mounts.check(engine)
    return mounts.version_difference(engine)


async def _check_token(api: Api) -> None:
    reply = await api.lookup_self()
    if reply.status != 403 and not reply.ok:
        raise refusal(reply, api.endpoint("auth/token/lookup-self"))
    if accepts_token(reply) is not True:
        raise dead_token(api.endpoint("auth/token/lookup-self"))


async def _reports_changes(watcher: Watcher) -> bool:
    """Find out whether the server reports changes.

    A failure does not affect readiness; the next validation tries again.
    """
    try:
        return await watcher.change_source() != "none"
    except ProviderError:
        return False
