"""What this process remembers of pushes: when, from which sources, to which stores, and a digest of each value.

So that an unchanged value is not pushed again and again, and so that what was pushed is not forgotten while its record
cannot be written: somebody may edit or delete the object in the meantime. Nothing here outlives the process; after a
restart a value may be pushed once more. Digests are keyed with a key of this process, so they reveal nothing about a
value.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import msgspec

from eso_api.pushsecret import PushSecret
from eso_api.values import SecretBytes
from eso_operator.pushsecret.places import Known, Place
from eso_operator.pushsecret.records import Pushed, Spot, union, without
from eso_operator.pushsecret.rivals import Rivals
from eso_operator.sync.templates import TemplateVersion
from eso_wire.values import PushItem, SourceSecret
from kuberun.meta import ObjectKey

MAX_OBJECTS: Final = 200_000
MAX_VALUES: Final = 1_000_000
"""The oldest are forgotten first; what is forgotten is pushed once more."""

_KEY: Final = secrets.token_bytes(32)
_VALUE_DIGEST: Final = 16


Unrecorded = Mapping[str, Sequence[Pushed]]
"""By store, as in `status.syncedPushSecrets`."""

NOTHING_KNOWN: Final[Mapping[Place, Known]] = {}


@dataclass(frozen=True, slots=True)
class LastPush:
    """The last push that succeeded, as remembered."""

    at: datetime
    version: str
    """Of the PushSecret: `status.syncedResourceVersion`."""
    sources: frozenset[str]
    """Each Secret with its uid and resourceVersion."""
    stores: frozenset[str]
    renew_at: datetime | None = None
    """When generated values want to be made anew."""
    templates: frozenset[TemplateVersion] = frozenset()


@dataclass(frozen=True, slots=True)
class Learned:
    """What a push that succeeded leaves to be remembered, once it is on record."""

    last: LastPush
    values: Mapping[Place, Known]


@dataclass(slots=True)
class _Remembered:
    uid: str
    last: LastPush | None = None
    values: dict[Place, Known] = field(default_factory=dict)
    unrecorded: Unrecorded = field(default_factory=dict)
    pushed_for: PushSecret | None = None
    """The object as it was then, while something of it is unrecorded."""


class Memory:
    """One for the process."""

    def __init__(self, max_objects: int = MAX_OBJECTS, max_values: int = MAX_VALUES) -> None:
        self.rivals = Rivals()
        self._objects: OrderedDict[ObjectKey, _Remembered] = OrderedDict()
        self._max_objects = max_objects
        self._max_values = max_values
        self._values = 0

    def last(self, push: PushSecret) -> LastPush | None:
        return self._of(push).last

    def values(self, push: PushSecret) -> Mapping[Place, Known]:
        return self._of(push).values

    def unrecorded(self, push: PushSecret) -> Unrecorded:
        """What was pushed and may not be in the status."""
        return self._of(push).unrecorded

    def unrecorded_of(self, key: ObjectKey) -> PushSecret | None:
        """The object, which may be gone by now, for which something was pushed that may not be in its status."""
        found = self._objects.get(key)
        return found.pushed_for if found is not None and found.unrecorded else None

    def wrote(self, push: PushSecret, values: Mapping[Place, Known], new: Unrecorded) -> None:
        """Values that are in their stores now, on record or not."""
        known = self._of(push)
        merged = {**known.values, **values}
        self._put(push, _Remembered(known.uid, known.last, merged, union(new, known.unrecorded), push))

    def removed(self, push: PushSecret, gone: Mapping[str, Iterable[Spot]]) -> None:
        """Values that are not in their stores any more."""
        known = self._of(push)
        places = {Place(store, *spot) for store, spots in gone.items() for spot in spots}
        values = {place: value for place, value in known.values.items() if place not in places}
        self._put(push, _Remembered(known.uid, known.last, values, without(known.unrecorded, gone), known.pushed_for))

    def recorded(self, push: PushSecret, learned: Learned | None) -> None:
        """The status says all of it. After a push that succeeded, nothing but its values is known from now on."""
        known = self._of(push)
        if learned is None:
            self._put(push, _Remembered(known.uid, known.last, known.values))
        else:
            self._put(push, _Remembered(known.uid, learned.last, dict(learned.values)))

    def forget(self, key: ObjectKey) -> None:
        if (found := self._objects.pop(key, None)) is not None:
            self._drop(key, found)

    def _of(self, push: PushSecret) -> _Remembered:
        """What is known of this very object, not of one that had its name before."""
        found = self._objects.get(push.key)
        return found if found is not None and found.uid == push.metadata.uid else _Remembered(push.metadata.uid)

    def _put(self, push: PushSecret, remembered: _Remembered) -> None:
        before = self._objects.pop(push.key, None)
        old = before.values if before is not None else {}
        self._objects[push.key] = remembered
        self._values += len(remembered.values) - len(old)
        self.rivals.update(push.key, old, remembered.values)
        while len(self._objects) > self._max_objects or (self._values > self._max_values and len(self._objects) > 1):
            self._drop(*self._objects.popitem(last=False))

    def _drop(self, key: ObjectKey, remembered: _Remembered) -> None:
        self._values -= len(remembered.values)
        self.rivals.update(key, remembered.values, {})


def digest(item: PushItem, source: SourceSecret, backend: str) -> bytes:
    """Equal for equal pushes: value, settings, source metadata, and the configuration of the store (`backend`)."""
    told = msgspec.json.encode(
        [
            backend,
            item.provider_metadata,
            item.remote.key,
            item.remote.property,
            source.type,
            sorted(source.labels.items()),
            sorted(source.annotations.items()),
        ],
        order="deterministic",
    )
    mark = hmac.new(_KEY, told, hashlib.sha256)
    for credential in item.resolved:
        mark.update(credential.pointer.encode())
        if isinstance(credential.value, SecretBytes):
            mark.update(credential.value.reveal())
    _add_payload(mark, item)
    return mark.digest()


def value_digest(item: PushItem) -> bytes:
    """Equal for equal values, wherever they come from."""
    mark = hmac.new(_KEY, b"", hashlib.sha256)
    _add_payload(mark, item)
    return mark.digest()[:_VALUE_DIGEST]


def _add_payload(mark: hmac.HMAC, item: PushItem) -> None:
    if isinstance(item.payload, SecretBytes):
        _add(mark, b"value", item.payload)
    else:
        mark.update(b"whole:")
        for name in sorted(item.payload):
            _add(mark, name.encode("utf-8", "surrogateescape"), item.payload[name])


def _add(mark: hmac.HMAC, name: bytes, value: SecretBytes) -> None:
    mark.update(b"%d:%b%d:" % (len(name), name, len(value)))
    mark.update(value.reveal())
