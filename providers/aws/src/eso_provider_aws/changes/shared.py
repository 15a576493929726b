"""State shared by the subscriptions of a process: the listings of an identity, and the queues of stores."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakKeyDictionary, WeakValueDictionary

from eso_provider_aws.api import Api
from eso_provider_aws.changes.consumer import Consumer
from eso_provider_aws.changes.looks import Looks
from eso_provider_aws.changes.queue import Queue
from eso_provider_aws.changes.source import Source
from eso_provider_aws.runtime import Runtime
from eso_sdk.errors import unsupported
from kubebase.clock import Clock

MAX_CONSUMERS: Final = 32
"""Each holds one of the 64 connections to SQS."""


@dataclass(slots=True)
class Shared:
    """The state of one runtime."""

    clock: Clock
    _looks: WeakValueDictionary[Hashable, Looks] = field(default_factory=WeakValueDictionary)
    _queues: WeakValueDictionary[Hashable, Queue] = field(default_factory=WeakValueDictionary)
    _consumers: dict[Hashable, Consumer] = field(default_factory=dict)

    def looks(self, identity: Hashable, source: Source, region: str) -> Looks:
        key = (identity, source.service, region)
        found = self._looks.get(key)
        if found is None:
            self._looks[key] = found = Looks(source, self.clock)
        return found

    async def join(self, url: str, api: Api, sqs: Callable[[], Awaitable[Api]]) -> Consumer:
        """Return the consumer of a queue under the identity of `api`; every `join` needs a `leave`."""
        key = (url, api.region, api.identity.key)
        if key not in self._consumers:
            if len(self._consumers) >= MAX_CONSUMERS:
                raise unsupported(f"this provider listens to {MAX_CONSUMERS} queues already; let stores share queues")
            opened = await sqs()
            if key in self._consumers:
                await opened.close()
            else:
                self._consumers[key] = Consumer(self._queue(url, api.region), url, opened)
        consumer = self._consumers[key]
        consumer.users += 1
        return consumer

    async def leave(self, consumer: Consumer) -> None:
        """Release a consumer; the last user stops it."""
        consumer.users -= 1
        if consumer.users == 0:
            for key in [key for key, each in self._consumers.items() if each is consumer]:
                del self._consumers[key]
            await consumer.close()

    def _queue(self, url: str, region: str) -> Queue:
        found = self._queues.get((url, region))
        if found is None:
            self._queues[url, region] = found = Queue()
        return found


_SHARED: Final[WeakKeyDictionary[Runtime, Shared]] = WeakKeyDictionary()


def shared_by(runtime: Runtime) -> Shared:
    """Return the state that the subscriptions of this runtime share."""
    found = _SHARED.get(runtime)
    if found is None:
        _SHARED[runtime] = found = Shared(runtime.clock)
    return found
