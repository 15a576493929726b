"""Recorded events: core/v1 and events.k8s.io/v1 are two forms of the same objects, stored in the first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from kubebase.meta import JsonObject
from localkube.model import ServedKind

CORE: Final = "events"
_OTHER: Final = "events.events.k8s.io"
_NAMES: Final = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_CORE_NAMES: Final = {core: name for name, core in _NAMES.items()}


def sharing_events(kinds: Iterable[ServedKind]) -> list[ServedKind]:
    """Return the kinds, with both kinds of Event on one storage."""
    return [
        replace(kind, stored_as=CORE, from_stored=_from_core, to_stored=_to_core)
        if kind.storage_key == _OTHER
        else kind
        for kind in kinds
    ]


def _from_core(event: JsonObject) -> JsonObject:
    renamed = {_CORE_NAMES.get(name, name): value for name, value in event.items()}
    return renamed | {"apiVersion": "events.k8s.io/v1"}


def _to_core(event: JsonObject) -> JsonObject:
    renamed = {_NAMES.get(name, name): value for name, value in event.items()}
    return renamed | {"apiVersion": "v1"}
