"""Objects that the API server stored and their type refuses: said on the object itself, where people look.

    any informer of a typed kind -> Misfits.changes -> a controller of its own -> condition and event

A CRD of another version lets them in. Their own controllers cannot read them and leave them alone; this is the one
place that tells people which field it is. Where garbage collection makes up for our finalizer, it is taken off, so that
such an object can be deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import structlog

from eso_operator.sync.reporting import READY
from kuberun.cache import Change, Store
from kuberun.client import Client
from kuberun.clock import Clock, rfc3339
from kuberun.conditions import ConditionStatus
from kuberun.controller import Done, Outcome, Retry
from kuberun.errors import ApiError, Forbidden, Invalid, NotFound
from kuberun.events import EventRecorder, EventType
from kuberun.meta import JsonObject, Malformed, ObjectKey, Resource, meta_of, raw
from kuberun.ownership import remove_finalizer
from kuberun.triggers import Mapping
from kuberun.workqueue import Request

MALFORMED: Final = "Malformed"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TypedKind:
    """A kind with the objects that are known of it."""

    resource: Resource
    store: Store[Any]
    reason: str
    """Of the condition: the one that this kind has for whatever is wrong with an object, if it has any."""
    release: str = ""
    """A finalizer of ours that garbage collection makes up for."""


class Misfits:
    """One for the process. The kinds of an object are remembered beside the queue, which knows names only."""

    def __init__(self, client: Client, clock: Clock, recorder: EventRecorder) -> None:
        self._client = client
        self._clock = clock
        self._recorder = recorder
        self._seen: dict[ObjectKey, set[TypedKind]] = {}

    def changes(self, kind: TypedKind) -> Mapping[Any]:
        def requests(change: Change[Any]) -> Iterable[Request]:
            if not isinstance(change.new, Malformed):
                return ()
            self._seen.setdefault(change.key, set()).add(kind)
            return (Request(change.key, f"{kind.resource.kind} does not fit its type"),)

        return requests

    async def reconcile(self, key: ObjectKey) -> Outcome:
        """Tell about every object of that name that cannot be read."""
        outcome: Outcome = Done()
        for kind in self._seen.pop(key, set()):
            found = kind.store.get(key)
            if not isinstance(found, Malformed):
                continue
            try:
                await self._tell(kind, found)
            except NotFound:
                continue
            except ApiError as problem:
                self._seen.setdefault(key, set()).add(kind)
                outcome = Retry(f"the API server answered {problem.reason or problem.code}")
        return outcome

    async def _tell(self, kind: TypedKind, found: Malformed) -> None:
        live = await self._client.get(raw(kind.resource), found.key)
        metadata = meta_of(live)
        if metadata.deletion_timestamp is not None and kind.release:
            await remove_finalizer(self._client, raw(kind.resource), metadata, kind.release)
            return
        message = f"nothing is done for this {kind.resource.kind}: it does not fit its type: {found.error}; correct it"
        before = _conditions(live)
        if any(_says(condition, message) for condition in before):
            return
        status = {"conditions": _with_ready(before, kind.reason, message, rfc3339(self._clock.now()))}
        patch = {"metadata": {"uid": metadata.uid, "resourceVersion": metadata.resource_version}, "status": status}
        # A kind may have no status, or a broken one: then the event has to do.
        with suppress(NotFound, Forbidden, Invalid):
            await self._client.merge_patch(raw(kind.resource), found.key, patch, subresource="status")
        self._recorder.record(kind.resource, metadata, EventType.WARNING, MALFORMED, message)
        _log.warning("object does not fit its type", kind=kind.resource.kind, key=str(found.key), problem=found.error)


def _conditions(live: JsonObject) -> list[JsonObject]:
    status = live.get("status")
    found = status.get("conditions") if isinstance(status, dict) else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _says(condition: JsonObject, message: str) -> bool:
    """Without the reason, which some kinds do not keep."""
    same = (condition.get("type"), condition.get("status"), condition.get("message"))
    return same == (READY, ConditionStatus.FALSE.value, message)


def _with_ready(before: list[JsonObject], reason: str, message: str, now: str) -> list[JsonObject]:
    old = next((each for each in before if each.get("type") == READY), {})
    false = ConditionStatus.FALSE.value
    since = old.get("lastTransitionTime") if old.get("status") == false else None
    ready = {"type": READY, "status": false, "message": message, "lastTransitionTime": since or now}
    return [*(each for each in before if each is not old), {**ready, **({"reason": reason} if reason else {})}]
