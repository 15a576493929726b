"""From the Secret that is there and the one that is wanted to what has to be done. Pure; the policy matrix is its test.

What is ours is what managedFields say is ours. Under Owner and Orphan the whole data is ours to decide, and foreign
keys go; under Merge and CreateOrMerge they stay. Server-side apply drops what only we own and no longer want; what
others own too needs a patch, which brings the rest of the change along.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from eso_api.externalsecret import SECRET_TYPE_LABEL, ExternalSecret
from eso_api.references import CORE_GROUP
from eso_api.values import SecretBytes
from eso_operator.targets.changes import Change, Create, Keep, Refusal, Refuse, Untouched, Update
from eso_operator.targets.hashes import data_digest, digest
from eso_operator.targets.managedfields import FINALIZERS, OWNERS, Fields, conversion, fields_of
from eso_operator.targets.marks import (
    CREATE_OR_MERGE,
    CREATED_BY_LABEL,
    HASH_ANNOTATION,
    MANAGED,
    MANAGED_LABEL,
    MERGE,
    NONE,
    OWNER,
    controller_reference_of,
    created_by,
    field_manager_of,
    target_name,
)
from eso_render.secret import Desired
from kuberun.meta import JsonObject, ObjectMeta, OwnerReference, meta_of
from kuberun.ownership import controller_of

KEEPS_FOREIGN = (MERGE, CREATE_OR_MERGE)


@dataclass(frozen=True, slots=True)
class LiveSecret:
    """A Secret as it is, in full."""

    metadata: ObjectMeta
    data: dict[str, SecretBytes]
    type: str
    immutable: bool
    raw: JsonObject = field(repr=False)

    @property
    def matches_its_hash(self) -> bool:
        """Nobody changed the data since it was written."""
        marked = self.metadata.labels.get(MANAGED_LABEL) == MANAGED
        return marked and self.metadata.annotations.get(HASH_ANNOTATION) == data_digest(self.data)


def live_secret(raw: JsonObject) -> LiveSecret:
    """A Secret as the API server sent it."""
    data = {key: SecretBytes(base64.b64decode(value or "")) for key, value in (raw.get("data") or {}).items()}
    return LiveSecret(meta_of(raw), data, str(raw.get("type") or ""), bool(raw.get("immutable")), raw)


def wanted_digest(es: ExternalSecret, desired: Desired) -> str:
    """Equal for equal wishes: with an untouched Secret, nothing has to be read or written."""
    policy = es.spec.target.creation_policy
    wish: list[Any] = [policy, target_name(es), desired.type, str(desired.immutable), desired.data, desired.labels]
    return digest([*wish, desired.annotations, list(desired.finalizers), es.metadata.uid])


def plan(es: ExternalSecret, live: LiveSecret | None, desired: Desired) -> Change:
    """What to do so that the Secret is as the ExternalSecret wants it."""
    policy = es.spec.target.creation_policy
    if policy == NONE:
        return Keep(Untouched.POLICY_NONE)
    if live is None:
        if policy == MERGE:
            return Keep(Untouched.MISSING)
        return Create(_document(es, desired, data_digest(desired.data)), wanted_digest(es, desired))
    if refusal := ownership_refusal(es, live.metadata):
        return refusal
    return _update(es, live, desired)


def _update(es: ExternalSecret, live: LiveSecret, desired: Desired) -> Change:
    manager = field_manager_of(es.metadata.name)
    fields = fields_of(live.raw, manager)
    if SECRET_TYPE_LABEL in live.metadata.labels and ("metadata", "labels", SECRET_TYPE_LABEL) not in fields.ours:
        return Refuse(Refusal.RESERVED, str(live.metadata.key))
    frozen = es.spec.target.immutable
    after = _frozen(es, live) if frozen else _after(es, live, fields, desired)
    if after == _Shape.of(live):
        return Keep(Untouched.UNCHANGED)
    if live.immutable and (after.data != live.data or after.type != live.type):
        return Refuse(Refusal.IMMUTABLE, str(live.metadata.key))
    return Update(
        document=_updated(es, live, fields, desired=_as_it_is(live, fields) if frozen else desired, after=after),
        wanted=wanted_digest(es, desired),
        convert=conversion(live.raw, manager),
        patch=_patch(live, after, fields),
    )


def ownership_refusal(es: ExternalSecret, metadata: ObjectMeta) -> Refuse | None:
    """One object has one controller; the group and kind of a reference decide, not its version."""
    controller = controller_of(metadata.owner_references)
    if controller is None or _is(controller, es):
        return None
    by = f"{controller.kind} {controller.name}"
    if _is_external_secret(controller):
        return Refuse(Refusal.OWNED_BY_ANOTHER, by)
    return Refuse(Refusal.CONTROLLED, by) if es.spec.target.creation_policy == OWNER else None


def owners_after(es: ExternalSecret, metadata: ObjectMeta) -> tuple[OwnerReference, ...]:
    """The owners of a target: ours among them under Owner and not otherwise, all others as they are."""
    if es.spec.target.creation_policy != OWNER:
        return tuple(reference for reference in metadata.owner_references if not _is(reference, es))
    ours = controller_reference_of(es)
    if any(_is(reference, es) for reference in metadata.owner_references):
        return tuple(ours if _is(reference, es) else reference for reference in metadata.owner_references)
    return (*metadata.owner_references, ours)


def _is(reference: OwnerReference, es: ExternalSecret) -> bool:
    return _is_external_secret(reference) and reference.name == es.metadata.name


def _is_external_secret(reference: OwnerReference) -> bool:
    return reference.kind == "ExternalSecret" and reference.api_version.partition("/")[0] == CORE_GROUP


# --- what it comes to -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Shape:
    """Everything of a Secret that we may change."""

    data: dict[str, SecretBytes]
    type: str
    immutable: bool
    labels: dict[str, str]
    annotations: dict[str, str]
    owners: tuple[OwnerReference, ...]
    finalizers: frozenset[str]

    @classmethod
    def of(cls, live: LiveSecret) -> _Shape:
        meta = live.metadata
        owners, finalizers = tuple(meta.owner_references), frozenset(meta.finalizers)
        return cls(live.data, live.type, live.immutable, meta.labels, meta.annotations, owners, finalizers)


def _after(es: ExternalSecret, live: LiveSecret, fields: Fields, desired: Desired) -> _Shape:
    """The Secret as it will be."""
    policy, meta = es.spec.target.creation_policy, live.metadata
    foreign = {key: value for key, value in live.data.items() if ("data", key) not in fields.ours}
    data = {**foreign, **desired.data} if policy in KEEPS_FOREIGN else dict(desired.data)
    labels = _others_of(meta.labels, fields, "labels") | _labels(es, desired)
    if policy != OWNER:
        labels.pop(CREATED_BY_LABEL, None)
    annotations = _others_of(meta.annotations, fields, "annotations") | desired.annotations
    return _Shape(
        data=data,
        type=desired.type or live.type,
        immutable=live.immutable or desired.immutable,
        labels=labels,
        annotations={**annotations, HASH_ANNOTATION: data_digest(data)},
        owners=owners_after(es, meta),
        finalizers=frozenset(meta.finalizers) | _finalizers(desired, meta),
    )


def _others_of(entries: Mapping[str, str], fields: Fields, section: str) -> dict[str, str]:
    return {key: value for key, value in entries.items() if ("metadata", section, key) not in fields.ours}


def _labels(es: ExternalSecret, desired: Desired) -> dict[str, str]:
    owner = {CREATED_BY_LABEL: created_by(es)} if es.spec.target.creation_policy == OWNER else {}
    return {**desired.labels, **owner, MANAGED_LABEL: MANAGED}


def _finalizers(desired: Desired, meta: ObjectMeta) -> frozenset[str]:
    return frozenset() if meta.deletion_timestamp else frozenset(desired.finalizers)


def _frozen(es: ExternalSecret, live: LiveSecret) -> _Shape:
    """An immutable target that exists keeps its content, whatever it is; only the marks on it may still change."""
    meta, before = live.metadata, _Shape.of(live)
    owned = es.spec.target.creation_policy == OWNER
    labels = {key: value for key, value in meta.labels.items() if key != CREATED_BY_LABEL}
    marks = {MANAGED_LABEL: MANAGED} | ({CREATED_BY_LABEL: created_by(es)} if owned else {})
    return replace(
        before,
        immutable=True,
        labels=labels | marks,
        annotations={**meta.annotations, HASH_ANNOTATION: data_digest(live.data)},
        owners=owners_after(es, meta),
    )


def _as_it_is(live: LiveSecret, fields: Fields) -> Desired:
    """What is ours of a Secret, as a wish: so that nothing of it is given up."""
    meta = live.metadata
    return Desired(
        type=live.type,
        data={key: value for key, value in live.data.items() if ("data", key) in fields.ours},
        labels={key: value for key, value in meta.labels.items() if ("metadata", "labels", key) in fields.ours},
        annotations={
            key: value for key, value in meta.annotations.items() if ("metadata", "annotations", key) in fields.ours
        },
        immutable=True,
    )


# --- how it is written ------------------------------------------------------------------------------------------------


def _document(es: ExternalSecret, desired: Desired, content_hash: str) -> JsonObject:
    """What server-side apply gets: all that we want, and nothing else."""
    owned = es.spec.target.creation_policy == OWNER
    labels = {key: value for key, value in _labels(es, desired).items() if owned or key != CREATED_BY_LABEL}
    metadata: JsonObject = {
        "name": target_name(es),
        "namespace": es.metadata.namespace,
        "labels": labels,
        "annotations": {**desired.annotations, HASH_ANNOTATION: content_hash},
    }
    if owned:
        metadata["ownerReferences"] = [msgspec.to_builtins(controller_reference_of(es))]
    if desired.finalizers:
        metadata["finalizers"] = list(desired.finalizers)
    document: JsonObject = {"metadata": metadata, "data": _encoded(desired.data)}
    if desired.type:
        document["type"] = desired.type
    if desired.immutable:
        document["immutable"] = True
    return document


def _updated(es: ExternalSecret, live: LiveSecret, fields: Fields, *, desired: Desired, after: _Shape) -> JsonObject:
    """The same for a Secret that is there: for that very version, and without giving up what can only be kept.

    Apply drops what we own and do not name. A type cannot change, an immutable Secret stays one, and a finalizer was
    promised to somebody: all three are named for as long as they are ours.
    """
    document = _document(es, desired, after.annotations[HASH_ANNOTATION])
    meta = live.metadata
    kept = [name for name in meta.finalizers if (*FINALIZERS, name) in fields.ours]
    finalizers = sorted({*kept, *_finalizers(desired, meta)})
    metadata = {key: value for key, value in document["metadata"].items() if key != "finalizers"}
    metadata |= {"uid": meta.uid, "resourceVersion": meta.resource_version}
    if finalizers:
        metadata["finalizers"] = finalizers
    marks = {"immutable": True} if after.immutable else {}
    return {**document, "metadata": metadata, "type": after.type, **marks}


def _patch(live: LiveSecret, after: _Shape, fields: Fields) -> JsonObject | None:
    """The merge patch for what has to go and is not ours alone, along with everything that comes instead.

    In two steps, a Secret that cannot be taken over would lose what it holds, and its readers could find it empty.
    """
    meta = live.metadata
    data = _unowned(live.data, after.data, fields, ("data",))
    labels = _unowned(meta.labels, after.labels, fields, ("metadata", "labels"))
    annotations = _unowned(meta.annotations, after.annotations, fields, ("metadata", "annotations"))
    owners = [reference for reference in meta.owner_references if reference not in after.owners]
    if not (data or labels or annotations) and all(fields.only_ours((*OWNERS, owner.uid)) for owner in owners):
        return None
    metadata: JsonObject = {
        "labels": {**labels, **after.labels},
        "annotations": {**annotations, **after.annotations},
        "ownerReferences": [msgspec.to_builtins(reference) for reference in after.owners] or None,
        "finalizers": sorted(after.finalizers) or None,
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
    }
    marks = {"immutable": True} if after.immutable else {}
    return {"metadata": metadata, "data": {**data, **_encoded(after.data)}, "type": after.type, **marks}


def _unowned(
    before: Mapping[str, Any], after: Mapping[str, Any], fields: Fields, section: tuple[str, ...]
) -> dict[str, None]:
    """As a merge patch removes it."""
    return {key: None for key in before if key not in after and not fields.only_ours((*section, key))}


def _encoded(data: Mapping[str, SecretBytes]) -> dict[str, str]:
    return {key: base64.b64encode(value.reveal()).decode() for key, value in data.items()}
