"""Cluster: every verb of the API on every kind, for the HTTP layer and for the controllers of the server itself.

Each write is decided without an await (see storage), then waits for its commit. Every failure is a StatusError.
The HTTP layer authenticates and authorizes before it calls; the cluster trusts its callers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from kubebase.clock import Clock
from kubebase.meta import JsonObject
from localkube.cluster.background import Background, Housekeeping
from localkube.cluster.catalog import Catalog, Conversions, Target
from localkube.cluster.definitions import Definitions
from localkube.cluster.deletion import Deleter, GarbageCollector
from localkube.cluster.metadata import DEFINITIONS, SERVICE_ACCOUNTS
from localkube.cluster.namespaces import Namespaces
from localkube.cluster.tokens import Tokens
from localkube.cluster.watches import Lister, Watch, Watches, reject_future, revision_of
from localkube.cluster.writes import WriteDecision, Writer
from localkube.errors import StatusError, method_not_allowed, not_found
from localkube.model import (
    DeleteOptions,
    ListQuery,
    ListResult,
    PatchType,
    ServedKind,
    User,
    WatchQuery,
    WriteOptions,
    Written,
)
from localkube.schema.builtin import builtin_kinds
from localkube.storage import HistoryLimits, ObjectStorage
from localkube.storage.store import Batch

# --- Recorded events: core/v1 and events.k8s.io/v1 are two forms of the same objects, stored in the first -------------

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


Handler = Callable[[JsonObject, User], JsonObject]
"""Responds to a create of a kind that is not stored (reviews).

