"""An object of any kind as a target.

It is read when it is looked at: kinds are known only at run time, and how the API server completes an object is its own
business. The hash covers `spec`, or `data` where there is none, as the existing operator has it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from eso_api.externalsecret import ExternalSecret
from eso_operator.targets.changes import Change, Create, Keep, Untouched, Update
from eso_operator.targets.hashes import digest
from eso_operator.targets.marks import (
    CREATE_OR_MERGE,
    CREATED_BY_LABEL,
    HASH_ANNOTATION,
    MANAGED,
    MANAGED_LABEL,
    MERGE,
    NONE,
    ORPHAN,
    OWNER,
    controller_reference_of,
    created_by,
    field_manager_of,
    target_name,
)
from eso_operator.targets.plan import ownership_refusal
from eso_operator.targets.target import Absent, Applied, Done, Look, Present
from eso_render.errors import Place, TargetError
from eso_render.manifest import DesiredManifest, render_manifest
from eso_render.scopes import RenderText
from eso_render.secret import Values
from eso_render.sources import TemplateObjects
from kuberun.client import Client
from kuberun.errors import NotFound
from kuberun.meta import JsonObject, Kind, ObjectKey, Resource, meta_of, raw
from kuberun.ownership import is_controlled_by
from kuberun.requests import DeleteOptions

Discover = Callable[[str, str], Awaitable[Resource | None]]
"""The resource of an API version and kind; None if the API server has none."""


class ManifestTarget:
    """All targets that are no plain Secret; one for the process."""

    def __init__(self, client: Client, discover: Discover, render: RenderText) -> None:
        self._client = client
        self._discover = discover
        self._render = render

    async def look(self, es: ExternalSecret) -> Look:
        live = await self._read(es)
        if live is None:
            return Absent()
        metadata = meta_of(live)
        marked = metadata.labels.get(MANAGED_LABEL) == MANAGED
        intact = marked and metadata.annotations.get(HASH_ANNOTATION) == content_digest(live)
        return Present(metadata, intact or es.spec.target.creation_policy == ORPHAN)

    async def plan(self, es: ExternalSecret, values: Values, objects: TemplateObjects) -> Change:
        policy = es.spec.target.creation_policy
        live = await self._read(es)
        merges = policy in (MERGE, CREATE_OR_MERGE)
        desired = render_manifest(
            es.spec.target,
            values,
            owner=es.metadata,
            existing=_cleaned(live) if live is not None and merges else None,
            objects=objects,
            render=self._render,
        )
        if policy == NONE:
            return Keep(Untouched.POLICY_NONE)
        if live is None:
            return Keep(Untouched.MISSING) if policy == MERGE else Create(_document(es, desired), "")
        if refusal := ownership_refusal(es, meta_of(live)):
            return refusal
        document = _document(es, desired)
        return Keep(Untouched.UNCHANGED) if _contains(live, document) else Update(document, "")

    async def apply(self, es: ExternalSecret, change: Create | Update) -> Applied:
        kind = await self._kind(es)
        manager = field_manager_of(es.metadata.name)
        await self._client.apply(kind, change.document, field_manager=manager, force=True)
        return Applied(Done.CREATED if isinstance(change, Create) else Done.UPDATED, target_name(es))

    async def delete(self, es: ExternalSecret) -> bool:
        """Only what this very ExternalSecret controls, and only that very object."""
        live = await self._read(es)
        if live is None or not is_controlled_by(meta_of(live), es.metadata.uid):
            return False
        try:
            await self._client.delete(await self._kind(es), _key(es), DeleteOptions(uid=meta_of(live).uid))
        except NotFound:
            return False
        return True

    async def _read(self, es: ExternalSecret) -> JsonObject | None:
        try:
            return await self._client.get(await self._kind(es), _key(es))
        except NotFound:
            return None

    async def _kind(self, es: ExternalSecret) -> Kind[JsonObject]:
        manifest = es.spec.target.manifest
        if manifest is None:
            raise TargetError("spec.target.manifest must name an apiVersion and a kind", Place(()))
        resource = await self._discover(manifest.api_version, manifest.kind)
        if resource is None or not resource.namespaced:
            what = "is not served by this API server" if resource is None else "is not a namespaced kind"
            raise TargetError(f"{manifest.kind} of {manifest.api_version} {what}", Place(()))
        return raw(resource)


def content_digest(obj: Mapping[str, Any]) -> str:
    """Of the part that is ours to keep."""
    content = obj.get("spec")
    return digest(obj.get("data") if content is None else content)


def _document(es: ExternalSecret, desired: DesiredManifest) -> JsonObject:
    content = desired.content
    metadata = dict(content.get("metadata") or {})
    owned = es.spec.target.creation_policy == OWNER
    labels = {**(metadata.get("labels") or {}), MANAGED_LABEL: MANAGED}
    if owned:
        labels[CREATED_BY_LABEL] = created_by(es)
        metadata["ownerReferences"] = [msgspec.to_builtins(controller_reference_of(es))]
    annotations = {**(metadata.get("annotations") or {}), HASH_ANNOTATION: content_digest(content)}
    return {**content, "metadata": {**metadata, "labels": labels, "annotations": annotations}}


def _cleaned(live: JsonObject) -> JsonObject:
    """The object without what only the API server writes, and without our own bookkeeping."""
    dropped = ("managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "selfLink")
    metadata = {key: value for key, value in (live.get("metadata") or {}).items() if key not in dropped}
    return {key: value for key, value in live.items() if key != "status"} | {"metadata": metadata}


def _contains(live: Any, wanted: Any) -> bool:
    """Whether everything that is wanted is there; what the API server added does not count."""
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(
            key in live and _contains(live[key], each) for key, each in wanted.items()
        )
    if isinstance(wanted, list):
        same = isinstance(live, list) and len(live) >= len(wanted)
        return same and all(any(_contains(have, each) for have in live) for each in wanted)
    return bool(live == wanted)


def _key(es: ExternalSecret) -> ObjectKey:
    return ObjectKey(es.metadata.namespace, target_name(es))
