"""Labels, annotations and field managers on targets, with the digests in them, and field ownership. Pure.

All names are equal to those of the Go operator, so that a takeover rewrites no Secret, except the annotation of
generated values, which is ours. A digest is the SHA3-224 of the value as Go's `%+v` prints it.

Parts of an object are paths such as `("data", "password")` or `("metadata", "labels", "app")`. Of managedFields, only
the parts that targets need are parsed: keys of data (also below spec), labels, annotations, finalizers, and owner
references (by uid).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from eso_api.externalsecret import EXTERNAL_SECRET, ExternalSecret
from eso_api.values import SecretBytes
from gotmpl.floats import format_float
from kubebase.meta import JsonObject, OwnerReference
from kuberun.ownership import controller_reference

_NUMBERS: Final = tuple(str(byte).encode() for byte in range(256))
_SLICE: Final = 4096

Put = Callable[[bytes], None]
"""Takes the next piece of the printed value."""


def digest(value: Any) -> str:
    """Return the digest in lower-case hex. `SecretBytes` counts as the bytes it holds."""
    found = hashlib.sha3_224()
    _print(value, found.update)
    return found.hexdigest()


def data_digest(data: Mapping[str, SecretBytes]) -> str:
    """Return the digest of the data of a Secret."""
    return digest(data)


def metadata_digest(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Return the digest of labels and annotations, which is part of `status.syncedResourceVersion`."""
    found = hashlib.sha3_224(b"{annotations:")
    _print(annotations, found.update)
    found.update(b" labels:")
    _print(labels, found.update)
    found.update(b"}")
    return found.hexdigest()


