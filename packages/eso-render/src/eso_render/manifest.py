"""Render values and a template to an object of any kind.

The path is the same as for Secrets, but the result is a JSON object: `data`, labels and annotations hold text, and a
template may also write to `spec` or to any path. The identity of the object (API version, kind, name, namespace) comes
from the ExternalSecret; no template can change it. The caller adds ownership, the managed label and the data hash.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from eso_api.externalsecret import Manifest, Target
from eso_api.validation import writes_secret
from eso_render import paths
from eso_render.engine import render_text
from eso_render.errors import TargetError, TemplatePath
from eso_render.secret import (
    NO_OBJECTS,
    Values,
    refuse_denied,
    refuse_reserved,
    refuse_token,
    user_annotations,
    user_labels,
)
from eso_render.templates import (
    MANIFEST_ORDER,
    RenderedObject,
    RenderedObjectError,
    RenderText,
    TemplateObjects,
    as_text,
    document,
    pieces,
    render_into,
)
from kubebase.meta import ObjectMeta
from kubebase.yamlvalues import YamlError

Json = dict[str, Any]

KINDS_WITH_DATA = frozenset({"ConfigMap", "Secret"})
"""Kinds that start with an empty `data`; all others start with an empty `spec`."""


@dataclass(frozen=True, slots=True)
class DesiredManifest:
    """The desired object as JSON."""

    api_version: str
    kind: str
    content: Json = field(repr=False)


def render_manifest(
    target: Target,
    values: Values,
    *,
    owner: ObjectMeta,
    existing: Mapping[str, Any] | None = None,
    objects: TemplateObjects = NO_OBJECTS,
    render: RenderText = render_text,
) -> DesiredManifest:
    """Render the values and the template of an ExternalSecret for `target.manifest`.

    `existing` is the object to build on under the merging policies; otherwise the object starts empty.
    """
    manifest = target.manifest
    if manifest is None:
        raise TargetError("spec.target.manifest must name an apiVersion and a kind", TemplatePath(()))
    refuse_denied(target)
    identity = _identity(manifest, target, owner)
    rendered_object = _RenderedManifest(_base(existing, identity))
    try:
        if target.template is None:
            rendered_object.copy(values, owner)
        else:
            render_into(rendered_object, pieces(target.template, objects, MANIFEST_ORDER), values=values, render=render)
        if writes_secret(target) and (target.template is not None or existing is not None):
            refuse_reserved(rendered_object.labels)
        desired = rendered_object.desired(identity)
    except (paths.PathError, RenderedObjectError) as error:
        raise TargetError(str(error), TemplatePath(())) from None
    if writes_secret(target):
        refuse_token(desired.content.get("type"), desired.content["metadata"].get("annotations", {}))
    return desired


@dataclass(frozen=True, slots=True)
class _Identity:
    """The identity of the object, which comes only from the ExternalSecret."""

    api_version: str
    kind: str
    name: str
    namespace: str


def _identity(manifest: Manifest, target: Target, owner: ObjectMeta) -> _Identity:
    return _Identity(manifest.api_version, manifest.kind, target.name or owner.name, owner.namespace)


def _base(existing: Mapping[str, Any] | None, identity: _Identity) -> Json:
    if existing:
        return deepcopy(dict(existing))
    return {
        "apiVersion": identity.api_version,
        "kind": identity.kind,
        "metadata": {"name": identity.name} | ({"namespace": identity.namespace} if identity.namespace else {}),
        "data" if identity.kind in KINDS_WITH_DATA else "spec": {},
    }


class _RenderedManifest(RenderedObject):
    """The object being rendered. A template may have replaced any part of it, so parts are always looked up again."""

    def __init__(self, content: Json) -> None:
        self.content = content

    @property
    def labels(self) -> dict[str, str]:
        return self._map(("metadata", "labels"))

    @property
    def annotations(self) -> dict[str, str]:
        return self._map(("metadata", "annotations"))

    def put_data(self, key: str, value: bytes, /) -> None:
        self._map(("data",))[key] = as_text(value, f"key {key}")

    def put_at(self, target: str, key: str, value: bytes, /) -> None:
        """Write to `spec` under the key, or to a path as YAML (as text if it is not YAML); then the key is unused."""
        if target.lower() == "spec":
            self._map(("spec",))[key] = as_text(value, f"key {key} of spec")
            return
        text = as_text(value, f"the value at {target}")
        try:
            content = document(value)
        except YamlError:
            content = text
        paths.put(self.content, paths.parse(target), content)

    def put_document_at(self, target: str, content: Any, /) -> None:
        """Replace `spec`; at a deeper path, add to the existing map."""
        paths.merge(self.content, ("spec",) if target.lower() == "spec" else paths.parse(target), content)

    def copy(self, values: Values, owner: ObjectMeta) -> None:
        """Copy the values and the metadata of the ExternalSecret unchanged, if there is no template.

        A Secret gets Base64 in `data`. All other kinds get text: a ConfigMap in `data`, others in `spec.data`.
        """
        is_secret = (self.content["apiVersion"], self.content["kind"]) == ("v1", "Secret")
        held = self._map(("data",) if is_secret or self.content["kind"] == "ConfigMap" else ("spec", "data"))
        for key, value in values.items():
            content = value.reveal()
            held[key] = b64encode(content).decode() if is_secret else as_text(content, f"key {key}")
        self.labels.update(owner.labels)
        self.annotations.update(owner.annotations)

    def desired(self, identity: _Identity) -> DesiredManifest:
        metadata, content = self._map(("metadata",)), self.content
        found = (content.get("apiVersion"), content.get("kind"), metadata.get("name"), metadata.get("namespace", ""))
        if found != (identity.api_version, identity.kind, identity.name, identity.namespace):
            raise RenderedObjectError("a template may not change the apiVersion, kind, name or namespace of the object")
        for name, entries in (
            ("labels", user_labels(self.labels)),
            ("annotations", user_annotations(self.annotations)),
        ):
            if entries:
                metadata[name] = entries
            else:
                del metadata[name]
        return DesiredManifest(identity.api_version, identity.kind, content)

    def _map(self, path: paths.Path) -> Json:
        """Return the map at the path; create it if it is missing."""
        found = paths.get(self.content, path)
        if found is None:
            found = {}
            paths.put(self.content, path, found)
        if not isinstance(found, dict):
            raise RenderedObjectError(f"{paths.text_of(path)} is not a map")
        return found
