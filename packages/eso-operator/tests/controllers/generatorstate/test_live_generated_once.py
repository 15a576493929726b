"""Values that are generated once are generated once, whatever happens to the requests of the operator.

Every request between the first look at an object and its status is disturbed once: by a user, by the network, by the
end of the process. A password that was written to a target stays there.
"""

import asyncio
import base64
import itertools
from collections.abc import Iterable
from typing import Any

import pytest

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_api.v2.generator import GENERATOR
from eso_operator.targets.metadata import GENERATED_PREFIX, synced_version
from eso_testkit.operator.generatingprovider import generating
from eso_testkit.operator.operators import MAKER
from eso_testkit.operator.transports import Fault, Faulty, LaggingWatch, LostWrites
from kubebase.meta import JsonObject
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import CONFIG_MAPS, SECRETS
from kuberun.testing.rawapi import MERGE_PATCH

pytestmark = pytest.mark.live

ES = EXTERNAL_SECRET.resource()
MAKERS = MAKER.resource()
GENERATORS = GENERATOR.resource()
STORES = SECRET_STORE.resource()
CONFIG: JsonObject = {"url": "https://maker.example.com"}
ONCE = [
    pytest.param({"refreshInterval": "0"}, id="interval 0"),
    pytest.param({"refreshPolicy": "CreatedOnce", "refreshInterval": "1h"}, id="created once"),
]
LATER = [
    pytest.param({"refreshPolicy": "OnChange", "refreshInterval": "1h"}, id="on change"),
    pytest.param({"refreshInterval": "1h"}, id="periodic"),
]
POLICIES = [
    pytest.param({"creationPolicy": "Orphan"}, id="orphan"),
    pytest.param({"creationPolicy": "Merge"}, id="merge"),
    pytest.param({"creationPolicy": "CreateOrMerge"}, id="create or merge"),
    pytest.param({"manifest": {"apiVersion": "v1", "kind": "ConfigMap"}}, id="config map"),
]
MIXED: JsonObject = {
    "secretStoreRef": {"name": "store"},
    "data": [{"secretKey": "user", "remoteRef": {"key": "user"}}],
}
REQUESTS = 14
"""More than a sync has, so that the last strike never comes."""


async def furnished(shop: Any) -> None:
    await shop.bench.create(MAKERS, "config", spec=CONFIG)
    ref = {"apiVersion": MAKERS.api_version, "kind": "Maker", "name": "config"}
    await shop.bench.create(GENERATORS, "gen", spec={"providerConfig": {"providerRef": ref}})
    shop.provider.data["user"] = b"admin"
    await shop.bench.create(STORES, "store", spec={"provider": {"fake": {"data": []}}})


async def touched(shop: Any, name: str, tick: int) -> None:
    patch = {"metadata": {"annotations": {"touched": str(tick)}}}
    answer = await shop.bench.api.patch(ES.path(shop.bench.namespace, name), patch, MERGE_PATCH)
    assert answer.status == 200, answer.body


def names_of(number: int) -> list[str]:
    return [f"subject-{each:03}" for each in range(number)]


async def apply_all(shop: Any, faults: Faulty, **spec: Any) -> None:
    """Create one ExternalSecret for each request that can be disturbed."""
    names = names_of(REQUESTS)
    ticks = itertools.count()
    faults.strikes = {name: number for number, name in enumerate(names, start=1)}
    faults.touch = lambda name: touched(shop, name, next(ticks))
    for name in names:
        if spec.get("target", {}).get("creationPolicy") == "Merge":
            await shop.bench.create(SECRETS, name, data={"of-others": "eA=="})
        await shop.apply(name, GENERATORS, "gen", **spec)


async def ready(shop: Any, names: Iterable[str]) -> None:
    for name in names:
        await shop.bench.ready(ES, name, lambda condition: condition.status == "True")
        status = (await shop.bench.find(ES, name))["status"]
        assert status["refreshTime"]
        assert status["syncedResourceVersion"]


async def quiet(shop: Any, names: Iterable[str]) -> None:
    """Wait until everything that was queued before is done: the operator is asked once more about all of them."""
    await shop.sync("witness", GENERATORS, "gen")
    for name in names:
        await shop.bench.patch(ES, name, {"metadata": {"finalizers": ["example.com/asks-once-more"]}})
    await shop.sync("second-witness", GENERATORS, "gen")
    for name in names:
        await shop.bench.patch(ES, name, {"metadata": {"finalizers": None}})


async def states_fit(shop: Any, faults: Faulty) -> None:
    """The value in use has the only state without a deadline, and exists in the backend."""

    async def fit() -> bool:
        kept: dict[str, list[int]] = {}
        for state in await shop.states():
            if "garbageCollectionDeadline" not in state["spec"]:
                owner = state["metadata"]["ownerReferences"][0]["name"]
                kept.setdefault(owner, []).append(state["spec"]["state"]["number"])
        used = {name: await in_use(shop, name) for name in faults.strikes}
        return all(
            [f"value-{number}" for number in kept.get(name, [])] == [used[name]]
            and used[name].encode() in shop.provider.books.values()
            for name in faults.strikes
        )

    await eventually(fit, "the states do not fit the values in use")


