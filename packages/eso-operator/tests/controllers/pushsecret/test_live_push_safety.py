"""Two writers: people and operators that write in between, at either end. On a live API server.

Whatever comes in between, nothing foreign is overwritten where the policy protects it or deleted anywhere, no value is
lost, and everything that was pushed is on record or gone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_testkit.operator.pushsecrets import bulk, entry
from eso_testkit.operator.storingprovider import EVERYTHING, WRITES, StoringProvider, denied, storing
from eso_testkit.operator.transports import LaggingWatch, LostWrites
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Operation
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import CONFIG_MAPS, NAMESPACES, SECRETS

pytestmark = pytest.mark.live

PUSHES = PUSH_SECRET.resource()
STORES = SECRET_STORE.resource()
ASKS_ONLY = WRITES | {Operation.EXISTS}
FAKE: dict[str, Any] = {"provider": {"fake": {"data": [{"key": "a", "value": "b"}]}}}


def someone_puts(provider: StoringProvider, key: str, owner: str = "") -> Callable[[], Awaitable[None]]:
    async def act() -> None:
        provider.put(key, b"theirs", owner)

    return act


async def recorded(stage: Any, name: str = "db", store: str = "SecretStore/store") -> list[str]:
    return sorted((await stage.status(name)).get("syncedPushSecrets", {}).get(store, {}))


# --- another writer writes to the backend, between our look and our write ---


@pytest.mark.parametrize(
    ("operations", "owner"),
    [
        pytest.param(EVERYTHING, "", id="a provider that creates only"),
        pytest.param(EVERYTHING, "another", id="a provider that creates only, a value with an owner"),
        pytest.param(ASKS_ONLY, "another", id="a provider that can only be asked, a value with an owner"),
    ],
)
async def test_if_not_exists_does_not_overwrite_what_appears_in_between(
    staged: Any, operations: Any, owner: str
) -> None:
    """R3: it is left alone, named, not recorded, and survives us."""
    async with staged(storing(operations=operations)) as stage:
        stage.provider.meanwhile["PushSecrets"] = someone_puts(stage.provider, "db", owner)
        await stage.source(password="p")

        await stage.push("db", entry("password", "db"), updatePolicy="IfNotExists", deletionPolicy="Delete")
        exists = await stage.condition("db", "SecretAlreadyExists")
        assert exists is not None
        assert await recorded(stage) == []
        await stage.bench.delete(PUSHES, "db")
        await stage.gone("db")

        assert stage.provider.values == {"db": b"theirs"}


async def test_a_provider_that_can_only_be_asked_overwrites_what_nobody_owns_and_said_so(staged: Any) -> None:
    """The weaker guarantee, exactly as stated."""
    async with staged(storing(operations=ASKS_ONLY)) as stage:
        stage.provider.meanwhile["PushSecrets"] = someone_puts(stage.provider, "db")
        await stage.source(password="p")

        await stage.apply("db", entry("password", "db"), updatePolicy="IfNotExists")

        await stage.ready("db", "cannot create atomically")
        assert stage.provider.values == {"db": b"p"}


async def test_replace_does_not_take_over_a_value_that_another_owner_wrote_meanwhile(staged: Any) -> None:
    async with staged() as stage:
        stage.provider.meanwhile["PushSecrets"] = someone_puts(stage.provider, "db", "another")
        await stage.source(password="p")
        await stage.apply("db", entry("password", "db"), deletionPolicy="Delete")

        await stage.broken("db", "Conflict", "was not created by External Secrets")
        assert await recorded(stage) == []
        await stage.bench.delete(PUSHES, "db")
        await stage.gone("db")

        assert stage.provider.values == {"db": b"theirs"}


async def test_a_deletion_keeps_a_value_that_another_owner_wrote_meanwhile(staged: Any) -> None:
    async with staged() as stage:
        await stage.source(password="p")
        await stage.push("db", entry("password", "db"), deletionPolicy="Delete")
        stage.provider.meanwhile["DeleteSecrets"] = someone_puts(stage.provider, "db", "another")

        await stage.bench.delete(PUSHES, "db")
        await stage.gone("db")

        assert stage.provider.values == {"db": b"theirs"}
        await stage.event("db", "Normal", "LeftAlone", "db", "left alone")


# --- another writer writes to the object, between our push and its record ---


async def test_an_object_that_is_deleted_while_it_is_pushed_leaves_nothing_behind(staged: Any) -> None:
    """Its record could not be written: it says already that it is being deleted."""
    async with staged() as stage:
        await stage.source(password="p")
        stage.provider.meanwhile["PushSecrets"] = lambda: stage.bench.delete(PUSHES, "db")

        await stage.apply("db", entry("password", "db"), deletionPolicy="Delete")
        await stage.until(lambda: bool(stage.provider.pushes), "it is not pushed")
        await stage.gone("db")

        assert stage.provider.values == {}


async def test_an_object_that_wants_another_place_while_it_is_pushed_keeps_track_of_the_first(staged: Any) -> None:
    async with staged() as stage:
        await stage.source(password="p")
        stage.provider.meanwhile["PushSecrets"] = lambda: stage.change("db", data=[entry("password", "two")])

        await stage.apply("db", entry("password", "one"), deletionPolicy="Delete")

        await eventually(lambda: _recorded_is(stage, ["two"]), "the second place is not recorded")
        await stage.holds(two="p")


async def _recorded_is(stage: Any, wanted: list[str]) -> bool:
    return await recorded(stage) == wanted


@pytest.mark.parametrize("policy", ["Replace", "IfNotExists"])
async def test_a_value_to_delete_later_is_recorded_though_the_status_is_refused_for_a_while(
    staged: Any, policy: str
) -> None:
    """A source gets a new key. Replace: its place is on record before it is pushed. IfNotExists: as soon as can be."""
    writes = LostWrites()

    async with staged(through=writes.over) as stage:
        await stage.source(one="1")
        await stage.push("db", dataTo=[bulk()], deletionPolicy="Delete", updatePolicy=policy)
        writes.losing = "/pushsecrets/db/status"
        await stage.edit(two="2")
        await stage.until(lambda: writes.lost > 0, "no status was written")
        assert ("two" in stage.provider.values) is (policy == "IfNotExists")
        writes.losing = ""

        await eventually(lambda: _recorded_is(stage, ["one", "two"]), "the record is lost")
        await stage.holds(one="1", two="2")
        assert await stage.condition("db", "SecretAlreadyExists") is None
        await stage.bench.delete(PUSHES, "db")
        await stage.gone("db")

        assert stage.provider.values == {}


async def test_a_value_that_could_not_be_pushed_is_not_left_recorded(staged: Any) -> None:
    """It was announced, and may belong to another owner: it is not ours to delete."""
    async with staged(storing(marks_owners=False)) as stage:
        stage.provider.put("db", b"theirs")
        stage.provider.push_errors["db"] = denied("db")
        await stage.source(password="p")

        await stage.apply("db", entry("password", "db"), deletionPolicy="Delete")
        await stage.broken("db", "AccessDenied")
        assert await recorded(stage) == []
        await stage.bench.delete(PUSHES, "db")
        await stage.gone("db")

        assert stage.provider.values == {"db": b"theirs"}


async def test_a_value_that_may_have_been_pushed_stays_recorded(staged: Any) -> None:
    """The answer was lost, and the value landed nevertheless."""
    async with staged(storing(marks_owners=False)) as stage:
        stage.provider.push_errors["db"] = ProviderError(ErrorReason.BACKEND_TIMEOUT, "no answer in time")
        await stage.source(password="p")

        await stage.apply("db", entry("password", "db"), deletionPolicy="Delete")
        await stage.broken("db", "no answer in time")
        stage.provider.put("db", b"p")
        assert await recorded(stage) == ["db"]
        await stage.bench.delete(PUSHES, "db")
        await stage.gone("db")

        assert stage.provider.values == {}


async def test_a_watch_that_lags_neither_forgets_a_failure_nor_what_was_pushed(staged: Any) -> None:
    """The cache shows the object as it was before we wrote: a retry that was promised still comes."""
    watch = LaggingWatch("pushsecrets")

    async with staged(through=watch.over) as stage:
        await stage.source(password="one")
        await stage.push("db", entry("password", "db"), deletionPolicy="Delete")
        watch.flowing.clear()
        stage.provider.push_errors["db"] = denied("db")
        await stage.edit(password="two")
        await stage.broken("db", "AccessDenied")
        stage.provider.push_errors.clear()
        await stage.edit(other="o")  # looked at again, by what the cache shows

        await stage.ready("db")
        await stage.holds(db="two")
        watch.flowing.set()


@pytest.mark.parametrize("policy", ["Replace", "IfNotExists"])
async def test_two_operators_at_once_lose_nothing(staged: Any, bench: Any, policy: str) -> None:
    """As when a leader is suspended and comes back: both push, both write the status, one record comes of it."""
    provider = storing()
    provider.put("taken", b"theirs", "another")
    spec = {"updatePolicy": policy, "deletionPolicy": "Delete"}
    async with staged(provider) as stage, bench.operator(replace(bench.settings, namespace=bench.namespace)):
        await stage.source(password="p")
        names = [f"db-{number}" for number in range(8)]
        for name in names:
            await stage.apply(name, entry("password", name), **spec)
        for name in names:
            await stage.ready(name)
            await eventually(partial(_records, stage, name), f"{name} is not recorded")
        assert provider.values == {"taken": b"theirs", **dict.fromkeys(names, b"p")}

        for name in names:
            await stage.bench.delete(PUSHES, name)
        for name in names:
            await stage.gone(name)

        # One of them may have let an object go while the other was pushing it, which then takes back what it pushed.
        await stage.holds(taken="theirs")


async def _records(stage: Any, name: str) -> bool:
    return await recorded(stage, name) == [name]


# --- our own objects, in each other's way -----------------------------------------------------------------------------


async def test_a_value_of_two_push_secrets_is_deleted_with_the_last_one(staged: Any) -> None:
    """A PushSecret is renamed in a backend without owners: the old one must not take the new one's value along."""
    async with staged(storing(marks_owners=False)) as stage:
        await stage.source(password="p")
        await stage.push("old", entry("password", "db"), deletionPolicy="Delete")
        await stage.push("new", entry("password", "db"), deletionPolicy="Delete")

        await stage.bench.delete(PUSHES, "old")
        await stage.gone("old")
        assert stage.provider.values == {"db": b"p"}
        await stage.event("old", "Normal", "LeftAlone", "left to PushSecret", "new")
        await stage.bench.delete(PUSHES, "new")
        await stage.gone("new")

        assert stage.provider.values == {}


