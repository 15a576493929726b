"""State shared by all sessions of a provider process: clients, identities and throttles."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Final
from weakref import WeakKeyDictionary, WeakValueDictionary

from eso_provider_aws.clients import Clients
from eso_provider_aws.identity import Identities
from eso_sdk.throttle import Throttle
from kubebase.clock import Clock


class Runtime:
    """The state of one process."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.clients = Clients()
        self.identities = Identities(self.clients, clock)
        self._throttles: WeakValueDictionary[Hashable, Throttle] = WeakValueDictionary()

    def throttle(self, identity: Hashable, service: str, region: str) -> Throttle:
        """Return the rate limiter of an identity at a service."""
        key = (identity, service, region)
        found = self._throttles.get(key)
        if found is None:
            self._throttles[key] = found = Throttle(self.clock, f"{service} in {region}")
        return found


_RUNTIMES: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, Runtime]]] = WeakKeyDictionary()


def runtime_of(clock: Clock) -> Runtime:
    """Return the runtime of this event loop and clock: in a provider process there is one of each."""
    known = _RUNTIMES.setdefault(asyncio.get_running_loop(), {})
    if id(clock) not in known:
        known[id(clock)] = Runtime(clock)
    return known[id(clock)]
