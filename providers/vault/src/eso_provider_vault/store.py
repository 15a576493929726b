"""An opened store: the key/value engine that either block describes."""

from __future__ import annotations

from typing import TypeVar

from eso_api.stores.openbao import OpenBaoProvider
from eso_api.stores.vault import VaultProvider
from eso_provider_vault.api import Api
from eso_provider_vault.auth.choice import check_auth, open_tokens
from eso_provider_vault.connection import Connection, connect
from eso_provider_vault.settings import settings_of
from eso_provider_vault.tokens import TokenSource
from eso_sdk.provider import Store

C = TypeVar("C", VaultProvider, OpenBaoProvider)


class KvStore(Store[C]):
    """One key/value engine. `VaultStore` and `OpenBaoStore` differ only in the block that configures them."""

    @classmethod
    def check_config(cls, config: C) -> tuple[str, ...]:
        settings_of(config)
        return check_auth(config)

    async def open(self) -> None:
        connection = connect(self, self.config)
        self.api = Api(connection, self.token_source(connection), observe=self.observe, clock=self.clock)

    def token_source(self, connection: Connection) -> TokenSource:
        """Choose the login of the configuration."""
        return open_tokens(self, self.config, connection)

    async def close(self) -> None:
        if hasattr(self, "api"):
            await self.api.close()


class VaultStore(KvStore[VaultProvider]):
    """A store of `spec.provider.vault`, `Vault` or `ClusterVault`."""


class OpenBaoStore(KvStore[OpenBaoProvider]):
    """A store of `spec.provider.openBao`, `OpenBao` or `ClusterOpenBao`."""