async def test_a_value_is_not_left_to_a_successor_whose_push_is_refused(staged: Any) -> None:
    """The successor has it on record and is pushing it; the backend says that it is still the predecessor's."""
    async with staged(storing(marks_owners=True)) as stage:
        await stage.source(password="p")
        await stage.push("old", entry("password", "db"), deletionPolicy="Delete")

        async def the_old_one_goes() -> None:
            await stage.bench.delete(PUSHES, "old")
            await eventually(lambda: _waits(stage, "old"), "it does not wait for the other's push")

        stage.provider.meanwhile["PushSecrets"] = the_old_one_goes
        await stage.push("new", entry("password", "db"), deletionPolicy="Delete")
        await stage.gone("old")

        assert stage.provider.values == {"db": b"p"}
        await stage.bench.delete(PUSHES, "new")
        await stage.gone("new")
        assert stage.provider.values == {}


async def test_a_store_that_never_took_anything_does_not_hold_up_the_end(staged: Any) -> None:
    """It is recorded before the push; the write that removes the record meets an object that is being deleted."""
    async with staged() as stage:
        await stage.source(password="p")
        await stage.store("broken", provider={"vault": {"server": "x"}})
        stage.provider.meanwhile["PushSecrets"] = lambda: stage.bench.delete(PUSHES, "db")
        stores = [{"name": "store"}, {"name": "broken"}]

        await stage.apply("db", entry("password", "a"), deletionPolicy="Delete", secretStoreRefs=stores)
        await stage.until(lambda: bool(stage.provider.deletions), "nothing is deleted")
        await stage.gone("db")

        assert stage.provider.values == {}


