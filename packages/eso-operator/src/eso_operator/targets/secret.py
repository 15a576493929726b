"""Secrets as targets.

Secrets are watched as metadata only. Their content is read if the resourceVersion is not the one that we wrote, and to
plan a change. An untouched Secret that already has the desired content costs no request. After a start, the status of
the ExternalSecret says which version we wrote; if there are many others, they are read in pages (`NamespaceReads`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple, TypeVar

from eso_api.externalsecret import ExternalSecret
from eso_operator.targets.metadata import (
    CREATED_BY_LABEL,
    HASH_ANNOTATION,
    MANAGED,
    MANAGED_LABEL,
    NONE,
    ORPHAN,
    OWNER,
    GeneratedMark,
    data_digest,
    field_manager_of,
    is_field_manager,
    is_synced,
    managers_of,
    target_name,
)
from eso_operator.targets.observed import KeyShares, ObservedTargets, TargetMemory
from eso_operator.targets.target import (
    KEEPS_FOREIGN,
    Absent,
    Applied,
    CreateTarget,
    KeepTarget,
    LiveSecret,
    PartlyAppliedError,
    Present,
    Target,
    TargetChange,
    TargetState,
    Untouched,
    UpdateTarget,
    WriteKind,
    choose_change,
    live_secret,
    size_of,
    wanted_digest,
)
from eso_render.rendering import Rendering
from eso_render.secret import Desired, Values, render_secret
from eso_render.templates import TemplateObjects
from kubebase.bounded import BoundedDict
from kubebase.meta import JsonObject, Malformed, Object, ObjectKey, ObjectMeta, Resource, meta_of, metadata_of, raw
from kuberun.cache import Cache
from kuberun.client import Client
from kuberun.controller import parked
from kuberun.errors import ApiError, NotFound
from kuberun.ownership import is_controlled_by
from kuberun.requests import DeleteOptions, Selection, WriteOptions

LARGE: Final = 64 << 10
T = TypeVar("T")


class LargeContent:
    """Runs work on large content in a thread.

    The digest of a Secret of 1 MiB takes a tenth of a second. On the event loop it would delay every other namespace.
    There is a single thread: more threads would only compete with the event loop for the interpreter.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="large-content")

    async def run_in_thread(self, size: int, work: Callable[[], T]) -> T:
        """Run the work in the thread, or directly if the content is small."""
        if size < LARGE:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


SECRETS: Final = Resource("", "v1", "secrets", "Secret")
CREATED_BY_INDEX: Final = "created-by"
_RAW: Final = raw(SECRETS)
_METADATA: Final = metadata_of(SECRETS)


def created_by_of(secret: Object) -> list[tuple[str, str]]:
    """Index Secrets by namespace and by the digest of the ExternalSecret that created them."""
    owner = secret.metadata.labels.get(CREATED_BY_LABEL)
    return [(secret.metadata.namespace, owner)] if owner else []


