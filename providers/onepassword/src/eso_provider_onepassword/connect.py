"""The API of a Connect server: paths, JSON, and the meaning of its responses."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
from yarl import URL

from eso_api.references import SecretKeySelector
from eso_api.stores.onepassword import OnePasswordProvider
from eso_provider_onepassword.items import Field, File, Item, Overview, Vault, VaultCache
from eso_provider_onepassword.kinds import CONNECT
from eso_provider_onepassword.writing import ConnectMetadata, Draft, PushSettings, Reader, Writer, metadata_of
from eso_sdk.credentials import require_namespaces
from eso_sdk.errors import backend_error, invalid_config, invalid_request, not_found, timed_out
from eso_sdk.http import HttpResponse, url_of
from eso_sdk.logins import FixedHeaders, bearer
from eso_sdk.operations import side_by_side
from eso_sdk.provider import Check, Pushed, finds, reads, store_kind
from eso_sdk.rest import ATTEMPT_PAUSE, ATTEMPTS, Rest, RestRequest, RestResponse, RestSettings, segments
from eso_sdk.store import DelegatingStore
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import DeleteItem, PushItem, RemoteRef, SourceSecret, Validation, ValidationState
from kubebase.bounded import ExpiringDict

CONCURRENCY: Final = 8
"""Calls of one read at a time: a Connect server is small."""
SHOWN_SECONDS: Final = 5.0
SHOWN_PAUSE: Final = 0.25
"""How long a write waits until the server shows it, and how often it reads."""
UNLISTED_SECONDS: Final = 600.0
MAX_UNLISTED: Final = 1000
"""How long, and of how many, the server's promise to create an item is remembered."""
NOTES: Final = "NOTES"
SERVER: Final = "SERVER"
CONCEALED: Final = "CONCEALED"
ID_CHARS: Final = 26


class Named(msgspec.Struct, frozen=True):
    """A reference to another object."""

    id: str = ""


class ConnectVault(msgspec.Struct, frozen=True, rename="camel"):
    """A vault, as the server describes it."""

    id: str
    name: str = ""
    content_version: int = 0
    items: int = 0


class ConnectField(msgspec.Struct, frozen=True):
    """A field, as the server describes it."""

    id: str = ""
    label: str = ""
    value: str = ""
    purpose: str = ""

    def __repr__(self) -> str:
        return "<ConnectField>"


class ConnectFile(msgspec.Struct, frozen=True):
    """A file, as the server describes it."""

    id: str
    name: str = ""
    size: int = 0


class ConnectItem(msgspec.Struct, frozen=True):
    """An item, as the server describes it. A list of items has neither fields nor files."""

    id: str
    title: str = ""
    version: int = 0
    category: str = ""
    tags: list[str] | None = None
    fields: list[ConnectField] | None = None
    files: list[ConnectFile] | None = None
    sections: list[Named] | None = None
    trashed: bool = False


def is_sporadic(response: HttpResponse | RestResponse) -> bool:
    """Return whether a response is the 403 that Connect servers give now and then to tokens that are in order."""
    return response.status == 403 and b"Authorization" in response.body


