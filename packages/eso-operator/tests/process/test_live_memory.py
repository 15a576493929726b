"""The process holds nothing of a deleted object, and the loss of a record costs an existing object little."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from eso_api.pushsecret import PUSH_SECRET
from eso_operator import wiring_controllers
from eso_operator.memory import Memory
from eso_testkit.operator.holders import holders_of
from eso_testkit.operator.operators import READS, Bench
from eso_testkit.operator.scenes import ES, FAKE_STORE, STORE, STORES, Scene, running, scripted_with
from eso_wire.values import ChangeEvent, ChangeType, Operation
from kubebase.meta import ObjectKey
from kubebase.testing.waiting import eventually

pytestmark = pytest.mark.live

ONE = {"password": "backend-key"}
PUSHES = PUSH_SECRET.resource()


@asynccontextmanager
async def watchable_stores(bench: Bench) -> AsyncIterator[Scene]:
    """A scene whose provider tells of changes and takes pushes."""
    provider = scripted_with({"backend-key": "v1"})
    store, maker = provider.kinds
    able = READS | {Operation.SUBSCRIBE, Operation.PUSH, Operation.DELETE}
    provider.kinds = (replace(store, operations=able), maker)
    async with running(bench, provider, replace(bench.settings, namespace=bench.namespace)) as stage:
        await bench.install(provider)
        await bench.create(STORES, STORE, spec=FAKE_STORE)
        await bench.ready(STORES, STORE, lambda condition: condition.status == "True")
        yield stage


async def tell_and_delete(stage: Scene, name: str) -> ObjectKey:
    """Let an ExternalSecret do everything that is remembered of it, then delete it."""
    key, remote = ObjectKey(stage.bench.namespace, name), f"of-{name}"
    stage.backend(**{remote: "v1"})
    await stage.sync(name, {"password": remote}, target={"name": f"{name}-target"})
    ids = await eventually(lambda: _watched(stage, remote), "it follows nothing")
    before = stage.reads
    stage.provider.events.put_nowait(ChangeEvent(ChangeType.UPDATED, ids, remote))
    await eventually(lambda: _read_since(stage, before), "it does not read what changed")
    await stage.until_idle()
    assert holders_of(key, stage.operator) != []
    await stage.bench.delete(ES, name)
    await eventually(lambda: _forgotten(stage.operator.memories.external_secrets, key), "its record stays")
    return key


async def _watched(stage: Scene, remote: str) -> tuple[str, ...]:
    """The ids under which a remote key is watched."""
    watches = stage.provider.watches.items()
    return tuple(each for each, item in watches if item.ref is not None and item.ref.key == remote)


async def _read_since(stage: Scene, before: int) -> bool:
    return stage.reads > before


async def _forgotten(memory: Memory[Any], key: ObjectKey) -> bool:
    return key not in memory


async def test_nothing_in_the_process_holds_the_key_of_an_external_secret_that_is_gone(bench: Bench) -> None:
    async with watchable_stores(bench) as stage:
        key = await tell_and_delete(stage, "gone")

        async def free() -> bool:
            return holders_of(key, stage.operator) == []

        try:
            await eventually(free, "")
        except AssertionError:
            pytest.fail("\n".join(holders_of(key, stage.operator)))


async def test_each_index_that_is_not_undone_is_found(bench: Bench) -> None:
    """The test above can fail: it does for every function that undoes an index."""
    async with watchable_stores(bench) as stage:
        undo = stage.operator.memories.external_secrets._undo
        found = {}
        for place, left_out in enumerate(list(undo)):
            if getattr(left_out, "__qualname__", "") == "Loops._forgotten":
                continue  # only an object in a loop is in its index
            del undo[place]
            key = await tell_and_delete(stage, f"left-{place}")
            found[place] = holders_of(key, stage.operator) != []
            undo.insert(place, left_out)
            left_out(key, stage.operator.memories.external_secrets._new())

    assert list(found.values()) == [True] * 4


async def test_nothing_in_the_process_holds_the_key_of_a_push_secret_that_is_gone(bench: Bench) -> None:
    async with watchable_stores(bench) as stage:
        await stage.put_secret("source", {"password": "v1"})
        spec = {
            "secretStoreRefs": [{"name": STORE}],
            "selector": {"secret": {"name": "source"}},
            "data": [{"match": {"secretKey": "password", "remoteRef": {"remoteKey": "pushed"}}}],
            "deletionPolicy": "Delete",
        }
        await bench.create(PUSHES, "gone-push", spec=spec)
        await bench.ready(PUSHES, "gone-push", lambda condition: condition.status == "True")
        key = ObjectKey(bench.namespace, "gone-push")
        assert holders_of(key, stage.operator) != []

        await bench.delete(PUSHES, "gone-push")

        async def free() -> bool:
            return holders_of(key, stage.operator) == []

        try:
            await eventually(free, "")
        except AssertionError:
            pytest.fail("\n".join(holders_of(key, stage.operator)))


async def test_an_evicted_object_keeps_its_target_and_is_woken_and_told_as_before(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring_controllers, "EVICTED_SECONDS", 0.1)
    async with watchable_stores(bench) as stage:
        await stage.sync("db", ONE)
        watched = await eventually(lambda: _watched(stage, "backend-key"), "it follows nothing")
        await stage.until_idle()
        memory, key = stage.operator.memories.external_secrets, ObjectKey(bench.namespace, "db")
        written, status = await stage.secret("db"), await stage.status("db")

        while key in memory:
            memory.evict_oldest()

        async def restored() -> bool:
            record = memory.find(key)
            return (
                record is not None and record.reconciled and record.depends_on != frozenset() and bool(record.follows)
            )

        await eventually(restored, "its record does not come back")
        assert (await stage.secret("db"), await stage.status("db")) == (written, status)

        async def watched_anew() -> tuple[str, ...]:
            ids = await _watched(stage, "backend-key")
            return () if ids == watched else ids

        ids = await eventually(watched_anew, "it is not followed again")
        stage.backend(**{"backend-key": "v2"})
        stage.provider.events.put_nowait(ChangeEvent(ChangeType.UPDATED, ids, "backend-key"))
        await stage.until("db", {"password": "v2"})
        await stage.edit("db", {"password": "edited"})
        await stage.until("db", {"password": "v2"})
