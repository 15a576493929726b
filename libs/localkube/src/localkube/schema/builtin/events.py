"""Recorded events, in both of their APIs: core/v1 and events.k8s.io/v1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kubebase.meta import JsonObject, Resource
from localkube.errors import Cause
from localkube.model import Column, ServedKind
from localkube.schema import causes
from localkube.schema.builtin.kinds import (
    CORE,
    OBJECT_REFERENCE,
    at,
    builtin_kind,
    column,
    described,
    integer,
    micro_time,
    struct,
    text,
    time,
)

_EVENTS: Final = "io.k8s.api.events.v1"
_SYSTEM_NAMESPACES: Final = frozenset({"", "default", "kube-system"})
_REFERENCE_FIELDS: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


def event_kinds() -> list[ServedKind]:
    return [_core_event(), _event()]


def _core_event() -> ServedKind:
    return builtin_kind(
        Resource("", "v1", "events", "Event"),
        f"{CORE}.Event",
        "Something that happened to an object.",
        {
            "involvedObject": described(OBJECT_REFERENCE, "The object it happened to."),
            "reason": text("Why, in one word for machines."),
            "message": text("What happened, for people."),
            "type": text("Normal or Warning."),
            "action": text("What was done or failed."),
            "source": _source(),
            "firstTimestamp": time("When it was first seen."),
            "lastTimestamp": time("When it was last seen."),
            "eventTime": micro_time("When it was first seen, precisely."),
            "count": integer("How often it was seen."),
            "series": _series(f"{CORE}.EventSeries"),
            "related": described(OBJECT_REFERENCE, "Another object that took part."),
            "reportingComponent": text("Name of the controller that reports it."),
            "reportingInstance": text("Which instance of the controller reports it."),
        },
        required=["involvedObject"],
        prepare=_prepare_core_event,
        short_names=("ev",),
        columns=_columns("involvedObject", "message", ("lastTimestamp", "firstTimestamp", "count")),
        selectable={
            **{f"involvedObject.{name}": f"involvedObject.{name}" for name in _REFERENCE_FIELDS},
            "reason": "reason",
            "reportingComponent": "reportingComponent",
            "source": "source.component",
            "type": "type",
        },
    )


def _event() -> ServedKind:
    return builtin_kind(
        Resource("events.k8s.io", "v1", "events", "Event"),
        f"{_EVENTS}.Event",
        "Something that happened to an object.",
        {
            "regarding": described(OBJECT_REFERENCE, "The object it happened to."),
            "reason": text("Why, in one word for machines."),
            "note": text("What happened, for people."),
            "type": text("Normal or Warning."),
            "action": text("What was done or failed."),
            "eventTime": micro_time("When it was first seen."),
            "series": _series(f"{_EVENTS}.EventSeries"),
            "related": described(OBJECT_REFERENCE, "Another object that took part."),
            "reportingController": text("Name of the controller that reports it."),
            "reportingInstance": text("Which instance of the controller reports it."),
            "deprecatedSource": _source(),
            "deprecatedFirstTimestamp": time("When it was first seen, in the old form."),
            "deprecatedLastTimestamp": time("When it was last seen, in the old form."),
            "deprecatedCount": integer("How often it was seen, in the old form."),
        },
        required=["eventTime"],
        prepare=_prepare_event,
        short_names=("ev",),
        columns=_columns(
            "regarding", "note", ("deprecatedLastTimestamp", "deprecatedFirstTimestamp", "deprecatedCount")
        ),
        selectable={
            **{f"regarding.{name}": f"regarding.{name}" for name in _REFERENCE_FIELDS},
            "reason": "reason",
            "reportingController": "reportingController",
            "type": "type",
        },
    )


def _source() -> JsonObject:
    fields = {"component": text("The component that reports it."), "host": text("The node it is reported from.")}
    return struct(f"{CORE}.EventSource", "Who reports it, in the old form.", fields)


def _series(component: str) -> JsonObject:
    fields = {
        "count": integer("How often it was seen."),
        "lastObservedTime": micro_time("When it was last seen."),
    }
    return struct(component, "Repetitions of the event.", fields)


def _prepare_core_event(new: JsonObject, _old: JsonObject | None) -> list[Cause]:
    new.setdefault("source", {})
    new.setdefault("reportingComponent", "")
    new.setdefault("reportingInstance", "")
    return list(_namespace_causes(new, "involvedObject"))


def _prepare_event(new: JsonObject, old: JsonObject | None) -> list[Cause]:
    new.setdefault("deprecatedSource", {})
    found = list(_namespace_causes(new, "regarding"))
    if old is None:
        found += _new_event_causes(new)
    return found


def _namespace_causes(event: JsonObject, field: str) -> Iterator[Cause]:
    wanted = (event.get(field) or {}).get("namespace") or ""
    own = event["metadata"].get("namespace") or ""
    if wanted != own if wanted else own not in _SYSTEM_NAMESPACES:
        yield causes.invalid(f"{field}.namespace", wanted, "does not match event.namespace")


def _new_event_causes(event: JsonObject) -> Iterator[Cause]:
    if not event.get("eventTime"):
        yield causes.required("eventTime")
    else:
        for field, limit in (("reportingController", 0), ("reportingInstance", 128), ("action", 128), ("reason", 128)):
            value = event.get(field) or ""
            if not value:
                yield causes.required(field)
            elif limit and len(value) > limit:
                yield causes.invalid(field, "", f"can have at most {limit} characters")
    if len(event.get("note") or "") > 1024:
        yield causes.invalid("message", "", "can have at most 1024 characters")
    if event.get("type") not in {"Normal", "Warning"}:
        kind = event.get("type") or ""
        yield causes.invalid("type", kind, f"has invalid value: {kind}")


def _columns(about: str, message: str, times: tuple[str, str, str]) -> tuple[Column, ...]:
    last, first, count = times

    def last_observed(event: JsonObject) -> Any:
        series = event.get("series") or {}
        return series.get("lastObservedTime") or event.get(last) or event.get("eventTime")

    def subject(event: JsonObject) -> str:
        target = event.get(about) or {}
        return f"{(target.get('kind') or '').lower()}/{target.get('name') or ''}"

    def source(event: JsonObject) -> str:
        parts = event.get("source") or event.get("deprecatedSource") or {}
        return ", ".join(part for part in (parts.get("component"), parts.get("host")) if part)

    return (
        Column("Last Seen", "date", last_observed),
        column("Type", at("type", "")),
        column("Reason", at("reason", "")),
        column("Object", subject),
        column("Subobject", at(f"{about}.fieldPath", ""), priority=1),
        column("Source", source, priority=1),
        column("Message", lambda event: (event.get(message) or "").strip()),
        Column("First Seen", "date", lambda event: event.get(first) or event.get("eventTime"), priority=1),
        column("Count", at(count, 1), priority=1),
        column("Name", lambda event: event["metadata"]["name"], format="name", priority=1),
    )
