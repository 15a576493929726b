"""Creating and changing objects: every rule between a decoded request body and the store.

    fields (unknown, duplicate, defaults) -> server-owned metadata -> the kind's own rules -> validation
        -> managed fields -> nothing changed? last finalizer removed? -> store

All of it runs without an await, so a read is still current when its write is decided. The order of the checks is that
of kube-apiserver, because clients see the first one that fails.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal, assert_never

from kubebase.clock import Clock, rfc3339
from kubebase.meta import JsonObject
from localkube.cluster import metadata as meta
from localkube.cluster.catalog import Catalog, Conversions, Target
from localkube.cluster.metadata import CREATED_BY_UPDATE, DEFINITIONS, NAMESPACES, note_stored_version
from localkube.errors import (
    Cause,
    StatusError,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    not_found,
    unsupported_media_type,
)
from localkube.model import FieldValidation, PatchType, ServedKind, User, WriteOptions, Written
from localkube.patch import apply, json_patch, merge_patch, reset_fields, strategic_merge, track_update
from localkube.patch.types import MismatchError
from localkube.storage import Record
from localkube.storage.store import Batch, ObjectStorage

# --- Apply one patch of any of the four types to a live object; an apply patch may also create one --------------------


_CUSTOM_TYPES = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"


def patched(
    target: Target,
    patch_type: PatchType,
    patch: Any,
    live: JsonObject | None,
    *,
    options: WriteOptions,
    now: str,
    versions: Collection[str],
) -> JsonObject:
    """Return the object after the patch; `live` is consumed. An applied object already carries its managed fields."""
    document = live or {}
    match patch_type:
        case "json":
            result = json_patch(document, patch)
        case "merge":
            result = merge_patch(document, patch)
        case "strategic":
            if target.kind.custom:
                raise unsupported_media_type(_CUSTOM_TYPES)
            result = strategic_merge(document, patch, target.kind.schema.openapi)
        case "apply":
            _check_applied(target, patch)
            try:
                result = apply(
                    live,
                    patch,
                    manager=options.field_manager,
                    force=options.force,
                    schema=target.kind.schema.openapi,
                    now=now,
                    subresource=target.subresource,
                    api_version=target.resource.api_version,
                    reset=reset_fields(target.kind, target.subresource),
                    versions=versions,
                )
            except MismatchError:
                raise _untyped(target) from None
        case _:
            assert_never(patch_type)
    return _of_kind(target, result)


def _untyped(target: Target) -> StatusError:
    """Report that the stored object cannot be merged because it is older than its schema."""
    what = f"{target.namespace}/{target.name}; {target.resource.api_version}, Kind={target.resource.kind}"
    why = "an item of a list lacks the fields that tell it from the others"
    return StatusError(500, "", f"failed to create typed live object ({what}): {why}")


def _check_applied(target: Target, patch: Any) -> None:
    metadata = patch.get("metadata") if isinstance(patch, dict) else None
    if not isinstance(metadata, dict):
        raise bad_request(
            f"the name of the object ({target.name} based on URL) was undeterminable: name must be provided"
        )
    if metadata.get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    target.check_name(metadata)


def _of_kind(target: Target, result: Any) -> JsonObject:
    """Refuse a patch that changes the kind or the apiVersion of the object."""
    if not isinstance(result, dict):
        raise bad_request("the patch does not leave an object")
    resource = target.resource
    for field, expected in (("kind", resource.kind), ("apiVersion", resource.api_version)):
        given = result.setdefault(field, expected)
        if given != expected:
            raise _other_kind(target, Cause(field, f'Invalid value: "{given}": must be {expected}'), result)
    return result


def _other_kind(target: Target, cause: Cause, result: JsonObject) -> StatusError:
    if target.kind.custom:
        group = str(result.get("apiVersion") or target.resource.api_version).rpartition("/")[0]
        return invalid(str(result["kind"]), target.name, [cause], group=group)
    # The real server repeats the whole object here, which might be a Secret.
    return invalid("", "", [Cause("patch", f"Invalid value: {cause.field}: {cause.message}")])


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
_NAME_ATTEMPTS = 8


@dataclass(frozen=True, slots=True)
class WriteDecision:
    """The result of a write. Without a batch nothing was queued: a dry run, or no change."""

    written: Written
    batch: Batch | None = None


Hook = Callable[[Target, JsonObject], Batch | None]
"""Called with each queued object; may queue more. Returns the batch to wait for, if it did."""


class Writer:
    def __init__(self, store: ObjectStorage, catalog: Catalog, conversions: Conversions, clock: Clock) -> None:
        self._store = store
        self._catalog = catalog
        self._conversions = conversions
        self._clock = clock
        self._second = (0, "")
        self.after_write: Hook = lambda _target, _stored: None

    def create(
        self, target: Target, obj: JsonObject, options: WriteOptions, duplicates: Sequence[str] = ()
    ) -> WriteDecision:
        problems = self._decode(target, obj, duplicates)
        warnings = problems.check(target.kind, options.field_validation)
        metadata = obj["metadata"]
        target.set_namespace(metadata)
        self._check_room(target, metadata.get("name") or "")
        return self._insert(target, obj, options, warnings)

    def update(
        self, target: Target, obj: JsonObject, options: WriteOptions, duplicates: Sequence[str] = ()
    ) -> WriteDecision:
        problems = self._decode(target, obj, duplicates)
        warnings = problems.check(target.kind, options.field_validation)
        metadata = obj["metadata"]
        target.set_namespace(metadata)
        target.check_name(metadata)
        record = self._store.latest(target.key)
        if record is None:
            if target.subresource or target.kind.storage_key not in CREATED_BY_UPDATE:
                raise not_found(target.resource.plural, target.name, group=target.resource.group)
            self._check_room(target, target.name)
            metadata.pop("resourceVersion", None)
            return self._insert(target, obj, options, warnings)
        self._check_preconditions(target, metadata, record)
        return self._replace(target, obj, record, options, warnings=warnings)

    def patch(
        self,
        target: Target,
        patch_type: PatchType,
        patch: Any,
        options: WriteOptions,
        duplicates: Sequence[str] = (),
    ) -> WriteDecision:
        record = self._store.latest(target.key)
        if record is None and (patch_type != "apply" or target.subresource):
            raise not_found(target.resource.plural, target.name, group=target.resource.group)
        base = self._conversions.read(target.kind, record) if record else None
        versions = self._catalog.versions(target.kind.storage_key)
        obj = patched(target, patch_type, patch, base, options=options, now=self._now(), versions=versions)
        problems = self._decode(target, obj, duplicates)
        warnings = problems.check_patch(options.field_validation)
        metadata = obj["metadata"]
        target.set_namespace(metadata)
        target.check_name(metadata)
        tracking: Tracking = "applied" if patch_type == "apply" else "update"
        if record is None:
            self._check_room(target, target.name)
            return self._insert(target, obj, options, warnings, tracking)
        base_revision = meta.parse_resource_version(metadata.get("resourceVersion") or "")
        if base_revision and base_revision != record.revision:
            raise conflict(target.resource.plural, target.name, MODIFIED, group=target.resource.group)
        return self._replace(target, obj, record, options, warnings=warnings, tracking=tracking)

    def create_unstored(
        self,
        target: Target,
        obj: JsonObject,
        options: WriteOptions,
        duplicates: Sequence[str],
        handler: Callable[[JsonObject, User], JsonObject],
    ) -> Written:
        """Check a create of a kind that is not stored like any other, then return the response of its handler."""
        warnings = self._decode(target, obj, duplicates).check(target.kind, options.field_validation)
        target.set_namespace(obj["metadata"])
        return Written(handler(obj, options.user), created=True, warnings=warnings)

    def save(self, target: Target, change: Callable[[JsonObject], None], *, manager: str) -> Batch | None:
        """Change the newest version on behalf of the server: not validated; the managed fields name `manager`."""
        record = self._store.latest(target.key)
        if record is None:
            return None
        live, new = self._conversions.read(target.kind, record), self._conversions.read(target.kind, record)
        change(new)
        new = self._track(target, new, live, manager)
        stored = self._conversions.stored(target.kind, new)
        if meta.same_content(stored, record.decode()):
            return None
        return self._store.remove(target.key) if _is_finished(target, stored) else self._put(target, stored)

    # --- steps --------------------------------------------------------------------------------------------------------

    def _decode(self, target: Target, obj: JsonObject, duplicates: Sequence[str]) -> FieldProblems:
        schema = target.kind.schema
        if problem := schema.decode_error(obj):
            raise bad_request(problem)
        unknown = schema.prune(obj)
        schema.default(obj)
        meta.drop_empty(obj)
        return FieldProblems(tuple(duplicates), tuple(unknown))

    def _check_room(self, target: Target, name: str) -> None:
        """Refuse new objects if the namespace is missing or being deleted, or the definition of a custom kind is."""
        resource = target.resource
        definition = self._catalog.definitions.get(target.kind.storage_key)
        if definition is not None and definition.phase == "Terminating":
            why = "create not allowed while custom resource definition is terminating"
            raise forbidden(resource.plural, name, why, group=resource.group)
        if not resource.namespaced:
            return
        namespace = self._store.latest(target.namespace_key)
        if namespace is None:
            raise not_found(NAMESPACES, target.namespace)
        if meta.is_marked(namespace):
            raise _terminating(target, name)

    def _insert(
        self,
        target: Target,
        obj: JsonObject,
        options: WriteOptions,
        warnings: list[str],
        tracking: Tracking = "update",
    ) -> WriteDecision:
        if meta.parse_resource_version(obj["metadata"].get("resourceVersion") or "") and tracking == "update":
            raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
        if "status" in target.kind.subresources:
            obj.pop("status", None)
        attempts = 1 if obj["metadata"].get("name") else _NAME_ATTEMPTS
        meta.stamp_new(obj, target.kind, self._now())
        validated(target, obj, None)
        target = target.named(obj["metadata"]["name"])
        if target.kind.storage_key == DEFINITIONS:
            note_stored_version(obj)
        if tracking == "update":
            obj = self._track(target, obj, None, options.field_manager)
        target = self._free_name(target, obj, attempts)
        return self._finish(target, obj, options, Written({}, created=True, warnings=warnings))

    def _replace(
        self,
        target: Target,
        obj: JsonObject,
        record: Record,
        options: WriteOptions,
        *,
        warnings: list[str],
        tracking: Tracking = "update",
    ) -> WriteDecision:
        live = self._conversions.read(target.kind, record)
        obj = _own_part(target, obj, self._conversions.read(target.kind, record))
        meta.carry_over(obj, live)
        meta.count_generation(obj, live, target.kind)
        validated(target, obj, live)
        if target.kind.storage_key == DEFINITIONS:
            note_stored_version(obj)
        if tracking == "update":
            obj = self._track(target, obj, live, options.field_manager)
        return self._finish(target, obj, options, Written(live, warnings=warnings), record)

    def _finish(
        self, target: Target, obj: JsonObject, options: WriteOptions, written: Written, record: Record | None = None
    ) -> WriteDecision:
        """Store the object, unless nothing changes or it is a dry run; remove it if this took its last finalizer."""
        stored = self._conversions.stored(target.kind, obj)
        if record is not None and meta.same_content(stored, record.decode()):
            return WriteDecision(written)
        batch = None
        if not options.dry_run:
            batch = self._store.remove(target.key) if _is_finished(target, stored) else self._put(target, stored)
        written.object = self._conversions.shown(target.kind, stored)
        return WriteDecision(written, batch)

    def _track(self, target: Target, obj: JsonObject, live: JsonObject | None, manager: str) -> JsonObject:
        tracked = track_update(
            live,
            obj,
            manager=manager or "unknown",
            schema=target.kind.schema.openapi,
            now=self._now(),
            subresource=target.subresource,
            api_version=target.resource.api_version,
            reset=reset_fields(target.kind, target.subresource),
            versions=self._catalog.versions(target.kind.storage_key),
        )
        return meta.with_grace_period(tracked, obj)

    def _free_name(self, target: Target, obj: JsonObject, attempts: int) -> Target:
        """Find a target with a free name; further names are generated if more than one attempt is allowed."""
        metadata = obj["metadata"]
        for _ in range(attempts - 1):
            if self._store.latest(target.key) is None:
                break
            metadata["name"] = meta.generated_name(metadata["generateName"])
            target = target.named(metadata["name"])
        taken = self._store.latest(target.key)
        if taken is not None:
            raise _taken(target, metadata, taken)
        return target

    def _now(self) -> str:
        """Return the current time as text; cached for a second, because formatting costs as much as a decode."""
        now = self._clock.now()
        second = int(now.timestamp())
        if self._second[0] != second:
            self._second = (second, rfc3339(now))
        return self._second[1]

    def _put(self, target: Target, stored: JsonObject) -> Batch:
        batch = self._store.put(target.key, stored)
        return self.after_write(target, stored) or batch

    def _check_preconditions(self, target: Target, metadata: JsonObject, record: Record) -> None:
        resource = target.resource
        version = meta.parse_resource_version(metadata.get("resourceVersion") or "")
        if metadata.get("uid") and metadata["uid"] != record.uid:
            where = f"/registry/{resource.group + '/' if target.kind.custom else ''}{resource.plural}/{target.key.path}"
            why = (
                f"StorageError: invalid object, Code: 4, Key: {where}, ResourceVersion: 0, AdditionalErrorMsg: "
                f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {record.uid}"
            )
            raise conflict(resource.plural, target.name, why, group=resource.group)
        if not version:
            if not target.kind.custom:
                return
            cause = Cause("metadata.resourceVersion", "Invalid value: 0: must be specified for an update")
            raise invalid(resource.plural, target.name, [cause], group=resource.group)
        if version != record.revision:
            raise conflict(resource.plural, target.name, MODIFIED, group=resource.group)


Tracking = Literal["update", "applied"]
"""Says whether the managed fields must still be computed, or an apply patch has done so."""


def _own_part(target: Target, obj: JsonObject, live: JsonObject) -> JsonObject:
    """Restrict a write to the fields of its endpoint: status for /status, spec.finalizers for /finalize, else the rest.

    `live` is modified.
    """
    match target.subresource:
        case "":
            if "status" in target.kind.subresources:
                _take(obj, live, "status")
            if target.kind.storage_key == NAMESPACES:
                obj["spec"] = live.get("spec") or {}
            return obj
        case "status" if not target.kind.custom:
            for name in (obj.keys() | live.keys()) - {"apiVersion", "kind", "metadata", "status"}:
                _take(obj, live, name)
            if target.resource.group == "apps":
                _take(obj["metadata"], live["metadata"], "labels")
            return obj
        case "status":
            new = live
            _take(new, obj, "status")
        case "finalize":
            new = live
            finalizers = (obj.get("spec") or {}).get("finalizers")
            new["spec"] = {"finalizers": finalizers} if finalizers else {}
        case _:
            raise bad_request(f"{target.resource.plural}/{target.subresource} cannot be updated")
    new["metadata"]["managedFields"] = obj["metadata"].get("managedFields") or []
    new["apiVersion"] = target.resource.api_version
    return new


def _take(target: JsonObject, source: JsonObject, name: str) -> None:
    if name in source:
        target[name] = source[name]
    else:
        target.pop(name, None)


def _is_finished(target: Target, obj: JsonObject) -> bool:
    """Return whether the object is being deleted and its last finalizer was removed."""
    if not meta.is_deleting(obj) or obj["metadata"].get("finalizers"):
        return False
    return target.kind.storage_key != NAMESPACES or not (obj.get("spec") or {}).get("finalizers")


def _taken(target: Target, metadata: JsonObject, record: Record) -> StatusError:
    error = already_exists(target.resource.plural, target.name, group=target.resource.group)
    message, details = error.message, dict(error.details)
    if metadata.get("generateName"):
        message += ", the server was not able to generate a unique name for the object"
        details["retryAfterSeconds"] = 1
    if meta.is_marked(record):
        message = f"object is being deleted: {message}"
    return StatusError(409, error.reason, message, details=details)


def _terminating(target: Target, name: str) -> StatusError:
    why = f"unable to create new content in namespace {target.namespace} because it is being terminated"
    error = forbidden(target.resource.plural, name, why, group=target.resource.group)
    message = f"namespace {target.namespace} is being terminated"
    error.details["causes"] = [Cause("metadata.namespace", message, "NamespaceTerminating").to_json()]
    return error


# --- validation -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FieldProblems:
    """Duplicate and unknown fields of a body; they are dropped in any case."""

    duplicates: tuple[str, ...]
    unknown: tuple[str, ...]

    def check(self, kind: ServedKind, level: FieldValidation) -> list[str]:
        """Return warnings for the client; raise a 400 if it requested strict validation."""
        texts = self._texts(level)
        if texts and level == "Strict":
            name = kind.resource.kind
            raise bad_request(
                f'{name} in version "{kind.resource.version}" cannot be handled as a {name}: '
                f"strict decoding error: {', '.join(texts)}"
            )
        return texts

    def check_patch(self, level: FieldValidation) -> list[str]:
        """Return warnings for a patched object, whose failure is a 422 that does not repeat the object."""
        texts = self._texts(level)
        if texts and level == "Strict":
            message = f"Invalid value: strict decoding error: {', '.join(texts)}"
            cause = Cause("patch", message)
            raise StatusError(
                422, "Invalid", f' "" is invalid: patch: {message}', details={"causes": [cause.to_json()]}
            )
        return texts

    def _texts(self, level: FieldValidation) -> list[str]:
        match level:
            case "Ignore":
                return []
            case "Warn" | "Strict":
                duplicates = [f'duplicate field "{path}"' for path in self.duplicates]
                return [*duplicates, *(f'unknown field "{path}"' for path in self.unknown)]
            case _:
                assert_never(level)


def validated(target: Target, obj: JsonObject, live: JsonObject | None) -> None:
    """Apply the kind's own rules, which may fill in fields, then check everything; a 422 names every cause."""
    kind = target.kind
    declared = str(obj.get("kind") or "")
    if kind.custom and declared != kind.resource.kind:
        name = str(obj["metadata"].get("name") or "")
        cause = Cause("kind", f'Invalid value: "{declared}": must be {kind.resource.kind}')
        raise invalid(declared, name, [cause], group=kind.resource.group)
    own = kind.prepare(obj, live) if kind.prepare is not None else []
    causes = [*kind.schema.validate(obj, live), *own]
    if causes:
        name = str(obj["metadata"].get("name") or "")
        raise invalid(kind.resource.kind, name, causes, group=kind.resource.group)
