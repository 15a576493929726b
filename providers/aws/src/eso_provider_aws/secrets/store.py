"""An opened store of Secrets Manager."""

from __future__ import annotations

from typing import ClassVar, Final

from eso_provider_aws.changes.listings import SECRETS
from eso_provider_aws.clients import SECRETS_MANAGER
from eso_provider_aws.kinds import SecretsManagerConfig
from eso_provider_aws.secrets.reading import SecretFinder, SecretReader
from eso_provider_aws.secrets.writing import SecretWriter
from eso_provider_aws.store import ValueFinder, ValueReader, ValueStore, ValueWriter
from eso_sdk.errors import invalid_config

MIN_DAYS: Final = 7
MAX_DAYS: Final = 30


class SecretsStore(ValueStore[SecretsManagerConfig]):
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

    def parts(self) -> tuple[ValueReader, ValueFinder, ValueWriter]:
        reader = SecretReader(self.api, self.config.prefix, self.gate)
        return reader, SecretFinder(self.api, reader), SecretWriter(self.api, reader, self.config.deletes)
