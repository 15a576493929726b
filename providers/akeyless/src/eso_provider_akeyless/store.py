"""An opened store: the items that one identity may use.

| operation | requests |
|---|---|
| get | one for all static secrets, one for each other item; the type of an item is read once in two hours |
| find | one for each page of the list, one for each hundred static secrets, one for each other item |
| check | one description |
| push, delete | a description, a read to compare, then one write if something changes |
| validate | one login, unless a token is at hand |
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from eso_api.stores.akeyless import AkeylessProvider
from eso_api.values import SecretBytes
from eso_provider_akeyless.auth import FIELD, Session, api_url, check_auth, chosen_form, status_of
from eso_provider_akeyless.items import STATIC, Items, Reader, Writer
from eso_provider_akeyless.kinds import KINDS
from eso_sdk.errors import invalid_request
from eso_sdk.http import ca_bundle
from eso_sdk.matching import Matcher
from eso_sdk.provider import Check, DelegatingStore, finds, pushes, reads, store_kind
from eso_sdk.push import Draft
from eso_sdk.rest import Rest, RestSettings
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    FindQuery,
    Found,
    RemoteRef,
    Validation,
    ValidationState,
)

MAX_RESPONSE: Final = 16 * 1024 * 1024
"""One response has the values of all static secrets of a call."""
FIND_CHUNK: Final = 100


@store_kind(objects=KINDS, v1_key="akeyless")
@reads("not_found")
@pushes("whole_secret")
class AkeylessStore(DelegatingStore[AkeylessProvider]):
    """A store of `spec.provider.akeyless`, `Akeyless` or `ClusterAkeyless`."""

    reader: Reader
    writer: Writer

    @classmethod
    def check_config(cls, config: AkeylessProvider) -> tuple[str, ...]:
        api_url(config.akeyless_gw_api_url)
        if config.ca_bundle:
            ca_bundle(config.ca_bundle)
        return check_auth(config.auth_secret_ref)

    async def open(self) -> None:
        self.check_config(self.config)
        settings = self._settings()
        self._session = self.close_later(Session(self, settings, chosen_form(self)))
        self._rest = self.close_later(Rest(self, settings, self._session.authorization()))
        self._items = Items(self._rest, self._session, ignore_cache=self.config.ignore_cache)
        self.reader = Reader(self._items, self._session.proof, self.clock)
        self.writer = Writer(self._items, self.reader)

    async def validate(self) -> Validation:
        await self._session.check()
        return Validation(ValidationState.READY)

    async def check(self, ref: RemoteRef) -> Check:
        """Tell whether an item exists. The property counts for static secrets: reads of others can have effects."""
        item = await self._items.describe(ref.key, remembered=False)
        if item is None or not ref.property or item.item_type != STATIC:
            return Check(exists=item is not None)
        return Check(exists=await Draft(await self.writer.value(ref.key)).has(ref.property))

    @finds("name", "tags", "path")
    async def find(self, query: FindQuery) -> AsyncIterator[Found]:
        """Yield matching items. With a name, tags do not count; otherwise the item needs one of the tags' values."""
        if not query.name_regexp and not query.tags:
            raise invalid_request("find needs name.regexp or tags")
        names = await self._matching(query)
        for begin in range(0, len(names), FIND_CHUNK):
            values = await self.reader.values([(name, "") for name in names[begin : begin + FIND_CHUNK]])
            for (name, _), value in values.items():
                if not isinstance(value, ProviderError):
                    yield Found(name, SecretBytes(value))
                elif value.reason is not ErrorReason.SECRET_NOT_FOUND:  # deleted since it was listed
                    raise value

    # --- inside ------------------------------------------------------------------------------------------------------

    async def _matching(self, query: FindQuery) -> list[str]:
        """Return the names of all items that a find is about."""
        path = folder_of(query.path)
        tags = [""] if query.name_regexp else sorted(set(query.tags.values()))
        matcher, names = Matcher(FindQuery(name_regexp=query.name_regexp, path=path)), set()
        for tag in tags:
            async for item in self._items.listed(path, tag):
                if await matcher.accepts(item.item_name):
                    names.add(item.item_name)
                    self.reader.note(item)
        return sorted(names)

    def _settings(self) -> RestSettings:
        config, url = self.config, api_url(self.config.akeyless_gw_api_url)
        bundle = ca_bundle(config.ca_bundle) if config.ca_bundle else b""
        if not bundle and config.ca_provider is not None:
            bundle = self.ca(config.ca_provider)
        subject = f"Akeyless {url.host}"
        return RestSettings(
            subject,
            url,
            ca=bundle,
            field=FIELD,
            status_of=status_of(subject),
            credentials_in_body=True,
            max_response=MAX_RESPONSE,
        )


def folder_of(path: str) -> str:
    """Return a path with slashes at both ends, as folders begin and end."""
    stripped = path.strip("/")
    return f"/{stripped}/" if stripped else ""
