"""An opened store: one project of an organization, as one machine account."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from yarl import URL

from eso_api.stores.bitwarden import BitwardenProvider
from eso_api.values import SecretBytes
from eso_provider_bitwarden.client import BitwardenClient, Entry
from eso_provider_bitwarden.companion import Companion
from eso_provider_bitwarden.failures import status_of
from eso_provider_bitwarden.kinds import KINDS
from eso_provider_bitwarden.native import Native
from eso_provider_bitwarden.reading import Reader, is_id, members_in
from eso_provider_bitwarden.writing import Writer
from eso_sdk.authorization import FixedHeaders, header_text
from eso_sdk.drafts import Draft
from eso_sdk.errors import invalid_config
from eso_sdk.extract import property_in
from eso_sdk.http import ca_bundle
from eso_sdk.matching import Matcher
from eso_sdk.provider import Check, Pushed, Store, Value, finds, pushes, reads, store_kind
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

_TOKEN = "/auth/secretRef/credentials"  # noqa: S105 - the name of a field


@store_kind(objects=KINDS, v1_key="bitwardensecretsmanager")
class BitwardenStore(Store[BitwardenProvider]):
    """Secrets of one organization."""

    @classmethod
    def check_config(cls, config: BitwardenProvider) -> tuple[str, ...]:
        for field, text in (("/organizationID", config.organization_id), ("/projectID", config.project_id)):
            if not is_id(text):
                raise invalid_config(field, "must be a UUID, as Bitwarden shows it")
        if config.bitwarden_server_sdk_url and _scheme(config.bitwarden_server_sdk_url) not in ("http", "https"):
            raise invalid_config("/bitwardenServerSDKURL", "must be a URL such as https://bitwarden-sdk-server:9998")
        for field, text in (("/apiURL", config.api_url), ("/identityURL", config.identity_url)):
            if text and _scheme(text) != "https":
                raise invalid_config(field, "must be an https URL; Bitwarden's SDK connects to nothing else")
        _bundle(config)
        return ()

    async def open(self) -> None:
        self.check_config(self.config)
        token = self.secret(self.config.auth.secret_ref.credentials)
        self._client: BitwardenClient = (
            self._companion(token) if self.config.bitwarden_server_sdk_url else Native(self, token)
        )
        self._reader = Reader(self._client, self.config.project_id, self.clock)
        self._writer = Writer(self._client, self._reader)

    async def close(self) -> None:
        if (client := self.__dict__.pop("_warden", None)) is not None:
            await client.close()

    async def validate(self) -> Validation:
        await self._client.listed()
        return Validation(ValidationState.READY)

    @reads("not_found")
    async def get_many(self, refs: Sequence[RemoteRef]) -> Sequence[Value | ProviderError]:
        found = await self._reader.read(list(dict.fromkeys(ref.key for ref in refs)))
        return [await _value_or_error(ref, found[ref.key]) for ref in refs]

    async def get_map(self, ref: RemoteRef) -> Mapping[str, bytes]:
        entry = (await self._reader.read([ref.key]))[ref.key]
        if isinstance(entry, ProviderError):
            raise entry
        return members_in(await property_in(entry.value.encode(), ref), ref.key)

    async def check(self, ref: RemoteRef) -> Check:
        entry = await self._reader.one(ref.key)
        return Check(await Draft(None if entry is None else entry.value.encode()).has(ref.property))

    @finds("name")
    async def find(self, query: FindQuery) -> AsyncIterator[Found]:
        """Yield the secrets whose name matches, by id: names may occur several times."""
        matcher = Matcher(query)
        ids = [each.id for each in await self._client.listed() if await matcher.accepts(each.key)]
        for entry in await self._client.get_all(ids):
            yield Found(entry.id, SecretBytes(entry.value.encode()))

    @pushes("whole_secret")
    async def push_many(self, items: Sequence[PushItem], source: SourceSecret) -> Sequence[Pushed | ProviderError]:
        """Write all items of one name at once."""
        del source
        return await self._writer.push(items)

    async def delete_many(self, items: Sequence[DeleteItem]) -> Sequence[bool | ProviderError]:
        return await self._writer.delete(items)

    def _companion(self, token: SecretBytes) -> Companion:
        config = self.config
        bundle = _bundle(config)
        if not bundle and config.ca_provider is not None:
            bundle = self.ca(config.ca_provider)
        base = URL(config.bitwarden_server_sdk_url)
        settings = RestSettings(
            f"the Bitwarden SDK server {base.host}",
            base,
            ca=bundle,
            field="/bitwardenServerSDKURL",
            status_of=status_of,
        )
        headers = {
            "Warden-Access-Token": header_text(SecretBytes(token.reveal().strip()), _TOKEN),
            "Warden-Api-Url": config.api_url.rstrip("/"),
            "Warden-Identity-Url": config.identity_url.rstrip("/"),
        }
        return Companion(Rest(self, settings, FixedHeaders(headers)), config)


def _scheme(address: str) -> str:
    """Return the scheme of an address; nothing if it is not the address of a host."""
    try:
        url = URL(address)
    except ValueError:
        return ""
    return url.scheme if url.host else ""


def _bundle(config: BitwardenProvider) -> bytes:
    """Return the authorities of `caBundle`, which is text: PEM, or PEM in base64."""
    text = config.ca_bundle
    if not text:
        return b""
    return text.encode() if "-----BEGIN" in text else ca_bundle(text)


async def _value_or_error(ref: RemoteRef, found: Entry | ProviderError) -> Value | ProviderError:
    if isinstance(found, ProviderError):
        return found
    try:
        return Value(SecretBytes(await property_in(found.value.encode(), ref)))
    except ProviderError as refused:
        return refused
