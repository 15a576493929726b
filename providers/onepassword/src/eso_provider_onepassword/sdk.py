"""1Password without a Connect server, through the vendor's SDK and a service account."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from eso_api.stores.onepassword import OnePasswordCache, OnePasswordIntegration, OnePasswordSDKProvider
from eso_api.values import SecretBytes
from eso_provider_onepassword.account import TOKEN, Account, Observe, account_of
from eso_provider_onepassword.connect import check_reference
from eso_provider_onepassword.items import (
    DEFAULT_FIELD,
    DOCUMENT,
    MAX_BYTES,
    MAX_ITEMS,
    Field,
    File,
    Item,
    Overview,
    SizedCache,
    Vault,
    VaultCache,
)
from eso_provider_onepassword.kinds import SERVICE_ACCOUNT
from eso_provider_onepassword.writing import (
    Draft,
    PushSettings,
    Reader,
    SDKMetadata,
    Writer,
    metadata_of,
    refuse_version,
)
from eso_sdk.credentials import require_namespaces
from eso_sdk.errors import invalid_config, invalid_request, not_found, unsupported
from eso_sdk.matching import Matcher
from eso_sdk.provider import Check, Pushed, Store, finds, pushes, reads, store_kind
from eso_sdk.store import members_of
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    DeleteItem,
    FindQuery,
    Found,
    Operation,
    PushItem,
    RemoteRef,
    SourceSecret,
    Validation,
    ValidationState,
)
from kubebase.bounded import ExpiringDict
from kubebase.durations import DurationError, seconds

# --- The items of one vault, through the vendor's SDK. Objects of the SDK stay inside this module --------------------

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


# --- An opened store: a vault or an Environment of 1Password, as one service account sees it -------------------------
#
# | a read of a vault | calls of the SDK |
# |---|---|
# | within `cache.ttl` of the last one | none |
# | the vault has not changed | 1: the vaults with their versions |
# | it has | + 1 for all references to up to 50 items together |


API_NAME: Final = "1Password/SDK"
_OF_VARIABLES: Final = frozenset(
    {Operation.GET, Operation.GET_MAP, Operation.NOT_FOUND_SEMANTICS, Operation.FIND_BY_NAME, Operation.EXISTS}
)


@store_kind(objects=SERVICE_ACCOUNT, v1_key="onepasswordSDK")
class SDKStore(Store[OnePasswordSDKProvider]):
    """A store of `spec.provider.onepasswordSDK`, `OnePasswordSDK` or `ClusterOnePasswordSDK`."""

    API_NAME = API_NAME

    @classmethod
    def check_config(cls, config: OnePasswordSDKProvider) -> tuple[str, ...]:
        check_reference(config.auth.service_account_secret_ref, TOKEN)
        if bool(config.vault) is bool(config.environment):
            raise invalid_config("/vault", "set exactly one of vault and environment")
        if config.vault.startswith("op://"):
            raise invalid_config("/vault", "write the name or id of the vault without op://")
        if config.cache is not None:
            _ttl(config.cache)
        return ()

    async def open(self) -> None:
        config, reference = self.config, self.config.auth.service_account_secret_ref
        require_namespaces(self.holder, {TOKEN: reference})
        account = account_of(self.secret(reference), config.integration_info or OnePasswordIntegration(), self.clock)
        self._source = SDKSource(account, self.observe)
        self._vault_cache = VaultCache(self._source, [config.vault], pointer="/vault", clock=self.clock)
        self._reader = Reader(self._vault_cache, self.clock)
        subject = f"1Password vault {config.vault}"
        self._writer = Writer(self._vault_cache, self._source, first=config.vault, subject=subject, clock=self.clock)
        self._ttl = _ttl(config.cache) if config.cache is not None else 0.0
        size = config.cache.max_size if config.cache is not None else 1
        self._timed: ExpiringDict[str, dict[str, bytes]] = ExpiringDict(size, self.clock)
        self._resolved: SizedCache[str, tuple[str, str | ProviderError]] = SizedCache(MAX_ITEMS, MAX_BYTES)

    async def validate(self) -> Validation:
        """Make no call: each one counts against the limits of the account."""
        operations = self.OPERATIONS & _OF_VARIABLES if self.config.environment else self.OPERATIONS
        return Validation(ValidationState.READY, operations=operations)

    # --- reading -----------------------------------------------------------------------------------------------------

    @reads("not_found")
    async def get_many(self, refs: Sequence[RemoteRef]) -> Sequence[bytes | ProviderError]:
        if self.config.environment:
            variables = await self._variables()
            return [_variable(variables, ref) for ref in refs]
        names = [_reference(ref) for ref in refs]
        try:
            values = await self._values(list(dict.fromkeys(names)))
        except ProviderError as failed:
            return [failed] * len(refs)
        return [_checked(values[name], ref) for name, ref in zip(names, refs, strict=True)]

    async def get_map(self, ref: RemoteRef) -> Mapping[str, bytes]:
        if self.config.environment:
            value = _variable(await self._variables(), ref)
            if isinstance(value, ProviderError):
                raise value
            return members_of(SecretBytes(value), ref.key)
        name = f"map {ref.key} {ref.property}"
        cached = self._timed.get(name)
        if cached is None:
            cached = dict(await self._reader.map(ref))
            self._cache(name, cached)
        return cached

    async def check(self, ref: RemoteRef) -> Check:
        if self.config.environment:
            return Check(exists=ref.key in await self._variables())
        try:
            return await self._reader.check(ref)
        except ProviderError as missing:
            if missing.reason is not ErrorReason.SECRET_NOT_FOUND or "/" not in ref.key:
                raise
        (found,) = await self.get_many([ref])
        if isinstance(found, ProviderError):
            raise found
        return Check(exists=True)

    @finds("name", "tags", "path")
    async def find(self, query: FindQuery) -> AsyncIterator[Found]:
        if not self.config.environment:
            async for found in self._reader.find(query):
                yield found
            return
        if query.tags or query.path:
            raise unsupported("variables of a 1Password Environment have neither tags nor paths; find them by name")
        matcher = Matcher(query)
        for name, value in (await self._variables()).items():
            if await matcher.accepts(name):
                yield Found(name, SecretBytes(value))

    async def _variables(self) -> Mapping[str, bytes]:
        cached = self._timed.get("variables")
        if cached is None:
            variables = await self._source.variables(self.config.environment)
            cached = {name: value.encode() for name, value in variables.items()}
            self._cache("variables", cached)
        return cached

    async def _values(self, names: Sequence[str]) -> dict[str, bytes | ProviderError]:
        """Return the value of each `ITEM/[SECTION/]FIELD`."""
        found: dict[str, bytes | ProviderError] = {}
        for name in names:
            try:
                self._vault_cache.repeat_missing(f"value {name}")
            except ProviderError as missing:
                found[name] = missing
            if (cached := self._timed.get(name)) is not None:
                found[name] = cached[name]
        unread = [name for name in names if name not in found]
        return found | (await self._fresh_values(unread) if unread else {})

    async def _fresh_values(self, names: Sequence[str]) -> dict[str, bytes | ProviderError]:
        """Return values that are as new as the vault."""
        vault = await self._vault_cache.vault(self.config.vault)
        known = {
            name: cached[1] for name in names if (cached := self._resolved.get(name)) and cached[0] == vault.version
        }
        found: dict[str, str | ProviderError] = dict(known)
        for batch in _batches([name for name in names if name not in known]):
            found |= await self._resolve(batch, vault)
        values = {name: each.encode() if isinstance(each, str) else each for name, each in found.items()}
        for name, value in values.items():
            if isinstance(value, bytes):
                self._cache(name, {name: value})
            elif value.is_not_found:
                self._vault_cache.note_missing(f"value {name}", value)
        return values

    async def _resolve(self, names: Sequence[str], vault: Vault) -> dict[str, str | ProviderError]:
        # With the id of the vault the SDK need not search its name.
        keys = {f"op://{vault.id}/{name}": name for name in names}
        found = {keys[each]: value for each, value in (await self._source.resolve(keys)).items()}
        for name, value in found.items():
            lasting = "?" not in name  # attributes such as one-time passwords change by themselves
            if isinstance(value, str) and lasting:
                self._resolved.put(name, (vault.version, value), len(value) + 256)
            elif isinstance(value, ProviderError) and value.is_not_found:
                self._resolved.put(name, (vault.version, value), 1024)
        return found

    def _cache(self, name: str, values: dict[str, bytes]) -> None:
        """Keep values for the time that the configuration allows."""
        if self._ttl > 0 and "?" not in name:
            self._timed.put(name, values, self._ttl)

    # --- writing -----------------------------------------------------------------------------------------------------

    @pushes("whole_secret")
    async def push_many(self, items: Sequence[PushItem], source: SourceSecret) -> Sequence[Pushed | ProviderError]:
        """Write all fields of one item at once."""
        del source
        if self.config.environment:
            raise read_only("a push to a variable")
        metadata = metadata_of(items, SDKMetadata)
        self._forget()
        try:
            return await self._writer.push(items, PushSettings(tags=metadata.tags, field_type=metadata.field_type))
        finally:
            self._forget()

    async def delete_many(self, items: Sequence[DeleteItem]) -> Sequence[bool | ProviderError]:
        """Remove all fields of one item at once."""
        if self.config.environment:
            raise read_only("the deletion of a variable")
        try:
            return await self._writer.delete(items)
        finally:
            self._forget()

    def _forget(self) -> None:
        """Drop what was cached for a time: a write has changed it."""
        for name in list(self._timed):
            self._timed.discard(name)


def _ttl(cache: OnePasswordCache) -> float:
    try:
        return seconds(cache.ttl, field="/cache/ttl")
    except DurationError as problem:
        raise invalid_config("/cache/ttl", f"is not a duration such as 5m: {problem}") from None


def _reference(ref: RemoteRef) -> str:
    """Return `ITEM/[SECTION/]FIELD` of a reference. A key without a field is completed as a push would."""
    return ref.key if "/" in ref.key else f"{ref.key}/{ref.property or DEFAULT_FIELD}"


def _checked(value: bytes | ProviderError, ref: RemoteRef) -> bytes | ProviderError:
    try:
        refuse_version(ref)
    except ProviderError as refused:
        return refused
    return value


def _variable(variables: Mapping[str, bytes], ref: RemoteRef) -> bytes | ProviderError:
    try:
        refuse_version(ref)
    except ProviderError as refused:
        return refused
    return variables[ref.key] if ref.key in variables else not_found(ref.key, known=variables)


def _batches(names: Sequence[str]) -> Iterator[list[str]]:
    """Yield references to at most as many items as the SDK reads at once."""
    by_item: dict[str, list[str]] = {}
    for name in names:
        by_item.setdefault(name.partition("/")[0], []).append(name)
    groups = list(by_item.values())
    for start in range(0, len(groups), BATCH):
        yield [name for group in groups[start : start + BATCH] for name in group]
