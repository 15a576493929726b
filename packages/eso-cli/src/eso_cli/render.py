"""`eso render`: prints the output of a manifest's templates, without a cluster and without a backend.

Reads manifests, stand-ins for the fetched values, and the ConfigMaps and Secrets that hold templates; prints one object
for each ExternalSecret, PushSecret or cluster-scoped form of them. Values are masked unless the user asks for them.
Problems are printed as `file:line: message`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from msgspec import structs

from eso_api.externalsecret import ChildMetadata, ClusterExternalSecret, ExternalSecret, Target
from eso_api.pushsecret import ClusterPushSecret, PushSecret
from eso_api.references import CORE_GROUP
from eso_api.template import Template, TemplateMetadata
from eso_cli.failures import failures
from eso_cli.printing import Clear, Masked, View, as_yaml, manifest_fields, secret_fields
from eso_cli.standins import TemplateHolder, Values, template_holder, template_objects, values_of
from eso_cli.terminal import echo
from eso_render.engine import render_text
from eso_render.errors import TargetError, TemplatePath
from eso_render.manifest import render_manifest
from eso_render.secret import render_push, render_secret
from eso_render.templates import RenderText
from eso_tools.manifests import (
    Document,
    Field,
    InputError,
    field_problems,
    named,
    read_documents,
    read_manifests,
    schema_of,
    typed,
)
from kubebase.meta import ObjectMeta

RENDERED, FAILED, UNUSABLE = 0, 1, 2
"""Exit codes: everything rendered; a template failed; a file or an option cannot be used."""
_MISSING_KEY: Final = "map has no entry for key"
_NO_VALUES: Final = "eso render: there are no values; name a file that stands in for the fetched ones: --values"


@dataclass(frozen=True, slots=True)
class RenderOptions:
    file: str
    values: str | None = None
    resources: str | None = None
    show_values: bool = False
    delimiters: tuple[str, str] = ("{{", "}}")


def run(options: RenderOptions) -> int:
    """Print the output of every template; return the exit code."""
    try:
        inputs = _read(options)
    except InputError as problem:
        echo(problem, err=True)
        return UNUSABLE
    outputs, errors = [], []
    for subject in inputs.subjects:
        try:
            outputs.append(_rendered(subject, inputs, options))
        except TargetError as first:
            for error in _all_errors(subject, inputs, options) or [first]:
                errors.append(str(error))
                echo(f"{_located(subject, error, inputs.holders)}: {error}", err=True)
    echo(as_yaml(outputs), nl=False)
    if options.values is None and _lacks_values(errors, outputs):
        echo("eso render: there are no values; name a file that stands in for the fetched ones: --values", err=True)
    return RENDERED if len(outputs) == len(inputs.subjects) else FAILED


def _lacks_values(errors: list[str], outputs: list[dict[str, Any]]) -> bool:
    """Return whether a template or a target needs values."""
    return any(_MISSING_KEY in error for error in errors) or any(output.get("data") == {} for output in outputs)


@dataclass(frozen=True, slots=True)
class Subject:
    """One manifest whose template is rendered: into a target, or (`target` is None) for a push."""

    document: Document
    owner: ObjectMeta
    template_at: Field
    template: Template | None
    target: Target | None = None


@dataclass(frozen=True, slots=True)
class Inputs:
    subjects: list[Subject]
    values: Values
    holders: list[TemplateHolder]


def _read(options: RenderOptions) -> Inputs:
    if [options.file, options.values, options.resources].count("-") > 1:
        raise InputError("eso render: only one file can come from standard input")
    manifests = read_manifests(options.file)
    others = read_manifests(options.resources) if options.resources else []
    ours = [document for document in manifests if _kind(document) in SUBJECTS and _ours(document)]
    if not ours:
        raise InputError(f"{named(options.file)}: holds no manifest of a kind with templates: {', '.join(SUBJECTS)}")
    if problems := [problem for document in ours for problem in field_problems(document, schema_of(document))]:
        raise InputError("\n".join(problems))
    return Inputs(
        subjects=[SUBJECTS[_kind(document)](document) for document in ours],
        values=values_of(read_documents(options.values)) if options.values else {},
        holders=[
            template_holder(document)
            for document in [*manifests, *others]
            if _kind(document) in {"ConfigMap", "Secret"}
        ],
    )


def _kind(document: Document) -> str:
    kind = document.content.get("kind") if isinstance(document.content, dict) else None
    if not isinstance(kind, str):
        raise document.problem((), "a manifest with apiVersion and kind is needed")
    return kind


def _ours(document: Document) -> bool:
    """Return whether the kind is ours: other projects also have an ExternalSecret."""
    version = document.content.get("apiVersion")
    return version is None or str(version).startswith(f"{CORE_GROUP}/")


def _external_secret(document: Document) -> Subject:
    manifest = typed(document, ExternalSecret)
    target = manifest.spec.target
    return Subject(document, manifest.metadata, ("spec", "target", "template"), target.template, target)


def _cluster_external_secret(document: Document) -> Subject:
    manifest = typed(document, ClusterExternalSecret)
    owner = _child(manifest.spec.external_secret_name or manifest.metadata.name, manifest.spec.external_secret_metadata)
    target = manifest.spec.external_secret_spec.target
    return Subject(document, owner, ("spec", "externalSecretSpec", "target", "template"), target.template, target)


def _push_secret(document: Document) -> Subject:
    manifest = typed(document, PushSecret)
    return Subject(document, manifest.metadata, ("spec", "template"), manifest.spec.template)


def _cluster_push_secret(document: Document) -> Subject:
    manifest = typed(document, ClusterPushSecret)
    owner = _child(manifest.spec.push_secret_name or manifest.metadata.name, manifest.spec.push_secret_metadata)
    return Subject(document, owner, ("spec", "pushSecretSpec", "template"), manifest.spec.push_secret_spec.template)


SUBJECTS: dict[str, Callable[[Document], Subject]] = {
    "ExternalSecret": _external_secret,
    "ClusterExternalSecret": _cluster_external_secret,
    "PushSecret": _push_secret,
    "ClusterPushSecret": _cluster_push_secret,
}


def _child(name: str, metadata: ChildMetadata | None) -> ObjectMeta:
    """Return the metadata that the object would have in one of the namespaces."""
    given = metadata or ChildMetadata()
    return ObjectMeta(name=name, labels=given.labels, annotations=given.annotations)


def _rendered(subject: Subject, inputs: Inputs, options: RenderOptions) -> dict[str, Any]:
    left, right = options.delimiters
    render: RenderText = partial(render_text, left=left, right=right)
    objects = template_objects(inputs.holders, subject.owner.namespace)
    view: View = Clear() if options.show_values else Masked(_spelled_out(subject))
    owner, values, target = subject.owner, inputs.values, subject.target
    if target is None:
        pushed = render_push(subject.template or Template(), values, objects=objects, render=render)
        return secret_fields(pushed, owner.name, owner.namespace, view)
    if target.manifest is not None:
        return manifest_fields(render_manifest(target, values, owner=owner, objects=objects, render=render), view)
    desired = render_secret(target, values, owner=owner, objects=objects, render=render)
    return secret_fields(desired, target.name or owner.name, owner.namespace, view)


def _all_errors(subject: Subject, inputs: Inputs, options: RenderOptions) -> list[TargetError]:
    def attempt(part: Template) -> None:
        target = subject.target and structs.replace(subject.target, template=part)
        _rendered(dataclasses.replace(subject, template=part, target=target), inputs, options)

    return failures(subject.template, subject.target, attempt) if subject.template else []


def _spelled_out(subject: Subject) -> set[str]:
    """Return the labels and annotations as written in the manifest; those that rendering keeps hold no value."""
    metadata = (subject.template.metadata if subject.template else None) or TemplateMetadata()
    sources = (subject.owner.labels, subject.owner.annotations, metadata.labels, metadata.annotations)
    return {value for entries in sources for value in entries.values()}


def _located(subject: Subject, error: TargetError, holders: list[TemplateHolder]) -> str:
    """Return `file:line` of the template, in the object that holds it if given, else where the manifest names it."""
    path: TemplatePath = error.path
    for holder in holders:
        if (holder.kind, holder.name) == (path.kind, path.name) and holder.serves(subject.owner.namespace):
            where = holder.locate(path.key, error.line)
            if where is not None:
                return where
    return subject.document.at((*subject.template_at, *path.field), error.line)
