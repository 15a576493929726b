"""An opened store: one environment of a project, as one machine identity."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar
from weakref import WeakValueDictionary

from eso_api.stores.infisical import InfisicalProvider
from eso_api.values import SecretBytes
from eso_provider_infisical.auth import check_auth, open_auth
from eso_provider_infisical.kinds import KINDS
from eso_provider_infisical.secrets import (
    Change,
    MovedError,
    Secret,
    SecretLocation,
    Secrets,
    api_url,
    folder_of,
    location_of,
)
from eso_sdk.errors import backend_error, invalid_config, version_not_found
from eso_sdk.extract import property_in
from eso_sdk.http import ca_bundle
from eso_sdk.matching import Matcher
from eso_sdk.provider import Check, DelegatingStore, Pushed, Value, finds, pushes, reads, store_kind
from eso_sdk.push import Draft, payload_of, removed, text_of
from eso_sdk.rest import Rest, RestSettings
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    DeleteItem,
    FindQuery,
    Found,
    PushItem,
    PushOutcome,
    RemoteRef,
    Validation,
    ValidationState,
)
from kubebase.bounded import ExpiringDict
from kubebase.clock import Clock

# --- Reading values: one list call reads all keys of one folder ------------------------------------------------------
#
# | keys of a folder in one batch | calls |
# |---|---|
# | one | that secret |
# | several | the list of the folder; nothing is sent again while its ETag is unchanged |
# | several, and the identity may not list | each secret |
# | missing in the list | that secret: the list omits what the identity may not read; only this proves "not found" |


AT_ONCE: Final = 8
"""Calls of one session at a time."""
MAX_UNLISTED: Final = 64
UNLISTED_SECONDS: Final = 600.0
"""A denied list is tried again after this time: rights may have been granted."""

_ReadRequest = tuple[SecretLocation, str]
"""A location and a version."""


class Reader:
    """Reads values for one session."""

    def __init__(self, secrets: Secrets, scope_path: str, clock: Clock) -> None:
        self._secrets = secrets
        self._scope_path = scope_path
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._unlisted: ExpiringDict[str, None] = ExpiringDict(MAX_UNLISTED, clock)
        """Folders that this identity could not list lately."""

    async def read(self, refs: Sequence[RemoteRef]) -> list[Value | ProviderError]:
        """Return one value or error for each reference."""
        requests: dict[_ReadRequest, str] = {}
        found_refs: list[_ReadRequest | ProviderError] = []
        for ref in refs:
            try:
                found = (location_of(ref.key, self._scope_path), _version(ref))
                requests.setdefault(found, ref.key)
                found_refs.append(found)
            except ProviderError as refused:
                found_refs.append(refused)
        secrets = await self._all(requests)
        return [
            await _value_or_error(ref, secrets[at] if isinstance(at, tuple) else at)
            for ref, at in zip(refs, found_refs, strict=True)
        ]

    async def _all(self, requests: dict[_ReadRequest, str]) -> dict[_ReadRequest, Secret | ProviderError]:
        folders: dict[str, dict[_ReadRequest, str]] = {}
        for (location, version), key in requests.items():
            folders.setdefault(location.folder, {})[location, version] = key
        done = await asyncio.gather(*(self._in_folder(folder, keys) for folder, keys in folders.items()))
        return {at: secret for part in done for at, secret in part.items()}

    async def _in_folder(
        self, folder: str, keys: dict[_ReadRequest, str]
    ) -> dict[_ReadRequest, Secret | ProviderError]:
        current = [at for at in keys if not at[1]]
        try:
            listed = await self._listed(folder) if len(current) > 1 else {}
        except ProviderError as failed:
            return dict.fromkeys(keys, failed)
        found: dict[_ReadRequest, Secret | ProviderError] = {
            at: listed[at[0].name] for at in current if at[0].name in listed
        }
        rest = [at for at in keys if at not in found]
        results = await asyncio.gather(*(self._one(at, keys[at]) for at in rest))
        return found | dict(zip(rest, results, strict=True))

    async def _listed(self, folder: str) -> dict[str, Secret]:
        if folder in self._unlisted:
            return {}
        async with self._gate:
            secrets = await self._secrets.folder(folder)
        if secrets is None:
            self._unlisted.put(folder, None, UNLISTED_SECONDS)
        return {each.secret_key: each for each in secrets or ()}

    async def _one(self, at: _ReadRequest, key: str) -> Secret | ProviderError:
        try:
            async with self._gate:
                return await self._secrets.one(at[0], key, at[1])
        except ProviderError as failed:
            return failed


def _version(ref: RemoteRef) -> str:
    if ref.version and not ref.version.isdecimal():
        raise version_not_found(ref.key, ref.version)  # Infisical counts versions
    return ref.version


async def _value_or_error(ref: RemoteRef, found: Secret | ProviderError) -> Value | ProviderError:
    if isinstance(found, ProviderError):
        return found
    try:
        return Value(SecretBytes(await property_in(found.value(ref.key), ref)))
    except ProviderError as refused:
        return refused


# ---------------------------------------------------------------------------------------------------------------------
# Writing secrets: everything that is pushed to one key becomes one new version, or none if nothing changed.
#
# What the pushes of one call need at the same time is sent together: their reads as one list of each folder, and, if
# the server has the API v4, their writes as one batch of each folder and kind of change.
#
# Infisical compares no versions. Writes of one session to one secret wait for each other; between processes the last
# writer wins.


T = TypeVar("T")
R = TypeVar("R")
A = TypeVar("A")


class Together(Generic[T, R]):
    """Collects the items that tasks hand over before the event loop comes round, and works on them at once."""

    def __init__(self, work: Callable[[Sequence[T]], Awaitable[Sequence[R | ProviderError]]]) -> None:
        self._work = work
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._running: set[asyncio.Task[None]] = set()

    async def __call__(self, item: T) -> R:
        """Return the result of one item, or raise its error."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if len(self._waiting) == 1:
            task = asyncio.create_task(self._run())
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        return await future

    async def _run(self) -> None:
        batch, self._waiting = self._waiting, []
        try:
            results: Sequence[R | Exception] = await self._work([item for item, _ in batch])
        except Exception as failed:  # noqa: BLE001 - every task that waits gets it
            results = [failed] * len(batch)
        for (_, future), result in zip(batch, results, strict=True):
            if future.done():  # its task was cancelled
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)


