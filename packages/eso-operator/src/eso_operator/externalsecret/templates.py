"""Reads the ConfigMaps and Secrets that hold templates of an ExternalSecret. Always from its own namespace."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Final, NamedTuple

from eso_api.externalsecret import ExternalSecret
from eso_api.values import SecretBytes
from eso_render.sources import TemplateObjects, references
from kuberun.client import Client
from kuberun.errors import NotFound
from kuberun.meta import JsonObject, Kind, ObjectKey, Resource, meta_of, raw

_SECRETS: Final = raw(Resource("", "v1", "secrets", "Secret"))
_CONFIG_MAPS: Final = raw(Resource("", "v1", "configmaps", "ConfigMap"))


class TemplateSourceError(Exception):
    """A ConfigMap or Secret with a template is not there."""


class TemplateVersion(NamedTuple):
    """A ConfigMap or Secret as it was when a template was taken from it."""

    kind: str
    key: ObjectKey
    version: str


@dataclass(frozen=True, slots=True)
class Templates:
    """What templates are taken from, and which versions that was."""

    objects: TemplateObjects
    versions: frozenset[TemplateVersion]


class TemplateReader:
    """One for the process."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def read(self, es: ExternalSecret) -> Templates:
        """Everything that templates of this ExternalSecret are taken from."""
        wanted = references(es.spec.target.template)
        namespace = es.metadata.namespace
        maps = {name: await self._get(_CONFIG_MAPS, namespace, name) for name in sorted(wanted.config_maps)}
        secrets = {name: await self._get(_SECRETS, namespace, name) for name in sorted(wanted.secrets)}
        objects = TemplateObjects(
            config_maps={name: found.get("data") or {} for name, found in maps.items()},
            secrets={name: _revealed(found) for name, found in secrets.items()},
        )
        read = [("ConfigMap", each) for each in maps.values()] + [("Secret", each) for each in secrets.values()]
        return Templates(objects, frozenset(_version(kind, found) for kind, found in read))

    async def _get(self, kind: Kind[JsonObject], namespace: str, name: str) -> JsonObject:
        try:
            return await self._client.get(kind, ObjectKey(namespace, name))
        except NotFound:
            raise TemplateSourceError(
                f"{kind.resource.kind} {namespace}/{name}, which holds a template, does not exist"
            ) from None


def _version(kind: str, found: JsonObject) -> TemplateVersion:
    metadata = meta_of(found)
    return TemplateVersion(kind, metadata.key, metadata.resource_version)


def _revealed(secret: JsonObject) -> dict[str, SecretBytes]:
    return {key: SecretBytes(base64.b64decode(value or "")) for key, value in (secret.get("data") or {}).items()}