class SecretTarget(Target):
    """All targets that are Secrets. The process has one."""

    def __init__(self, client: Client, secrets: Cache[Object], rendering: Rendering, memory: TargetMemory) -> None:
        self._client = client
        self._secrets = secrets
        self._rendering = rendering
        self._observed = ObservedTargets(memory)
        self._shares = KeyShares(memory)
        self._large = LargeContent()
        self._pages = NamespaceReads(client, self._live)

    async def read(self, es: ExternalSecret, *, live: bool = False) -> TargetState:
        if live:
            return self._state_of(es, await self._read(es))
        key = _key(es)
        found = self._secrets.get(key)
        if found is None or isinstance(found, Malformed):
            # The cache may be older than our own write: a Secret that we just created is not missing.
            return self._state_of(es, await self._read(es) if self._observed.has(es, key) else None)
        metadata = found.metadata
        if es.spec.target.creation_policy == ORPHAN:
            return Present(metadata, valid=True)
        if metadata.labels.get(MANAGED_LABEL) != MANAGED:
            return Present(metadata, valid=False)
        memory = self._observed.of(es, metadata)
        share = self._shares.verdict(es, metadata) if _may_share(es) else True
        if memory is not None and share is not None:
            return Present(metadata, memory.valid and share)
        if memory is None and _is_recorded(es, metadata):
            self._observed.keep(es, metadata, wanted="", valid=True)
            return Present(metadata, valid=True)
        if memory is None and not _may_share(es) and (intact := await self._pages.is_intact(metadata)) is not None:
            self._observed.keep(es, metadata, wanted="", valid=intact)
            return Present(metadata, intact)
        return self._state_of(es, await self._read(es))

    async def plan(
        self, es: ExternalSecret, values: Values, objects: TemplateObjects, mark: GeneratedMark | None = None
    ) -> TargetChange:
        desired = await self._rendering.run(
            partial(render_secret, es.spec.target, values, owner=es.metadata, objects=objects), es.metadata.namespace
        )
        if es.spec.target.creation_policy == NONE:
            return KeepTarget(Untouched.POLICY_NONE)
        if (version := await self._fulfilled(es, desired)) is not None:
            return KeepTarget(Untouched.UNCHANGED, version)
        key = _key(es)
        live = await self._read(es) if key in self._secrets or self._observed.has(es, key) else None
        size = size_of(desired.data) + (live.size if live is not None else 0)
        change = await self._large.run_in_thread(size, partial(choose_change, es, live, desired, mark))
        if live is not None and isinstance(change, KeepTarget) and change.why is Untouched.UNCHANGED:
            self._observed.keep(es, live.metadata, wanted=wanted_digest(es, desired), valid=True)
            if _may_share(es):
                self._shares.keep(es, live.raw)
            return replace(change, version=live.metadata.resource_version)
        return change

    async def apply(self, es: ExternalSecret, change: CreateTarget | UpdateTarget) -> Applied:
        key, manager = _key(es), field_manager_of(es.metadata.name)
        document = change.document
        if isinstance(change, UpdateTarget):
            document = await self._prepare(key, change, manager)
        # Only an update may force, because its plan checked the ownership. A Secret that appeared since then conflicts.
        force = isinstance(change, UpdateTarget)
        try:
            written = await self._client.apply(_RAW, document, field_manager=manager, force=force)
        except ApiError as problem:
            if isinstance(change, UpdateTarget) and change.patch is not None:
                raise PartlyAppliedError(problem) from problem
            raise
        live = await self._live(written)
        self._observed.keep(es, live.metadata, wanted=change.wanted, valid=live.intact)
        if _may_share(es):
            self._shares.keep(es, written)
        done = WriteKind.CREATED if isinstance(change, CreateTarget) else WriteKind.UPDATED
        return Applied(done, key.name, live.metadata.resource_version if live.intact else "")

    async def delete(self, es: ExternalSecret) -> bool:
        """Delete the Secret if this ExternalSecret controls it. Raises Conflict if it changed since it was read."""
        key = _key(es)
        try:
            found = (await self._client.get(_METADATA, key)).metadata
            if not is_controlled_by(found, es.metadata.uid):
                return False
            exactly = DeleteOptions(uid=found.uid, resource_version=found.resource_version)
            await self._client.delete(_METADATA, key, exactly)
        except NotFound:
            return False
        self._observed.forget(es)
        return True

    def _state_of(self, es: ExternalSecret, live: LiveSecret | None) -> TargetState:
        """Return whether the Secret is present and valid. Under Orphan every state of it is valid.

        A shared target can match its hash and still lack our keys. If our keys are not known, the target counts as
        valid if we are among the ExternalSecrets that write to it, or if there are none.
        """
        if live is None:
            return Absent()
        if es.spec.target.creation_policy == ORPHAN:
            return Present(live.metadata, valid=True)
        held = self._shares.check(es, live.raw) if _may_share(es) else True
        if held is None:
            writers = {name for name in managers_of(live.raw) if is_field_manager(name)}
            held = not writers or field_manager_of(es.metadata.name) in writers
        return Present(live.metadata, live.intact and held)

    async def _fulfilled(self, es: ExternalSecret, desired: Desired) -> str | None:
        """Return the version of the Secret if it is known to have the desired content; None if it must be read."""
        found = self._secrets.get(_key(es))
        memory = self._observed.of(es, found.metadata) if isinstance(found, Object) else None
        if not isinstance(found, Object) or memory is None or not memory.valid:
            return None
        wanted = wanted_digest(es, desired)
        if memory.wanted != wanted:
            if memory.wanted or not await self._has_recorded_content(es, found.metadata, desired):
                return None
            self._observed.keep(es, found.metadata, wanted=wanted, valid=True)
        return found.metadata.resource_version

    async def _has_recorded_content(self, es: ExternalSecret, metadata: ObjectMeta, desired: Desired) -> bool:
        """Return whether a Secret of a former process has the desired content, according to its hash.

        Everything but the data follows from the ExternalSecret, which has not changed since then.
        """
        follows = es.spec.target.template is None or not (
            es.spec.target.template.metadata or es.spec.target.template.template_from
        )
        if not (follows and _is_recorded(es, metadata) and is_synced(es)):
            return False
        digest = await self._large.run_in_thread(size_of(desired.data), partial(data_digest, desired.data))
        return metadata.annotations.get(HASH_ANNOTATION) == digest

    async def _read(self, es: ExternalSecret) -> LiveSecret | None:
        try:
            live = await self._live(await self._client.get(_RAW, _key(es)))
        except NotFound:
            self._observed.forget(es)
            return None
        known = self._observed.of(es, live.metadata)
        self._observed.keep(es, live.metadata, wanted=known.wanted if known else "", valid=live.intact)
        return live

    async def _live(self, found: JsonObject) -> LiveSecret:
        size = sum(len(value or "") for value in (found.get("data") or {}).values())
        return await self._large.run_in_thread(size, partial(live_secret, found))

    async def _prepare(self, key: ObjectKey, change: UpdateTarget, manager: str) -> dict[str, object]:
        """Run the patches that must precede the apply; return the document for the version that they left."""
        document = change.document
        version = document["metadata"]["resourceVersion"]
        if change.convert:
            patched = await self._client.json_patch(_RAW, key, change.convert)
            version = meta_of(patched).resource_version
        if change.patch is not None:
            patch = {**change.patch, "metadata": {**change.patch["metadata"], "resourceVersion": version}}
            patched = await self._client.merge_patch(_RAW, key, patch, options=WriteOptions(field_manager=manager))
            version = meta_of(patched).resource_version
        return {**document, "metadata": {**document["metadata"], "resourceVersion": version}}


