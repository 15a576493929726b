"""The controller of namespaces: creates the built-in ones and default service accounts, empties deleted ones."""

from __future__ import annotations

from collections import Counter

from kubebase.clock import Clock, rfc3339
from kubebase.meta import JsonObject
from localkube.cluster import metadata as meta
from localkube.cluster.background import Background
from localkube.cluster.catalog import Catalog, Target
from localkube.cluster.deletion import Deleter
from localkube.cluster.metadata import NAMESPACES, SERVICE_ACCOUNTS
from localkube.cluster.writes import Writer
from localkube.model import DeleteOptions, ServedKind, User, WriteOptions
from localkube.storage import Change, Key, ObjectStorage, Record
from localkube.storage.store import Batch

INITIAL = ("default", "kube-node-lease", "kube-public", "kube-system")
USER = User("system:serviceaccount:kube-system:namespace-controller")
MANAGER = "kube-controller-manager"
_FINALIZER = "kubernetes"
_CHUNK = 500
"""Objects deleted in one turn, so that emptying a large namespace does not delay other requests."""
_FINE = {
    "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure": (
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}


class Namespaces:
    def __init__(
        self,
        store: ObjectStorage,
        catalog: Catalog,
        writer: Writer,
        deleter: Deleter,
        background: Background,
        *,
        clock: Clock,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._writer = writer
        self._deleter = deleter
        self._background = background
        self._clock = clock
        self._terminating: set[str] = set()

    async def start(self) -> None:
        """Create the missing namespaces, and follow every change from here on."""
        self._store.listen(self._on_change)
        kind = self._kind(NAMESPACES)
        batches = []
        for name in INITIAL:
            if self._store.latest(Key(NAMESPACES, "", name)) is None:
                manifest = _manifest(kind, {"name": name})
                options = WriteOptions(User("system:apiserver"), field_manager="kube-apiserver")
                batches.append(self._writer.create(Target(kind, "", name), manifest, options).batch)
        for batch in batches:
            if batch is not None:
                await batch.committed()
        for path, record in self._store.scan(NAMESPACES):
            self._note(path, record)

    async def ensure_service_account(self, key: Key) -> None:
        """Create the `default` ServiceAccount of a namespace."""
        namespace = self._store.latest(Key(NAMESPACES, "", key.name))
        if namespace is None or meta.is_marked(namespace):
            return
        if self._store.latest(Key(SERVICE_ACCOUNTS, key.name, "default")) is not None:
            return
        kind = self._kind(SERVICE_ACCOUNTS)
        manifest = _manifest(kind, {"name": "default", "namespace": key.name})
        options = WriteOptions(
            User("system:serviceaccount:kube-system:service-account-controller"), field_manager=MANAGER
        )
        batch = self._writer.create(Target(kind, key.name, "default"), manifest, options).batch
        if batch is not None:
            await batch.committed()

    async def empty(self, key: Key) -> None:
        """Delete the content of a namespace that is being deleted, then remove its finalizer."""
        namespace = self._store.latest(key)
        if namespace is None or not meta.is_marked(namespace):
            return
        obj = namespace.decode()
        if _FINALIZER not in (obj.get("spec") or {}).get("finalizers", ()):
            return
        content = self._content(key.name)
        waiting = [(target, record) for target, record in content if not meta.is_marked(record)]
        if waiting:
            await self._delete(waiting[:_CHUNK])
            self._background.queue(self.empty, key)
            return
        await self._report(key, content)

    def _on_change(self, change: Change) -> None:
        if change.key.resource == NAMESPACES:
            if change.type == "DELETED":
                self._terminating.discard(change.key.name)
            else:
                self._note(change.key.name, change.record)
        elif change.type == "DELETED":
            if change.key.namespace in self._terminating:
                self._background.queue(self.empty, Key(NAMESPACES, "", change.key.namespace))
            elif change.key.resource == SERVICE_ACCOUNTS and change.key.name == "default":
                self._background.queue(self.ensure_service_account, Key(NAMESPACES, "", change.key.namespace))

    def _note(self, name: str, record: Record) -> None:
        key = Key(NAMESPACES, "", name)
        if meta.is_marked(record):
            self._terminating.add(name)
            self._background.queue(self.empty, key)
        elif self._store.latest(Key(SERVICE_ACCOUNTS, name, "default")) is None:
            self._background.queue(self.ensure_service_account, key)

    def _content(self, namespace: str) -> list[tuple[Target, Record]]:
        found = []
        for resource in self._store.resources():
            kind = self._catalog.stored(resource)
            if kind is None or not kind.resource.namespaced:
                continue
            for path, record in self._store.latest_scan(resource, namespace):
                found.append((Target(kind, namespace, path.rpartition("/")[2]), record))
        return found

    async def _delete(self, content: list[tuple[Target, Record]]) -> None:
        last: Batch | None = None
        for target, record in content:
            options = DeleteOptions(USER, uid=record.uid, propagation="Background")
            last = self._deleter.delete(target, options)[1] or last
        if last is not None:
            await last.committed()

    async def _report(self, key: Key, left: list[tuple[Target, Record]]) -> None:
        """Report the remaining content in the status; remove our finalizer once the namespace is empty."""
        target = Target(self._kind(NAMESPACES), "", key.name, "finalize" if not left else "status")
        if left:
            conditions = _conditions(left, rfc3339(self._clock.now()))
            batch = self._writer.save(target, lambda new: _set_conditions(new, conditions), manager=MANAGER)
        else:
            batch = self._writer.save(target, _release, manager=MANAGER)
        if batch is not None:
            await batch.committed()

    def _kind(self, storage_key: str) -> ServedKind:
        kind = self._catalog.stored(storage_key)
        if kind is None:
            raise LookupError(f"{storage_key} is not among the built-in kinds")
        return kind


def _manifest(kind: ServedKind, metadata: JsonObject) -> JsonObject:
    return {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind, "metadata": metadata}


def _release(namespace: JsonObject) -> None:
    finalizers = [name for name in namespace["spec"].get("finalizers", ()) if name != _FINALIZER]
    namespace["spec"] = {"finalizers": finalizers} if finalizers else {}


def _set_conditions(namespace: JsonObject, conditions: list[JsonObject]) -> None:
    """Replace the conditions that changed; a condition keeps its transition time while its status stays the same."""
    status = namespace.setdefault("status", {})
    before = {one["type"]: one for one in status.get("conditions") or []}
    for condition in conditions:
        old = before.get(condition["type"])
        if old is not None and old["status"] == condition["status"]:
            condition["lastTransitionTime"] = old["lastTransitionTime"]
    status["conditions"] = conditions


def _conditions(left: list[tuple[Target, Record]], now: str) -> list[JsonObject]:
    resources = Counter(str(target.resource) for target, _ in left)
    finalizers = Counter(name for _, record in left for name in meta.finalizers_of(record.decode()))
    trouble = {}
    what = ", ".join(f"{name}. has {count} resource instances" for name, count in sorted(resources.items()))
    trouble["NamespaceContentRemaining"] = ("SomeResourcesRemain", f"Some resources are remaining: {what}")
    if finalizers:
        what = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(finalizers.items()))
        message = f"Some content in the namespace has finalizers remaining: {what}"
        trouble["NamespaceFinalizersRemaining"] = ("SomeFinalizersRemain", message)
    return [
        {
            "type": name,
            "status": "True" if name in trouble else "False",
            "lastTransitionTime": now,
            "reason": trouble.get(name, fine)[0],
            "message": trouble.get(name, fine)[1],
        }
        for name, fine in _FINE.items()
    ]
