"""A target is deleted only in the version that was seen: a new owner keeps it."""

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from eso_operator.targets.manifest import ManifestTarget
from eso_operator.targets.secret import SecretTarget
from eso_operator.targets.target import Target
from eso_operator.wiring_controllers import Memories
from eso_render.rendering import Rendering
from eso_render.workers import Workers
from eso_testkit.operator.externalsecrets import NAMESPACE, external_secret
from kubebase.meta import JsonObject, Object, Resource
from kuberun.cache import Cache
from kuberun.client import Client
from kuberun.errors import Conflict
from kuberun.requests import Request

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
PLAIN = external_secret()
OWNED = {"apiVersion": "external-secrets.io/v1", "kind": "ExternalSecret", "name": "db", "controller": True}


class Server:
    """A server with one object, whose controller changes right after the first read."""

    def __init__(self) -> None:
        self.version = 7
        self.deleted = False

    async def request(self, request: Request) -> bytes:
        if request.method == "GET":
            found, self.version = self.version, 8
            owners = [{**OWNED, "uid": PLAIN.metadata.uid if found == 7 else "another owner"}]
            metadata = {"name": "db", "namespace": NAMESPACE, "uid": "u", "resourceVersion": str(found)}
            return json.dumps({"metadata": {**metadata, "ownerReferences": owners}, "data": {}}).encode()
        wanted: JsonObject = json.loads(request.body or b"{}")["preconditions"]
        if wanted.get("resourceVersion", str(self.version)) != str(self.version):
            raise Conflict(409, "Conflict", "the precondition does not hold")
        self.deleted = True
        return b"{}"

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise AssertionError(f"nothing is watched: {request.path}")

    async def close(self) -> None:
        """Nothing is open."""


def secret_target(client: Client) -> Target:
    return SecretTarget(client, Cache[Object](), Rendering(Workers()), Memories().external_secrets)


def manifest_target(client: Client) -> Target:
    async def discover(_api_version: str, _kind: str) -> Resource:
        return CONFIG_MAPS

    async def follow(_resource: Resource) -> None:
        return None

    return ManifestTarget(client, discover, follow, rendering=Rendering(Workers()), memory=Memories().external_secrets)


@pytest.mark.parametrize(
    ("make", "spec"),
    [
        pytest.param(secret_target, {}, id="a Secret"),
        pytest.param(manifest_target, {"manifest": {"apiVersion": "v1", "kind": "ConfigMap"}}, id="another kind"),
    ],
)
async def test_a_target_that_got_another_owner_meanwhile_is_not_deleted(make: Any, spec: JsonObject) -> None:
    server = Server()
    target: Target = make(Client(server))
    es = external_secret(target=spec)

    with pytest.raises(Conflict):
        await target.delete(es)

    assert await target.delete(es) is False
    assert not server.deleted
