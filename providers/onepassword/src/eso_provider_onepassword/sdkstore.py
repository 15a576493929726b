"""An opened store: a vault or an Environment of 1Password, as one service account sees it.

| a read of a vault | calls of the SDK |
|---|---|
| within `cache.ttl` of the last one | none |
| the vault has not changed | 1: the vaults with their versions |
| it has | + 1 for all references to up to 50 items together |
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Final

from eso_api.stores.onepassword import OnePasswordCache, OnePasswordIntegration, OnePasswordSDKProvider
from eso_api.values import SecretBytes
from eso_provider_onepassword.account import TOKEN, account_of
from eso_provider_onepassword.connectstore import check_reference
from eso_provider_onepassword.items import DEFAULT_FIELD, Vault
from eso_provider_onepassword.kinds import SERVICE_ACCOUNT
from eso_provider_onepassword.reading import Reader, refuse_version
from eso_provider_onepassword.sdksource import BATCH, SDKSource, read_only
from eso_provider_onepassword.vaultcache import MAX_BYTES, MAX_ITEMS, SizedCache, VaultCache
from eso_provider_onepassword.writing import PushSettings, SDKMetadata, Writer, metadata_of
from eso_sdk.errors import invalid_config, not_found, unsupported
from eso_sdk.matching import Matcher
from eso_sdk.namespaces import require_namespaces
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
