"""The operations of Akeyless's API. Each is a POST with the token in its body.

Absent items are None; any other failure is a `ProviderError` that names the item and the status, never a response.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

import msgspec

from eso_provider_akeyless.auth import Session
from eso_sdk.errors import already_exists, backend_error, invalid_request, not_found, not_ours, version_not_found
from eso_sdk.extract import part_of
from eso_sdk.processwide import shared_table
from eso_sdk.push import Draft, payload_of, removed, text_of
from eso_sdk.rest import Rest, RestRequest, RestResponse
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import DeleteItem, PushItem, PushOutcome, RemoteRef
from kubebase.bounded import ExpiringDict
from kubebase.clock import Clock

STATIC: Final = "STATIC_SECRET"
DYNAMIC: Final = "DYNAMIC_SECRET"
ROTATED: Final = "ROTATED_SECRET"
CERTIFICATE: Final = "CERTIFICATE"
LISTED: Final = ("static-secret", "dynamic-secret", "rotated-secret")
"""The types of items that a find returns."""

_MISSING: Final = 404
_CONFLICT: Final = 409


class Item(msgspec.Struct, frozen=True):
    """The description of an item, besides its value."""

    item_name: str = ""
    item_type: str = ""
    item_tags: list[str] | None = None


class _Listed(msgspec.Struct, frozen=True):
    items: list[Item] | None = None
    next_page: str | None = None


class Items:
    """The operations of one session."""

    def __init__(self, rest: Rest, session: Session, *, ignore_cache: bool) -> None:
        self._rest = rest
        self._session = session
        self._fresh: dict[str, Any] = {"ignore-cache": "true"} if ignore_cache else {}

    async def describe(self, name: str, *, remembered: bool = True) -> Item | None:
        """Describe an item. Before a write, what was lately missing must be read again: `remembered=False`."""
        send = self._read if remembered else self._write
        response = await send("describe-item", "DescribeItem", {"name": name}, name)
        if response is None:
            return None
        item: Item = response.read(Item)
        if not item.item_name:
            raise backend_error(f'{self._subject(name)}: the response does not describe the item "{name}"')
        return item

    async def static(self, names: Sequence[str], version: str) -> dict[str, bytes] | None:
        """Return the values of static secrets by name; None if one of them does not exist."""
        body = {"names": list(names), **_version(version), **self._fresh}
        response = await self._read("get-secret-value", "GetSecretValue", body, names[0] if len(names) == 1 else "")
        if response is None:
            return None
        found = {name: _text(raw) for name, raw in response.read(dict[str, msgspec.Raw]).items()}
        # The response may spell names with their leading slash.
        return {name: found[spelled] for name in names for spelled in (name, f"/{name}") if spelled in found}

    async def dynamic(self, name: str) -> bytes | None:
        """Create credentials of a dynamic secret."""
        response = await self._read("get-dynamic-secret-value", "GetDynamicSecretsValue", {"name": name}, name)
        return None if response is None else _object(response)

    async def rotated(self, name: str, version: str) -> bytes | None:
        """Return the value of a rotated secret: its payload, or what it holds for its target, or all of it."""
        body = {"names": name, **_version(version), **self._fresh}
        response = await self._read("get-rotated-secret-value", "GetRotatedSecretValue", body, name)
        if response is None:
            return None
        whole = response.read(dict[str, msgspec.Raw])
        if "value" not in whole:
            return _object(response)
        try:
            parts = msgspec.json.decode(whole["value"], type=dict[str, msgspec.Raw])
        except msgspec.DecodeError:
            return _text(whole["value"])
        chosen = next((parts[part] for part in ("payload", "target_value") if part in parts), whole["value"])
        return _text(chosen)

    async def certificate(self, name: str, version: str) -> bytes | None:
        """Return a certificate as a JSON object with its parts."""
        body = {"name": name, **_version(version), **self._fresh}
        response = await self._read("get-certificate-value", "GetCertificateValue", body, name)
        return None if response is None else _object(response)

    async def listed(self, path: str, tag: str) -> AsyncIterator[Item]:
        """Yield all items whose name contains the path, with the tag if one is given."""
        body: dict[str, Any] = {"type": list(LISTED), "minimal-view": not tag}
        body |= {name: text for name, text in (("filter", path), ("tag", tag)) if text}
        path_of_call = f"{await self._session.prefix()}list-items"
        request = RestRequest("POST", path_of_call, "ListItems", json=body, reads=True)
        async for response in self._rest.pages(request, _following):
            for item in response.read(_Listed).items or ():
                yield item

    async def create(self, name: str, value: str, tag: str) -> None:
        body = {"name": name, "value": value, "tags": [tag]}
        response = await self._write("create-secret", "CreateSecret", body, name)
        if response is not None and response.status == _CONFLICT:
            raise already_exists(name)
        self._existing(response, name)

    async def update(self, name: str, value: str) -> None:
        response = await self._write("update-secret-val", "UpdateSecretVal", {"name": name, "value": value}, name)
        self._existing(response, name)

    async def delete(self, name: str) -> None:
        """Delete an item with all of its versions. One that is gone already is not an error."""
        await self._write("delete-item", "DeleteItem", {"name": name}, name)

    # --- inside ------------------------------------------------------------------------------------------------------

    async def _read(self, command: str, call: str, body: Mapping[str, Any], name: str) -> RestResponse | None:
        """Send a request that changes nothing. If the item is missing, that is remembered for a minute."""
        return await self._sent(RestRequest("POST", command, call, json=body, reads=True), name)

    async def _write(self, command: str, call: str, body: Mapping[str, Any], name: str) -> RestResponse | None:
        return await self._sent(RestRequest("POST", command, call, json=body), name)

    async def _sent(self, request: RestRequest, name: str) -> RestResponse | None:
        path = f"{await self._session.prefix()}{request.path}"
        allowed = (_MISSING, _CONFLICT) if request.path == "create-secret" else (_MISSING,)
        response = await self._rest.send(replace(request, path=path, allowed=allowed, subject=self._subject(name)))
        return None if response.status == _MISSING else response

    def _existing(self, response: RestResponse | None, name: str) -> None:
        if response is None:
            raise backend_error(f"{self._subject(name)} responds with HTTP 404", backend_code="404")

    def _subject(self, name: str) -> str:
        return f'{self._rest.settings.subject}, item "{name}"' if name else self._rest.settings.subject


def _version(version: str) -> dict[str, int]:
    return {"version": int(version)} if version else {}


def _following(response: RestResponse, request: RestRequest) -> RestRequest | None:
    token = response.read(_Listed).next_page
    if not token or token == request.json.get("pagination-token"):
        return None
    return replace(request, json={**request.json, "pagination-token": token})


def _object(response: RestResponse) -> bytes:
    """Return a response as it is, after a check that it is a JSON object."""
    response.read(dict[str, msgspec.Raw])
    return response.body


def _text(raw: msgspec.Raw) -> bytes:
    """Return a string unquoted, null as nothing, and anything else as it is written."""
    written = bytes(raw)
    if written == b"null":
        return b""
    return msgspec.json.decode(written, type=str).encode() if written.startswith(b'"') else written


# --- Reading values: all static secrets of a call with one request, every other item with its own --------------------
#
# The type of an item decides how it is read. It is remembered for two hours, so that hourly refreshes request it every
# other time; a failed read forgets it.


TYPE_SECONDS: Final = 2 * 3600.0
MAX_TYPES: Final = 16384
LATEST: Final = "latest"
PARALLEL: Final = 8
"""Requests of one call at the same time."""
_ABOUT_ITEMS: Final = frozenset({ErrorReason.PERMISSION_DENIED, ErrorReason.BACKEND_ERROR})
"""Failures for which one name of many can be the reason."""

Place = tuple[str, str]
"""A name and a version."""
Outcome = bytes | ProviderError
T = TypeVar("T")
R = TypeVar("R")


class Reader:
    """Reads the values of one session."""

    def __init__(self, items: Items, proof: bytes, clock: Clock) -> None:
        self._items = items
        self._proof = proof
        self._types: ExpiringDict[tuple[bytes, str], str] = shared_table(
            "eso_provider_akeyless.types", clock, lambda: ExpiringDict(MAX_TYPES, clock)
        )

    async def read(self, refs: Sequence[RemoteRef]) -> list[Outcome]:
        """Return a value or an error for each reference. References to one dynamic secret get the same credentials."""
        values = await self.values({(ref.key, _version_of(ref)) for ref in refs})
        return [await _part(values[ref.key, _version_of(ref)], ref) for ref in refs]

    async def values(self, requests: Iterable[Place]) -> dict[Place, Outcome]:
        """Return the whole value of each item and version, or why it cannot be read."""
        distinct = sorted(set(requests))
        names = sorted({name for name, _ in distinct})
        types = dict(zip(names, await _each(names, self._type), strict=True))
        found: dict[Place, Outcome] = {}
        static: dict[str, list[str]] = {}
        single: list[tuple[Place, str]] = []
        for requested in distinct:
            kind = types[requested[0]]
            if isinstance(kind, ProviderError):
                found[requested] = kind
            elif not _is_version(requested[1]):
                found[requested] = version_not_found(*requested)
            elif kind == STATIC:
                static.setdefault(requested[1], []).append(requested[0])
            else:
                single.append((requested, kind))
        for version, group in static.items():
            found |= {(name, version): value for name, value in (await self._static(group, version)).items()}
        outcomes = await _each(single, self._single)
        return found | {requested: value for (requested, _), value in zip(single, outcomes, strict=True)}

    def note(self, item: Item) -> None:
        """Remember the type of an item."""
        if item.item_type:
            self._types.put((self._proof, item.item_name), item.item_type, TYPE_SECONDS)

    def forget(self, name: str) -> None:
        self._types.discard((self._proof, name))

    # --- inside ------------------------------------------------------------------------------------------------------

    async def _type(self, name: str) -> str:
        known = self._types.get((self._proof, name))
        if known is not None:
            return known
        item = await self._items.describe(name)
        if item is None:
            raise not_found(name)
        self._types.put((self._proof, name), item.item_type, TYPE_SECONDS)
        return item.item_type

    async def _static(self, names: list[str], version: str) -> dict[str, Outcome]:
        """Return the values of static secrets. If one of many is the problem, search it in halves."""
        try:
            found = await self._items.static(names, version)
        except ProviderError as failed:
            if len(names) == 1 or failed.reason not in _ABOUT_ITEMS:
                self._forget_all(names, failed)
                return dict.fromkeys(names, failed)
            found = None
        if found is None and len(names) > 1:
            middle = len(names) // 2
            return await self._static(names[:middle], version) | await self._static(names[middle:], version)
        present = found or {}
        missing = [name for name in names if name not in present]
        reasons = dict(zip(missing, await _each(missing, lambda name: self._absent(name, version)), strict=True))
        return {**present, **reasons}

    async def _single(self, chosen: tuple[Place, str]) -> bytes:
        (name, version), kind = chosen
        try:
            found = await self._of_type(kind, name, version)
        except ProviderError as failed:
            self._forget_all([name], failed)
            raise
        return found if found is not None else await self._absent(name, version)

    async def _of_type(self, kind: str, name: str, version: str) -> bytes | None:
        match kind:
            case "DYNAMIC_SECRET" if version:
                raise invalid_request(f'"{name}" is a dynamic secret, which has no versions; remove remoteRef.version')
            case "DYNAMIC_SECRET":
                return await self._items.dynamic(name)
            case "ROTATED_SECRET":
                return await self._items.rotated(name, version)
            case "CERTIFICATE":
                return await self._items.certificate(name, version)
            case _:
                kinds = f"{STATIC}, {DYNAMIC}, {ROTATED}, {CERTIFICATE}"
                raise invalid_request(f'"{name}" is an item of another type than {kinds}, and has no value to read')

    async def _absent(self, name: str, version: str) -> bytes:
        """Raise why Akeyless returned no value for an item: only its description shows that it does not exist."""
        self.forget(name)
        if await self._items.describe(name) is None:
            raise not_found(name)
        if version:
            raise version_not_found(name, version)
        raise backend_error(f'Akeyless describes "{name}", but returns no value of it; check the rights of the role')

    def _forget_all(self, names: list[str], failed: ProviderError) -> None:
        """Forget types after a failure that another type could explain."""
        if failed.reason in _ABOUT_ITEMS:
            for name in names:
                self.forget(name)


async def _each(items: Sequence[T], work: Callable[[T], Awaitable[R]]) -> list[R | ProviderError]:
    """Work on some items at a time; an error replaces its item's result."""
    gate = asyncio.Semaphore(PARALLEL)

    async def gated(item: T) -> R | ProviderError:
        async with gate:
            try:
                return await work(item)
            except ProviderError as failed:
                return failed

    if len(items) == 1:  # most calls; no extra task needed
        return [await gated(items[0])]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(gated(item)) for item in items]
    return [task.result() for task in tasks]