async def in_use(shop: Any, name: str) -> str:
    found = await shop.bench.find(SECRETS, name)
    if found is not None:
        return base64.b64decode(found["data"]["password"]).decode()
    made = await shop.bench.find(CONFIG_MAPS, name)
    return str(made["data"]["password"])


def changed(faults: Faulty) -> dict[str, int]:
    """How often a password that users could see was replaced, by the number of the disturbed request."""
    return {name: len(seen) - 1 for name, seen in faults.written.items() if len(seen) > 1}


@pytest.mark.parametrize("fault", [Fault.TOUCHED, Fault.LOST, Fault.UNANSWERED], ids=lambda fault: fault.value)
@pytest.mark.parametrize("refresh", [*ONCE, *LATER])
async def test_a_disturbed_request_never_replaces_a_password(workshop: Any, fault: Fault, refresh: JsonObject) -> None:
    faults = Faulty(fault)
    async with workshop(through=faults.over) as shop:
        await furnished(shop)

        await apply_all(shop, faults, **refresh)
        await ready(shop, faults.strikes)
        await quiet(shop, faults.strikes)

        # An edit of these objects asks for new values: one for each.
        allowed = 1 if fault is Fault.TOUCHED and refresh in [each.values[0] for each in LATER] else 0
        assert {name: times for name, times in changed(faults).items() if times > allowed} == {}
        assert faults.struck == set(list(faults.strikes)[: len(faults.struck)])
        assert len(faults.struck) < REQUESTS
        await states_fit(shop, faults)


@pytest.mark.parametrize("target", POLICIES)
async def test_that_holds_for_every_target(workshop: Any, target: JsonObject) -> None:
    faults = Faulty(Fault.UNANSWERED)
    async with workshop(through=faults.over, generic=True) as shop:
        await furnished(shop)

        await apply_all(shop, faults, target=target)
        await ready(shop, faults.strikes)
        await quiet(shop, faults.strikes)

        assert changed(faults) == {}
        await states_fit(shop, faults)


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        pytest.param(ONCE[0].values[0], Fault.KILLED_BEFORE, id="interval 0, before a request"),
        *(pytest.param(each.values[0], Fault.KILLED_AFTER, id=str(each.id)) for each in (*ONCE, *LATER)),
        *(pytest.param({"target": each.values[0]}, Fault.KILLED_AFTER, id=str(each.id)) for each in POLICIES),
        pytest.param(MIXED, Fault.KILLED_AFTER, id="with values of a store"),
    ],
)
async def test_the_next_process_does_not_replace_a_password(workshop: Any, fault: Fault, spec: JsonObject) -> None:
    faults, provider = Faulty(fault), generating()
    async with workshop(provider, through=faults.over, generic=True) as shop:
        await furnished(shop)
        await apply_all(shop, faults, **spec)

        async def over() -> bool:
            statuses = {name: (await shop.bench.find(ES, name)).get("status", {}) for name in faults.strikes}
            done = {name for name, status in statuses.items() if "refreshTime" in status}
            return done | faults.dead == set(faults.strikes)

        await eventually(over, "neither done nor dead")
    faults.dead.clear()
    faults.strikes = dict.fromkeys(faults.strikes, 0)

    async with workshop(provider, through=faults.over, generic=True) as shop:
        await ready(shop, faults.strikes)
        await quiet(shop, faults.strikes)

        assert changed(faults) == {}
        await states_fit(shop, faults)


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.UNANSWERED, Fault.KILLED_AFTER], ids=lambda fault: fault.value)
async def test_a_disturbed_refresh_makes_one_new_password_and_retires_the_old_one(workshop: Any, fault: Fault) -> None:
    faults, provider = Faulty(fault), generating()
    async with workshop(provider, through=faults.over) as shop:
        await furnished(shop)
        strikes = {name: number for number, name in enumerate(names_of(REQUESTS), start=1)}
        faults.strikes = dict.fromkeys(strikes, 0)
        for name in strikes:
            await shop.sync(name, GENERATORS, "gen", refreshInterval="1h")
        await states_fit(shop, faults)
        faults.counts.clear()
        faults.strikes = strikes

        for name in strikes:
            await touched(shop, name, 1)
        await eventually(lambda: _refreshed(shop, faults), "neither refreshed nor dead")
    faults.dead.clear()
    faults.strikes = dict.fromkeys(strikes, 0)

    async with workshop(provider, through=faults.over) as shop:
        await eventually(lambda: _refreshed(shop, faults), "not refreshed")
        await ready(shop, strikes)
        await quiet(shop, strikes)

        assert {name: len(seen) for name, seen in faults.written.items()} == dict.fromkeys(strikes, 2)
        await states_fit(shop, faults)


