"""Templates and rewrites: how values become the keys and data of an object. Shared by ExternalSecret and PushSecret."""

from __future__ import annotations

from typing import Annotated, ClassVar, NamedTuple

from eso_api.shapes import DataKey, Fragment, ObjectName, exactly_one, one_of, shaped

# Generous limits: CEL rules iterate over these lists, so the API server requires a maximum length.
MAX_TEMPLATES = 1000
MAX_TARGET_PATH = 1024

DecodingStrategy = Annotated[str, one_of("Auto", "Base64", "Base64URL", "None")]


class TemplateMetadata(Fragment, frozen=True, kw_only=True):
    """Labels, annotations and finalizers of the rendered object."""

    labels: dict[str, str] = {}
    """Labels; the values are templates."""
    annotations: dict[str, str] = {}
    """Annotations; the values are templates."""
    finalizers: list[str] = []
    """Finalizers to add. They are never removed."""


class TemplateItem(Fragment, frozen=True, kw_only=True):
    """One key that holds a template."""

    key: DataKey
    """Key of the ConfigMap or Secret."""
    template_as: Annotated[str, one_of("Values", "KeysAndValues")] = "Values"
    """Values (default) renders one value under the same key; KeysAndValues renders a YAML map of keys and values."""


class TemplateSource(Fragment, frozen=True, kw_only=True):
    """A ConfigMap or Secret with templates, in the namespace of the object that uses it."""

    name: ObjectName
    """Name of the object."""
    items: list[TemplateItem]
    """Keys to use."""


class TemplateFrom(Fragment, frozen=True, kw_only=True):
    """Templates kept elsewhere."""

    config_map: TemplateSource | None = None
    """Templates in a ConfigMap."""
    secret: TemplateSource | None = None
    """Templates in a Secret."""
    literal: str | None = None
    """A template that renders a YAML map of keys and values."""
    target: Annotated[str, shaped(maxLength=MAX_TARGET_PATH)] = "Data"
    """Where the result goes: Data (default), Annotations, Labels, or a path such as spec.config in other kinds."""
    values_decoding_strategy: DecodingStrategy = "None"
    """How rendered values are decoded; absent means None."""


class Template(Fragment, frozen=True, kw_only=True):
    """How values become the data and metadata of the object."""

    type: str = ""
    """Type of the Secret, for example kubernetes.io/dockerconfigjson."""
    engine_version: Annotated[str, one_of("v2")] = "v2"
    """Template engine; v2 is the only one."""
    merge_policy: Annotated[str, one_of("Replace", "Merge")] = "Replace"
    """Replace (default) keeps only templated keys; Merge keeps the fetched keys too."""
    metadata: TemplateMetadata | None = None
    """Metadata of the object."""
    data: dict[str, str] = {}
    """Keys of the object; the values are templates."""
    template_from: Annotated[list[TemplateFrom], shaped(maxItems=MAX_TEMPLATES)] = []
    """Templates kept elsewhere, rendered in order; data wins over them."""


class TemplateReferences(NamedTuple):
    """Names of the ConfigMaps and Secrets that contain templates."""

    config_maps: frozenset[str]
    secrets: frozenset[str]


def template_references(template: Template | None) -> TemplateReferences:
    """Return the objects that must be read before the template is rendered."""
    entries = template.template_from if template else []
    return TemplateReferences(
        config_maps=frozenset(entry.config_map.name for entry in entries if entry.config_map),
        secrets=frozenset(entry.secret.name for entry in entries if entry.secret),
    )


class RegexpRewrite(Fragment, frozen=True, kw_only=True):
    """Replaces what a regular expression (RE2) matches in each key."""

    source: str
    """Expression to find."""
    target: str
    """Replacement; $1 or ${name} stand for groups."""


class TransformRewrite(Fragment, frozen=True, kw_only=True):
    """Renders a template for each key."""

    template: str
    """Template; .value is the key."""


class MergeRewrite(Fragment, frozen=True, kw_only=True):
    """Merges the JSON objects under the keys into one."""

    into: str = ""
    """Key of the result; needed for strategy JSON."""
    priority: list[str] = []
    """Keys in ascending priority; a later one wins."""
    priority_policy: Annotated[str, one_of("IgnoreNotFound", "Strict")] = "Strict"
    """What happens when a key of priority is missing; absent means Strict."""
    conflict_policy: Annotated[str, one_of("Ignore", "Error")] = "Error"
    """What happens when two objects hold the same property; absent means Error."""
    strategy: Annotated[str, one_of("Extract", "JSON")] = "Extract"
    """Extract (default) turns properties into keys; JSON writes the merged object under one key."""


class Rewrite(Fragment, frozen=True, kw_only=True):
    """One step of the pipeline that renames keys."""

    SHAPE: ClassVar = exactly_one()

    regexp: RegexpRewrite | None = None
    """Rename by regular expression."""
    transform: TransformRewrite | None = None
    """Rename by template."""
    merge: MergeRewrite | None = None
    """Merge the values."""
