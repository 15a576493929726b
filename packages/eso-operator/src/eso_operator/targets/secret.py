"""A Secret as a target.

Secrets are watched as metadata only. The content of one is read when its version is not the one we wrote, and when a
change has to be planned; an untouched Secret that already fulfils the wish costs no request.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from eso_api.externalsecret import ExternalSecret
from eso_operator.targets.changes import Change, Create, Keep, Untouched, Update
from eso_operator.targets.managedfields import managers_of
from eso_operator.targets.marks import (
    CREATED_BY_LABEL,
    MANAGED,
    MANAGED_LABEL,
    NONE,
    ORPHAN,
    field_manager_of,
    is_field_manager,
    target_name,
)
from eso_operator.targets.plan import KEEPS_FOREIGN, LiveSecret, live_secret, plan, wanted_digest
from eso_operator.targets.shares import Shares
from eso_operator.targets.target import Absent, Applied, Done, Look, Memories, PartlyAppliedError, Present
from eso_render.rendering import Rendering
from eso_render.secret import Desired, Values, render_secret
from eso_render.sources import TemplateObjects
from kuberun.cache import Store
from kuberun.client import Client
from kuberun.errors import ApiError, NotFound
from kuberun.meta import Malformed, Object, ObjectKey, Resource, meta_of, metadata_of, raw
from kuberun.ownership import is_controlled_by
from kuberun.requests import DeleteOptions, WriteOptions

SECRETS: Final = Resource("", "v1", "secrets", "Secret")
CREATED_BY_INDEX: Final = "created-by"
_RAW: Final = raw(SECRETS)
_METADATA: Final = metadata_of(SECRETS)


def created_by_of(secret: Object) -> list[tuple[str, str]]:
    """The index through which the Secrets of an ExternalSecret are found: namespace and the owner's digest."""
    owner = secret.metadata.labels.get(CREATED_BY_LABEL)
    return [(secret.metadata.namespace, owner)] if owner else []


class SecretTarget:
    """All Secrets; one for the process."""

    def __init__(self, client: Client, secrets: Store[Object], rendering: Rendering, memories: Memories) -> None:
        self._client = client
        self._secrets = secrets
        self._rendering = rendering
        self._memories = memories
        self._shares = Shares()

    async def look(self, es: ExternalSecret) -> Look:
        key = _key(es)
        found = self._secrets.get(key)
        if found is None or isinstance(found, Malformed):
            # The cache may be behind our own write: what was just created is not missing.
            return self._seen(es, await self._read(key) if self._memories.has(key) else None)
        metadata = found.metadata
        if es.spec.target.creation_policy == ORPHAN:
            return Present(metadata, valid=True)
        if metadata.labels.get(MANAGED_LABEL) != MANAGED:
            return Present(metadata, valid=False)
        memory = self._memories.of(metadata)
        share = self._shares.verdict(es, metadata) if _may_share(es) else True
        if memory is not None and share is not None:
            return Present(metadata, memory.valid and share)
        return self._seen(es, await self._read(key))

    async def plan(self, es: ExternalSecret, values: Values, objects: TemplateObjects) -> Change:
        desired = await self._rendering.run(
            partial(render_secret, es.spec.target, values, owner=es.metadata, objects=objects), es.metadata.namespace
        )
        if es.spec.target.creation_policy == NONE:
            return Keep(Untouched.POLICY_NONE)
        if self._fulfilled(es, desired):
            return Keep(Untouched.UNCHANGED)
        key = _key(es)
        live = await self._read(key) if key in self._secrets or self._memories.has(key) else None
        change = plan(es, live, desired)
        if live is not None and isinstance(change, Keep) and change.why is Untouched.UNCHANGED:
            self._memories.keep(live.metadata, wanted=wanted_digest(es, desired), valid=True)
            if _may_share(es):
                self._shares.keep(es, live.raw)
        return change

    async def apply(self, es: ExternalSecret, change: Create | Update) -> Applied:
        key, manager = _key(es), field_manager_of(es.metadata.name)
        document = change.document
        if isinstance(change, Update):
            document = await self._prepare(key, change, manager)
        # Force is for a Secret whose ownership was settled. One that appeared meanwhile is a conflict, not a prey.
        force = isinstance(change, Update)
        try:
            written = await self._client.apply(_RAW, document, field_manager=manager, force=force)
        except ApiError as problem:
            if isinstance(change, Update) and change.patch is not None:
                raise PartlyAppliedError(problem) from problem
            raise
        self._memories.keep(meta_of(written), wanted=change.wanted, valid=live_secret(written).matches_its_hash)
        if _may_share(es):
            self._shares.keep(es, written)
        return Applied(Done.CREATED if isinstance(change, Create) else Done.UPDATED, key.name)

    async def delete(self, es: ExternalSecret) -> bool:
        """Only what this very ExternalSecret controls, and only as it was seen; else a Conflict."""
        key = _key(es)
        try:
            seen = (await self._client.get(_METADATA, key)).metadata
            if not is_controlled_by(seen, es.metadata.uid):
                return False
            exactly = DeleteOptions(uid=seen.uid, resource_version=seen.resource_version)
            await self._client.delete(_METADATA, key, exactly)
        except NotFound:
            return False
        self._memories.forget(key)
        return True

    def _seen(self, es: ExternalSecret, live: LiveSecret | None) -> Look:
        """What others share may be as its hash says, and lack what is ours.

        If it is not known what that is, then whether it holds anything of ours, should it be somebody's like us.
        """
        if live is None:
            return Absent()
        held = self._shares.look(es, live.raw) if _may_share(es) else True
        if held is None:
            writers = {name for name in managers_of(live.raw) if is_field_manager(name)}
            held = not writers or field_manager_of(es.metadata.name) in writers
        return Present(live.metadata, live.matches_its_hash and held)

    def _fulfilled(self, es: ExternalSecret, desired: Desired) -> bool:
        found = self._secrets.get(_key(es))
        memory = self._memories.of(found.metadata) if isinstance(found, Object) else None
        return memory is not None and memory.valid and memory.wanted == wanted_digest(es, desired)

    async def _read(self, key: ObjectKey) -> LiveSecret | None:
        try:
            live = live_secret(await self._client.get(_RAW, key))
        except NotFound:
            self._memories.forget(key)
            return None
        known = self._memories.of(live.metadata)
        self._memories.keep(live.metadata, wanted=known.wanted if known else "", valid=live.matches_its_hash)
        return live

    async def _prepare(self, key: ObjectKey, change: Update, manager: str) -> dict[str, object]:
        """What server-side apply cannot do itself, first; then it must meet the version that this left."""
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


def _may_share(es: ExternalSecret) -> bool:
    return es.spec.target.creation_policy in KEEPS_FOREIGN


def _key(es: ExternalSecret) -> ObjectKey:
    return ObjectKey(es.metadata.namespace, target_name(es))
