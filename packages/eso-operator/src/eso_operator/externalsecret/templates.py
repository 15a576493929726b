"""Reads the ConfigMaps and Secrets that hold templates of an ExternalSecret. Always from its own namespace."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Final

from eso_api.externalsecret import ExternalSecret
from eso_api.values import SecretBytes
from eso_operator.sync.dependencies import Dependency, OnObject
from eso_render.sources import TemplateObjects, references
from kuberun.client import Client
from kuberun.errors import NotFound
from kuberun.meta import JsonObject, Kind, ObjectKey, Resource, raw

_SECRETS: Final = raw(Resource("", "v1", "secrets", "Secret"))
_CONFIG_MAPS: Final = raw(Resource("", "v1", "configmaps", "ConfigMap"))


class TemplateSourceError(Exception):
    """A ConfigMap or Secret with a template is not there."""


class TemplateReader:
    """One for the process."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def read(self, es: ExternalSecret) -> TemplateObjects:
        """Everything that templates of this ExternalSecret are taken from."""
        wanted = references(es.spec.target.template)
        namespace = es.metadata.namespace
        maps = {name: await self._get(_CONFIG_MAPS, namespace, name) for name in sorted(wanted.config_maps)}
        secrets = {name: await self._get(_SECRETS, namespace, name) for name in sorted(wanted.secrets)}
        return TemplateObjects(
            config_maps={name: found.get("data") or {} for name, found in maps.items()},
            secrets={name: _revealed(found) for name, found in secrets.items()},
        )

    async def _get(self, kind: Kind[JsonObject], namespace: str, name: str) -> JsonObject:
        try:
            return await self._client.get(kind, ObjectKey(namespace, name))
        except NotFound:
            raise TemplateSourceError(
                f"{kind.resource.kind} {namespace}/{name}, which holds a template, does not exist"
            ) from None


def sources_of(es: ExternalSecret) -> Iterable[Dependency]:
    """The objects whose change should be looked at."""
    wanted = references(es.spec.target.template)
    for kind, names in (("ConfigMap", wanted.config_maps), ("Secret", wanted.secrets)):
        for name in names:
            yield OnObject("", kind, ObjectKey(es.metadata.namespace, name))


def _revealed(secret: JsonObject) -> dict[str, SecretBytes]:
    return {key: SecretBytes(base64.b64decode(value or "")) for key, value in (secret.get("data") or {}).items()}
