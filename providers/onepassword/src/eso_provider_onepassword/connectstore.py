"""An opened store: some vaults of a Connect server, as one token sees them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

from yarl import URL

from eso_api.references import SecretKeySelector
from eso_api.stores.onepassword import OnePasswordProvider
from eso_provider_onepassword.connect import Connect, is_sporadic
from eso_provider_onepassword.kinds import CONNECT
from eso_provider_onepassword.reading import Reader
from eso_provider_onepassword.vaultcache import VaultCache
from eso_provider_onepassword.writing import ConnectMetadata, PushSettings, Writer, metadata_of
from eso_sdk.authorization import FixedHeaders, bearer
from eso_sdk.errors import invalid_config, invalid_request
from eso_sdk.http import url_of
from eso_sdk.namespaces import require_namespaces
from eso_sdk.provider import Check, Pushed, Store, Value, finds, reads, store_kind
from eso_sdk.rest import Rest, RestSettings
from eso_wire.errors import ProviderError
from eso_wire.values import (
    DeleteItem,
    FindQuery,
    Found,
    PushItem,
    RemoteRef,
    SourceSecret,
    Validation,
    ValidationState,
)

API_NAME: Final = "1Password/Connect"
MAX_RESPONSE: Final = 32 * 1024 * 1024
"""The items of a vault come in one response, about 500 bytes each; files can be larger than values usually are."""
_TOKEN: Final = "/auth/secretRef/connectTokenSecretRef"  # noqa: S105 - a pointer


@store_kind(objects=CONNECT, v1_key="onepassword")
class ConnectStore(Store[OnePasswordProvider]):
    """A store of `spec.provider.onepassword`, `OnePassword` or `ClusterOnePassword`."""

    API_NAME = API_NAME

    @classmethod
    def check_config(cls, config: OnePasswordProvider) -> tuple[str, ...]:
        check_reference(config.auth.secret_ref.connect_token_secret_ref, _TOKEN)
        _address(config.connect_host)
        if not config.vaults or "" in config.vaults:
            raise invalid_config("/vaults", "name at least one vault, each with its position in the search order")
        if len(set(config.vaults.values())) != len(config.vaults):
            raise invalid_config("/vaults", "two vaults have the same position in the search order; number them")
        return ()

    async def open(self) -> None:
        config, reference = self.config, self.config.auth.secret_ref.connect_token_secret_ref
        require_namespaces(self.holder, {_TOKEN: reference})
        address = _address(config.connect_host)
        subject = f"1Password Connect at {address.origin()}"
        settings = RestSettings(
            subject, address / "v1", field="/connectHost", repeats=is_sporadic, max_response=MAX_RESPONSE
        )
        self._rest = Rest(self, settings, FixedHeaders(bearer(self.secret(reference), _TOKEN)))
        connect = Connect(self._rest)
        names = sorted(config.vaults, key=lambda name: config.vaults[name])
        self._vault_cache = VaultCache(connect, names, pointer="/vaults", clock=self.clock)
        self._reader = Reader(self._vault_cache, self.clock)
        self._writer = Writer(self._vault_cache, connect, first=names[0], subject=subject, clock=self.clock)

    async def close(self) -> None:
        if hasattr(self, "_rest"):
            await self._rest.close()

    async def validate(self) -> Validation:
        """Check that every vault can be read."""
        await self._vault_cache.check_all()
        return Validation(ValidationState.READY)

    @reads("not_found")
    async def get_many(self, refs: Sequence[RemoteRef]) -> Sequence[Value | ProviderError]:
        return await self._reader.read(refs)

    async def get_map(self, ref: RemoteRef) -> Mapping[str, bytes]:
        return await self._reader.map(ref)

    async def check(self, ref: RemoteRef) -> Check:
        return await self._reader.check(ref)

    @finds("name", "tags", "path")
    async def find(self, query: FindQuery) -> AsyncIterator[Found]:
        async for found in self._reader.find(query):
            yield found

    async def push_many(self, items: Sequence[PushItem], source: SourceSecret) -> Sequence[Pushed | ProviderError]:
        """Write all fields of one item at once."""
        del source
        metadata = metadata_of(items, ConnectMetadata)
        return await self._writer.push(items, PushSettings(self._vault(metadata, items[0].remote.key), metadata.tags))

    async def delete_many(self, items: Sequence[DeleteItem]) -> Sequence[bool | ProviderError]:
        """Remove all fields of one item at once."""
        vault = self._vault(metadata_of(items, ConnectMetadata), items[0].remote.key)
        return await self._writer.delete(items, vault)

    def _vault(self, metadata: ConnectMetadata, key: str) -> str:
        """Return the vault that the metadata names. A store gives access to its own vaults only."""
        if metadata.vault and metadata.vault not in self.config.vaults:
            raise invalid_request(
                f'metadata of "{key}" names a vault that is not in /vaults of the store; add it there'
            )
        return metadata.vault


def check_reference(reference: SecretKeySelector, pointer: str) -> None:
    if not reference.name or not reference.key:
        raise invalid_config(pointer, "needs name and key of the Secret that holds the token")


def _address(text: str) -> URL:
    try:
        found = url_of(text)
    except ValueError:
        found = URL()
    if found.scheme not in ("http", "https") or not found.host or found.query_string or found.fragment:
        raise invalid_config("/connectHost", "must be a URL such as http://connect:8080")
    return found
