"""Which objects this operator's CRDs or controllers would refuse or treat differently. Pure.

Each object is judged as the API server and the controllers would: the schema and CEL rules of our CRD, then the rules
that only the controllers check, then templates and regular expressions. Messages never repeat a value of an object.
"""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any, Final

import msgspec

from eso_api.clusterexternalsecret import ClusterExternalSecret
from eso_api.clusterpushsecret import ClusterPushSecret
from eso_api.externalsecret import ExternalSecret
from eso_api.kinds import AnyKind
from eso_api.pushsecret import PushSecret
from eso_api.validation.externalsecret import external_secret_problems
from eso_api.validation.problems import FieldError
from eso_api.validation.pushsecret import push_secret_problems
from eso_operator.process.flagverdicts import flags_in
from eso_operator.report.messages import READY
from eso_tools.preflight.findings import Detail, Finding, Findings, Level, counted
from eso_tools.preflight.snapshot import Role, Snapshot, Stored
from eso_tools.preflight.texts import text_problems
from kubebase.meta import JsonObject
from kuberun.redaction import field_without_echo, without_echo, without_values
from localkube.schema.crd import served_kinds
from localkube.schema.structural import StructuralSchema

Delimiters = tuple[str, str]

_LEFT, _RIGHT = "template-left-delimiter", "template-right-delimiter"


def refused_objects(snapshot: Snapshot) -> Findings:
    """Report objects that would stop working. An object that does not work today either is only a warning."""
    delimiters = _delimiters(snapshot)
    problems = [(each, problem) for each in snapshot.objects for problem in problems_of(each, delimiters)]
    for level, says in (
        (Level.BLOCKER, "would not be accepted by this operator"),
        (Level.WARNING, "would not be accepted by this operator, and not ready today"),
    ):
        chosen = [(each, problem) for each, problem in problems if _is_unready(each) is (level is Level.WARNING)]
        if chosen:
            count = counted(len({str(each) for each, _ in chosen}), "object")
            details = tuple(Detail(str(each), problem.path, problem.message) for each, problem in chosen)
            yield Finding(level, f"{count} {says}", details, "change these fields before you migrate")
    if snapshot.objects and not problems:
        yield Finding(
            Level.FACT, f"{counted(len(snapshot.objects), 'object')} valid by the schemas and rules of our CRDs"
        )


def dropped_fields(snapshot: Snapshot) -> Findings:
    """Report fields that our CRDs do not have: the API server drops them with the next write of the object."""
    details = tuple(
        Detail(str(each), field, "our CRD does not have this field; the API server drops it with the next write")
        for each in snapshot.objects
        if (schema := _schema(each.custom, each.api_version)) is not None
        for field in schema.prune(_judged(each, with_status=False))
    )
    if details:
        count = counted(len({detail.subject for detail in details}), "object")
        yield Finding(
            Level.WARNING, f"{count} with fields that do not exist here", details, "check that you can do without them"
        )


def problems_of(stored: Stored, delimiters: Delimiters = ("{{", "}}")) -> list[FieldError]:
    """Return why an object would be refused; the controllers' rules only if the CRD's hold, as they repeat them."""
    schema = _schema(stored.custom, stored.api_version)
    if schema is None:
        versions = ", ".join(stored.custom.versions)
        return [FieldError("apiVersion", f"this version is not served here; use one of {versions}")]
    obj = _judged(stored, with_status=True)
    schema.prune(obj)
    values = msgspec.json.encode(obj)
    found = [
        FieldError(field_without_echo(cause.field, cause.message), without_values(without_echo(cause.message), values))
        for cause in schema.validate(obj, None)
        if cause.field != _WHOLE
    ]
    if found:
        return found
    try:
        typed: Any = msgspec.convert(obj, stored.custom.type)
    except msgspec.ValidationError as error:
        return [FieldError("", str(error))]
    return [*_rule_problems(typed), *text_problems(typed, *delimiters)]


def _rule_problems(typed: Any) -> list[FieldError]:
    match typed:
        case ExternalSecret():
            return external_secret_problems(typed.spec)
        case ClusterExternalSecret():
            return external_secret_problems(typed.spec.external_secret_spec, "spec.externalSecretSpec")
        case PushSecret():
            return push_secret_problems(typed.spec)
        case ClusterPushSecret():
            return push_secret_problems(typed.spec.push_secret_spec, "spec.pushSecretSpec")
        case _:
            return []


def _judged(stored: Stored, *, with_status: bool) -> JsonObject:
    """Return a copy without the parts that the API server maintains. A manifest may leave its namespace to kubectl."""
    obj = stored.obj
    metadata = {name: value for name, value in (obj.get("metadata") or {}).items() if name in _METADATA}
    if stored.custom.namespaced:
        metadata.setdefault("namespace", "default")
    copied = {name: value for name, value in obj.items() if name != "metadata" and (with_status or name != "status")}
    return deepcopy({**copied, "metadata": metadata})


_WHOLE: Final = "<nil>"
"""The field of the remark that rules were not checked, which follows other causes."""
_METADATA: Final = frozenset({"name", "namespace", "labels", "annotations"})


@cache
def _schema(custom: AnyKind, api_version: str) -> StructuralSchema | None:
    """Return our schema of a kind in one version; None if we do not serve that version."""
    for served in served_kinds(custom.crd()):
        if served.resource.api_version == api_version:
            return StructuralSchema(served.schema.openapi, served.resource)
    return None


def _is_unready(stored: Stored) -> bool:
    match stored.obj.get("status"):
        case {"conditions": list(conditions)}:
            return any(
                isinstance(each, dict) and (each.get("type"), each.get("status")) == (READY, "False")
                for each in conditions
            )
        case _:
            return False


def _delimiters(snapshot: Snapshot) -> Delimiters:
    """Return the delimiters of templates that the operator in Go is started with."""
    given = {name: value for each in snapshot.of(Role.GO_OPERATOR) for name, value in flags_in(each.arguments)}
    return given.get(_LEFT) or "{{", given.get(_RIGHT) or "}}"