async def _refreshed(shop: Any, faults: Faulty) -> bool:
    done = set()
    for name in faults.strikes:
        found = await shop.bench.find(ES, name)
        meta, status = found["metadata"], found["status"]
        version = synced_version(meta["generation"], meta.get("labels", {}), meta.get("annotations", {}))
        if status["syncedResourceVersion"] == version:
            done.add(name)
    return done | faults.dead == set(faults.strikes)


@pytest.mark.parametrize("refresh", ONCE)
async def test_passwords_of_objects_that_users_keep_touching_stay(workshop: Any, refresh: JsonObject) -> None:
    faults = Faulty(Fault.TOUCHED)
    names = names_of(20)
    faults.strikes = dict.fromkeys(names, 0)
    async with workshop(through=faults.over) as shop:
        await furnished(shop)

        async def user(name: str) -> None:
            await shop.apply(name, GENERATORS, "gen", **refresh)
            for tick in range(40):
                await touched(shop, name, tick)

        await asyncio.gather(*map(user, names))
        await ready(shop, names)
        await quiet(shop, names)

        assert changed(faults) == {}
        await states_fit(shop, faults)


async def test_a_password_is_not_replaced_because_the_cache_lacks_it(workshop: Any) -> None:
    """The status is lost, and no watch event has told of the Secret yet."""
    faults, lagging, lost = Faulty(Fault.LOST), LaggingWatch("secrets"), LostWrites()
    async with workshop(through=lambda plain: faults.over(lost.over(lagging.over(plain)))) as shop:
        await furnished(shop)
        await shop.sync("first", GENERATORS, "gen")
        faults.strikes = {"subject": 0}
        lost.losing = "/externalsecrets/subject/status"
        lagging.flowing.clear()

        await shop.apply("subject", GENERATORS, "gen")
        await eventually(lambda: _positive(lost), "the status is not lost")
        lost.losing = ""
        await ready(shop, ["subject"])

        assert changed(faults) == {}
        lagging.flowing.set()


async def _positive(lost: LostWrites) -> bool:
    return lost.lost > 2


async def test_a_deleted_or_edited_target_gets_new_values_once(workshop: Any) -> None:
    async with workshop() as shop:
        await furnished(shop)
        await shop.sync("db", GENERATORS, "gen")

        await shop.bench.delete(SECRETS, "db")
        await shop.holds("db", "value-2")
        await shop.bench.patch(SECRETS, "db", {"data": {"password": "bWluZQ=="}})
        await shop.holds("db", "value-3")

        await quiet(shop, ["db"])
        await shop.holds("db", "value-3")


async def test_only_targets_with_generated_values_are_marked_and_only_while_they_have_them(workshop: Any) -> None:
    async with workshop() as shop:
        await furnished(shop)
        await shop.sync("db", GENERATORS, "gen")
        uid = (await shop.bench.find(ES, "db"))["metadata"]["uid"]

        assert await marks_of(shop, "db") == {GENERATED_PREFIX + uid}


async def marks_of(shop: Any, name: str) -> set[str]:
    found = await shop.bench.find(SECRETS, name)
    return {key for key in found["metadata"]["annotations"] if key.startswith(GENERATED_PREFIX)}


async def test_a_new_object_of_the_same_name_generates_its_own_values(workshop: Any) -> None:
    """The mark is that of another object, which does not exist any more."""
    async with workshop() as shop:
        await furnished(shop)
        await shop.sync("db", GENERATORS, "gen", target={"creationPolicy": "Orphan"})
        before = await marks_of(shop, "db")

        await shop.bench.delete(ES, "db")
        await shop.sync("db", GENERATORS, "gen", target={"creationPolicy": "Orphan"})

        await shop.holds("db", "value-2")
        after = await marks_of(shop, "db")
        assert len(after) == 1
        assert after.isdisjoint(before)


async def test_two_objects_that_merge_into_one_secret_each_keep_their_values(workshop: Any) -> None:
    lost = LostWrites()
    async with workshop(through=lost.over) as shop:
        await furnished(shop)
        target = {"name": "shared", "creationPolicy": "CreateOrMerge"}
        for name in ("one", "two"):
            named = {"template": {"data": {name: "{{ .password }}"}}}
            await shop.sync(name, GENERATORS, "gen", target={**target, **named})
        values = (await shop.bench.find(SECRETS, "shared"))["data"]
        assert len(await marks_of(shop, "shared")) == 2

        for name in ("one", "two"):
            path = ES.path(shop.bench.namespace, name) + "/status"
            none: JsonObject = {"refreshTime": None, "syncedResourceVersion": None, "conditions": []}
            assert (await shop.bench.api.patch(path, {"status": none}, MERGE_PATCH)).status == 200
            await touched(shop, name, 1)
        await ready(shop, ["one", "two"])

        assert (await shop.bench.find(SECRETS, "shared"))["data"] == values
        assert shop.provider.made == 2
