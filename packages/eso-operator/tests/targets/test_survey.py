"""After a start: which targets are read, one by one or in pages, and which are not."""

import asyncio
import base64
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from eso_api.externalsecret import ExternalSecret
from eso_api.values import SecretBytes
from eso_operator.targets.metadata import HASH_ANNOTATION, MANAGED, MANAGED_LABEL, data_digest, synced_version
from eso_operator.targets.secret import ENOUGH, PAGE, SecretTarget
from eso_operator.targets.target import KeepTarget, Present, TargetChange, Untouched, UpdateTarget
from eso_operator.wiring_controllers import Memories
from eso_render.rendering import Rendering
from eso_render.templates import TemplateObjects
from eso_render.workers import Workers
from eso_testkit.operator.externalsecrets import NAMESPACE, external_secret
from kubebase.meta import JsonObject, Object, ObjectKey
from kuberun.cache import Cache
from kuberun.client import Client
from kuberun.errors import Forbidden
from kuberun.requests import Request
from kuberun.watch import Applied

MANY = PAGE + 20


class Server:
    """Secrets that are read one by one or in pages, with a count of both."""

    def __init__(self) -> None:
        self.secrets: dict[str, JsonObject] = {}
        self.asked: Counter[str] = Counter()
        self.may_list = True

    def put(self, name: str, *, version: str = "1", value: str = "value", hash_of: str = "value") -> None:
        digest = data_digest({"key": SecretBytes(hash_of.encode())})
        metadata = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "resourceVersion": version}
        marks = {"labels": {MANAGED_LABEL: MANAGED}, "annotations": {HASH_ANNOTATION: digest}}
        self.secrets[name] = {
            "metadata": {**metadata, **marks},
            "data": {"key": base64.b64encode(value.encode()).decode()},
        }

    async def request(self, request: Request) -> bytes:
        await asyncio.sleep(0)
        parts = urlsplit(request.target)
        name = parts.path.rpartition("/secrets")[2].strip("/")
        self.asked["one" if name else "page"] += 1
        if name:
            return json.dumps(self.secrets[name]).encode()
        if not self.may_list:
            raise Forbidden(403, "Forbidden", "no")
        query = parse_qs(parts.query)
        assert query["labelSelector"] == [f"{MANAGED_LABEL}={MANAGED}"]
        start, limit = int(query.get("continue", ["0"])[0]), int(query["limit"][0])
        more = str(start + limit) if start + limit < len(self.secrets) else ""
        items = list(self.secrets.values())[start : start + limit]
        return json.dumps({"metadata": {"resourceVersion": "9", "continue": more}, "items": items}).encode()

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise AssertionError(f"nothing is watched: {request.path}")

    async def close(self) -> None:
        """Nothing is open."""


