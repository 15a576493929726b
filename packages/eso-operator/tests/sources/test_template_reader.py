"""ConfigMaps with templates are read once for each of their versions."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import msgspec
import pytest

from eso_api.template import Template
from eso_operator.sources.templates import TemplateMissingError, TemplateReader
from kuberun.client import Client
from kuberun.errors import NotFound
from kuberun.requests import Request

TEMPLATE = msgspec.convert(
    {"templateFrom": [{"configMap": {"name": "shared", "items": [{"key": "config"}]}}]}, Template
)
SECRET_TEMPLATE = msgspec.convert(
    {"templateFrom": [{"secret": {"name": "shared", "items": [{"key": "config"}]}}]}, Template
)


class Server:
    """One object that holds a template. The watch sees `seen`, which may be older than `version`."""

    def __init__(self, text: str = "first") -> None:
        self.text = text
        self.version = self.seen = "1"
        self.exists = True
        self.reads = 0

    async def request(self, request: Request) -> bytes:
        await asyncio.sleep(0)
        self.reads += 1
        if not self.exists:
            raise NotFound(404, "NotFound", "no")
        metadata = {"name": "shared", "namespace": "team", "uid": "u", "resourceVersion": self.version}
        text = "" if "/secrets/" in request.target else self.text
        return json.dumps({"metadata": metadata, "data": {"config": text}}).encode()

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise AssertionError(f"nothing is watched: {request.path}")

    async def close(self) -> None:
        """Nothing is open."""

    def reader(self) -> TemplateReader:
        return TemplateReader(Client(self), lambda _kind, _key: self.seen)


async def test_many_objects_that_use_one_config_map_cost_one_read() -> None:
    server = Server()
    reader = server.reader()

    found = await asyncio.gather(*(reader.read(TEMPLATE, "team") for _ in range(20)))

    assert server.reads == 1
    assert {each.objects.config_maps["shared"]["config"] for each in found} == {"first"}
    assert {version.version for each in found for version in each.versions} == {"1"}


async def test_a_changed_config_map_is_read_again() -> None:
    server = Server()
    reader = server.reader()
    await reader.read(TEMPLATE, "team")
    server.text, server.version, server.seen = "second", "2", "2"

    found = await reader.read(TEMPLATE, "team")

    assert found.objects.config_maps["shared"]["config"] == "second"
    assert server.reads == 2


@pytest.mark.parametrize("seen", ["", "0"], ids=["the watch does not have it yet", "the watch is behind"])
async def test_a_config_map_is_read_each_time_until_the_watch_has_its_version(seen: str) -> None:
    server = Server()
    server.seen = seen
    reader = server.reader()

    for _ in range(2):
        await reader.read(TEMPLATE, "team")

    assert server.reads == 2


async def test_a_deleted_config_map_is_missing_at_once() -> None:
    server = Server()
    reader = server.reader()
    await reader.read(TEMPLATE, "team")
    server.exists, server.seen = False, ""

    with pytest.raises(TemplateMissingError, match="ConfigMap team/shared"):
        await reader.read(TEMPLATE, "team")


async def test_config_maps_of_the_same_name_in_two_namespaces_are_not_confused() -> None:
    server = Server()
    reader = server.reader()

    for namespace in ("team", "other"):
        await reader.read(TEMPLATE, namespace)

    assert server.reads == 2


@pytest.mark.parametrize(
    ("template", "text"),
    [
        pytest.param(SECRET_TEMPLATE, "", id="Secrets"),
        pytest.param(TEMPLATE, "x" * 70_000, id="large ConfigMaps"),
    ],
)
async def test_some_objects_are_not_cached(template: Template, text: str) -> None:
    server = Server(text)
    reader = server.reader()

    for _ in range(2):
        await reader.read(template, "team")

    assert server.reads == 2
