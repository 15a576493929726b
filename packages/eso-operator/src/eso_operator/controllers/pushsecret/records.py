"""`status.syncedPushSecrets`: the entries that are ours, by store. Pure.

    store key -> entry key -> the entry as it was pushed

Keys are those of the existing operator (`remoteKey`, `remoteKey/property`), so that either can take over from the
other. Entries are identified by the remote ref inside, because `a/b` and property `b` of `a` have the same key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from eso_api.pushsecret import PushData
from eso_api.references import CORE_GROUP

Recorded = Mapping[str, Mapping[str, PushData]]
Versions = Mapping[str, Mapping[str, str]]


class Spot(NamedTuple):
    """A place inside one store."""

    remote_key: str
    property: str
    location: str = ""
    """The location that the metadata of the entry sets, if any: `spec.remoteNamespace` of a Kubernetes store."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """One entry of ours, with its version if the provider reports one."""

    data: PushData
    version: str = ""


def split_key(key: str) -> tuple[str, str, str]:
    """Group, kind and name of a store that the status names."""
    parts = key.split("/")
    match parts:
        case [kind, name]:
            return CORE_GROUP, kind, name
        case [group, kind, name]:
            return group, kind, name
        case _:
            return CORE_GROUP, "SecretStore", key


def spot_of(data: PushData) -> Spot:
    ref = data.match.remote_ref
    return Spot(ref.remote_key, ref.property, _location(data.metadata))


def _location(metadata: Any) -> str:
    spec = metadata.get("spec") if isinstance(metadata, Mapping) else None
    said = spec.get("remoteNamespace") if isinstance(spec, Mapping) else None
    return said if isinstance(said, str) else ""


def entry_key(data: PushData) -> str:
    ref = data.match.remote_ref
    return f"{ref.remote_key}/{ref.property}" if ref.property else ref.remote_key


def spots_of(recorded: Recorded, store: str) -> frozenset[Spot]:
    """Return the recorded entries of one store."""
    return frozenset(map(spot_of, recorded.get(store, {}).values()))


def recorded(
    pushed: Mapping[str, Iterable[Pushed]],
) -> tuple[dict[str, dict[str, PushData]], dict[str, dict[str, str]]]:
    """Return the two maps of the status: entries, and versions if there are any.

    Stores without entries are left out.
    """
    entries: dict[str, dict[str, PushData]] = {}
    versions: dict[str, dict[str, str]] = {}
    for store, each in pushed.items():
        for key, one in _keyed(each).items():
            entries.setdefault(store, {})[key] = one.data
            if one.version:
                versions.setdefault(store, {})[key] = one.version
    return entries, versions


def known(entries: Recorded, versions: Versions) -> dict[str, list[Pushed]]:
    """Return the entries of the status: the reverse of `recorded`."""
    return {
        store: [Pushed(data, versions.get(store, {}).get(key, "")) for key, data in each.items()]
        for store, each in entries.items()
    }


def union(new: Mapping[str, Iterable[Pushed]], old: Mapping[str, Iterable[Pushed]]) -> dict[str, list[Pushed]]:
    """Return both, so that no record is lost while a push is incomplete. The earlier record wins."""
    result: dict[str, list[Pushed]] = {}
    for store in (*new, *old):
        merged = {spot_of(each.data): each for each in (*new.get(store, ()), *old.get(store, ()))}
        result[store] = list(merged.values())
    return result


def stale(new: Mapping[str, Iterable[Pushed]], old: Mapping[str, Iterable[Pushed]]) -> dict[str, list[PushData]]:
    """Return the entries that were pushed before and are no longer wanted, by store."""
    result: dict[str, list[PushData]] = {}
    for store, each in old.items():
        wanted = {spot_of(one.data) for one in new.get(store, ())}
        if gone := [one.data for one in each if spot_of(one.data) not in wanted]:
            result[store] = gone
    return result


def without(old: Mapping[str, Iterable[Pushed]], gone: Mapping[str, Iterable[Spot]]) -> dict[str, list[Pushed]]:
    """Return the records without these entries; a store without entries is dropped."""
    result: dict[str, list[Pushed]] = {}
    for store, each in old.items():
        removed = set(gone.get(store, ()))
        if left := [one for one in each if spot_of(one.data) not in removed]:
            result[store] = left
    return result


def _keyed(pushed: Iterable[Pushed]) -> dict[str, Pushed]:
    """Return the entries by entry key; if two have the same key, the second gets a different one."""
    result: dict[str, Pushed] = {}
    for one in sorted(pushed, key=lambda each: spot_of(each.data)):
        key = entry_key(one.data)
        while key in result:
            key += "/"
        result[key] = one
    return result
