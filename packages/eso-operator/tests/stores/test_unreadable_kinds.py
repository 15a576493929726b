"""Users may name any kind in a reference; a kind that the operator must not read delays no reconcile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from eso_operator.watches import WatchedKinds
from eso_wire.values import KindId
from kubebase.testing.clock import VirtualClock
from kuberun.client import Client
from kuberun.errors import Forbidden
from kuberun.requests import Request

WIDGET = KindId("example.com", "v1", "Widget")


@dataclass
class Server:
    """A server that serves Widgets and forbids every list of them."""

    requested: list[str] = field(default_factory=list)

    async def request(self, request: Request) -> bytes:
        self.requested.append(request.path)
        if request.path == "/apis/example.com/v1":
            return json.dumps({"resources": [{"name": "widgets", "kind": "Widget", "namespaced": True}]}).encode()
        raise Forbidden(403, "Forbidden", "not for you")

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise AssertionError(f"nothing is watched: {request.path}")

    async def close(self) -> None:
        return


async def test_a_kind_that_must_not_be_read_is_refused_without_waiting() -> None:
    """Time does not pass here: waiting for a list that never comes would never end."""
    clock, server = VirtualClock(), Server()
    watched = WatchedKinds(Client(server), clock)

    async with asyncio.TaskGroup() as group:
        running = group.create_task(watched.run())
        await clock.settle()
        asking = [group.create_task(watched.include(WIDGET)) for _ in range(3)]
        await clock.settle()
        answers = [task.result() if task.done() else None for task in asking]
        for task in (running, *asking):
            task.cancel()

    assert answers == [False, False, False]
    assert watched.scope(WIDGET) is None
