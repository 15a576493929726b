"""The items of one vault, through the vendor's SDK. Objects of the SDK stay inside this module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from eso_provider_onepassword.account import Account, Observe
from eso_provider_onepassword.items import DOCUMENT, Field, File, Item, Overview, Vault
from eso_provider_onepassword.writing import Draft
from eso_sdk.errors import invalid_request, not_found
from eso_wire.errors import ErrorReason, ProviderError

BATCH: Final = 50
"""Items that the SDK reads in one call."""
MARK: Final = "Created by External Secrets from a whole Secret; deleted with it."
"""The notes of an item that a push of a whole Secret created."""

FIELD_TYPES: Final = {
    "text": "Text",
    "concealed": "Concealed",
    "email": "Email",
    "url": "Url",
    "phone": "Phone",
    "date": "Date",
    "monthyear": "MonthYear",
}

_UNRESOLVED: Final = {
    "itemNotFound": (
        ErrorReason.SECRET_NOT_FOUND,
        '1Password has no item for "{key}" in the vault; check the title, or use the id',
    ),
    "fieldNotFound": (
        ErrorReason.PROPERTY_NOT_FOUND,
        'the item of "{key}" in 1Password has no such field; check the label',
    ),
    "noMatchingSections": (
        ErrorReason.PROPERTY_NOT_FOUND,
        'the item of "{key}" in 1Password has no such section; check its label',
    ),
    "tooManyItems": (ErrorReason.INVALID_REQUEST, '"{key}" fits several items; use the id of one'),
    "tooManyMatchingFields": (ErrorReason.INVALID_REQUEST, '"{key}" fits several fields; use the id of one'),
    "parsing": (
        ErrorReason.INVALID_REQUEST,
        '"{key}" is not ITEM/FIELD or ITEM/SECTION/FIELD with letters, digits, blanks and _ . - only; use ids instead',
    ),
    "unsupportedFileFormat": (ErrorReason.INVALID_REQUEST, '"{key}" is a file that is not text; extract it as a map'),
}
"""Reasons and messages for the types of errors that resolving a reference has."""


class SDKSource:
    """One service account, as the source and sink of items."""

    def __init__(self, account: Account, observe: Observe) -> None:
        self._account = account
        self._observe = observe

    async def vaults(self) -> Sequence[Vault]:
        found = await self._account.call("VaultsList", lambda client: client.vaults.list(), self._observe)
        return [Vault(each.id, each.title, str(each.content_version), each.active_item_count) for each in found]

    async def overviews(self, vault: Vault) -> Sequence[Overview]:
        found = await self._account.call("ItemsList", lambda client: client.items.list(vault.id), self._observe)
        # Overviews have no version, and their times may be too coarse: every change of the vault counts for all items,
        # which cost one call for fifty.
        return [replace(_overview(each), version=f"{vault.version} {_overview(each).version}") for each in found]

    async def items(self, overviews: Sequence[Overview]) -> Sequence[Item | ProviderError]:
        found: list[Item | ProviderError] = []
        for start in range(0, len(overviews), BATCH):
            found += await self._batch(overviews[start : start + BATCH])
        return found

    async def content(self, item: Item, file: File) -> bytes:
        overview = item.overview
        raw: bytes = await self._account.call(
            "ItemsFilesRead",
            lambda client: client.items.files.read(overview.vault, overview.id, file.origin),
            self._observe,
        )
        return raw

    async def resolve(self, references: Mapping[str, str]) -> dict[str, str | ProviderError]:
        """Return the value of each reference (op://...), or its error. `references` have the key of each."""
        names = list(references)
        response = await self._account.call(
            "SecretsResolveAll", lambda client: client.secrets.resolve_all(names), self._observe
        )
        return {each: _resolved(response.individual_responses.get(each), references[each]) for each in names}

    async def variables(self, environment: str) -> dict[str, str]:
        response = await self._account.call(
            "EnvironmentsGetVariables", lambda client: client.environments.get_variables(environment), self._observe
        )
        return {each.name: each.value for each in response.variables}

    # --- writing -----------------------------------------------------------------------------------------------------

    async def create(self, vault: str, draft: Draft) -> Item:
        from onepassword.types import ItemCategory, ItemCreateParams

        params = ItemCreateParams(
            category=ItemCategory.SERVER,
            vault_id=vault,
            title=draft.title,
            fields=[_new_field(label, value, draft) for label, value in draft.values.items()],
            tags=list(draft.tags),
            notes=MARK if draft.whole else None,
        )
        return _item(await self._account.call("ItemsCreate", lambda client: client.items.create(params), self._observe))

    async def replace(self, item: Item, draft: Draft) -> Item:
        """Write an item back with other fields and tags; everything else of it stays."""
        remaining = [_changed(each, draft) for each in item.origin.fields if each.title not in draft.removed]
        known = {each.title for each in remaining}
        new = [_new_field(label, value, draft) for label, value in draft.values.items() if label not in known]
        changed = item.origin.model_copy(update={"fields": remaining + new, "tags": list(draft.tags)})
        return _item(await self._account.call("ItemsPut", lambda client: client.items.put(changed), self._observe))

    async def remove(self, item: Item) -> None:
        overview = item.overview
        await self._account.call(
            "ItemsDelete", lambda client: client.items.delete(overview.vault, overview.id), self._observe
        )

    async def _batch(self, overviews: Sequence[Overview]) -> list[Item | ProviderError]:
        vault, ids = overviews[0].vault, [each.id for each in overviews]
        response = await self._account.call(
            "ItemsGetAll", lambda client: client.items.get_all(vault, ids), self._observe
        )
        found = response.individual_responses
        return [_item_or_error(each, overview) for each, overview in zip(found, overviews, strict=True)]


def _item_or_error(response: Any, overview: Overview) -> Item | ProviderError:
    if response.content is not None:
        return replace(_item(response.content), overview=overview)
    if response.error is not None and response.error.type.value == "itemNotFound":
        return not_found(overview.title)
    return ProviderError(ErrorReason.BACKEND_ERROR, f'1Password cannot read item "{overview.title}" now')


def _resolved(response: Any, key: str) -> str | ProviderError:
    if response is not None and response.content is not None:
        found: str = response.content.secret
        return found
    kind = response.error.type.value if response is not None and response.error is not None else ""
    reason, message = _UNRESOLVED.get(kind, (ErrorReason.BACKEND_ERROR, '1Password cannot read "{key}"; check the key'))
    return ProviderError(reason, message.format(key=key))


def _overview(described: Any) -> Overview:
    return Overview(
        described.id, described.vault_id, described.title, described.updated_at.isoformat(), tuple(described.tags)
    )


def _item(described: Any) -> Item:
    files = [
        *(each.attributes for each in described.files),
        *([described.document] if described.document is not None else []),
    ]
    return Item(
        _overview(described),
        DOCUMENT if described.category.value == "Document" else described.category.value,
        tuple(Field(each.title, each.value, each.id) for each in described.fields),
        tuple(File(each.id, each.name, each.size, each) for each in files),
        len(described.sections),
        whole=described.notes == MARK,
        origin=described,
    )


def _new_field(label: str, value: str, draft: Draft) -> Any:
    from onepassword.types import ItemField, ItemFieldType

    kind = ItemFieldType(FIELD_TYPES[draft.field_type or "concealed"])
    return ItemField(id=label, title=label, field_type=kind, value=value)


def _changed(field: Any, draft: Draft) -> Any:
    if field.title not in draft.values:
        return field
    changes: dict[str, Any] = {"value": draft.values[field.title]}
    if draft.field_type:
        changes["field_type"] = type(field.field_type)(FIELD_TYPES[draft.field_type])
    return field.model_copy(update=changes)


def read_only(what: str) -> ProviderError:
    return invalid_request(f"{what} of a 1Password Environment is not possible; set vault instead of environment")
