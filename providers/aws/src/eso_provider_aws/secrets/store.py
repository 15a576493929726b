"""An opened store of Secrets Manager."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from eso_provider_aws.changes.secrets import SECRETS
from eso_provider_aws.changes.store import WatchedStore
from eso_provider_aws.endpoints import SECRETS_MANAGER
from eso_provider_aws.secrets.reading import Reader
from eso_provider_aws.specs import SecretsManagerConfig
from eso_sdk.provider import Value, reads
from eso_wire.errors import ProviderError
from eso_wire.values import ConditionReport, RemoteRef

_ONE_BY_ONE: Final = ConditionReport(
    "BatchReads",
    "False",
    "PermissionMissing",
    "secrets are read one by one because BatchGetSecretValue is denied; allow secretsmanager:BatchGetSecretValue to"
    " read twenty with one call",
)


class SecretsStore(WatchedStore[SecretsManagerConfig]):
    """Secrets of one region of one account."""

    SERVICE = SECRETS_MANAGER
    SOURCE = SECRETS
    API_NAME: ClassVar[str] = "AWS/SecretsManager"

    async def open(self) -> None:
        await super().open()
        self.reader = Reader(self.api, self.config.prefix, self.gate)

    def conditions(self) -> tuple[ConditionReport, ...]:
        return (_ONE_BY_ONE,) if self.reader.batches_denied else ()

    @reads("metadata", "not_found")
    async def get_many(self, refs: Sequence[RemoteRef]) -> Sequence[Value | ProviderError]:
        return await self.reader.read(refs)