async def _waits(stage: Any, name: str) -> bool:
    ready = await stage.condition(name, "Ready")
    return ready is not None and "just now" in ready["message"]


@pytest.mark.parametrize("policy", ["Replace", "IfNotExists"])
async def test_a_store_that_is_replaced_by_another_of_the_same_backend_keeps_its_values(
    staged: Any, policy: str
) -> None:
    async with staged() as stage:
        await stage.source(password="p")
        await stage.store("successor")
        await stage.push("db", entry("password", "db"), deletionPolicy="Delete", updatePolicy=policy)

        await stage.change("db", secretStoreRefs=[{"name": "successor"}])
        await eventually(lambda: _moved(stage), "the new store is not recorded alone")

        assert stage.provider.values == {"db": b"p"}
        assert await stage.condition("db", "SecretAlreadyExists") is None


@pytest.mark.parametrize("policy", ["Replace", "IfNotExists"])
@pytest.mark.parametrize(
    "before",
    [
        pytest.param([entry("user", "db", "old")], id="another property"),
        pytest.param([entry("", "db")], id="the whole"),
    ],
)
async def test_a_removal_that_takes_the_whole_remote_key_along_loses_no_other_part_of_it(
    staged: Any, before: list[Any], policy: str
) -> None:
    """Not every backend can remove a part."""
    async with staged(storing(deletes_whole_keys=True)) as stage:
        await stage.source(user="u", password="p")
        staying = entry("password", "db", "stays")
        await stage.push("db", *before, staying, deletionPolicy="Delete", updatePolicy=policy)

        await stage.change("db", data=[staying, entry("user", "db", "new")])
        await eventually(lambda: _records_parts(stage), "the parts that are wanted are not recorded alone")

        assert stage.provider.values == {"db#stays": b"p", "db#new": b"u"}


