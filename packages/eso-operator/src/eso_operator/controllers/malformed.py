"""Reports objects that the API server stored but that do not decode into their type, on the object itself.

    any informer of a typed kind -> MalformedObjects.changes -> a separate controller -> condition and event

A CRD of another version admits them. Their own controllers cannot decode them and ignore them; only this module reports
the wrong field. If garbage collection does the work of our finalizer, the finalizer is removed, so that such an object
can be deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import structlog

from eso_api.common import READY
from eso_operator.controllers.base import Event, EventPublisher, api_error_text
from kubebase.clock import Clock, rfc3339
from kubebase.meta import JsonObject, Malformed, ObjectKey, Resource, meta_of, raw
from kuberun.cache import Cache, Change
from kuberun.client import Client
from kuberun.controller import Backoff, Done, ReconcileContext, Result
from kuberun.errors import ApiError, Forbidden, Invalid, NotFound
from kuberun.events import EventType
from kuberun.ownership import remove_finalizer
from kuberun.status import ConditionStatus
from kuberun.triggers import EventHandler
from kuberun.workqueue import ReconcileRequest

MALFORMED: Final = "Malformed"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TypedKind:
    """A kind with its cached objects."""

    resource: Resource
    store: Cache[Any]
    reason: str
    """The reason of the condition for invalid objects of this kind, if it has one."""
    release: str = ""
    """One of our finalizers, if garbage collection does its work."""


class MalformedObjects:
    """The controller of malformed objects.

    The process has one. The queue has names only, so the kinds are remembered here.
    """

    def __init__(self, client: Client, clock: Clock, publisher: EventPublisher) -> None:
        self._client = client
        self._clock = clock
        self._publisher = publisher
        self._kinds: dict[ObjectKey, set[TypedKind]] = {}

    def changes(self, kind: TypedKind) -> EventHandler[Any]:
        def requests(change: Change[Any]) -> Iterable[ReconcileRequest]:
            if not isinstance(change.new, Malformed):
                return ()
            self._kinds.setdefault(change.key, set()).add(kind)
            return (ReconcileRequest(change.key, f"{kind.resource.kind} does not fit its type"),)

        return requests

    async def reconcile(self, key: ObjectKey, _: ReconcileContext) -> Result:
        """Report every object of that name that cannot be decoded."""
        outcome: Result = Done()
        for kind in self._kinds.pop(key, set()):
            found = kind.store.get(key)
            if not isinstance(found, Malformed):
                continue
            try:
                await self._report(kind, found)
            except NotFound:
                continue
            except ApiError as problem:
                self._kinds.setdefault(key, set()).add(kind)
                outcome = Backoff(api_error_text(problem))
        return outcome

    async def _report(self, kind: TypedKind, found: Malformed) -> None:
        live = await self._client.get(raw(kind.resource), found.key)
        metadata = meta_of(live)
        if metadata.deletion_timestamp is not None and kind.release:
            await remove_finalizer(self._client, raw(kind.resource), metadata, kind.release)
            return
        message = f"nothing is done for this {kind.resource.kind}: it does not fit its type: {found.error}; correct it"
        before = _conditions(live)
        if any(_is_reported(condition, message) for condition in before):
            return
        status = {"conditions": _with_ready(before, kind.reason, message, rfc3339(self._clock.now()))}
        patch = {"metadata": {"uid": metadata.uid, "resourceVersion": metadata.resource_version}, "status": status}
        # A kind may have no status, or a broken one: then the event must suffice.
        with suppress(NotFound, Forbidden, Invalid):
            await self._client.merge_patch(raw(kind.resource), found.key, patch, subresource="status")
        self._publisher.publish_events(kind.resource, metadata, Event(EventType.WARNING, MALFORMED, message))
        _log.warning("object does not fit its type", kind=kind.resource.kind, key=str(found.key), problem=found.error)


def _conditions(live: JsonObject) -> list[JsonObject]:
    status = live.get("status")
    found = status.get("conditions") if isinstance(status, dict) else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _is_reported(condition: JsonObject, message: str) -> bool:
    """Return whether a condition already has this message.

    The reason is ignored, because some kinds do not store it.
    """
    same = (condition.get("type"), condition.get("status"), condition.get("message"))
    return same == (READY, ConditionStatus.FALSE.value, message)


def _with_ready(before: list[JsonObject], reason: str, message: str, now: str) -> list[JsonObject]:
    old = next((each for each in before if each.get("type") == READY), {})
    false = ConditionStatus.FALSE.value
    since = old.get("lastTransitionTime") if old.get("status") == false else None
    ready = {"type": READY, "status": false, "message": message, "lastTransitionTime": since or now}
    return [*(each for each in before if each is not old), {**ready, **({"reason": reason} if reason else {})}]