class Stage:
    """An operator that has just started: its cache has the metadata of all Secrets."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.cache: Cache[Object] = Cache()
        self.target = SecretTarget(Client(server), self.cache, Rendering(Workers()), Memories().external_secrets)
        self.see()

    def see(self) -> None:
        """Let the cache catch up with the server."""
        for each in self.server.secrets.values():
            self.cache.apply(Applied(msgspec.convert(each, Object)))

    async def reads(self) -> dict[str, bool]:
        """Return for each target whether it is valid."""
        found = await asyncio.gather(*(self.target.read(wanting(name)) for name in self.server.secrets))
        return {
            name: isinstance(read, Present) and read.valid
            for name, read in zip(self.server.secrets, found, strict=True)
        }


def wanting(name: str, **target: Any) -> ExternalSecret:
    es = external_secret(target=target)
    metadata = msgspec.structs.replace(es.metadata, name=name, uid=f"es-{name}")
    return msgspec.structs.replace(es, metadata=metadata)


@pytest.fixture
def server() -> Server:
    made = Server()
    for number in range(MANY):
        made.put(f"db-{number}")
    return made


async def test_many_first_looks_cost_a_few_reads_and_the_pages_of_the_namespace(server: Server) -> None:
    stage = Stage(server)

    first, again = await stage.reads(), await stage.reads()

    assert all(first.values())
    assert first == again
    assert server.asked == {"one": ENOUGH - 1, "page": 2}


async def test_a_changed_target_is_found(server: Server) -> None:
    server.put("db-30", value="tampered")

    reads = await Stage(server).reads()

    assert [name for name, valid in reads.items() if not valid] == ["db-30"]


async def test_a_version_that_is_newer_than_its_page_is_read_on_its_own(server: Server) -> None:
    stage = Stage(server)
    names = list(server.secrets)
    for name in names[:ENOUGH]:
        await stage.target.read(wanting(name))
    server.asked.clear()
    server.put("db-40", version="2", value="tampered")
    stage.see()

    looked = await stage.target.read(wanting("db-40"))

    assert isinstance(looked, Present)
    assert not looked.valid
    assert server.asked == {"one": 1}


async def test_a_few_targets_are_read_one_by_one(server: Server) -> None:
    for name in list(server.secrets)[ENOUGH - 1 :]:
        del server.secrets[name]

    assert all((await Stage(server).reads()).values())

    assert server.asked == {"one": ENOUGH - 1}


async def test_if_the_namespace_cannot_be_listed_every_target_is_read_on_its_own(server: Server) -> None:
    server.may_list = False
    server.put("db-30", value="tampered")

    reads = await Stage(server).reads()

    assert [name for name, valid in reads.items() if not valid] == ["db-30"]
    assert server.asked == {"one": MANY, "page": 1}


async def test_a_target_that_others_may_write_to_is_read_on_its_own(server: Server) -> None:
    """Its managedFields decide, which a survey does not keep."""
    stage = Stage(server)

    for name in server.secrets:
        await stage.target.read(wanting(name, creationPolicy="Merge"))

    assert server.asked == {"one": MANY}
    assert ObjectKey(NAMESPACE, "db-0") in stage.cache


# --- the version that the status records ------------------------------------------------------------------------------


def recorded(name: str, version: str = "1", **target: Any) -> ExternalSecret:
    """Return an ExternalSecret whose status says that it was synced, and with which version of its Secret."""
    es = wanting(name, **target)
    meta = es.metadata
    status = msgspec.structs.replace(
        es.status,
        synced_target_version=version,
        synced_resource_version=synced_version(meta.generation, meta.labels, meta.annotations),
    )
    return msgspec.structs.replace(es, status=status)


def owned(server: Server, name: str) -> None:
    owner = {"apiVersion": "external-secrets.io/v1", "kind": "ExternalSecret", "name": name, "uid": f"es-{name}"}
    server.secrets[name]["metadata"]["ownerReferences"] = [{**owner, "controller": True}]


@pytest.fixture
def one() -> Server:
    made = Server()
    made.put("db")
    owned(made, "db")
    return made


async def test_a_secret_with_the_recorded_version_is_not_read(one: Server) -> None:
    looked = await Stage(one).target.read(recorded("db"))

    assert isinstance(looked, Present)
    assert looked.valid
    assert not one.asked


@pytest.mark.parametrize(
    "es",
    [
        pytest.param(recorded("db", "2"), id="another version is recorded"),
        pytest.param(recorded("db", ""), id="none is recorded"),
        pytest.param(recorded("db", creationPolicy="Merge"), id="others may write to it"),
    ],
)
async def test_any_other_secret_is_read_and_found_if_it_was_changed(one: Server, es: ExternalSecret) -> None:
    one.secrets["db"]["data"]["key"] = base64.b64encode(b"tampered").decode()

    looked = await Stage(one).target.read(es)

    assert isinstance(looked, Present)
    assert not looked.valid
    assert one.asked == {"one": 1}


async def test_a_secret_that_another_object_controls_is_read_whatever_the_status_says(one: Server) -> None:
    one.secrets["db"]["metadata"]["ownerReferences"][0]["uid"] = "another"

    await Stage(one).target.read(recorded("db"))

    assert one.asked == {"one": 1}


async def planned(server: Server, es: ExternalSecret, value: str) -> TargetChange:
    stage = Stage(server)
    await stage.target.read(es)
    return await stage.target.plan(es, {"key": SecretBytes(value.encode())}, TemplateObjects())


async def test_the_same_values_need_neither_a_read_nor_a_write_after_a_start(one: Server) -> None:
    assert await planned(one, recorded("db"), "value") == KeepTarget(Untouched.UNCHANGED, "1")
    assert not one.asked


async def test_other_values_are_compared_with_the_secret_itself(one: Server) -> None:
    assert isinstance(await planned(one, recorded("db"), "new"), UpdateTarget)
    assert one.asked == {"one": 1}


async def test_a_changed_spec_is_compared_with_the_secret_itself(one: Server) -> None:
    es = recorded("db")
    es.metadata.generation += 1

    await planned(one, es, "value")

    assert one.asked == {"one": 1}


async def test_a_template_with_metadata_is_compared_with_the_secret_itself(one: Server) -> None:
    """A label may come from a value that is not among the data."""
    es = recorded("db", template={"metadata": {"labels": {"tier": "{{ .key }}"}}, "mergePolicy": "Merge"})

    await planned(one, es, "value")

    assert one.asked == {"one": 1}
