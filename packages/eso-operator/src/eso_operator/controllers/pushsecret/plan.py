"""Chooses the action for each entry: compare before writing, never overwrite protected values. Pure.

    Replace        not pushed yet, or another value         push
                   the same value, still there              keep: no write
                   the same value, gone or changed there    push
                   overwritten by another PushSecret        yield, until that one stops pushing
    IfNotExists    exists                                   leave it unchanged
                   does not exist                           push, create-only

If the provider supports EXISTS, it is asked whether a value still exists. With PUSH_IF_ABSENT, create-only is atomic.
Without it, the value is checked just before the write; the condition reports this weaker guarantee.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar

from eso_api.pushsecret import PushSecretSpec
from eso_api.values import SecretBytes
from eso_operator.controllers.pushsecret.places import Known
from eso_operator.controllers.pushsecret.rivals import UNSHARED, Footing, Standing
from eso_operator.controllers.pushsecret.select import Entry
from eso_wire import bounds
from eso_wire.values import CheckResult, DeleteItem, Limits, Operation, PushItem

IF_NOT_EXISTS: Final = "IfNotExists"
DELETE: Final = "Delete"
_ROOM: Final = 0.75
"""Share of a message that values may take."""
_OVERHEAD: Final = 256
"""Bytes of an item besides its value."""


class Guarantee(Enum):
    """The guarantee of IfNotExists at a provider."""

    ATOMIC = "created only"
    CHECKED = "checked, then pushed"
    NONE = "neither"


class Fate(Enum):
    """The action for an entry."""

    PUSH = "push"
    PUSH_IF_ABSENT = "push if absent"
    KEEP = "keep"
    """The value is ours and unchanged: nothing is written."""
    YIELD = "yield"
    """Ours, but another PushSecret wrote a different value after us: the last writer wins."""
    LEAVE = "leave"
    """The value exists, and the policy leaves it unchanged."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The policy for pushes to one store, given the operations of its provider."""

    replaces: bool
    guarantee: Guarantee
    can_ask: bool

    @staticmethod
    def of(spec: PushSecretSpec, operations: frozenset[Operation]) -> Policy:
        can_ask = Operation.EXISTS in operations
        if Operation.PUSH_IF_ABSENT in operations:
            guarantee = Guarantee.ATOMIC
        else:
            guarantee = Guarantee.CHECKED if can_ask else Guarantee.NONE
        return Policy(spec.update_policy != IF_NOT_EXISTS, guarantee, can_ask)

    def asks(self, known: Known | None, digest: bytes) -> bool:
        """Return whether to check for existing values before anything is written."""
        if not self.can_ask:
            return False
        if self.replaces:
            return known is not None and known.digest == digest
        return known is not None or self.guarantee is Guarantee.CHECKED

    def fate(self, known: Known | None, digest: bytes, answer: CheckResult | None, footing: Footing = UNSHARED) -> Fate:
        """Return the action, given the known state, the provider's answer if it was asked, and the pushes of others."""
        if self.replaces:
            return self._fate_of_replaced(known, digest, answer, footing)
        if answer is not None and answer.error is None and answer.exists:
            return Fate.LEAVE
        return Fate.PUSH_IF_ABSENT if self.guarantee is Guarantee.ATOMIC else Fate.PUSH

    def _fate_of_replaced(
        self, known: Known | None, digest: bytes, answer: CheckResult | None, footing: Footing
    ) -> Fate:
        if known is None or known.digest != digest or footing.standing is Standing.FREED:
            return Fate.PUSH
        if self.can_ask and (answer is None or answer.error is not None or not answer.exists):
            return Fate.PUSH
        if footing.standing is Standing.LOST:
            return Fate.YIELD
        return Fate.KEEP if answer is None or _is_expected(known, answer, footing) else Fate.PUSH


def needed(spec: PushSecretSpec, entries: Sequence[Entry]) -> frozenset[Operation]:
    """Return the operations that the policy needs. A provider without them is rejected before the first write."""
    operations = {Operation.PUSH}
    if any(entry.is_whole for entry in entries):
        operations.add(Operation.PUSH_WHOLE_SECRET)
    if spec.deletion_policy == DELETE:
        operations.add(Operation.DELETE)
    return frozenset(operations)


def _is_expected(known: Known, answer: CheckResult, footing: Footing) -> bool:
    """Return whether only PushSecrets changed the remote key since then, as far as versions show."""
    version = answer.provider_version
    return not (known.version and version) or version == known.version or footing.expected


# --- calls ------------------------------------------------------------------------------------------------------------

Item = TypeVar("Item", PushItem, DeleteItem)


def batches(items: Sequence[Item], limits: Limits, operations: frozenset[Operation]) -> Iterator[list[Item]]:
    """Yield as few batches as possible.

    A provider with PUSH_GROUPED gets all items of a remote key in one call, unless they exceed the size of a call.
    Without it they are sent in consecutive calls, because a provider may process the items of one call in parallel.
    """
    if Operation.PUSH_GROUPED in operations:
        yield from _filled(groups(items), limits)
        return
    for wave in waves(items):
        yield from _filled([[item] for item in wave], limits)


def _filled(units: Iterable[Sequence[Item]], limits: Limits) -> Iterator[list[Item]]:
    """Yield calls that are as full as possible; a unit that fits into one call is never split."""
    room, most = int((limits.max_message_bytes or bounds.MAX_MESSAGE_BYTES) * _ROOM), batch_size(limits)
    batch: list[Item] = []
    size = 0
    for unit in units:
        whole = sum(map(_size, unit))
        fits = len(batch) + len(unit) <= most and size + whole <= room
        for number, item in enumerate(unit):
            begins = number == 0 and not fits
            if batch and (begins or len(batch) >= most or size + _size(item) > room):
                yield batch
                batch, size = [], 0
            batch.append(item)
            size += _size(item)
    if batch:
        yield batch


def batch_size(limits: Limits) -> int:
    return min(limits.max_batch_items or bounds.MAX_BATCH_ITEMS, bounds.MAX_BATCH_ITEMS)


def groups(items: Sequence[Item]) -> list[list[Item]]:
    """Group the items by remote key."""
    found: dict[str, list[Item]] = {}
    for item in items:
        found.setdefault(item.remote.key, []).append(item)
    return list(found.values())


def waves(items: Sequence[Item]) -> list[list[Item]]:
    """Return waves of items that contain every remote key at most once."""
    found: list[list[Item]] = []
    turns: dict[str, int] = {}
    for item in items:
        turn = turns.get(item.remote.key, 0)
        turns[item.remote.key] = turn + 1
        if turn == len(found):
            found.append([])
        found[turn].append(item)
    return found


def _size(item: PushItem | DeleteItem) -> int:
    return _OVERHEAD + len(item.remote.key) + (_payload_size(item) if isinstance(item, PushItem) else 0)


def _payload_size(item: PushItem) -> int:
    values = [item.payload] if isinstance(item.payload, SecretBytes) else item.payload.values()
    return sum(map(len, values))