It gets the object and its user, and returns the object with status.
"""
_CHUNK = 500
T = TypeVar("T")


class Cluster:
    """`async with Cluster(...)` opens the store, creates the built-in namespaces and runs the controllers."""

    def __init__(
        self,
        data_dir: Path | None,
        *,
        clock: Clock,
        limits: HistoryLimits = HistoryLimits(),  # noqa: B008 - frozen
    ) -> None:
        self._data_dir = data_dir
        self._clock = clock
        self._limits = limits
        self._handlers: dict[str, Handler] = {}
        self._stack = AsyncExitStack()
        self.catalog = Catalog(sharing_events(builtin_kinds()))

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self.store = ObjectStorage.open(self._data_dir, clock=self._clock, limits=self._limits)
            stack.push_async_callback(self.store.close)
            self._assemble()
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def register_handler(self, storage_key: str, handler: Handler) -> None:
        """Register the handler of a kind that is not stored, such as subjectaccessreviews.authorization.k8s.io."""
        self._handlers[storage_key] = handler

    @property
    def is_idle(self) -> bool:
        """Return whether the controllers have no queued or running work."""
        return self._background.is_idle

    # --- reading ------------------------------------------------------------------------------------------------------

    async def get(self, kind: ServedKind, namespace: str, name: str, *, resource_version: str = "") -> JsonObject:
        await reject_future(self.store, revision_of(resource_version))
        record = self.store.get(Target(kind, namespace, name).key)
        if record is None:
            raise not_found(kind.resource.plural, name, group=kind.resource.group)
        return self._conversions.read(kind, record)

    async def list(self, kind: ServedKind, query: ListQuery) -> ListResult:
        return await self._lister.list(kind, query)

    def watch(self, kind: ServedKind, query: WatchQuery) -> Watch:
        """Start a watch. Bad options raise here; a 410 and other failures of a running watch raise from the iteration.

        The Watch is an async iterator of WatchEvent and must be closed (`async with` or `close()`).
        """
        return self._watches.open(kind, query)

    # --- writing ------------------------------------------------------------------------------------------------------

    async def create(
        self,
        kind: ServedKind,
        namespace: str,
        obj: JsonObject,
        options: WriteOptions,
        *,
        name: str = "",
        subresource: str = "",
        duplicates: Sequence[str] = (),
    ) -> Written:
        """Create an object; with the subresource `token`, respond to a TokenRequest. The cluster takes over `obj`."""
        if subresource:
            if (kind.storage_key, subresource) != (SERVICE_ACCOUNTS, "token"):
                raise method_not_allowed()
            return Written(self.tokens.request(namespace, name, obj), created=True)
        target = Target(kind, namespace, "")
        if handler := self._handlers.get(kind.storage_key):
            return self._writer.create_unstored(target, obj, options, duplicates, handler)
        return await self._write(lambda: self._writer.create(target, obj, options, duplicates))

    async def update(
        self,
        kind: ServedKind,
        namespace: str,
        name: str,
        obj: JsonObject,
        options: WriteOptions,
        *,
        subresource: str = "",
        duplicates: Sequence[str] = (),
    ) -> Written:
        target = _part(kind, namespace, name, subresource)
        return await self._write(lambda: self._writer.update(target, obj, options, duplicates))

    async def patch(  # noqa: PLR0917 - kind and address, then type and patch, as the request has them
        self,
        kind: ServedKind,
        namespace: str,
        name: str,
        patch_type: PatchType,
        patch: Any,
        options: WriteOptions,
        *,
        subresource: str = "",
        duplicates: Sequence[str] = (),
    ) -> Written:
        target = _part(kind, namespace, name, subresource)
        return await self._write(lambda: self._writer.patch(target, patch_type, patch, options, duplicates))

    async def delete(self, kind: ServedKind, namespace: str, name: str, options: DeleteOptions) -> JsonObject:
        """Delete an object. Return it if finalizers keep it or its kind requires that, else a Status of success."""
        target = Target(kind, namespace, name)
        deleted, batch = await self._decided(lambda: self._deleter.delete(target, options))
        await self._visible(batch)
        return deleted

    async def delete_collection(self, kind: ServedKind, query: ListQuery, options: DeleteOptions) -> ListResult:
        """Delete the objects of a list, and return the list."""
        found = await self.list(kind, query)
        for start in range(0, len(found.items), _CHUNK):
            batch: Batch | None = None
            for obj in found.items[start : start + _CHUNK]:
                metadata = obj["metadata"]
                target = Target(kind, metadata.get("namespace", ""), metadata["name"])
                try:
                    batch = self._deleter.delete(target, options)[1] or batch
                except StatusError as exc:
                    if exc.code != 404:  # another client has deleted it since
                        raise
            await self._visible(batch)
        return found

    async def _write(self, decide: Callable[[], WriteDecision]) -> Written:
        decision = await self._decided(decide)
        await self._visible(decision.batch)
        return decision.written

    async def _decided(self, decide: Callable[[], T]) -> T:
        """Decide; a refusal that depends on an uncommitted write is raised only after that write is committed."""
        try:
            return decide()
        except StatusError:
            await self.store.wait_committed()
            raise

    async def _visible(self, batch: Batch | None) -> None:
        if batch is None:
            await self.store.wait_committed()
        else:
            await batch.committed()

    # --- life ---------------------------------------------------------------------------------------------------------

    def _assemble(self) -> None:
        store, catalog, clock = self.store, self.catalog, self._clock
        self._conversions = Conversions(catalog)
        self._lister = Lister(store, self._conversions)
        self._watches = Watches(store, self._conversions)
        self._writer = Writer(store, catalog, self._conversions, clock)
        self._deleter = Deleter(store, self._conversions, clock)
        self._background = Background(clock)
        self._definitions = Definitions(
            store, catalog, self._writer, self._deleter, self._watches, self._background, clock
        )
        self._writer.after_write = self._after_write
        self.tokens = Tokens(store, clock)

    async def _start(self, stack: AsyncExitStack) -> None:
        self._definitions.start()
        GarbageCollector(self.store, self.catalog, self._writer, self._deleter, self._background).start()
        housekeeping = Housekeeping(self.store, self._watches, self._clock)
        for work in (self._background.work(), self._background.retry(), housekeeping.run()):
            stack.push_async_callback(_stop, asyncio.get_running_loop().create_task(work))
        stack.callback(self._watches.end_all)
        namespaces = Namespaces(
            self.store, self.catalog, self._writer, self._deleter, self._background, clock=self._clock
        )
        await namespaces.start()

    def _after_write(self, target: Target, stored: JsonObject) -> Batch | None:
        if target.kind.storage_key == DEFINITIONS:
            return self._definitions.after_write(target, stored)
        return None


def _part(kind: ServedKind, namespace: str, name: str, subresource: str) -> Target:
    """Return an object or one of its subresources; 404 if the kind does not have that one."""
    if subresource and subresource not in kind.subresources:
        raise not_found(kind.resource.plural, name, group=kind.resource.group)
    return Target(kind, namespace, name, subresource)


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
