"""Which objects this operator's CRDs or controllers would refuse or treat differently. Pure.

Each object is checked as the API server and the controllers would: the schema and CEL rules of our CRD, then the rules
that only the controllers check, then templates and regular expressions, parsed as the operator parses them. Messages
never repeat a value of an object.

`chosen_namespaces` is a warning: the operator in Go writes wherever the user of the store may. Here a
ClusterSecretStore names the namespaces that a PushSecret may choose (`allowedRemoteNamespaces`), and Go's
CRDs have no such field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec

from eso_api.common import READY
from eso_api.externalsecret import ClusterExternalSecret, ExternalSecret, ExternalSecretSpec
from eso_api.kinds import AnyKind
from eso_api.pushsecret import ClusterPushSecret, PushRewrite, PushSecret, PushSecretSpec
from eso_api.stores.kubernetes import ANY_NAMESPACE
from eso_api.template import Rewrite, Template
from eso_api.validation import FieldError, external_secret_problems, push_secret_problems
from eso_operator.flags import flags_in
from eso_render.metering import wall_nanos
from eso_tools.preflight.findings import CheckResult, Detail, Findings, Level, counted
from eso_tools.preflight.snapshot import Snapshot, Stored, WorkloadRole
from gotmpl.expressions import Unparsable
from gotmpl.functions import LazyFunctions
from gotmpl.sprig.regexes import BadPatternError, compiled
from gotmpl.template import parse
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
    for level, text in (
        (Level.BLOCKER, "would not be accepted by this operator"),
        (Level.WARNING, "would not be accepted by this operator, and not ready today"),
    ):
        chosen = [(each, problem) for each, problem in problems if _is_unready(each) is (level is Level.WARNING)]
        if chosen:
            count = counted(len({str(each) for each, _ in chosen}), "object")
            details = tuple(Detail(str(each), problem.path, problem.message) for each, problem in chosen)
            yield CheckResult(level, f"{count} {text}", details, "change these fields before you migrate")
    if snapshot.objects and not problems:
        yield CheckResult(
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
        yield CheckResult(
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
    given = {name: value for each in snapshot.of(WorkloadRole.GO_OPERATOR) for name, value in flags_in(each.arguments)}
    return given.get(_LEFT) or "{{", given.get(_RIGHT) or "}}"


class Text(NamedTuple):
    """A template or a pattern, and the field that holds it. Rewrites always have the default delimiters."""

    path: str
    content: str


def text_problems(typed: Any, left: str = "{{", right: str = "}}") -> list[FieldError]:
    """Return the templates that do not parse, and the regular expressions that RE2 refuses."""
    templates, keys, patterns = _texts(typed)
    return [
        *(problem for text in templates for problem in _unparsable(text, left, right)),
        *(problem for text in keys for problem in _unparsable(text, "{{", "}}")),
        *(problem for text in patterns for problem in _bad_pattern(text)),
    ]


def _texts(typed: Any) -> tuple[list[Text], list[Text], list[Text]]:
    """Return the templates of the target, the templates of rewrites, and the patterns of an object."""
    match typed:
        case ExternalSecret():
            return _of_read(typed.spec, "spec")
        case ClusterExternalSecret():
            return _of_read(typed.spec.external_secret_spec, "spec.externalSecretSpec")
        case PushSecret():
            return _of_push(typed.spec, "spec")
        case ClusterPushSecret():
            return _of_push(typed.spec.push_secret_spec, "spec.pushSecretSpec")
        case _:
            return [], [], list(_of_conditions(getattr(getattr(typed, "spec", None), "conditions", ())))


def _of_read(spec: ExternalSecretSpec, path: str) -> tuple[list[Text], list[Text], list[Text]]:
    keys: list[Text] = []
    patterns: list[Text] = []
    for index, entry in enumerate(spec.data_from):
        where = f"{path}.dataFrom[{index}]"
        if entry.find is not None and entry.find.name is not None:
            patterns.append(Text(f"{where}.find.name.regexp", entry.find.name.regexp))
        keys += _transforms(entry.rewrite, where)
        patterns += _expressions(entry.rewrite, where)
    return list(_of_template(spec.target.template, f"{path}.target.template")), keys, patterns


def _of_push(spec: PushSecretSpec, path: str) -> tuple[list[Text], list[Text], list[Text]]:
    keys: list[Text] = []
    patterns: list[Text] = []
    for index, entry in enumerate(spec.data_to):
        where = f"{path}.dataTo[{index}]"
        if entry.match is not None:
            patterns.append(Text(f"{where}.match.regexp", entry.match.regexp))
        keys += _transforms(entry.rewrite, where)
        patterns += _expressions(entry.rewrite, where)
    return list(_of_template(spec.template, f"{path}.template")), keys, patterns


def _of_template(template: Template | None, path: str) -> Iterator[Text]:
    """Yield the templates in the object itself; those in ConfigMaps and Secrets are not read."""
    if template is None:
        return
    for index, source in enumerate(template.template_from):
        if source.literal is not None:
            yield Text(f"{path}.templateFrom[{index}].literal", source.literal)
    yield from (Text(f"{path}.data.{key}", text) for key, text in template.data.items())
    if template.metadata is not None:
        yield from (Text(f"{path}.metadata.labels.{key}", text) for key, text in template.metadata.labels.items())
        for key, text in template.metadata.annotations.items():
            yield Text(f"{path}.metadata.annotations.{key}", text)


def _transforms(steps: Sequence[Rewrite | PushRewrite], path: str) -> Iterator[Text]:
    for index, step in enumerate(steps):
        if step.transform is not None:
            yield Text(f"{path}.rewrite[{index}].transform.template", step.transform.template)


def _expressions(steps: Sequence[Rewrite | PushRewrite], path: str) -> Iterator[Text]:
    for index, step in enumerate(steps):
        if step.regexp is not None:
            yield Text(f"{path}.rewrite[{index}].regexp.source", step.regexp.source)


def _of_conditions(conditions: Any) -> Iterator[Text]:
    for index, condition in enumerate(conditions or ()):
        for position, pattern in enumerate(getattr(condition, "namespace_regexes", ())):
            yield Text(f"spec.conditions[{index}].namespaceRegexes[{position}]", pattern)


def _unparsable(text: Text, left: str, right: str) -> Iterator[FieldError]:
    try:
        parse(text.content, _functions(), left=left, right=right)
    except Unparsable as problem:
        hint = f"; {problem.hint}" if problem.hint else ""
        yield FieldError(text.path, f"the template does not parse: line {problem.line}: {problem.message}{hint}")


def _bad_pattern(text: Text) -> Iterator[FieldError]:
    try:
        compiled(text.content)
    except BadPatternError as problem:
        yield FieldError(text.path, f"not a regular expression (RE2): {problem}")


@cache
def _functions() -> LazyFunctions:
    from eso_render.functions import functions

    return functions(wall_nanos)


_MARK: Final = "reconcile.external-secrets.io/managed-by=external-secrets"


class Choice(NamedTuple):
    """A namespace that one entry of a PushSecret chooses."""

    field: str
    namespace: str
    stores: tuple[Mapping[str, Any], ...]
    """References to the stores that the entry is pushed to."""


def chosen_namespaces(snapshot: Snapshot) -> Findings:
    """Report the namespaces that must be allowed for pushes to work as they do with the operator in Go."""
    choices = [(each, choice) for each in snapshot.objects for choice in _choices(each)]
    for store in snapshot.objects:
        provider = _map(_map(store.obj, "spec"), "provider")
        if store.custom.name != "ClusterSecretStore" or "kubernetes" not in provider:
            continue
        block = _map(provider, "kubernetes")
        allowed = {block.get("remoteNamespace") or "default", *_list(block, "allowedRemoteNamespaces")}
        refused = [
            (stored, choice)
            for stored, choice in choices
            if choice.namespace not in allowed and any(_names(reference, store) for reference in choice.stores)
        ]
        if not refused or ANY_NAMESPACE in allowed:
            continue
        namespaces = ", ".join(sorted({choice.namespace for _, choice in refused}))
        yield CheckResult(
            Level.WARNING,
            f"{counted(len(refused), 'entry', 'entries')} of PushSecrets would be refused: {store} does not allow the"
            " namespaces that they write to",
            tuple(Detail(str(stored), choice.field, choice.namespace) for stored, choice in refused),
            f"with the CRDs of this operator, set spec.provider.kubernetes.allowedRemoteNamespaces=[{namespaces}] in"
            f" {store} if PushSecrets may write there, and hand over each Secret that was pushed there: kubectl label"
            f" secret NAME -n NAMESPACE {_MARK}",
        )


def _choices(stored: Stored) -> Iterator[Choice]:
    spec, place = _map(stored.obj, "spec"), "spec"
    if stored.custom.name == "ClusterPushSecret":
        spec, place = _map(spec, "pushSecretSpec"), "spec.pushSecretSpec"
    elif stored.custom.name != "PushSecret":
        return
    for part in ("data", "dataTo"):
        for at, entry in enumerate(_list(spec, part)):
            namespace = _map(_map(entry, "metadata"), "spec").get("remoteNamespace")
            if isinstance(namespace, str) and namespace:
                references = [_map(entry, "storeRef")] if part == "dataTo" else _list(spec, "secretStoreRefs")
                field = f"{place}.{part}[{at}].metadata.spec.remoteNamespace"
                yield Choice(field, namespace, tuple(each for each in references if isinstance(each, Mapping)))


def _names(reference: Mapping[str, Any], store: Stored) -> bool:
    """Return whether a reference names the store; one by labels may, so it counts."""
    if reference.get("kind") != "ClusterSecretStore":
        return False
    return bool(reference.get("labelSelector")) or reference.get("name") == store.key.name


def _map(block: object, name: str) -> Mapping[str, Any]:
    found = block.get(name) if isinstance(block, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _list(block: Mapping[str, Any], name: str) -> list[Any]:
    found = block.get(name)
    return found if isinstance(found, list) else []
