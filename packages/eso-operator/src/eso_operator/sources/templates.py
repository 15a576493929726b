"""Reads the ConfigMaps and Secrets that hold templates, from the namespace of the object that names them."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from eso_api.template import Template, template_references
from eso_api.values import SecretBytes
from eso_operator.dependencies import Dependency, OnObject
from eso_render.templates import TemplateObjects
from kubebase.bounded import BoundedDict
from kubebase.meta import JsonObject, Kind, ObjectKey, Resource, meta_of, raw
from kuberun.client import Client
from kuberun.controller import parked
from kuberun.errors import NotFound

_SECRETS: Final = raw(Resource("", "v1", "secrets", "Secret"))
_CONFIG_MAPS: Final = raw(Resource("", "v1", "configmaps", "ConfigMap"))
_MAX_CACHED: Final = 256
_MAX_CACHED_SIZE: Final = 64 * 1024
"""Characters of a ConfigMap that is cached."""
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


VersionOf = Callable[[str, ObjectKey], str]
"""Returns the resourceVersion of a watched object by kind and key; empty if it is not known."""


@dataclass(slots=True, eq=False)
class _CachedConfigMap:
    """The last read version of a ConfigMap; None before the first read, and if it is large."""

    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    found: JsonObject | None = None


class TemplateReader:
    """Reads templates. The process has one.

    Many objects use the templates of one ConfigMap, so ConfigMaps are cached: they are watched as metadata, and one is
    read again when its version changes. Secrets are not cached.
    """

    def __init__(self, client: Client, version_of: VersionOf) -> None:
        self._client = client
        self._version_of = version_of
        self._config_maps: BoundedDict[ObjectKey, _CachedConfigMap] = BoundedDict(_MAX_CACHED)

    async def read(self, template: Template | None, namespace: str) -> Templates:
        """Read every ConfigMap and Secret that the template refers to. Raises TemplateMissingError."""
        entries = template_references(template)
        maps = {name: await self._config_map(ObjectKey(namespace, name)) for name in sorted(entries.config_maps)}
        secrets = {name: await self._get(_SECRETS, ObjectKey(namespace, name)) for name in sorted(entries.secrets)}
        objects = TemplateObjects(
            config_maps={name: found.get("data") or {} for name, found in maps.items()},
            secrets={name: _revealed(found) for name, found in secrets.items()},
        )
        read = [("ConfigMap", each) for each in maps.values()] + [("Secret", each) for each in secrets.values()]
        versions = frozenset(_version(kind, found) for kind, found in read) if read else _NO_VERSIONS
        return Templates(objects, versions)

    async def _config_map(self, key: ObjectKey) -> JsonObject:
        cached = self._config_maps.use(key)
        if cached is None:
            cached = self._config_maps[key] = _CachedConfigMap()
        async with parked(), cached.reading:  # the others wait for the first one's read
            version = self._version_of("ConfigMap", key)
            if cached.found is not None and version == meta_of(cached.found).resource_version:
                return cached.found
            found = await self._get(_CONFIG_MAPS, key)
            size = sum(len(text or "") for text in (found.get("data") or {}).values())
            cached.found = found if size <= _MAX_CACHED_SIZE else None
            return found

    async def _get(self, kind: Kind[JsonObject], key: ObjectKey) -> JsonObject:
        try:
            return await self._client.get(kind, key)
        except NotFound:
            raise TemplateMissingError(f"{kind.resource.kind} {key}, which holds a template, does not exist") from None


def template_sources(template: Template | None, namespace: str) -> Iterator[Dependency]:
    """Yield the objects that the template refers to, as dependencies."""
    entries = template_references(template)
    for kind, names in (("ConfigMap", entries.config_maps), ("Secret", entries.secrets)):
        for name in sorted(names):
            yield OnObject("", kind, ObjectKey(namespace, name))


def _version(kind: str, found: JsonObject) -> TemplateVersion:
    metadata = meta_of(found)
    return TemplateVersion(kind, metadata.key, metadata.resource_version)


def _revealed(secret: JsonObject) -> dict[str, SecretBytes]:
    return {key: SecretBytes(base64.b64decode(value or "")) for key, value in (secret.get("data") or {}).items()}