class Writer:
    """Writes the secrets of one session."""

    def __init__(self, secrets: Secrets, scope_path: str) -> None:
        self._secrets = secrets
        self._scope_path = scope_path
        self._locks: WeakValueDictionary[SecretLocation, asyncio.Lock] = WeakValueDictionary()
        self._stored: Together[Change, bytes | None] = Together(self._read)
        self._change: Together[Change, None] = Together(self._write)

    async def push(self, items: Sequence[PushItem]) -> list[Pushed | ProviderError]:
        """Write all items of one key; return one outcome for each."""
        return await self._serialised(items[0].remote.key, lambda location: self._push(location, items))

    async def delete(self, items: Sequence[DeleteItem]) -> list[bool | ProviderError]:
        """Remove all items of one key; return for each whether it existed."""
        return await self._serialised(items[0].remote.key, lambda location: self._delete(location, items))

    # --- inside ------------------------------------------------------------------------------------------------------

    async def _serialised(self, key: str, attempt: Callable[[SecretLocation], Awaitable[A]]) -> A:
        """Serialise the writes to one secret. Look at it again if its project was made anew."""
        location = location_of(key, self._scope_path)
        async with self._locks.setdefault(location, asyncio.Lock()):
            try:
                return await attempt(location)
            except MovedError:
                pass
            try:
                return await attempt(location)
            except MovedError:
                raise backend_error(f'the project of "{key}" was made anew twice; tried again later') from None

    async def _push(self, location: SecretLocation, items: Sequence[PushItem]) -> list[Pushed | ProviderError]:
        key = items[0].remote.key
        present = await self._stored(Change(location, key, ""))
        draft = Draft(present)
        refused = [await _put(draft, item) for item in items]
        done = Pushed(PushOutcome.UNCHANGED)
        if draft.value is not None and (present is None or as_stored(draft.value) != present):
            await self._change(Change(location, key, draft.value.decode(), exists=present is not None))
            done = Pushed(PushOutcome.CREATED if present is None else PushOutcome.UPDATED)
        return [refusal or done for refusal in refused]

    async def _delete(self, location: SecretLocation, items: Sequence[DeleteItem]) -> list[bool | ProviderError]:
        key = items[0].remote.key
        present = await self._stored(Change(location, key))
        draft = Draft(present)
        outcomes = [await removed(draft, item) for item in items]
        if present is not None and draft.value is None:
            await self._change(Change(location, key))
        elif draft.value is not None and draft.value != present:
            await self._change(Change(location, key, draft.value.decode()))
        return outcomes

    async def _read(self, changes: Sequence[Change]) -> list[bytes | ProviderError | None]:
        """Return the stored value of each secret that is to be changed; several of one folder cost one list.

        A list leaves out what the identity may not see. Creating that fails, but a deletion would seem done: so what is
        to be deleted and not in the list is requested.
        """
        folders = Counter(each.location.folder for each in changes)
        listed = {folder: await self._secrets.all_stored(folder) for folder, count in folders.items() if count > 1}

        async def one(change: Change) -> bytes | ProviderError | None:
            known = listed.get(change.location.folder)
            try:
                if known is not None and change.location.name in known:
                    return known[change.location.name].value(change.key)
                if known is not None and change.value is not None:
                    return None
                return await self._secrets.stored(change.location, change.key)
            except ProviderError as failed:
                return failed

        return list(await asyncio.gather(*(one(each) for each in changes)))

    async def _write(self, changes: Sequence[Change]) -> list[ProviderError | None]:
        """Make the changes of each folder and kind together."""
        groups: dict[tuple[str, str], list[Change]] = {}
        for change in changes:
            groups.setdefault((change.location.folder, change.method), []).append(change)
        failed: dict[SecretLocation, ProviderError | None] = {}
        for group in groups.values():
            try:
                outcomes = await self._secrets.change(group)
            except ProviderError as refused:
                outcomes = [refused] * len(group)
            failed |= dict(zip((each.location for each in group), outcomes, strict=True))
        return [failed[change.location] for change in changes]