def _version_of(ref: RemoteRef) -> str:
    """Return the version of a reference; nothing for the latest."""
    return "" if ref.version == LATEST else ref.version


def _is_version(version: str) -> bool:
    """Return whether an item can have this version: Akeyless counts them. Without one, the latest is meant."""
    return not version or (version.isascii() and version.isdecimal() and len(version) < 10)


async def _part(value: Outcome, ref: RemoteRef) -> Outcome:
    if isinstance(value, ProviderError):
        return value
    try:
        return await part_of(value, ref)
    except ProviderError as problem:
        return problem


# ---------------------------------------------------------------------------------------------------------------------
# Writing static secrets: everything that is pushed to one name becomes one new version, or none if nothing changed.
#
# Akeyless compares no versions. Writes of one session to one name wait for each other; between processes the last
# writer wins. Only items with our tag are overwritten or deleted.


OWNER: Final = "external-secrets"


def mark_of(owner: str) -> str:
    """Return the tag of items that an owner pushed; `k8s-external-secrets` for the operator itself."""
    return f"k8s-{owner or OWNER}"


class Writer:
    """Writes the items of one session."""

    def __init__(self, items: Items, reader: Reader) -> None:
        self._items = items
        self._reader = reader
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def push(self, items: Sequence[PushItem]) -> list[PushOutcome | ProviderError]:
        """Write all items of one name; return one outcome for each."""
        name, mark = items[0].remote.key, mark_of(items[0].owner_token)
        async with self._locks.setdefault(name, asyncio.Lock()):
            item = await self._items.describe(name, remembered=False)
            if item is not None:
                _check(item, name, mark)
            present = None if item is None else await self._present(item, name)
            draft = Draft(present)
            refused = [await _put(draft, each) for each in items]
            done = PushOutcome.UNCHANGED
            if draft.value is not None and draft.value != present:
                await self._write(name, draft.value, mark if item is None else "")
                done = PushOutcome.CREATED if item is None else PushOutcome.UPDATED
        return [refusal or done for refusal in refused]

    async def delete(self, items: Sequence[DeleteItem]) -> list[bool | ProviderError]:
        """Remove all items of one name; return for each whether it existed. What is not ours stays."""
        name, mark = items[0].remote.key, mark_of(items[0].owner_token)
        async with self._locks.setdefault(name, asyncio.Lock()):
            item = await self._items.describe(name, remembered=False)
            if item is None or mark not in (item.item_tags or ()):
                return [False for _ in items]
            _check(item, name, mark)
            # Without properties the value does not matter.
            present = await self._present(item, name) if any(each.remote.property for each in items) else b""
            draft = Draft(present)
            outcomes = [await removed(draft, each) for each in items]
            if present is not None and draft.value is None:
                await self._items.delete(name)
                self._reader.forget(name)
            elif draft.value is not None and draft.value != present:
                await self._write(name, draft.value, "")
        return outcomes

    async def value(self, name: str) -> bytes | None:
        """Return the value of a static secret; None if it does not exist."""
        found = (await self._reader.values([(name, "")]))[name, ""]
        if isinstance(found, ProviderError):
            if found.reason is ErrorReason.SECRET_NOT_FOUND:
                return None
            raise found
        return found

    async def _present(self, item: Item, name: str) -> bytes | None:
        """Return the value of an item that was just described."""
        self._reader.note(Item(name, item.item_type))
        return await self.value(name)

    async def _write(self, name: str, value: bytes, mark: str) -> None:
        """Create an item with a mark, or write a new version of one if no mark is given."""
        if mark:
            await self._items.create(name, text_of(value, name), mark)
            self._reader.note(Item(name, STATIC))
        else:
            await self._items.update(name, text_of(value, name))


def _check(item: Item, name: str, mark: str) -> None:
    """Refuse to change items of others and items that are not static secrets."""
    if mark not in (item.item_tags or ()):
        raise not_ours(name)
    if item.item_type != STATIC:
        raise invalid_request(
            f'"{name}" is not a static secret, and only those can be written; choose another remoteKey'
        )


async def _put(draft: Draft, item: PushItem) -> ProviderError | None:
    """Put one item into the draft; return its error if that is impossible."""
    try:
        raw = payload_of(item)
        text_of(raw, item.remote.key, item.remote.property)
        await draft.put(item.remote.key, item.remote.property, raw)
    except ProviderError as refused:
        return refused
    return None
