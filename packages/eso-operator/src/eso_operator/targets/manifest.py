"""Targets of any kind.

The object is read at every reconcile, because its kind is known only at run time. The hash covers `spec`, or `data` if
there is no spec, as in the Go operator. If the API server adds defaults, the resourceVersion of our own write counts as
intact too.

Unlike a Secret, the object is replaced as a whole, with optimistic locking. Under Owner and Orphan, additions of others
are removed. Under Merge and CreateOrMerge, the new object is built on the live one, lists included, which server-side
apply cannot do. Before that, keys of data, labels and annotations that we own by managedFields are removed from the
live object; the render adds those that are still wanted.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from functools import partial
from typing import Any, Final

import msgspec

from eso_api.externalsecret import ExternalSecret
from eso_api.validation import manifest_problems
from eso_operator.targets.metadata import (
    CREATED_BY_LABEL,
    HASH_ANNOTATION,
    MANAGED,
    MANAGED_LABEL,
    MERGE,
    NONE,
    ORPHAN,
    OWNER,
    SECTIONS,
    GeneratedMark,
    beginning,
    created_by,
    digest,
    field_manager_of,
    fields_of,
    generated_annotation,
    marked,
    target_name,
)
from eso_operator.targets.observed import KeyShares, ObservedTargets, TargetMemory
from eso_operator.targets.target import (
    KEEPS_FOREIGN,
    Absent,
    Applied,
    CreateTarget,
    KeepTarget,
    Present,
    Target,
    TargetChange,
    TargetState,
    UnknownKindError,
    Untouched,
    UpdateTarget,
    WriteKind,
    owners_after,
    ownership_refusal,
)
from eso_render.errors import TargetError, TemplatePath
from eso_render.manifest import render_manifest
from eso_render.rendering import Rendering
from eso_render.secret import Values
from eso_render.templates import TemplateObjects
from kubebase.meta import JsonObject, Kind, ObjectKey, ObjectMeta, Resource, meta_of, raw
from kuberun.client import Client
from kuberun.errors import ApiError, NotFound
from kuberun.ownership import is_controlled_by
from kuberun.requests import DeleteOptions, WriteOptions

Discover = Callable[[str, str], Awaitable[Resource | None]]
"""Returns the resource of an API version and kind; None if the API server does not serve it."""

Follow = Callable[[Resource], Awaitable[None]]
"""Starts to report changes of managed objects of a kind to their dependants."""

_DENIED_GROUPS: Final = re.compile(r"rbac\.authorization\.k8s\.io|(.+\.)?external-secrets\.io")
"""Kinds that the operator may write for itself, but not as a target, because that would escalate the rights of users:
a PushSecret can read any Secret of its namespace, a RoleBinding grants rights."""
_WITHOUT_CONTENT: Final = frozenset(
    {
        ("", "Binding"),
        ("", "Endpoints"),
        ("", "Event"),
        ("", "PodTemplate"),
        ("", "ServiceAccount"),
        ("discovery.k8s.io", "EndpointSlice"),
        ("events.k8s.io", "Event"),
    }
)
"""Namespaced kinds of Kubernetes that keep neither spec nor data. Of other kinds, only the answer to a write tells."""
_SERVERS_OWN: Final = ("managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "selfLink")


class ManifestTarget(Target):
    """All targets that are not plain Secrets. The process has one."""

    def __init__(
        self, client: Client, discover: Discover, follow: Follow, *, rendering: Rendering, memory: TargetMemory
    ) -> None:
        self._client = client
        self._discover = discover
        self._follow = follow
        self._rendering = rendering
        self._observed = ObservedTargets(memory)
        self._shares = KeyShares(memory)

    async def read(self, es: ExternalSecret, *, live: bool = True) -> TargetState:
        del live  # it is always read
        if es.spec.target.creation_policy == NONE:
            return Absent()
        await self._follow((await self._kind(es)).resource)
        found = await self._read(es)
        if found is None:
            return Absent()
        metadata = meta_of(found)
        if metadata.labels.get(MANAGED_LABEL) != MANAGED:
            return Present(metadata, valid=es.spec.target.creation_policy == ORPHAN)
        ours = self._observed.of(es, metadata)
        intact = ours is not None or metadata.annotations.get(HASH_ANNOTATION) == content_digest(found)
        if es.spec.target.creation_policy in KEEPS_FOREIGN and self._shares.check(es, found) is False:
            return Present(metadata, valid=False)
        return Present(metadata, intact or es.spec.target.creation_policy == ORPHAN)

    async def plan(
        self, es: ExternalSecret, values: Values, objects: TemplateObjects, mark: GeneratedMark | None = None
    ) -> TargetChange:
        policy = es.spec.target.creation_policy
        live = None if policy == NONE else await self._read(es)
        merges = policy in KEEPS_FOREIGN
        desired = await self._rendering.run(
            partial(
                render_manifest,
                es.spec.target,
                values,
                owner=es.metadata,
                existing=_of_others(es, live) if live is not None and merges else None,
                objects=objects,
            ),
            es.metadata.namespace,
        )
        if policy == NONE:
            return KeepTarget(Untouched.POLICY_NONE)
        if live is None:
            if policy == MERGE:
                return KeepTarget(Untouched.MISSING)
            document = _document(es, desired.content, ObjectMeta())
            return CreateTarget(_annotated(document, marked(es, {}, mark, unchanged=False)), digest(document))
        metadata = meta_of(live)
        if refusal := ownership_refusal(es, metadata):
            return refusal
        document = _document(es, desired.content, metadata)
        wanted, known = digest(document), self._observed.of(es, metadata)
        held = _cleaned(live) if mark is None else _without_mark(es, _cleaned(live))
        if (known is not None and known.wanted == wanted) or _same(held, document):
            self._observed.keep(es, metadata, wanted=wanted, valid=True)
            self._shares.keep(es, live)
            return KeepTarget(Untouched.UNCHANGED)
        same = content_digest(document) == content_digest(live)
        document = _annotated(document, marked(es, metadata.annotations, mark, unchanged=same))
        return UpdateTarget(_over(live, document, field_manager_of(es.metadata.name)), wanted)

    async def apply(self, es: ExternalSecret, change: CreateTarget | UpdateTarget) -> Applied:
        kind, options = await self._kind(es), WriteOptions(field_manager=field_manager_of(es.metadata.name))
        if isinstance(change, CreateTarget):
            written = await self._client.create(kind, change.document, options=options)
        else:
            written = await self._client.update(kind, change.document, options=options)
        if written.get("spec") is None and written.get("data") is None:
            if isinstance(change, CreateTarget):
                await self._withdraw(kind, meta_of(written))
            raise TargetError(_has_no_content(kind.resource), TemplatePath(()))
        self._observed.keep(es, meta_of(written), wanted=change.wanted, valid=True)
        self._shares.keep(es, written)
        return Applied(WriteKind.CREATED if isinstance(change, CreateTarget) else WriteKind.UPDATED, target_name(es))

    async def _withdraw(self, kind: Kind[JsonObject], made: ObjectMeta) -> None:
        """Delete an object that we just created, unless another writer changed it."""
        exactly = DeleteOptions(uid=made.uid, resource_version=made.resource_version)
        with suppress(ApiError):
            await self._client.delete(kind, made.key, exactly)

    async def delete(self, es: ExternalSecret) -> bool:
        """Delete the object if this ExternalSecret controls it. Raises Conflict if it changed since it was read."""
        try:
            live = await self._read(es)
            if live is None or not is_controlled_by(meta_of(live), es.metadata.uid):
                return False
            found = meta_of(live)
            exactly = DeleteOptions(uid=found.uid, resource_version=found.resource_version)
            await self._client.delete(await self._kind(es), _key(es), exactly)
        except (NotFound, UnknownKindError):
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
            raise UnknownKindError("spec.target.manifest must name an apiVersion and a kind")
        if problems := manifest_problems(es.spec.target):
            raise UnknownKindError("; ".join(map(str, problems)))
        resource = await self._discover(manifest.api_version, manifest.kind)
        # Check the API version of the server: a user can spell the same one differently.
        if is_denied(manifest.api_version if resource is None else resource.api_version):
            raise UnknownKindError(f"{manifest.kind} of {manifest.api_version} may not be a target: write it yourself")
        if resource is None or not resource.namespaced:
            what = "is not served by this API server" if resource is None else "is not a namespaced kind"
            raise UnknownKindError(f"{manifest.kind} of {manifest.api_version} {what}")
        if (resource.group, resource.kind) in _WITHOUT_CONTENT:
            raise UnknownKindError(_has_no_content(resource))
        return raw(resource)


def _has_no_content(resource: Resource) -> str:
    return f"{resource.kind} keeps neither spec nor data: use another kind"


def is_denied(api_version: str) -> bool:
    """Return whether kinds of this API version may not be targets."""
    return _DENIED_GROUPS.fullmatch(api_version.rpartition("/")[0]) is not None


def content_digest(obj: Mapping[str, Any]) -> str:
    """Return the digest of `spec`, or of `data` if there is no spec."""
    content = obj.get("spec")
    return digest(obj.get("data") if content is None else content)


def _document(es: ExternalSecret, content: JsonObject, live: ObjectMeta) -> JsonObject:
    """Return the object with our marks. Finalizers and owners of others stay under every policy."""
    metadata = dict(content.get("metadata") or {})
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key != CREATED_BY_LABEL}
    labels |= {MANAGED_LABEL: MANAGED}
    if es.spec.target.creation_policy == OWNER:
        labels |= {CREATED_BY_LABEL: created_by(es)}
    metadata["labels"] = labels
    annotations = {
        key: text for key, text in (metadata.get("annotations") or {}).items() if key != generated_annotation(es)
    }
    metadata["annotations"] = {**annotations, HASH_ANNOTATION: content_digest(content)}
    owners = [msgspec.to_builtins(reference) for reference in owners_after(es, live)]
    for name, kept in (("ownerReferences", owners), ("finalizers", list(live.finalizers))):
        metadata.pop(name, None)
        if kept:
            metadata[name] = kept
    return {**content, "metadata": metadata}


def _annotated(document: JsonObject, added: Mapping[str, str]) -> JsonObject:
    metadata = document["metadata"]
    return {**document, "metadata": {**metadata, "annotations": {**metadata["annotations"], **added}}}


def _without_mark(es: ExternalSecret, live: JsonObject) -> JsonObject:
    """Return the object without the annotation about generated values, whose time is no reason for a write."""
    metadata = live["metadata"]
    kept = {key: text for key, text in (metadata.get("annotations") or {}).items() if key != generated_annotation(es)}
    return {**live, "metadata": {**metadata, "annotations": kept}}


def _over(live: JsonObject, document: JsonObject, manager: str) -> JsonObject:
    """Return the document as an update of exactly this version; it starts our entry of managedFields if needed."""
    metadata = meta_of(live)
    version: JsonObject = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
    if first := beginning(live, manager, ("metadata", "annotations", HASH_ANNOTATION)):
        version["managedFields"] = first
    return {**document, "metadata": {**document["metadata"], **version}}


def _cleaned(live: JsonObject) -> JsonObject:
    """Return the object without status and without metadata that only the API server writes."""
    metadata = {key: value for key, value in (live.get("metadata") or {}).items() if key not in _SERVERS_OWN}
    return {key: value for key, value in live.items() if key != "status"} | {"metadata": metadata}


def _of_others(es: ExternalSecret, live: JsonObject) -> JsonObject:
    """Return the live object without our own fields, so that a merge drops those that are obsolete."""
    base = deepcopy(_cleaned(live))
    for *section, key in fields_of(live, field_manager_of(es.metadata.name)).ours:
        held: Any = base
        for step in section:
            held = held.get(step) if isinstance(held, dict) else None
        if isinstance(held, dict) and tuple(section) in SECTIONS:
            held.pop(key, None)
    return base


def _same(live: JsonObject, wanted: JsonObject) -> bool:
    """Return whether both objects are equal; absent and empty fields are the same."""
    parts = {*live, *wanted} - {"metadata"}
    return _filled(live["metadata"]) == _filled(wanted["metadata"]) and all(
        (live.get(part) or None) == (wanted.get(part) or None) for part in parts
    )


def _filled(metadata: JsonObject) -> JsonObject:
    return {key: value for key, value in metadata.items() if value}


def _key(es: ExternalSecret) -> ObjectKey:
    return ObjectKey(es.metadata.namespace, target_name(es))