def as_stored(value: bytes) -> bytes:
    """Return a value as Infisical stores it: without blanks at its ends, except one line break at its end."""
    text = value.decode()
    return (text.strip() + ("\n" if text.endswith("\n") else "")).encode()


async def _put(draft: Draft, item: PushItem) -> ProviderError | None:
    """Put one item into the draft; return its error if that is impossible."""
    try:
        raw = payload_of(item)
        text_of(raw, item.remote.key, item.remote.property)
        await draft.put(item.remote.key, item.remote.property, raw)
    except ProviderError as refused:
        return refused
    return None


# --- An opened store -------------------------------------------------------------------------------------------------


MAX_RESPONSE: Final = 16 * 1024 * 1024
"""A list has all values of a folder, and with `recursive` those of the folders below it."""


@store_kind(objects=KINDS, v1_key="infisical")
@reads("not_found")
@pushes("whole_secret")
class InfisicalStore(DelegatingStore[InfisicalProvider]):
    """Secrets of one environment."""

    @classmethod
    def check_config(cls, config: InfisicalProvider) -> tuple[str, ...]:
        scope = config.secrets_scope
        for name, slug in (("projectSlug", scope.project_slug), ("environmentSlug", scope.environment_slug)):
            if not slug.strip():
                raise invalid_config(f"/secretsScope/{name}", "is needed")
        if api_url(config.host_api).scheme not in ("http", "https"):
            raise invalid_config("/hostAPI", "must be a URL such as https://app.infisical.com")
        if config.ca_bundle:
            ca_bundle(config.ca_bundle)
        return check_auth(config.auth)

    async def open(self) -> None:
        self.check_config(self.config)
        settings = self._settings()
        self._auth = self.close_later(open_auth(self, settings))
        self._rest = self.close_later(Rest(self, settings, self._auth.authorization))
        self._secrets = Secrets(self._rest, self.config.secrets_scope)
        self.reader = Reader(self._secrets, self.config.secrets_scope.secrets_path, self.clock)
        self.writer = Writer(self._secrets, self.config.secrets_scope.secrets_path)

    async def validate(self) -> Validation:
        await self._secrets.check(folder_of(self.config.secrets_scope.secrets_path))
        return Validation(ValidationState.READY)

    async def check(self, ref: RemoteRef) -> Check:
        location = location_of(ref.key, self.config.secrets_scope.secrets_path)
        return Check(await Draft(await self._secrets.stored(location, ref.key)).has(ref.property))

    @finds("name", "path")
    async def find(self, query: FindQuery) -> AsyncIterator[Found]:
        """Yield the matching secrets of the scope. If folders have equal names, the last listed one counts."""
        scope = self.config.secrets_scope
        listed = await self._secrets.folder(folder_of(scope.secrets_path), recursive=scope.recursive)
        if listed is None:
            message = f'Infisical denies the list of folder "{scope.secrets_path}"; find needs it'
            raise ProviderError(ErrorReason.PERMISSION_DENIED, message, backend_code="403")
        matcher = Matcher(FindQuery(name_regexp=query.name_regexp))
        matching = {
            each.secret_key: each
            for each in listed
            if each.secret_path.startswith(query.path) and await matcher.accepts(each.secret_key)
        }
        for name, secret in matching.items():
            yield Found(name, SecretBytes(secret.value(name)))

    def _settings(self) -> RestSettings:
        config = self.config
        bundle = ca_bundle(config.ca_bundle) if config.ca_bundle else b""
        if not bundle and config.ca_provider is not None:
            bundle = self.ca(config.ca_provider)
        base = api_url(config.host_api)
        subject = f"Infisical {base.host}"
        return RestSettings(subject, base, ca=bundle, field="/hostAPI", etags=True, max_response=MAX_RESPONSE)