async def _records_parts(stage: Any) -> bool:
    return await recorded(stage) == ["db/new", "db/stays"]


async def _moved(stage: Any) -> bool:
    synced = (await stage.status("db")).get("syncedPushSecrets", {})
    return {store: sorted(entries) for store, entries in synced.items()} == {"SecretStore/successor": ["db"]}


# --- what is followed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["configMap", "secret"])
async def test_a_changed_template_is_pushed_without_waiting_for_the_interval(staged: Any, kind: str) -> None:
    resource, field = (CONFIG_MAPS, "data") if kind == "configMap" else (SECRETS, "stringData")
    template = {"templateFrom": [{kind: {"name": "words", "items": [{"key": "greeting"}]}}]}
    async with staged() as stage:
        await stage.source(user="u")
        await stage.bench.create(resource, "words", **{field: {"greeting": "hello {{ .user }}"}})
        await stage.push("db", entry("greeting", "db"), template=template)
        assert stage.provider.values == {"db": b"hello u"}

        await stage.bench.patch(resource, "words", {field: {"greeting": "good day {{ .user }}"}})

        await stage.holds(db="good day u")


async def test_values_left_behind_by_a_deleted_namespace_are_reported_outside_of_it(staged: Any, bench: Any) -> None:
    async with staged(ready=False, settings=bench.settings) as stage:
        home = f"{bench.namespace}-home"
        await bench.create(NAMESPACES, home)
        there = replace(stage, bench=replace(bench, namespace=home))
        await there.store()
        await there.source(password="p")
        await there.push("db", entry("password", "db"), deletionPolicy="Delete")
        stage.provider.delete_errors["db"] = denied("db")

        await bench.delete(NAMESPACES, home)
        await there.bench.api.delete(PUSHES.path(home, "db"))
        await there.broken("db", "could not delete secret")
        await there.bench.api.delete(STORES.path(home, "store"))  # from now on the operator cannot add its finalizer
        await there.bench.patch(STORES, "store", {"metadata": {"finalizers": None}})
        await there.gone("db")

        await bench.until_event(home, "Warning", "Orphaned")
