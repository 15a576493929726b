"""The move from client-side to server-side kubectl apply: conflicts that the last-applied annotation explains away.

Only for the manager named `kubectl`. A field that still has the value of the last client-side kubectl apply
belongs to kubectl; taking it over causes no conflict. The annotation is then kept up to date for older clients.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from kubebase.meta import JsonObject
from localkube.patch.fields import FieldSet, difference
from localkube.patch.typecheck import MismatchError
from localkube.patch.types import SchemaType
from localkube.patch.values import compared, field_set

ANNOTATION: Final = "kubectl.kubernetes.io/last-applied-configuration"
_KUBECTL: Final = "kubectl"


def explained(live: JsonObject, manager: str, kind: SchemaType) -> FieldSet:
    """Find the fields with the values that kubectl applied last; empty for every other manager."""
    text = _annotation(live) if manager == _KUBECTL else ""
    if not text:
        return {}
    try:
        config = msgspec.json.decode(text, type=dict[str, Any])
        if config.get("apiVersion") != live.get("apiVersion"):
            return {}
        spoken = field_set(config, kind)
        changed, removed = compared(config, live, kind)
    except (msgspec.MsgspecError, MismatchError):
        return {}
    return difference(difference(spoken, changed), removed)


def updated(obj: JsonObject, config: JsonObject, manager: str) -> JsonObject:
    """Return `obj` with the annotation renewed, if kubectl applied and the object has one."""
    if manager != _KUBECTL or not _annotation(obj):
        return obj
    metadata: JsonObject = dict(config.get("metadata", {}))
    if metadata.get("annotations"):
        metadata["annotations"] = {k: v for k, v in metadata["annotations"].items() if k != ANNOTATION}
    text = msgspec.json.encode({**config, "metadata": metadata}, order="sorted").decode() + "\n"
    annotations = {**obj["metadata"]["annotations"], ANNOTATION: text}
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}


def _annotation(obj: JsonObject) -> str:
    annotations = obj.get("metadata", {}).get("annotations") or {}
    return str(annotations.get(ANNOTATION) or "")
