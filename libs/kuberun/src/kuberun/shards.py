"""Which shard an object belongs to, and which process works on a shard. Pure.

Both are decided by rendezvous hashing: each candidate gets a score for the thing to be placed, and the best score wins.
All processes compute the same answer without talking to each other, and a new candidate takes only what it wins.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final

from kubebase.meta import ObjectKey

Placement = Callable[[ObjectKey], str]
"""Returns the place of an object. Objects of one place belong to the same shard."""

_REMEMBERED: Final = 65_536
"""Places whose shard is remembered: more than a cluster has namespaces."""


def by_namespace(key: ObjectKey) -> str:
    """Place objects by their namespace; all cluster-scoped objects belong to one shard."""
    return key.namespace


def together(_: ObjectKey) -> str:
    """Place all objects of a kind where the cluster-scoped objects are, because they are coordinated in memory."""
    return ""


@lru_cache(_REMEMBERED)
def shard_of(place: str, shards: int) -> int:
    """Return the shard of a place. With one shard more, only the places that the new shard wins move."""
    return max(range(shards), key=lambda shard: _score(place, str(shard)))


def assigned(shards: int, members: Iterable[str]) -> Mapping[int, str]:
    """Return the member for each shard. No member has more than its share, rounded up; empty without members."""
    candidates = sorted(set(members))
    if not candidates:
        return {}
    share = math.ceil(shards / len(candidates))
    load: Counter[str] = Counter()
    found = {}
    for shard in range(shards):
        free = [member for member in candidates if load[member] < share]
        winner = max(free, key=lambda member: _score(str(shard), member))
        load[winner] += 1
        found[shard] = winner
    return found


def _score(thing: str, candidate: str) -> bytes:
    return hashlib.blake2b(f"{candidate}\n{thing}".encode(), digest_size=8).digest()
