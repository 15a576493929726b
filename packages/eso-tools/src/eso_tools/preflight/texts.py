"""Templates and regular expressions inside objects, parsed as the operator would parse them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from eso_api.clusterexternalsecret import ClusterExternalSecret
from eso_api.clusterpushsecret import ClusterPushSecret
from eso_api.externalsecret import ExternalSecret, ExternalSecretSpec
from eso_api.pushsecret import PushRewrite, PushSecret, PushSecretSpec
from eso_api.rewrite import Rewrite
from eso_api.template import Template
from eso_api.validation.problems import FieldError
from eso_render.clock import wall_nanos
from gotmpl.expressions import Unparsable
from gotmpl.families import LazyFunctions
from gotmpl.parser import parse
from gotmpl.sprig.regexes import BadPatternError, compiled


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
