"""Rejects forbidden output of templates: tokens of the cluster, and the operator's own metadata.

Secret types that Kubernetes trusts are rejected, as the admission rules of the API do. The check is repeated here
because an object may have been stored before the rule existed. The operator's own labels and annotations are dropped
from rendered objects: the operator writes them itself, always last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eso_api.externalsecret import (
    BOOTSTRAP_TOKEN,
    SECRET_TYPE_LABEL,
    SERVICE_ACCOUNT_NAME,
    SERVICE_ACCOUNT_TOKEN,
    Target,
)
from eso_api.template import Template, TemplateMetadata
from eso_api.validation import template_problems
from eso_api.values import SecretBytes
from eso_render.engine import render_text
from eso_render.errors import TargetError, TemplatePath
from eso_render.paths import parse
from eso_render.templates import (
    SECRET_ORDER,
    RenderedObject,
    RenderedObjectError,
    RenderText,
    TemplateObjects,
    pieces,
    render_into,
)
from kubebase.meta import ObjectMeta

# --- what a template may not write ------------------------------------------------------------------------------------


RESERVED_LABELS = frozenset(
    {"reconcile.external-secrets.io/managed", "reconcile.external-secrets.io/created-by", SECRET_TYPE_LABEL},
)
RESERVED_ANNOTATIONS = frozenset({"reconcile.external-secrets.io/data-hash"})

_TARGET = "spec.target"


def refuse_denied(target: Target) -> None:
    """Raise for a template that names a refused Secret type, or a path where a Secret must not be written."""
    problems = template_problems(target, _TARGET)
    if problems:
        field = parse(problems[0].path)[len(parse(f"{_TARGET}.template")) :]
        raise TargetError("; ".join(map(str, problems)), TemplatePath(field))


def refuse_reserved(labels: Mapping[str, str]) -> None:
    """Raise for a template that sets the label that permits sending a Secret to a webhook."""
    if SECRET_TYPE_LABEL in labels:
        raise TargetError(
            f"the label {SECRET_TYPE_LABEL} is reserved: whoever copies a Secret must not decide that it may be sent to"
            " a webhook; create the Secret that carries it without an ExternalSecret",
            TemplatePath(("metadata", "labels")),
        )


def refuse_token(type_: object, annotations: Mapping[str, str]) -> None:
    """Raise for a rendered Secret that Kubernetes would fill with a token, or accept as one.

    This is the final check before the write, whatever the template looked like.
    """
    if type_ == BOOTSTRAP_TOKEN or (type_ == SERVICE_ACCOUNT_TOKEN and SERVICE_ACCOUNT_NAME in annotations):
        raise TargetError(f"a Secret of type {type_} may not be written by a template", TemplatePath(("type",)))


def user_labels(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key not in RESERVED_LABELS}


def user_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in annotations.items() if key not in RESERVED_ANNOTATIONS}


# --- Secrets ----------------------------------------------------------------------------------------------------------


Values = Mapping[str, SecretBytes]

NO_OBJECTS = TemplateObjects()


@dataclass(frozen=True, slots=True)
class Desired:
    """The desired Secret. An empty type means the existing type, or the API's default."""

    type: str
    data: dict[str, SecretBytes]
    labels: dict[str, str] = field(repr=False)
    annotations: dict[str, str] = field(repr=False)
    finalizers: tuple[str, ...] = ()
    immutable: bool = False


def render_secret(
    target: Target,
    values: Values,
    *,
    owner: ObjectMeta,
    objects: TemplateObjects = NO_OBJECTS,
    render: RenderText = render_text,
) -> Desired:
    """Render the values and the template of an ExternalSecret. `owner` is the metadata of the ExternalSecret."""
    template = target.template
    if template is None:
        return Desired(
            type="",
            data=dict(values),
            labels=user_labels(owner.labels),
            annotations=user_annotations(owner.annotations),
            immutable=target.immutable,
        )
    refuse_denied(target)
    rendered_object = _RenderedSecret(dict(values) if _includes_values(template) else {})
    render_into(rendered_object, pieces(template, objects, SECRET_ORDER), values=values, render=render)
    refuse_reserved(rendered_object.labels)
    metadata = template.metadata or TemplateMetadata()
    desired = rendered_object.desired(template, finalizers=tuple(metadata.finalizers), immutable=target.immutable)
    refuse_token(desired.type, desired.annotations)
    return desired


def render_push(
    template: Template, values: Values, *, objects: TemplateObjects = NO_OBJECTS, render: RenderText = render_text
) -> Desired:
    """Render what a PushSecret pushes: the values, overridden by the results of its template."""
    rendered_object = _RenderedSecret(dict(values))
    render_into(rendered_object, pieces(template, objects, SECRET_ORDER), values=values, render=render)
    return rendered_object.desired(template)


def render_pushes(
    template: Template, sources: Sequence[Values], *, objects: TemplateObjects, render: RenderText
) -> tuple[Desired, ...]:
    """Render several Secrets that one PushSecret pushes."""
    return tuple(render_push(template, values, objects=objects, render=render) for values in sources)


def _includes_values(template: Template) -> bool:
    """Return whether the values themselves go into the Secret: without templates for data, or with the policy Merge."""
    return template.merge_policy == "Merge" or not (template.data or template.template_from)


class _RenderedSecret(RenderedObject):
    """The Secret being rendered."""

    def __init__(self, data: dict[str, SecretBytes]) -> None:
        self.data = data
        self._labels: dict[str, str] = {}
        self._annotations: dict[str, str] = {}

    @property
    def labels(self) -> dict[str, str]:
        return self._labels

    @property
    def annotations(self) -> dict[str, str]:
        return self._annotations

    def put_data(self, key: str, value: bytes, /) -> None:
        self.data[key] = SecretBytes(value)

    def put_at(self, target: str, _key: str, _value: bytes, /) -> None:
        raise self._refused(target)

    def put_document_at(self, target: str, _content: Any, /) -> None:
        raise self._refused(target)

    def desired(self, template: Template, *, finalizers: tuple[str, ...] = (), immutable: bool = False) -> Desired:
        return Desired(
            type=template.type,
            data=self.data,
            labels=user_labels(self.labels),
            annotations=user_annotations(self.annotations),
            finalizers=finalizers,
            immutable=immutable,
        )

    def _refused(self, target: str) -> RenderedObjectError:
        return RenderedObjectError(f'a Secret has no target "{target}"; use Data, Annotations or Labels')
