"""What all sessions of one identity share at one backend: connections, throttle, ETags, missing keys.

peer = join_peer(key, clock, make)     in `open`; leave_peer(...) in `close`; the last one closes the connections
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from eso_sdk.etags import ETagCache
from eso_sdk.http import HttpClient
from eso_sdk.processwide import shared_table
from eso_sdk.refusals import Refusals
from eso_sdk.throttle import Throttle
from kubebase.bounded import ExpiringDict
from kubebase.clock import Clock

MAX_MISSING: Final = 4096
ETAG_CACHE_BYTES: Final = 1024 * 1024
MAX_ACCEPTED: Final = 4096


@dataclass(slots=True, eq=False)
class Peer:
    """One identity at one backend."""

    http: HttpClient
    throttle: Throttle
    missing: ExpiringDict[str, None]
    """Names that the backend lately reported as absent."""
    unchanged: ETagCache = field(default_factory=lambda: ETagCache(size=ETAG_CACHE_BYTES))
    users: int = 0

    @classmethod
    def of(cls, http: HttpClient, subject: str, clock: Clock) -> Peer:
        return cls(http, Throttle(clock, subject), ExpiringDict(MAX_MISSING, clock))


def join_peer(key: bytes, clock: Clock, make: Callable[[], Peer]) -> Peer:
    """Return the peer with this key, made by the first session."""
    peers = _peers(clock)
    if key not in peers:
        peers[key] = make()
    peers[key].users += 1
    return peers[key]


async def leave_peer(key: bytes, clock: Clock) -> None:
    """Take a session out; the last one closes the connections."""
    peers = _peers(clock)
    peer = peers[key]
    peer.users -= 1
    if not peer.users:
        del peers[key]
        await peer.http.close()


def shared_refusals(clock: Clock) -> Refusals:
    """Return the rejected identities of this process. They outlive their sessions, which end with the rejection."""
    return shared_table("eso_sdk.peers.refusals", clock, Refusals)


def shared_accepted(clock: Clock) -> ExpiringDict[bytes, None]:
    """Return the identities of this process whose credentials a backend has just accepted."""
    return shared_table("eso_sdk.peers.accepted", clock, lambda: ExpiringDict(MAX_ACCEPTED, clock))


def _peers(clock: Clock) -> dict[bytes, Peer]:
    """Return the peers of this process. Each belongs to an open session, and sessions are bounded."""
    return shared_table("eso_sdk.peers", clock, dict[bytes, Peer])
