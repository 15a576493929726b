"""Reads the ConfigMaps and Secrets that hold templates, from the namespace of the object that names them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from eso_api.template import Template, template_references
from eso_api.values import SecretBytes
from eso_operator.waking.dependencies import Dependency, OnObject
from eso_render.sources import TemplateObjects
from kubebase.meta import JsonObject, Kind, ObjectKey, Resource, meta_of, raw
from kuberun.client import Client
from kuberun.errors import NotFound

_SECRETS: Final = raw(Resource("", "v1", "secrets", "Secret"))
_CONFIG_MAPS: Final = raw(Resource("", "v1", "configmaps", "ConfigMap"))
_NO_VERSIONS: Final[frozenset[TemplateVersion]] = frozenset()  # one for all objects: each is kept with its object


class TemplateMissingError(Exception):
    """A ConfigMap or Secret that holds a template does not exist."""


class TemplateVersion(NamedTuple):
    """The resourceVersion of a ConfigMap or Secret when its template was read."""

    kind: str
    key: ObjectKey
    version: str


@dataclass(frozen=True, slots=True)
class Templates:
    """The objects that hold templates, and their versions."""

    objects: TemplateObjects
    versions: frozenset[TemplateVersion]


async def read_templates(client: Client, template: Template | None, namespace: str) -> Templates:
    """Read every ConfigMap and Secret that the template refers to. Raises TemplateMissingError."""
    wanted = template_references(template)
    maps = {name: await _get(client, _CONFIG_MAPS, ObjectKey(namespace, name)) for name in sorted(wanted.config_maps)}
    secrets = {name: await _get(client, _SECRETS, ObjectKey(namespace, name)) for name in sorted(wanted.secrets)}
    objects = TemplateObjects(
        config_maps={name: found.get("data") or {} for name, found in maps.items()},
        secrets={name: _revealed(found) for name, found in secrets.items()},
    )
    read = [("ConfigMap", each) for each in maps.values()] + [("Secret", each) for each in secrets.values()]
    versions = frozenset(_version(kind, found) for kind, found in read) if read else _NO_VERSIONS
    return Templates(objects, versions)


def template_sources(template: Template | None, namespace: str) -> Iterator[Dependency]:
    """Yield the objects that the template refers to, as dependencies."""
    wanted = template_references(template)
    for kind, names in (("ConfigMap", wanted.config_maps), ("Secret", wanted.secrets)):
        for name in sorted(names):
            yield OnObject("", kind, ObjectKey(namespace, name))


async def _get(client: Client, kind: Kind[JsonObject], key: ObjectKey) -> JsonObject:
    try:
        return await client.get(kind, key)
    except NotFound:
        raise TemplateMissingError(f"{kind.resource.kind} {key}, which holds a template, does not exist") from None


def _version(kind: str, found: JsonObject) -> TemplateVersion:
    metadata = meta_of(found)
    return TemplateVersion(kind, metadata.key, metadata.resource_version)


def _revealed(secret: JsonObject) -> dict[str, SecretBytes]:
    return {key: SecretBytes(base64.b64decode(value or "")) for key, value in (secret.get("data") or {}).items()}
