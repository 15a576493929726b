"""Watched keys: what an ExternalSecret has read, as far as a provider can announce changes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from eso_operator.stores.resolved import BoundStore
from eso_wire.values import FindQuery, RemoteRef


class Topic(NamedTuple):
    """Something that can change: a remote key, or all keys that match a search."""

    ref: RemoteRef | None
    name_regexp: str = ""
    tags: tuple[tuple[str, str], ...] = ()


def topic_of(ref: RemoteRef) -> Topic:
    """Return the topic of a remote ref, without its property: backends change whole keys."""
    return Topic(RemoteRef(ref.key, ref.version))


def topic_of_search(query: FindQuery) -> Topic | None:
    """Return the topic of a search; None for a search below a path, because streams cannot filter by path."""
    return None if query.path else Topic(None, query.name_regexp, tuple(sorted(query.tags.items())))


@dataclass(frozen=True, slots=True)
class WatchedKey:
    """The topics read through one store, each with its version; empty if the provider gives none."""

    bound: BoundStore
    versions: Mapping[Topic, str]


class ReadState(Enum):
    """How much of what a follower depends on it has read and can follow."""

    WHOLE = "this process has read everything, and all of it can be watched"
    PART = "this process has read everything, and some of it cannot be watched"
    UNREAD = "a former process has read"
