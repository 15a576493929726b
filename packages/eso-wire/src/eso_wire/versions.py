"""Versions of the protocol and their negotiation.

Each side supports its own minor and the one before, so the operator works with providers one minor older and one minor
newer. The provider chooses the highest version that both sides named.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class ProtocolVersion(NamedTuple):
    """A major has its own protobuf package; a minor only adds to it."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


CURRENT = ProtocolVersion(2, 2)
"""2.1 adds conditional reads; 2.2 adds features for backends with their own identities (see provider.proto)."""
SUPPORTED = (ProtocolVersion(2, 1), CURRENT)


def select(ours: Iterable[ProtocolVersion], theirs: Iterable[ProtocolVersion]) -> ProtocolVersion | None:
    """Return the highest version that both sides support; None if there is none."""
    return max(set(ours) & set(theirs), default=None)


def spelled(versions: Iterable[ProtocolVersion]) -> str:
    """Format versions for messages: `2.0, 2.1`."""
    return ", ".join(str(version) for version in sorted(versions)) or "none"
