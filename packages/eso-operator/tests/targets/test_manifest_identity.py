"""The identity of a manifest target is what the API server serves, not the user's spelling of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pytest

from eso_api.values import SecretBytes
from eso_operator.targets.discovery import served_in_group, served_resource
from eso_operator.targets.manifest import ManifestTarget
from eso_operator.targets.target import UnknownKindError
from eso_operator.wiring_controllers import Memories
from eso_render.errors import TargetError
from eso_render.rendering import Rendering
from eso_render.templates import TemplateObjects
from eso_render.workers import Workers
from eso_testkit.operator.externalsecrets import external_secret
from kubebase.meta import Resource
from kuberun.client import Client
from kuberun.errors import NotFound
from kuberun.requests import Request

SECRET = {"name": "secrets", "kind": "Secret", "namespaced": True}
TOKEN = "kubernetes.io/service-account-token"


@dataclass
class Server:
    """It serves Secrets under every path, and records the paths."""

    asked: list[str] = field(default_factory=list)

    async def request(self, request: Request) -> bytes:
        self.asked.append(request.path)
        if "/namespaces/" in request.path:
            raise NotFound(404, "NotFound", "no such object")
        return json.dumps({"resources": [SECRET], "versions": [{"groupVersion": "v1"}]}).encode()

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise AssertionError(f"nothing is watched: {request.path}")

    async def close(self) -> None:
        """Nothing is open."""


ODD = ["/v1", "//v1", "../v1", "a/../v1", "apis/x/v1", "v1%2f..", "apps%2Fv1/v1", "..", "v1/", ""]


@pytest.mark.parametrize("api_version", ODD)
async def test_a_text_that_is_no_api_version_is_not_asked_for(api_version: str) -> None:
    server = Server()

    assert await served_resource(Client(server), api_version, "Secret") is None
    assert server.asked == []


@pytest.mark.parametrize("group", ["..", "a/b", "%2e%2e", "."])
async def test_a_text_that_is_no_group_is_not_asked_for(group: str) -> None:
    server = Server()

    assert await served_in_group(Client(server), group, "Secret") is None
    assert server.asked == []


@pytest.mark.parametrize("version", ["v1?watch=true", "v1#x", "v1 v2"])
async def test_a_version_is_requested_as_one_segment_of_a_path(version: str) -> None:
    server = Server()

    await served_resource(Client(server), f"apps/{version}", "Secret")

    (asked,) = server.asked
    assert not {"?", "#", " "} & set(asked)
    assert unquote(asked) == f"/apis/apps/{version}"


def target_on(server: Server) -> ManifestTarget:
    client = Client(server)

    async def discover(api_version: str, kind: str) -> Resource | None:
        del api_version
        return Resource("", "v1", "secrets", kind)

    async def follow(_resource: Resource) -> None:
        return None

    return ManifestTarget(client, discover, follow, rendering=Rendering(Workers()), memory=Memories().external_secrets)


@pytest.mark.parametrize("api_version", [*ODD, "V1", "v1?x"])
async def test_an_object_that_was_stored_before_the_schema_refused_it_is_not_written(api_version: str) -> None:
    """Even where an API server would answer: `/v1` was written as a Secret, and judged as something else."""
    server = Server()
    es = external_secret(target={"manifest": {"apiVersion": api_version, "kind": "Secret"}})

    with pytest.raises(UnknownKindError, match="is no API version"):
        await target_on(server).read(es)

    assert server.asked == []


def template(**fields: Any) -> dict[str, Any]:
    return {"manifest": {"apiVersion": "v1", "kind": "Secret"}, "template": fields}


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(
            template(templateFrom=[{"literal": TOKEN, "target": "type"}], metadata={"annotations": {"a": "b"}}),
            id="by a path into the Secret",
        ),
        pytest.param(
            {
                "manifest": {"apiVersion": "/v1", "kind": "Secret"},
                "template": {
                    "metadata": {"annotations": {"kubernetes.io/service-account.name": "robot"}},
                    "templateFrom": [{"literal": TOKEN, "target": "type"}],
                },
            },
            id="by another spelling",
        ),
    ],
)
async def test_no_template_makes_a_token_of_a_service_account(target: dict[str, Any]) -> None:
    es = external_secret(target=target)

    with pytest.raises((TargetError, UnknownKindError)):
        await target_on(Server()).plan(es, {"a": SecretBytes(b"b")}, TemplateObjects())
