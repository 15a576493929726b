"""Discovery of the resource of a kind: its plural and scope, from the API server."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from eso_api.stores.kubernetes import CrdResource
from eso_provider_kubernetes.clusterstore import AnyClusterStore
from eso_provider_kubernetes.failures import Request
from eso_sdk.errors import invalid_config
from kubebase.meta import Resource
from kuberun.errors import ApiError, NotFound

_GROUP: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_VERSION: Final = re.compile(r"[a-z][a-z0-9]*")
_NOTHING_READABLE: Final = "does not serve this kind for reading; check group, version and kind"


class _Served(msgspec.Struct):
    name: str
    kind: str = ""
    namespaced: bool = True
    verbs: list[str] = []


class _ResourceList(msgspec.Struct):
    resources: list[_Served] = []


def check_resource(resource: CrdResource) -> None:
    """Reject an invalid kind, and Secrets, which have a store of their own."""
    if resource.group and not _GROUP.fullmatch(resource.group):
        raise invalid_config("/resource/group", "must be an API group, or empty for the core group")
    if not _VERSION.fullmatch(resource.version):
        raise invalid_config("/resource/version", "must be an API version like v1")
    if not resource.kind:
        raise invalid_config("/resource/kind", "must be set")
    if not resource.group and resource.kind.lower() == "secret":
        raise invalid_config("/resource/kind", "must not be Secret; read Secrets with the provider kubernetes")


async def discover(store: AnyClusterStore, wanted: CrdResource) -> Resource:
    """Return the resource of this kind."""
    unknown = Resource(wanted.group, wanted.version, wanted.kind.lower(), wanted.kind)
    try:
        with store.observe("Discovery"):
            listed = await store.client.read(unknown.root, _ResourceList)
    except NotFound:
        raise invalid_config("/resource", f"the API server {_NOTHING_READABLE}") from None
    except ApiError as error:
        raise store.failure(error, Request("discover", unknown)) from None
    for served in listed.resources:
        if served.kind == wanted.kind and "/" not in served.name and "get" in served.verbs:
            return Resource(wanted.group, wanted.version, served.name, wanted.kind, served.namespaced)
    raise invalid_config("/resource", f"the API server {_NOTHING_READABLE}")
