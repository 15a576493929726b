"""Subscriptions in tests: streams whose changes are taken one by one, and events as EventBridge sends them."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

from eso_provider_aws.testing.sessions import REGION
from eso_sdk.testing import InMemory
from eso_wire.values import (
    ChangeEvent,
    ChangeType,
    Context,
    Heartbeat,
    RemoteRef,
    SubscribeAck,
    SubscribeMessage,
    SubscribeOpen,
    SubscribeUpdate,
    WatchItem,
)

ACCOUNT: Final = "123456789012"
TIMEOUT_SECONDS: Final = 20.0


class Stream:
    """One subscription."""

    def __init__(self, events: Any, messages: asyncio.Queue[SubscribeMessage]) -> None:
        self._events = events
        self._messages = messages
        self.token = ""

    async def change(self) -> ChangeEvent:
        """Return the next change; heartbeats only update the token."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            async for event in self._events:
                self.token = event.resume_token or self.token
                if isinstance(event, ChangeEvent):
                    return event
        raise AssertionError("the stream ended")

    async def opened(self) -> None:
        """Wait until the provider has reported the start position."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            async for event in self._events:
                assert isinstance(event, Heartbeat), event  # noqa: S101 - of the test
                if event.resume_token:
                    self.token = event.resume_token
                    return

    def acknowledge(self) -> None:
        """Acknowledge everything up to here."""
        self._messages.put_nowait(SubscribeAck(self.token))

    def watch(self, *more: WatchItem) -> None:
        self._messages.put_nowait(SubscribeUpdate(more))


@asynccontextmanager
async def watching(provider: InMemory, context: Context, *items: WatchItem, resume: str = "") -> AsyncIterator[Stream]:
    """Keep a stream open inside the block."""
    outgoing: asyncio.Queue[SubscribeMessage] = asyncio.Queue()
    outgoing.put_nowait(SubscribeOpen(context, items, resume))

    async def messages() -> AsyncIterator[SubscribeMessage]:
        while True:
            yield await outgoing.get()

    async with aclosing(provider.subscribe(messages())) as events:
        yield Stream(events, outgoing)


def key(name: str, known_version: str = "", *, version: str = "") -> WatchItem:
    """Return a watch of one key, with the key as its id."""
    return WatchItem(name, RemoteRef(name, version), known_version=known_version)


def summary(event: ChangeEvent) -> tuple[ChangeType, tuple[str, ...]]:
    return event.type, event.watch_ids


def secret_arn(name: str) -> str:
    return f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:{name}-AbC123"


def secret_event(call: str, secret_id: str, *, kind: str = "AWS API Call via CloudTrail", **detail: Any) -> str:
    """Return the EventBridge event of a call to Secrets Manager."""
    about = {"requestParameters": {"secretId": secret_id}, "responseElements": None} | detail
    return _event("aws.secretsmanager", kind, {"eventName": call, **about})


def parameter_event(operation: str, name: str) -> str:
    """Return the EventBridge event of a parameter change."""
    return _event("aws.ssm", "Parameter Store Change", {"operation": operation, "name": name, "type": "String"})


def by_sns(event: str) -> str:
    """Return the event as delivered through an SNS topic."""
    return json.dumps({"Type": "Notification", "TopicArn": f"arn:aws:sns:{REGION}:{ACCOUNT}:t", "Message": event})


def _event(source: str, kind: str, detail: dict[str, Any]) -> str:
    return json.dumps(
        {
            "version": "0",
            "id": str(uuid.uuid4()),
            "detail-type": kind,
            "source": source,
            "account": ACCOUNT,
            "time": "2030-01-01T00:00:00Z",
            "region": REGION,
            "resources": [],
            "detail": detail,
        }
    )
