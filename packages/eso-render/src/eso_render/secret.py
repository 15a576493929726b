"""Render values and a template to the desired Secret of a target.

The caller handles the keys of an existing Secret under the merging policies, ownership, the managed label and the data
hash. This module does not read the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eso_api.externalsecret import Target
from eso_api.template import Template, TemplateMetadata
from eso_api.values import SecretBytes
from eso_render.denied import refuse_denied, refuse_reserved, refuse_token, user_annotations, user_labels
from eso_render.engine import render_text
from eso_render.scopes import RenderedObjectError, RenderText, render_into
from eso_render.sources import SECRET_ORDER, TemplateObjects, pieces
from kubebase.meta import ObjectMeta

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


class _RenderedSecret:
    """The Secret being rendered."""

    def __init__(self, data: dict[str, SecretBytes]) -> None:
        self.data = data
        self.labels: dict[str, str] = {}
        self.annotations: dict[str, str] = {}

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
