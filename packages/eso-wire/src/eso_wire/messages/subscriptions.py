"""Subscriptions to changes: both directions of the stream. They never contain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from eso_wire.messages.calls import Context
from eso_wire.messages.reading import RemoteRef
from eso_wire.messages.validation import ConditionReport


@dataclass(frozen=True, slots=True)
class WatchItem:
    """A remote key or query to watch."""

    watch_id: str
    ref: RemoteRef | None = None
    name_regexp: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    known_version: str = ""


@dataclass(frozen=True, slots=True)
class SubscribeOpen:
    """The first message of a subscription, sent only once."""

    context: Context
    items: tuple[WatchItem, ...] = ()
    resume_token: str = ""


@dataclass(frozen=True, slots=True)
class SubscribeUpdate:
    """Add or remove watches; `remove` contains watch ids."""

    add: tuple[WatchItem, ...] = ()
    remove: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SubscribeAck:
    """The operator has processed the events up to this token; they need not be sent again."""

    resume_token: str


SubscribeMessage = SubscribeOpen | SubscribeUpdate | SubscribeAck


class ChangeType(StrEnum):
    UPDATED = "UPDATED"
    DELETED = "DELETED"
    RESYNC = "RESYNC"
    CONDITION = "CONDITION"


@dataclass(frozen=True, slots=True)
class ChangeEvent:
    """A change at the backend, without the new value."""

    type: ChangeType
    watch_ids: tuple[str, ...] = ()
    provider_version: str = ""
    observed_at: datetime | None = None
    condition: ConditionReport | None = None
    resume_token: str = ""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    at: datetime
    resume_token: str = ""