def _is_recorded(es: ExternalSecret, metadata: ObjectMeta) -> bool:
    """Return whether the status says that this version of the Secret was valid at the last sync."""
    owned = es.spec.target.creation_policy == OWNER and is_controlled_by(metadata, es.metadata.uid)
    return owned and es.status.synced_target_version == metadata.resource_version


def _may_share(es: ExternalSecret) -> bool:
    return es.spec.target.creation_policy in KEEPS_FOREIGN


def _key(es: ExternalSecret) -> ObjectKey:
    return ObjectKey(es.metadata.namespace, target_name(es))


ENOUGH: Final = 10
"""The first read of this number reads the whole namespace."""
PAGE: Final = 50
"""Secrets on a page. One may have a mebibyte."""
_AT_A_TIME: Final = 2
_MAX_NAMESPACES: Final = 20_000
_MAX_FOUND: Final = 200_000


class _SecretVersion(NamedTuple):
    """One version of a Secret."""

    uid: str
    resource_version: str
    intact: bool


class NamespaceReads:
    """First reads of many targets of one namespace, in pages. `parse` parses a Secret. The process has one.

    After a start the content of every target is unknown: another writer may have changed it while no operator ran. To
    read 50,000 Secrets one by one takes 50,000 requests. So when some targets of a namespace have been read on their
    own, all managed Secrets of the namespace are read in pages. Only whether each is intact is stored, until its
    ExternalSecret is reconciled.
    """

    def __init__(self, client: Client, parse: Callable[[JsonObject], Awaitable[LiveSecret]]) -> None:
        self._client = client
        self._parse = parse
        self._single_reads: BoundedDict[str, int] = BoundedDict(_MAX_NAMESPACES)
        self._read: BoundedDict[str, asyncio.Event] = BoundedDict(_MAX_NAMESPACES)
        self._found: BoundedDict[ObjectKey, _SecretVersion] = BoundedDict(_MAX_FOUND)
        self._reading = asyncio.Semaphore(_AT_A_TIME)

    async def is_intact(self, metadata: ObjectMeta) -> bool | None:
        """Return whether this version of a Secret matches its hash; None if it must be read on its own."""
        namespace = metadata.namespace
        if (read := self._read.get(namespace)) is not None:
            async with parked(cancel_if_deleted=True):
                await read.wait()
        else:
            self._single_reads[namespace] = reads = self._single_reads.get(namespace, 0) + 1
            if reads < ENOUGH:
                return None
            await self._read_all(namespace)
        found = self._found.pop(metadata.key, None)
        if found is None or (found.uid, found.resource_version) != (metadata.uid, metadata.resource_version):
            return None
        return found.intact

    async def _read_all(self, namespace: str) -> None:
        """Read the managed Secrets of a namespace once. If that fails, the rest is read one by one."""
        self._read[namespace] = read = asyncio.Event()
        selection = Selection(namespace, label_selector=f"{MANAGED_LABEL}={MANAGED}")
        try:
            async with parked(cancel_if_deleted=True), self._reading:
                async for page in self._client.pages(_RAW, selection, size=PAGE):
                    for secret in page.items:
                        if not isinstance(secret, Malformed):
                            self._store(await self._parse(secret))
        except ApiError:
            return
        finally:
            read.set()

    def _store(self, live: LiveSecret) -> None:
        meta = live.metadata
        self._found[meta.key] = _SecretVersion(meta.uid, meta.resource_version, live.intact)
