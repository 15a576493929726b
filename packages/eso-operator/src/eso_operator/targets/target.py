"""The targets of ExternalSecrets: their interface, the choice of a change, and the record in `status.manifests`.

    read -> (fetch) -> plan, which renders -> apply
    `choose_change` -> CreateTarget | UpdateTarget | KeepTarget | RefuseTarget, which `Target.apply` carries out

`SecretTarget` implements the interface for Secrets, `ManifestTarget` for all other kinds; the reconciler treats both
alike. `choose_change` compares the live Secret and the desired one; its test is the policy matrix.

Fields are ours if managedFields say so. Under Owner and Orphan foreign keys of data are removed; under Merge and
CreateOrMerge they stay. Server-side apply removes obsolete fields that only we own. Obsolete fields that others own
too need a merge patch, which carries the rest of the change as well. A target that another object controls, by its
owner references, is refused.

An object of a kind other than Secret is recorded before it is created, until it is known to be gone: without the record
it could not be found again once the spec names another one.
"""

from __future__ import annotations

import base64
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final

import msgspec

from eso_api.externalsecret import SECRET_TYPE_LABEL, TOKEN_TYPES, ExternalSecret, MadeManifest
from eso_api.references import CORE_GROUP
from eso_api.validation import writes_secret
from eso_api.values import SecretBytes
from eso_operator.targets.metadata import (
    CREATE_OR_MERGE,
    CREATED_BY_LABEL,
    FINALIZERS,
    HASH_ANNOTATION,
    MANAGED,
    MANAGED_LABEL,
    MERGE,
    NONE,
    OWNER,
    OWNERS,
    Fields,
    GeneratedMark,
    controller_reference_of,
    conversion,
    created_by,
    data_digest,
    field_manager_of,
    fields_of,
    generated_annotation,
    holders_of,
    is_field_manager,
    marked,
    target_name,
)
from eso_render.secret import Desired, Values
from eso_render.templates import TemplateObjects
from kubebase.meta import JsonObject, ObjectMeta, OwnerReference, meta_of
from kuberun.errors import ApiError
from kuberun.ownership import controller_of


class Untouched(Enum):
    """Reasons to write nothing that are not errors."""

    UNCHANGED = "the target is as it should be"
    POLICY_NONE = "creationPolicy None writes nothing"
    MISSING = "creationPolicy Merge writes to a target that exists, and there is none"


class Refusal(Enum):
    """Reasons why a target must not be written. The text is the message of the condition."""

    OWNED_BY_ANOTHER = "target is owned by another ExternalSecret"
    CONTROLLED = "failed to take ownership of target secret"
    RESERVED = (
        f"the target has the label {SECRET_TYPE_LABEL}, so it could be sent to a webhook with everything that is copied"
        " into it: remove the label, or choose another target"
    )
    TOKEN = "a token of the cluster may not be a target: choose another spec.target.name"  # noqa: S105 - a message
    IMMUTABLE = "could not update secret, target is immutable"
    TOO_LARGE = (
        "could not update secret, its data is larger than the 1048576 bytes that a Secret may hold: read fewer keys, or"
        " use several ExternalSecrets"
    )


@dataclass(frozen=True, slots=True)
class CreateTarget:
    """Create the object."""

    document: JsonObject = field(repr=False)
    wanted: str


@dataclass(frozen=True, slots=True)
class Overwritten:
    """Keys with values of other ExternalSecrets that a change replaces or removes."""

    keys: frozenset[str]
    managers: frozenset[str]
    """The field managers of these ExternalSecrets."""
    desired_digest: str
    """A digest of the new values."""


@dataclass(frozen=True, slots=True)
class UpdateTarget:
    """Change an existing object, in this order.

    `convert`   JSON patch of our old managedFields entries, so that apply can remove the fields they name
    `patch`     merge patch with the whole change, if fields have to go that apply would keep; atomic
    `document`  server-side apply, which makes us the owner of all wanted fields
    """

    document: JsonObject = field(repr=False)
    wanted: str
    convert: list[JsonObject] = field(default_factory=list, repr=False)
    patch: JsonObject | None = field(default=None, repr=False)
    overwritten: Overwritten | None = None


@dataclass(frozen=True, slots=True)
class KeepTarget:
    """Write nothing."""

    why: Untouched
    version: str = ""
    """The resourceVersion of an unchanged Secret."""


@dataclass(frozen=True, slots=True)
class RefuseTarget:
    """Write nothing and report an error. `by` names the object or size that prevents the write."""

    why: Refusal
    by: str = ""


TargetChange = CreateTarget | UpdateTarget | KeepTarget | RefuseTarget


