"""An opened store: Secret Manager of one project, as one identity."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from typing import Final

from eso_provider_gcp.api import Api
from eso_provider_gcp.auth import check_auth, project_of, source_of
from eso_provider_gcp.changes import FIELD, Watcher
from eso_provider_gcp.identities import Joined, runtime_of
from eso_provider_gcp.kinds import STORES, SUBSCRIPTION, SecretManagerConfig
from eso_provider_gcp.reading import FETCH, Finder, Reader
from eso_provider_gcp.writing import Writer
from eso_sdk.errors import invalid_config, unsupported
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
"""Calls of one session at a time."""

_POLICIES: Final = ("", "LatestOrFail", FETCH)
_PROJECT: Final = re.compile(r"[a-z0-9.:-]{1,100}")
_LOCATION: Final = re.compile(r"[a-z0-9-]{1,63}")


@store_kind(objects=STORES, v1_key="gcpsm", concurrency=CONCURRENCY)
@reads("metadata", "not_found")
@finds("name", "tags", "path")
@pushes("whole_secret", "if_absent")
class SecretManagerStore(DelegatingStore[SecretManagerConfig]):
    """A store of `spec.provider.gcpsm`, `GCPSecretManager` or `ClusterGCPSecretManager`."""

    reader: Reader

    @classmethod
    def check_config(cls, config: SecretManagerConfig) -> tuple[str, ...]:
        check_auth(config.auth, config.project_id)
        if config.project_id and not _PROJECT.fullmatch(config.project_id):
            raise invalid_config("/projectID", "is not an id of a project; write one such as my-project-1")
        if config.location and not _LOCATION.fullmatch(config.location):
            raise invalid_config("/location", "is not a location of Google Cloud; write one such as europe-west3")
        if config.secret_version_selection_policy not in _POLICIES:
            raise invalid_config("/secretVersionSelectionPolicy", f"write {' or '.join(_POLICIES[1:])}")
        if config.changes is not None and not re.fullmatch(SUBSCRIPTION, config.changes.subscription):
            raise invalid_config(FIELD, "is not a subscription; write its name, or projects/PROJECT/subscriptions/NAME")
        return ()

    async def open(self) -> None:
        config, runtime = self.config, runtime_of(self.clock)
        project = await project_of(self, config.auth, config.project_id)
        self._joined: Joined = runtime.join(source_of(self, config.auth, config.project_id))
        self.resources.push_async_callback(runtime.leave, self._joined)
        self.api = Api(runtime, self._joined.identity, project, config.location, observe=self.observe)
        self.reader = Reader(self.api, config.secret_version_selection_policy, asyncio.Semaphore(CONCURRENCY))
        self.finder = Finder(self.api, self.reader)
        self.writer = Writer(self.api, self.reader)
        changes = config.changes
        self.watcher: Watcher | None = None
        if changes is not None:
            self.watcher = self.close_later(Watcher(self.api, self._joined.identity, changes.subscription))

    async def validate(self) -> Validation:
        """Obtain a token. The service itself is not called: an identity may have rights for single secrets only."""
        await self._joined.identity.access()
        offered = self.OPERATIONS if self.watcher is not None else self.OPERATIONS - {Operation.SUBSCRIBE}
        return Validation(ValidationState.READY, operations=offered)

    # --- reading -----------------------------------------------------------------------------------------------------

    async def check(self, ref: RemoteRef) -> Check:
        return await self.reader.check(ref)

    # --- writing -----------------------------------------------------------------------------------------------------

    # --- changes -----------------------------------------------------------------------------------------------------

    def subscribe(self, items: Sequence[WatchItem], resume_token: str) -> AsyncIterator[ChangeEvent | Heartbeat]:
        if self.watcher is None:
            raise unsupported(
                "this store names no subscription; set changes.subscription of a GCPSecretManager, or rely on"
                " refreshInterval"
            )
        return self.watcher.subscribe(items, resume_token)

    async def acknowledged(self, resume_token: str) -> None:
        if self.watcher is not None:
            await self.watcher.acknowledged(resume_token)
