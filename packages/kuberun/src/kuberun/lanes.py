"""One lane of the work queue: keys that wait, taken in turns of their namespaces, oldest first within each."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from kuberun.lazyheap import LazyHeap
from kuberun.meta import ObjectKey

Admits = Callable[[ObjectKey], bool]


class FairLane:
    """However many keys of one namespace wait, a key of another waits for one of them at most."""

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
        """Since when the key waits that has waited longest, and the key."""
        return self._oldest.peek()

    def admits(self, admits: Admits) -> bool:
        """Tell whether somebody who waits may run."""
        heads = (mine.peek() for mine in self._turns.values())
        return any(head is not None and admits(head[1]) for head in heads)

    def next(self, admits: Admits) -> ObjectKey | None:
        """The key whose turn it is; None if nobody who waits may run. The turn goes to the next namespace."""
        for namespace, mine in self._turns.items():
            head = mine.peek()
            if head is not None and admits(head[1]):
                self._turns.move_to_end(namespace)
                return head[1]
        return None
