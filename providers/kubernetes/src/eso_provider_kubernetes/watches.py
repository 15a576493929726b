"""The mapping of changed objects to watches of a subscription. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eso_sdk.matching import Matcher
from eso_wire.values import ChangeType, FindQuery, WatchItem


class Watches:
    """The watches of one call to `subscribe`."""

    def __init__(self, items: Sequence[WatchItem]) -> None:
        self._by_key: dict[str, list[str]] = {}
        self._known = {item.watch_id: item.known_version for item in items if item.known_version}
        self._by_name: list[tuple[str, Matcher]] = []
        self._by_labels: list[tuple[str, Mapping[str, str], set[str]]] = []
        for item in items:
            if item.ref is not None:
                self._by_key.setdefault(item.ref.key, []).append(item.watch_id)
            elif item.tags:
                self._by_labels.append((item.watch_id, item.tags, set()))
            else:
                self._by_name.append((item.watch_id, Matcher(FindQuery(name_regexp=item.name_regexp))))

    def remember(self, present: Mapping[str, Mapping[str, str]]) -> None:
        """Note which objects carry the labels: one that loses them changes the result of a search too."""
        for _, wanted, members in self._by_labels:
            members.update(key for key, labels in present.items() if _carries(labels, wanted))

    def overtaken(
        self, fresh: Sequence[WatchItem], versions: Mapping[str, str], *, tell_unknown: bool
    ) -> dict[ChangeType, list[str]]:
        """Return new watches whose reader does not have the current version, by the type of change.

        A reader without a version may have read before the watch began. It must read once more, unless a resume token
        covers the time since then.
        """
        found: dict[ChangeType, list[str]] = {ChangeType.UPDATED: [], ChangeType.DELETED: []}
        for item in fresh:
            if item.ref is None or not item.known_version:
                found[ChangeType.UPDATED] += [item.watch_id] if tell_unknown else []
                continue
            version = versions.get(item.ref.key)
            if version is None:
                found[ChangeType.DELETED].append(item.watch_id)
            elif version != item.known_version:
                found[ChangeType.UPDATED].append(item.watch_id)
                self._known[item.watch_id] = version
        return found

    def concerned(self, key: str, labels: Mapping[str, str], version: str) -> tuple[str, ...]:
        """Return the ids of the watches to notify. A reader that already has this version is not notified."""
        ids = [watch_id for watch_id in self._by_key.get(key, ()) if self._known.get(watch_id) != version]
        ids += [watch_id for watch_id, matcher in self._by_name if matcher.matches(key)]
        for watch_id, wanted, members in self._by_labels:
            carries = _carries(labels, wanted)
            if carries or key in members:
                ids.append(watch_id)
            (members.add if carries else members.discard)(key)
        return tuple(ids)


def _carries(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(labels.get(name) == value for name, value in wanted.items())