class Connect:
    """The items of a Connect server, as one token sees them."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest
        self._gate = asyncio.Semaphore(CONCURRENCY)
        self._unlisted: ExpiringDict[tuple[str, str], Overview] = ExpiringDict(MAX_UNLISTED, rest.clock)

    # --- reading -----------------------------------------------------------------------------------------------------

    async def vaults(self) -> Sequence[Vault]:
        response = await self._rest.get("vaults", call="ListVaults")
        found: list[ConnectVault] = response.read(list[ConnectVault])
        return [Vault(each.id, each.name, str(each.content_version), each.items) for each in found]

    async def overviews(self, vault: Vault) -> Sequence[Overview]:
        response = await self._rest.get(_path(vault.id), call="ListItems")
        found: list[ConnectItem] = response.read(list[ConnectItem])
        return [_overview(each, vault.id) for each in found if not each.trashed]

    async def items(self, overviews: Sequence[Overview]) -> Sequence[Item | ProviderError]:
        def late(_overview: Overview, error: ProviderError) -> Item | ProviderError:
            return error

        return await side_by_side(overviews, self._item_or_error, late=late, gate=self._gate, clock=self._rest.clock)

    async def content(self, item: Item, file: File) -> bytes:
        path = f"{_path(item.overview.vault, item.overview.id)}/{segments('files', file.id, 'content')}"
        return (await self._rest.get(path, call="GetFileContent")).body

    async def item(self, overview: Overview) -> Item | None:
        """Return the item as the server shows it now; None if it is not there."""
        try:
            response = await self._rest.get(_path(overview.vault, overview.id), call="GetItem")
        except ProviderError as failed:
            if failed.backend_code == "404":
                return None
            raise
        return _item(response, overview.vault)

    async def _item_or_error(self, overview: Overview) -> Item | ProviderError:
        try:
            return await self.item(overview) or not_found(overview.title)
        except ProviderError as failed:
            return failed

    # --- writing -----------------------------------------------------------------------------------------------------

    async def create(self, vault: str, draft: Draft) -> Item:
        """Create an item, unless this was done before and the server did not show it: there would be two of them."""
        if (unseen := self._unlisted.get((vault, draft.title))) is not None:
            if (late := await self.item(unseen)) is None:
                raise self._not_shown(draft.title)
            self._unlisted.discard((vault, draft.title))
            return await self.replace(late, draft)
        item: dict[str, Any] = {
            "vault": {"id": vault},
            "title": draft.title,
            "category": SERVER,
            "tags": list(draft.tags),
            "fields": [_new(label, value) for label, value in draft.values.items()],
        }
        response = await self._write(RestRequest("POST", _path(vault), "CreateItem", json=item))
        self._unlisted.put((vault, draft.title), _item(response, vault).overview, UNLISTED_SECONDS)
        shown = await self._shown(response, vault)
        self._unlisted.discard((vault, draft.title))
        return shown

    async def replace(self, item: Item, draft: Draft) -> Item:
        """Write an item back with other fields and tags; everything else of it stays."""
        origin: dict[str, Any] = item.origin
        remaining = [
            {**each, "value": draft.values[label]} if (label := _label(each)) in draft.values else each
            for each in origin.get("fields") or ()
            if _label(each) not in draft.removed
        ]
        known = {_label(each) for each in remaining}
        new = [_new(label, value) for label, value in draft.values.items() if label not in known]
        changed = {**origin, "fields": remaining + new, "tags": list(draft.tags)}
        path = _path(item.overview.vault, item.overview.id)
        response = await self._write(RestRequest("PUT", path, "UpdateItem", json=changed))
        return await self._shown(response, item.overview.vault)

    async def remove(self, item: Item) -> None:
        path = _path(item.overview.vault, item.overview.id)
        await self._write(RestRequest("DELETE", path, "DeleteItem", allowed=(404,)))

    async def _shown(self, response: RestResponse, vault: str) -> Item:
        """Wait until the server shows what it accepted: until then a read may return the former value."""
        written, clock = _item(response, vault), self._rest.clock
        until = clock.monotonic() + SHOWN_SECONDS
        while True:
            shown = await self.item(written.overview)
            if shown is not None and int(shown.overview.version) >= int(written.overview.version):
                return shown
            if clock.monotonic() >= until:
                raise self._not_shown(written.overview.title)
            await clock.sleep(SHOWN_PAUSE)

    def _not_shown(self, title: str) -> ProviderError:
        subject = self._rest.settings.subject
        return timed_out(f'{subject} accepted item "{title}", but does not show it yet; retried later')

    async def _write(self, request: RestRequest) -> RestResponse:
        """Send a write. A sporadic 403 is repeated: the server did nothing."""
        allowed = {*request.allowed, 400, 403, 409}
        for _ in range(ATTEMPTS):
            response = await self._rest.send(replace(request, allowed=allowed))
            if not is_sporadic(response):
                break
            await self._rest.clock.sleep(ATTEMPT_PAUSE)
        match response.status:
            case 403:
                message = f"{response.subject} denies {request.call}; grant the token write access to the vault"
                raise ProviderError(ErrorReason.PERMISSION_DENIED, message, backend_code="403")
            case 409:
                message = f"{response.subject}: the item was changed by another writer; retried later"
                raise ProviderError(ErrorReason.PRECONDITION_FAILED, message, backend_code="409")
            case 400:
                raise invalid_request(f"{response.subject} refuses {request.call} as invalid: HTTP 400; check the key")
        return response


def _path(vault: str, item: str = "") -> str:
    return segments("vaults", vault, "items", item) if item else segments("vaults", vault, "items")


def _label(field: Mapping[str, Any]) -> str:
    """Return the label of a field; some fields that 1Password makes have only an id."""
    return str(field.get("label") or field.get("id", ""))


def _new(label: str, value: str) -> Mapping[str, str]:
    """Return a new field. Its id is of the form that 1Password's own have, and unique in the item."""
    return {"id": uuid.uuid4().hex[:ID_CHARS], "label": label, "value": value, "type": CONCEALED}


def _overview(described: ConnectItem, vault: str) -> Overview:
    return Overview(described.id, vault, described.title, str(described.version), tuple(described.tags or ()))


def _item(response: RestResponse, vault: str) -> Item:
    described: ConnectItem = response.read(ConnectItem)
    origin = response.json()
    if not isinstance(origin, dict):
        raise backend_error(f"{response.subject} sends something else than the expected JSON")
    return Item(
        _overview(described, vault),
        described.category,
        tuple(
            Field(each.label or each.id, each.value, each.id, each.purpose == NOTES) for each in described.fields or ()
        ),
        tuple(File(each.id, each.name, each.size) for each in described.files or ()),
        len(described.sections or ()),
        origin=origin,
    )


# --- An opened store: some vaults of a Connect server, as one token sees them ----------------------------------------


API_NAME: Final = "1Password/Connect"
MAX_RESPONSE: Final = 32 * 1024 * 1024
"""The items of a vault come in one response, about 500 bytes each; files can be larger than values usually are."""
_TOKEN: Final = "/auth/secretRef/connectTokenSecretRef"  # noqa: S105 - a pointer


@store_kind(objects=CONNECT, v1_key="onepassword")
@reads("not_found")
@finds("name", "tags", "path")
class ConnectStore(DelegatingStore[OnePasswordProvider]):
    """A store of `spec.provider.onepassword`, `OnePassword` or `ClusterOnePassword`."""

    reader: Reader

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
        authorization = FixedHeaders(bearer(self.secret(reference), _TOKEN))
        self._rest = self.close_later(Rest(self, settings, authorization))
        connect = Connect(self._rest)
        names = sorted(config.vaults, key=lambda name: config.vaults[name])
        self._vault_cache = VaultCache(connect, names, pointer="/vaults", clock=self.clock)
        self.finder = self.reader = Reader(self._vault_cache, self.clock)
        self._writer = Writer(self._vault_cache, connect, first=names[0], subject=subject, clock=self.clock)

    async def validate(self) -> Validation:
        """Check that every vault can be read."""
        await self._vault_cache.check_all()
        return Validation(ValidationState.READY)

    async def get_map(self, ref: RemoteRef) -> Mapping[str, bytes]:
        return await self.reader.map(ref)

    async def check(self, ref: RemoteRef) -> Check:
        return await self.reader.check(ref)

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