def ownership_refusal(es: ExternalSecret, metadata: ObjectMeta) -> RefuseTarget | None:
    """Refuse a target that another object controls. Group and kind of the reference count, not its version."""
    controller = controller_of(metadata.owner_references)
    if controller is None or _refers_to(controller, es):
        return None
    by = f"{controller.kind} {controller.name}"
    if _is_external_secret(controller):
        return RefuseTarget(
            Refusal.OWNED_BY_ANOTHER, f"{by}; choose another spec.target.name, or delete that ExternalSecret"
        )
    if es.spec.target.creation_policy != OWNER:
        return None
    remedy = "choose another spec.target.name, or set spec.target.creationPolicy to Orphan or Merge to write into it"
    return RefuseTarget(Refusal.CONTROLLED, f"{by}; {remedy}")


def owners_after(es: ExternalSecret, metadata: ObjectMeta) -> tuple[OwnerReference, ...]:
    """Return the owner references after the change: ours only under Owner, all others unchanged."""
    if es.spec.target.creation_policy != OWNER:
        return tuple(reference for reference in metadata.owner_references if not _refers_to(reference, es))
    ours = controller_reference_of(es)
    if any(_refers_to(reference, es) for reference in metadata.owner_references):
        return tuple(ours if _refers_to(reference, es) else reference for reference in metadata.owner_references)
    return (*metadata.owner_references, ours)


def _refers_to(reference: OwnerReference, es: ExternalSecret) -> bool:
    return _is_external_secret(reference) and reference.name == es.metadata.name


def _is_external_secret(reference: OwnerReference) -> bool:
    return reference.kind == "ExternalSecret" and reference.api_version.partition("/")[0] == CORE_GROUP


KEEPS_FOREIGN = (MERGE, CREATE_OR_MERGE)
MAX_SECRET_BYTES = 1 << 20
"""The limit of the API server for all values of a Secret together; key names do not count."""


@dataclass(frozen=True, slots=True)
class LiveSecret:
    """A Secret with its content, as the API server has it."""

    metadata: ObjectMeta
    data: dict[str, SecretBytes]
    type: str
    immutable: bool
    intact: bool
    """True if the Secret is managed and its data matches the hash in the annotation."""
    raw: JsonObject = field(repr=False)

    @property
    def size(self) -> int:
        return size_of(self.data)


def live_secret(raw: JsonObject) -> LiveSecret:
    """Parse a Secret as the API server sent it."""
    data = {key: SecretBytes(base64.b64decode(value or "")) for key, value in (raw.get("data") or {}).items()}
    meta = meta_of(raw)
    managed = meta.labels.get(MANAGED_LABEL) == MANAGED
    intact = managed and meta.annotations.get(HASH_ANNOTATION) == data_digest(data)
    return LiveSecret(meta, data, str(raw.get("type") or ""), bool(raw.get("immutable")), intact, raw)


def size_of(data: Mapping[str, SecretBytes]) -> int:
    """Return the size of all values in bytes."""
    return sum(len(value) for value in data.values())


def wanted_digest(es: ExternalSecret, desired: Desired) -> str:
    """Return a digest of what the Secret should be. An untouched Secret with an equal digest needs no request.

    It is used in this process only, so it need not be the SHA3 digest of `metadata.py`, which takes 50 times as long.
    """
    data, target = sorted(desired.data.items()), es.spec.target
    content: list[Any] = [
        target.creation_policy,
        target_name(es),
        desired.type,
        desired.immutable,
        es.metadata.uid,
    ]
    content += [sorted(desired.labels.items()), sorted(desired.annotations.items()), desired.finalizers]
    return _digest(content, dict(data))


def _digest(content: list[Any], data: Mapping[str, SecretBytes]) -> str:
    sizes = [(key, len(value)) for key, value in data.items()]
    mark = hashlib.blake2b(repr([*content, sizes]).encode(), digest_size=28)
    for value in data.values():
        mark.update(value.reveal())
    return mark.hexdigest()


def choose_change(
    es: ExternalSecret, live: LiveSecret | None, desired: Desired, mark: GeneratedMark | None = None
) -> TargetChange:
    """Choose the change that makes the Secret what the ExternalSecret wants. `mark` comes with generated values."""
    desired = replace(desired, annotations=_without_mark(es, desired.annotations))
    policy = es.spec.target.creation_policy
    if policy == NONE:
        return KeepTarget(Untouched.POLICY_NONE)
    if live is None:
        if policy == MERGE:
            return KeepTarget(Untouched.MISSING)
        return _size_refusal(desired) or CreateTarget(
            _document(es, desired, data_digest(desired.data), marked(es, {}, mark, unchanged=False)),
            wanted_digest(es, desired),
        )
    if refusal := ownership_refusal(es, live.metadata):
        return refusal
    return _update(es, live, desired, mark)


