"""An opened store of Secrets Manager."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import ClassVar, Final

from eso_provider_aws.changes.secrets import SECRETS
from eso_provider_aws.changes.store import WatchedStore
from eso_provider_aws.endpoints import SECRETS_MANAGER
from eso_provider_aws.secrets.finding import Finder
from eso_provider_aws.secrets.reading import Reader
from eso_provider_aws.secrets.writing import Writer
from eso_provider_aws.specs import SecretsManagerConfig
from eso_sdk.errors import invalid_config
from eso_sdk.provider import Check, Pushed, Value, finds, pushes, reads
from eso_wire.errors import ProviderError
from eso_wire.values import ConditionReport, DeleteItem, FindQuery, Found, PushItem, RemoteRef, SourceSecret

MIN_DAYS: Final = 7
MAX_DAYS: Final = 30


class SecretsStore(WatchedStore[SecretsManagerConfig]):
    """Secrets of one region of one account."""

    SERVICE = SECRETS_MANAGER
    SOURCE = SECRETS
    API_NAME: ClassVar[str] = "AWS/SecretsManager"

    @classmethod
    def check_config(cls, config: SecretsManagerConfig) -> tuple[str, ...]:
        warnings = super().check_config(config)
        field = "/deletion" if config.deletion else "/secretsManager"
        days = config.deletes.recovery_window_in_days
        if days and not MIN_DAYS <= days <= MAX_DAYS:
            problem = f"must be 0 or between {MIN_DAYS} and {MAX_DAYS}"
            raise invalid_config(f"{field}/recoveryWindowInDays", problem)
        if days and config.deletes.force_delete_without_recovery:
            raise invalid_config(field, "forceDeleteWithoutRecovery excludes recoveryWindowInDays; remove one of them")
        return warnings

    async def open(self) -> None:
        await super().open()
        self.reader = Reader(self.api, self.config.prefix, self.gate)
        self.finder = Finder(self.api, self.reader)
        self.writer = Writer(self.api, self.reader, self.config.deletes)

    def conditions(self) -> tuple[ConditionReport, ...]:
        return self.reader.batching.conditions()

    @reads("metadata", "not_found")
    async def get_many(self, refs: Sequence[RemoteRef]) -> Sequence[Value | ProviderError]:
        return await self.reader.read(refs)

    async def check(self, ref: RemoteRef) -> Check:
        return await self.reader.check(ref)

    @finds("name", "tags", "path")
    async def find(self, query: FindQuery) -> AsyncIterator[Found]:
        async for found in self.finder.find(query):
            yield found

    @pushes("whole_secret", "if_absent")
    async def push_many(self, items: Sequence[PushItem], source: SourceSecret) -> Sequence[Pushed | ProviderError]:
        """Write all items of one secret as one new version."""
        del source
        return await self.writer.push(items, self.call.idempotency_key)

    async def delete_many(self, items: Sequence[DeleteItem]) -> Sequence[bool | ProviderError]:
        """Remove all items of one secret at once."""
        return await self.writer.delete(items, self.call.idempotency_key)
