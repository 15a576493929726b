"""Live objects for a recording: as they are, with stand-ins for every value. Pure.

Secret        values and annotations become stand-ins; the hash of the data is that of the stand-ins
ConfigMap     unchanged: its content is not secret
others        inline values of a configuration become stand-ins; of the status only what a refresh needs is kept
"""

from __future__ import annotations

import base64
import copy
from typing import Any, Final

from eso_api.values import SecretBytes
from eso_operator.targets.metadata import HASH_ANNOTATION, data_digest
from eso_tools.plan.differences import decoded
from eso_tools.plan.needs import SYNCED, identity
from eso_tools.plan.standins import StandIns
from kubebase.meta import JsonObject

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_CONDITION: Final = ("type", "status", "reason", "lastTransitionTime")


def masked(obj: JsonObject, standins: StandIns) -> JsonObject:
    """Return a copy that contains no secret value."""
    made = copy.deepcopy(obj)
    metadata = made["metadata"]
    annotations = {
        name: text for name, text in (metadata.pop("annotations", None) or {}).items() if name != _LAST_APPLIED
    }
    if identity(made) == ("", "Secret"):
        made = {name: made[name] for name in ("apiVersion", "kind", "metadata", "type", "immutable") if name in made}
        data = {name: standins.of(decoded(text)) for name, text in (obj.get("data") or {}).items()}
        made["data"] = {name: base64.b64encode(value).decode() for name, value in data.items()}
        annotations = {name: standins.of(str(text).encode()).decode() for name, text in annotations.items()}
        if HASH_ANNOTATION in annotations:
            annotations[HASH_ANNOTATION] = data_digest({name: SecretBytes(value) for name, value in data.items()})
    elif identity(made) != ("", "ConfigMap"):
        made = standins.of_configuration(made)
        made["metadata"] = metadata
        made["status"] = _status(made) if identity(made) in SYNCED else {}
    if annotations:
        made["metadata"]["annotations"] = annotations
    return made


def _status(obj: JsonObject) -> JsonObject:
    status: JsonObject = obj.get("status") or {}
    conditions: list[Any] = status.get("conditions") or []
    short = [{name: each[name] for name in _CONDITION if name in each} for each in conditions]
    copied = {name: part for name, part in status.items() if name != "outcomes"}
    return {**copied, "conditions": short}
