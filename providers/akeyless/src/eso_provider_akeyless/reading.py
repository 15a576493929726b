"""Reading values: all static secrets of a call with one request, every other item with its own.

The type of an item decides how it is read. It is remembered for two hours, so that hourly refreshes request it every
other time; a failed read forgets it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar

from eso_provider_akeyless.items import CERTIFICATE, DYNAMIC, ROTATED, STATIC, Item, Items
from eso_sdk.errors import backend_error, invalid_request, not_found, version_not_found
from eso_sdk.extract import part_of
from eso_sdk.processwide import shared_table
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import RemoteRef
from kubebase.bounded import ExpiringDict
from kubebase.clock import Clock

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