def _update(es: ExternalSecret, live: LiveSecret, desired: Desired, mark: GeneratedMark | None) -> TargetChange:
    manager = field_manager_of(es.metadata.name)
    fields = fields_of(live.raw, manager)
    if SECRET_TYPE_LABEL in live.metadata.labels and ("metadata", "labels", SECRET_TYPE_LABEL) not in fields.ours:
        return RefuseTarget(Refusal.RESERVED, str(live.metadata.key))
    if live.type in TOKEN_TYPES:
        return RefuseTarget(Refusal.TOKEN, f"{live.metadata.key} is of type {live.type}")
    frozen = es.spec.target.immutable
    if not frozen and (refusal := _size_refusal(desired)):
        return refusal
    after = _frozen(es, live) if frozen else _after(es, live, fields, desired=desired, mark=mark)
    if after == _Shape.of(live):
        return KeepTarget(Untouched.UNCHANGED)
    if live.immutable and (after.data != live.data or after.type != live.type):
        return RefuseTarget(Refusal.IMMUTABLE, str(live.metadata.key))
    return UpdateTarget(
        document=_updated(es, live, fields, desired=_as_it_is(live, fields) if frozen else desired, after=after),
        wanted=wanted_digest(es, desired),
        convert=conversion(live.raw, manager),
        patch=_patch(live, after, fields),
        overwritten=_overwritten(live, after, manager),
    )


def _overwritten(live: LiveSecret, after: _Shape, manager: str) -> Overwritten | None:
    """Return the values of other ExternalSecrets that the change replaces or removes; None if there are none."""
    holders = holders_of(live.raw, lambda name: is_field_manager(name) and name != manager)
    changed = {key for key, value in live.data.items() if ("data", key) in holders and after.data.get(key) != value}
    if not changed:
        return None
    new = {key: after.data[key] for key in sorted(changed) if key in after.data}
    managers = frozenset[str]().union(*(holders["data", key] for key in changed))
    return Overwritten(frozenset(changed), managers, _digest(sorted(changed), new))


def _size_refusal(desired: Desired) -> RefuseTarget | None:
    """Refuse values that exceed the limit, before their digest is computed: that could take seconds."""
    size = size_of(desired.data)
    return (
        RefuseTarget(Refusal.TOO_LARGE, f"{size} bytes in {len(desired.data)} keys")
        if size > MAX_SECRET_BYTES
        else None
    )


# --- the Secret after the change --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Shape:
    """The parts of a Secret that we may change."""

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


def _after(
    es: ExternalSecret, live: LiveSecret, fields: Fields, *, desired: Desired, mark: GeneratedMark | None
) -> _Shape:
    """Return the Secret as it will be after the change."""
    policy, meta = es.spec.target.creation_policy, live.metadata
    foreign = {key: value for key, value in live.data.items() if ("data", key) not in fields.ours}
    data = {**foreign, **desired.data} if policy in KEEPS_FOREIGN else dict(desired.data)
    labels = _others_of(meta.labels, fields, "labels") | _labels(es, desired)
    if policy != OWNER:
        labels.pop(CREATED_BY_LABEL, None)
    annotations = _without_mark(es, _others_of(meta.annotations, fields, "annotations")) | desired.annotations
    annotations |= marked(es, meta.annotations, mark, unchanged=data == live.data)
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


def _without_mark(es: ExternalSecret, annotations: Mapping[str, str]) -> dict[str, str]:
    """Return annotations without the one about generated values, which only the operator writes."""
    return {key: value for key, value in annotations.items() if key != generated_annotation(es)}


def _labels(es: ExternalSecret, desired: Desired) -> dict[str, str]:
    owner = {CREATED_BY_LABEL: created_by(es)} if es.spec.target.creation_policy == OWNER else {}
    return {**desired.labels, **owner, MANAGED_LABEL: MANAGED}


def _finalizers(desired: Desired, meta: ObjectMeta) -> frozenset[str]:
    return frozenset() if meta.deletion_timestamp else frozenset(desired.finalizers)


def _frozen(es: ExternalSecret, live: LiveSecret) -> _Shape:
    """Return the Secret under `target.immutable`: its content stays, only our marks and owner references change."""
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
    """Return the fields that we own as desired ones, so that apply removes none of them."""
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


# --- documents --------------------------------------------------------------------------------------------------------


