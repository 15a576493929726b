"""Rules of metadata that hold for every kind: names, labels, annotations, finalizers, owners.

The verbs check their own fields, which are not here:
resourceVersion, uid, generation and timestamps.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from kubebase.meta import JsonObject
from localkube.errors import Cause
from localkube.schema import causes, names

NameRule = Callable[[str], list[str]]

ANNOTATIONS_LIMIT: Final = 256 * 1024
_IMMUTABLE: Final = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
_OWNER_NEEDS: Final = (("kind", "must not be empty"), ("name", "must not be empty"), ("uid", "must not be empty"))
_OWNER_FIELDS: Final = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")
_ORPHAN: Final = "orphan"
_FOREGROUND: Final = "foregroundDeletion"
_STANDARD_FINALIZERS: Final = frozenset({"kubernetes", _ORPHAN, _FOREGROUND})


def validate_new(meta: JsonObject, *, namespaced: bool, name_rule: NameRule, path: str = "metadata") -> list[Cause]:
    """Check the metadata of an object that is about to be created."""
    return [
        *_name_causes(meta, name_rule, path),
        *_namespace_causes(meta, namespaced=namespaced, path=path),
        *_shared_causes(meta, path),
        *_finalizer_causes(meta.get("finalizers") or [], f"{path}.finalizers"),
    ]


def validate_update(meta: JsonObject, old: JsonObject, path: str = "metadata") -> list[Cause]:
    """Check the metadata of an object that replaces `old`."""
    found: list[Cause] = []
    if old.get("deletionTimestamp"):
        added = sorted(set(meta.get("finalizers") or []) - set(old.get("finalizers") or []))
        if added:
            listed = "[]string{" + ", ".join(causes.go_quote(name) for name in added) + "}"
            detail = f"no new finalizers can be added if the object is being deleted, found new finalizers {listed}"
            found.append(causes.forbidden(f"{path}.finalizers", detail))
    found += [
        causes.invalid(f"{path}.{field}", meta.get(field), "field is immutable")
        for field in _IMMUTABLE
        if (meta.get(field) or "") != (old.get(field) or "")
    ]
    return [*found, *_shared_causes(meta, path)]


def short_finalizer_causes(meta: JsonObject, path: str = "metadata") -> Iterator[Cause]:
    """Refuse finalizers without a domain, except those of Kubernetes; not every kind checks this."""
    detail = "name is neither a standard finalizer name nor is it fully qualified"
    for index, finalizer in enumerate(meta.get("finalizers") or []):
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS and not names.qualified_name(finalizer):
            yield causes.invalid(f"{path}.finalizers[{index}]", finalizer, detail)


def label_causes(labels: Mapping[str, Any], path: str) -> Iterator[Cause]:
    for key, value in labels.items():
        for message in names.qualified_name(key):
            yield causes.invalid(path, key, message)
        for message in names.label_value(value):
            yield causes.invalid(path, value, message)


def _name_causes(meta: JsonObject, rule: NameRule, path: str) -> Iterator[Cause]:
    prefix = meta.get("generateName") or ""
    # A generated name gets a suffix, so a prefix may end with a dash.
    masked = prefix[:-2] + "a" if len(prefix) > 1 and prefix.endswith("-") else prefix
    for message in rule(masked) if prefix else []:
        yield causes.invalid(f"{path}.generateName", prefix, message)
    name = meta.get("name") or ""
    if not name:
        yield causes.required(f"{path}.name", "name or generateName is required")
    for message in rule(name) if name else []:
        yield causes.invalid(f"{path}.name", name, message)


def _namespace_causes(meta: JsonObject, *, namespaced: bool, path: str) -> Iterator[Cause]:
    namespace = meta.get("namespace") or ""
    if not namespaced:
        if namespace:
            yield causes.forbidden(f"{path}.namespace", "not allowed on this type")
    elif not namespace:
        yield causes.required(f"{path}.namespace")
    else:
        for message in names.dns_label(namespace):
            yield causes.invalid(f"{path}.namespace", namespace, message)


def _shared_causes(meta: JsonObject, path: str) -> Iterator[Cause]:
    if labels := meta.get("labels"):
        yield from label_causes(labels, f"{path}.labels")
    if annotations := meta.get("annotations"):
        yield from _annotation_causes(annotations, f"{path}.annotations")
    if owners := meta.get("ownerReferences"):
        yield from _owner_causes([owner or {} for owner in owners], f"{path}.ownerReferences")


def _annotation_causes(annotations: Mapping[str, str], path: str) -> Iterator[Cause]:
    size = 0
    for key, value in annotations.items():
        size += len(key.encode()) + len((value or "").encode())
        for message in names.qualified_name(key.lower()):
            yield causes.invalid(path, key, message)
    if size > ANNOTATIONS_LIMIT:
        yield causes.too_long(path, ANNOTATIONS_LIMIT)


def _owner_causes(owners: list[JsonObject], path: str) -> Iterator[Cause]:
    controller = ""
    for owner in owners:
        api_version = owner.get("apiVersion") or ""
        if not api_version.rpartition("/")[2]:
            yield causes.invalid(f"{path}.apiVersion", api_version, "version must not be empty")
        for field, detail in _OWNER_NEEDS:
            if not owner.get(field):
                yield causes.invalid(f"{path}.{field}", "", detail)
        if (api_version, owner.get("kind")) == ("v1", "Event"):
            yield causes.invalid(path, owner, "/v1, Kind=Event is disallowed from being an owner")
        if owner.get("controller"):
            this = f"{owner.get('kind')}/{owner.get('name')}"
            if controller:
                detail = (
                    "Only one reference can have Controller set to true. "
                    f'Found "true" in references for {controller} and {this}'
                )
                yield causes.invalid(path, _in_order(owners), detail)
            controller = controller or this


def _in_order(owners: list[JsonObject]) -> causes.Verbatim:
    """Return the references with their fields in the order of the real server."""
    shown = [{name: owner[name] for name in _OWNER_FIELDS if name in owner} for owner in owners]
    return causes.Verbatim(json.dumps(shown, separators=(",", ":"), ensure_ascii=False))


def _finalizer_causes(finalizers: list[str], path: str) -> Iterator[Cause]:
    for finalizer in finalizers:
        for message in names.qualified_name(finalizer):
            yield causes.invalid(path, finalizer, message)
    if _ORPHAN in finalizers and _FOREGROUND in finalizers:
        yield causes.invalid(path, finalizers, f"finalizer {_ORPHAN} and {_FOREGROUND} cannot be both set")