def synced_version(generation: int, labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Return `status.syncedResourceVersion`, which changes with the spec and with any label or annotation."""
    return f"{generation}-{metadata_digest(labels, annotations)}"


def is_synced(es: ExternalSecret) -> bool:
    """Return whether spec, labels and annotations of an ExternalSecret are those of its last sync."""
    meta = es.metadata
    return es.status.synced_resource_version == synced_version(meta.generation, meta.labels, meta.annotations)


def owner_digest(namespace: str, name: str) -> str:
    """Return the value of the label that names the ExternalSecret that created a Secret."""
    return digest(f"{namespace}/{name}")


def _print(value: Any, put: Put) -> None:
    match value:
        case None:
            put(b"<nil>")
        case bool():
            put(b"true" if value else b"false")
        case str():
            put(value.encode("utf-8", "surrogateescape"))
        case SecretBytes():
            _print_bytes(value.reveal(), put)
        case bytes():
            _print_bytes(value, put)
        case int():
            put(str(value).encode())
        case float():
            put(format_float(value, "g", -1).encode())
        case Mapping():
            _print_mapping(value, put)
        case list() | tuple():
            put(b"[")
            for number, each in enumerate(value):
                if number:
                    put(b" ")
                _print(each, put)
            put(b"]")
        case _:
            raise TypeError(f"a {type(value).__name__} has no digest")


def _print_mapping(value: Mapping[Any, Any], put: Put) -> None:
    put(b"map[")
    for number, key in enumerate(sorted(value, key=lambda key: str(key).encode("utf-8", "surrogateescape"))):
        if number:
            put(b" ")
        _print(key, put)
        put(b":")
        _print(value[key], put)
    put(b"]")


def _print_bytes(value: bytes, put: Put) -> None:
    """Print bytes in pieces, so that the hashing thread releases the interpreter between them."""
    put(b"[")
    for start in range(0, len(value), _SLICE):
        if start:
            put(b" ")
        put(b" ".join([_NUMBERS[byte] for byte in value[start : start + _SLICE]]))
    put(b"]")


MANAGED_LABEL: Final = "reconcile.external-secrets.io/managed"
MANAGED: Final = "true"
CREATED_BY_LABEL: Final = "reconcile.external-secrets.io/created-by"
HASH_ANNOTATION: Final = "reconcile.external-secrets.io/data-hash"
GENERATED_PREFIX: Final = "reconcile.external-secrets.io/generated-"
"""Followed by the uid of an ExternalSecret: several may write to one target, each with an annotation of its own."""
FINALIZER: Final = "externalsecrets.external-secrets.io/externalsecret-cleanup"

TARGET_INDEX: Final = "target"
"""The index of ExternalSecrets by namespace and name of the Secret that they write to."""

_RESOURCE: Final = EXTERNAL_SECRET.resource()
_MANAGER: Final = "externalsecrets.external-secrets.io"
_MAX_MANAGER_BYTES: Final = 63
_MAX_STATES: Final = 64

OWNER, ORPHAN, MERGE, CREATE_OR_MERGE, NONE = "Owner", "Orphan", "Merge", "CreateOrMerge", "None"
"""Creation policies."""


def field_manager_of(name: str) -> str:
    """Return the field manager that writes the target of the ExternalSecret of this name."""
    plain = f"{_MANAGER}/{name}"
    if len(plain.encode()) <= _MAX_MANAGER_BYTES:
        return plain
    return f"{_MANAGER}/sha3/{hashlib.sha3_224(name.encode()).hexdigest()}"


def is_field_manager(name: str) -> bool:
    """Return whether this is the field manager of an ExternalSecret."""
    return name.startswith(f"{_MANAGER}/")


def created_by(es: ExternalSecret) -> str:
    """Return the value of the label that names the ExternalSecret that created a Secret."""
    return owner_digest(es.metadata.namespace, es.metadata.name)


def controller_reference_of(es: ExternalSecret) -> OwnerReference:
    return controller_reference(_RESOURCE, es.metadata)


def target_name(es: ExternalSecret) -> str:
    return es.spec.target.name or es.metadata.name


# --- generated values -------------------------------------------------------------------------------------------------


class GeneratedMark(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The annotation of a target that holds generated values, written together with them.

    After a lost status it says that the values exist, so that they are not generated again.
    """

    time: str
    """When they were generated: `status.refreshTime` of that sync."""
    version: str
    """The version of the ExternalSecret: `status.syncedResourceVersion` of that sync."""
    renew_time: str | None = None
    """When they must be generated again: `status.renewTime` of that sync."""
    states: tuple[str, ...] | None = None
    """The names of their GeneratorStates; None if there are too many to list."""


def generated_annotation(es: ExternalSecret) -> str:
    """Return the key of the annotation about values that this very ExternalSecret generated."""
    return GENERATED_PREFIX + es.metadata.uid


def with_states(mark: GeneratedMark, names: tuple[str, ...]) -> GeneratedMark:
    return msgspec.structs.replace(mark, states=names if len(names) <= _MAX_STATES else None)


def generated_by(es: ExternalSecret, annotations: Mapping[str, str]) -> GeneratedMark | None:
    """Return what a target says of values that this ExternalSecret generated; None if it says nothing valid."""
    written = annotations.get(generated_annotation(es))
    if written is None:
        return None
    try:
        return msgspec.json.decode(written, type=GeneratedMark)
    except msgspec.MsgspecError:
        return None


def marked(
    es: ExternalSecret, annotations: Mapping[str, str], mark: GeneratedMark | None, *, unchanged: bool
) -> dict[str, str]:
    """Return the annotation for the next write; empty if no value is generated.

    Values that the target holds already keep the annotation that was written with them, or have none.
    """
    if mark is None:
        return {}
    key = generated_annotation(es)
    if unchanged:
        return {key: annotations[key]} if key in annotations else {}
    return {key: msgspec.json.encode(mark).decode()}


# --- field ownership --------------------------------------------------------------------------------------------------


Path = tuple[str, ...]

SECTIONS: Final = (("data",), ("spec", "data"), ("metadata", "labels"), ("metadata", "annotations"))
FINALIZERS: Final = ("metadata", "finalizers")
OWNERS: Final = ("metadata", "ownerReferences")


@dataclass(frozen=True, slots=True)
class Fields:
    """The parts that one manager owns, and the parts that others own."""

    ours: frozenset[Path]
    others: frozenset[Path]

    def only_ours(self, path: Path) -> bool:
        return path in self.ours and path not in self.others


def fields_of(obj: Mapping[str, Any], manager: str) -> Fields:
    """Return the parts of the object that this manager owns, and the parts that others own."""
    ours: set[Path] = set()
    others: set[Path] = set()
    for entry in _entries(obj):
        mine = entry.get("manager") == manager and not entry.get("subresource")
        (ours if mine else others).update(_parts(entry))
    return Fields(frozenset(ours), frozenset(others))


def parts_of(obj: Mapping[str, Any], is_meant: Callable[[str], bool]) -> frozenset[Path]:
    """Return the parts that any manager with a matching name owns."""
    return frozenset(part for entry in _entries(obj) if is_meant(str(entry.get("manager"))) for part in _parts(entry))


def holders_of(obj: Mapping[str, Any], is_meant: Callable[[str], bool]) -> dict[Path, set[str]]:
    """Return each part that managers with a matching name own, with their names."""
    found: dict[Path, set[str]] = {}
    for entry in _entries(obj):
        if is_meant(manager := str(entry.get("manager"))):
            for part in _parts(entry):
                found.setdefault(part, set()).add(manager)
    return found


def managers_of(obj: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of all managers of the object."""
    return frozenset(str(entry.get("manager")) for entry in _entries(obj))


def conversion(obj: Mapping[str, Any], manager: str) -> list[JsonObject]:
    """Return a JSON patch that merges our entries into one of server-side apply, which can then remove their fields.

    It changes managedFields only, and only on this version of the object. Empty if all our entries are of apply.
    """
    entries = [dict(entry) for entry in _entries(obj)]
    mine = [entry for entry in entries if entry.get("manager") == manager and not entry.get("subresource")]
    if all(entry.get("operation") == "Apply" for entry in mine):
        return []
    merged: JsonObject = {}
    for entry in mine:
        merged = _union(merged, entry.get("fieldsV1") or {})
    kept = {**mine[0], "operation": "Apply", "fieldsV1": merged}
    rest = [entry for entry in entries if all(entry is not one for one in mine)]
    metadata = obj.get("metadata") or {}
    return [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": metadata.get("resourceVersion")},
        {"op": "replace", "path": "/metadata/managedFields", "value": [*rest, kept]},
    ]


def beginning(obj: Mapping[str, Any], manager: str, path: Path) -> list[JsonObject]:
    """Return the managedFields to send with a write of `path`; empty if the object has managedFields.

    An API server does not track an object that was created without any field, for example an empty ConfigMap, until a
    write brings managedFields.
    """
    if _entries(obj):
        return []
    fields: JsonObject = {}
    for step in reversed(path):
        fields = {f"f:{step}": fields}
    kind = {"apiVersion": obj.get("apiVersion"), "fieldsType": "FieldsV1"}
    return [{"manager": manager, "operation": "Update", **kind, "fieldsV1": fields}]


def _entries(obj: Mapping[str, Any]) -> list[JsonObject]:
    metadata = obj.get("metadata") or {}
    return [entry for entry in metadata.get("managedFields") or [] if isinstance(entry, dict)]


def _parts(entry: JsonObject) -> Iterator[Path]:
    for section in SECTIONS:
        for key in _below(entry, section):
            if key.startswith("f:"):
                yield (*section, key.removeprefix("f:"))
    for key in _below(entry, FINALIZERS):
        if key.startswith("v:"):
            yield (*FINALIZERS, str(_element(key)))
    for key in _below(entry, OWNERS):
        if key.startswith("k:") and isinstance(named := _element(key), dict):
            yield (*OWNERS, str(named.get("uid")))


def _below(entry: JsonObject, section: Path) -> JsonObject:
    found: Any = entry.get("fieldsV1")
    for step in section:
        found = found.get(f"f:{step}") if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _element(key: str) -> Any:
    """Parse the name of a list element: JSON after a prefix such as `v:` or `k:`."""
    try:
        return msgspec.json.decode(key[2:])
    except msgspec.DecodeError:
        return None


def _union(one: JsonObject, other: JsonObject) -> JsonObject:
    """Return the union of two field trees."""
    joined = dict(one)
    for key, below in other.items():
        held = joined.get(key)
        joined[key] = _union(held, below) if isinstance(held, dict) and isinstance(below, dict) else below
    return joined