def _document(es: ExternalSecret, desired: Desired, content_hash: str, mark: Mapping[str, str]) -> JsonObject:
    """Return the document for server-side apply: exactly the fields that we want."""
    owned = es.spec.target.creation_policy == OWNER
    labels = {key: value for key, value in _labels(es, desired).items() if owned or key != CREATED_BY_LABEL}
    metadata: JsonObject = {
        "name": target_name(es),
        "namespace": es.metadata.namespace,
        "labels": labels,
        "annotations": {**desired.annotations, **mark, HASH_ANNOTATION: content_hash},
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
    """Return the document for server-side apply to exactly this version of an existing Secret.

    Apply removes fields that we own and do not name. The type and `immutable` cannot be removed, and finalizers must
    stay until their controller removes them: the document names all three while we own them.
    """
    mark = {key: value for key, value in after.annotations.items() if key == generated_annotation(es)}
    document = _document(es, desired, after.annotations[HASH_ANNOTATION], mark)
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
    """Return a merge patch if fields have to go that others own too; None if apply can remove everything.

    The patch carries the whole change. If it only removed fields, and the apply after it failed, readers would find
    the Secret empty.
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
    """Return the obsolete keys that we do not own alone, each with None, which removes it in a merge patch."""
    return {key: None for key in before if key not in after and not fields.only_ours((*section, key))}


def _encoded(data: Mapping[str, SecretBytes]) -> dict[str, str]:
    return {key: base64.b64encode(value.reveal()).decode() for key, value in data.items()}


# --- interface and record ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Absent:
    """The target does not exist."""


@dataclass(frozen=True, slots=True)
class Present:
    """The target exists. `valid` means: it has our label, and its content matches its hash."""

    metadata: ObjectMeta
    valid: bool


TargetState = Absent | Present


class UnknownKindError(Exception):
    """The kind of a target cannot be written: it is not served, not namespaced, or could grant rights."""


class PartlyAppliedError(Exception):
    """The target holds the new values, but the apply after the patch failed."""

    def __init__(self, problem: ApiError) -> None:
        super().__init__(str(problem))
        self.problem = problem


class WriteKind(Enum):
    """The kind of write. The texts are the messages of events."""

    CREATED = "secret created"
    UPDATED = "secret updated"


@dataclass(frozen=True, slots=True)
class Applied:
    """A change that was made."""

    done: WriteKind
    name: str
    version: str = ""
    """The resourceVersion of a Secret after the change."""


class Target(ABC):
    """The object that one ExternalSecret maintains."""

    @abstractmethod
    async def read(self, es: ExternalSecret, *, live: bool = False) -> TargetState:
        """Return whether the target exists and is valid; `live` says that a cached state does not suffice."""

    @abstractmethod
    async def plan(
        self, es: ExternalSecret, values: Values, objects: TemplateObjects, mark: GeneratedMark | None = None
    ) -> TargetChange:
        """Render the values and choose the change. Raises TargetError if they cannot be rendered.

        Generated values are written with their mark.
        """

    @abstractmethod
    async def apply(self, es: ExternalSecret, change: CreateTarget | UpdateTarget) -> Applied:
        """Write the change. Raises Conflict if the target changed since the plan, PartlyAppliedError."""

    @abstractmethod
    async def delete(self, es: ExternalSecret) -> bool:
        """Delete the target if the ExternalSecret controls it; return whether it was deleted. Raises Conflict."""


MAX_RECORDED: Final = 32
"""The most recorded objects. Evicted ones are the oldest; the garbage collector deletes them with their owner."""


@dataclass(frozen=True, slots=True)
class RemovedTargets:
    """The messages of the events for removed objects, and the new content of `status.manifests`."""

    messages: tuple[str, ...] = ()
    recorded: tuple[MadeManifest, ...] = ()


def record_of(es: ExternalSecret) -> MadeManifest | None:
    """Return the record that must exist before the target is written; None for Secrets and other policies."""
    target = es.spec.target
    if target.manifest is None or target.creation_policy != OWNER or writes_secret(target):
        return None
    return MadeManifest(api_version=target.manifest.api_version, kind=target.manifest.kind, name=target_name(es))


def is_recorded(es: ExternalSecret) -> bool:
    """Return whether the target is recorded, or needs no record."""
    made = record_of(es)
    return made is None or any(are_same(made, known) for known in es.status.manifests)


def with_record(es: ExternalSecret) -> Sequence[MadeManifest]:
    """Return the recorded objects including the current target."""
    made = record_of(es)
    known = es.status.manifests
    return known if made is None or is_recorded(es) else [*known, made][-MAX_RECORDED:]


def are_same(one: MadeManifest, other: MadeManifest) -> bool:
    """Return whether both name the same object; API versions are ignored."""
    return (group_of(one), one.kind, one.name) == (group_of(other), other.kind, other.name)


def group_of(made: MadeManifest) -> str:
    return made.api_version.rpartition("/")[0]
