"""One lane of the work queue: namespaces take turns; within a namespace the oldest key goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from kubebase.meta import ObjectKey
from kuberun.lazyheap import LazyHeap

Admits = Callable[[ObjectKey], bool]


class FairLane:
    """However many keys of one namespace wait, a key of another namespace waits for at most one of them."""

    def __init__(self) -> None:
        self._oldest: LazyHeap[ObjectKey] = LazyHeap()
        self._turns: OrderedDict[str, LazyHeap[ObjectKey]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._oldest)

    def push(self, key: ObjectKey, since: float) -> None:
        self._oldest.push(key, since)
        self._turns.setdefault(key.namespace, LazyHeap()).push(key, since)

    def discard(self, key: ObjectKey) -> None:
        self._oldest.discard(key)
        if (mine := self._turns.get(key.namespace)) is not None:
            mine.discard(key)
            if not mine:
                del self._turns[key.namespace]

    def oldest(self) -> tuple[float, ObjectKey] | None:
        """Return the key that has waited longest, and since when."""
        return self._oldest.peek()

    def admits(self, admits: Admits) -> bool:
        """Return whether any waiting key may run."""
        heads = (mine.peek() for mine in self._turns.values())
        return any(head is not None and admits(head[1]) for head in heads)

    def next(self, admits: Admits) -> ObjectKey | None:
        """Return the next key that may run and pass the turn to the next namespace; None if no key may run."""
        for namespace, mine in self._turns.items():
            head = mine.peek()
            if head is not None and admits(head[1]):
                self._turns.move_to_end(namespace)
                return head[1]
        return None
