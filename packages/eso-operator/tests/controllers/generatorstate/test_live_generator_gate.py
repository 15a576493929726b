"""GeneratorStates while the gate V2Stores is off: none is lost, and none is cleaned up before it is on again (R153)."""

from typing import Any

import pytest

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.generators.generatorstate import GENERATOR_STATE
from eso_api.v2.generator import GENERATOR
from eso_operator.controllers.generatorstate.checks import CleanupLimits
from eso_operator.generators.ledger import FINALIZER
from eso_operator.settings import FeatureGate
from eso_testkit.operator.generatingprovider import generating
from eso_testkit.operator.operators import MAKER
from kubebase.meta import JsonObject, ObjectKey
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import SECRETS

pytestmark = pytest.mark.live

ES = EXTERNAL_SECRET.resource()
STATES = GENERATOR_STATE.resource()
GENERATORS = GENERATOR.resource()
OFF: frozenset[FeatureGate] = frozenset()
PAST = "2020-01-01T00:00:00Z"


async def made(shop: Any, *names: str) -> dict[str, str]:
    """Create ExternalSecrets with generated values; return the names of their states."""
    await shop.bench.create(MAKER.resource(), "config", spec={"url": "https://maker.example.com"})
    config = {"kind": "Maker", "name": "config"}
    await shop.bench.create(GENERATORS, "gen", spec={"providerConfig": {"providerRef": config}})
    for name in names:
        await shop.sync(name, GENERATORS, "gen")
    states = await shop.until_states(lambda found: all(map(held, found)), "the states are not held")
    return {state["metadata"]["ownerReferences"][0]["name"]: state["metadata"]["name"] for state in states}


def held(state: JsonObject) -> bool:
    return FINALIZER in state["metadata"].get("finalizers", [])


async def test_states_wait_for_the_gate_whether_retired_or_deleted(workshop: Any) -> None:
    """`kept` is in use, the deadline of `retired` passes, `deleted` and `given-up` are deleted by a user."""
    provider = generating()
    async with workshop(provider) as shop:
        states = await made(shop, "kept", "retired", "deleted", "given-up")
        version = await written(shop, "kept")
    bench, books = shop.bench, dict(provider.books)
    numbers = {each["metadata"]["name"]: each["spec"]["state"]["number"] for each in await shop.states()}
    await bench.patch(STATES, states["retired"], {"spec": {"garbageCollectionDeadline": PAST}})

    async with workshop(provider, gates=OFF) as shop:
        for name in ("deleted", "given-up"):
            await bench.delete(STATES, states[name])
        await bench.until_event(states["deleted"], "Warning", "CleanupFailed", "V2Stores")
        await bench.until_event(states["given-up"], "Warning", "CleanupFailed", FINALIZER)
        await bench.patch(STATES, states["given-up"], {"metadata": {"finalizers": None}})
        await eventually(lambda: absent(shop, states["given-up"]), "a user cannot give the values up")
        await eventually(lambda: tried_often(shop, states["deleted"]), "the clean-up is not tried again")
        assert {each["metadata"]["name"] for each in await shop.states()} == set(states.values()) - {states["given-up"]}
    assert (provider.books, provider.cleaned) == (books, [])

    async with workshop(provider):
        for name in ("deleted", "retired"):
            await eventually(lambda name=name: absent(shop, states[name]), f"{name} is not cleaned up")  # type: ignore[misc]  # bound per turn
        await bench.ready(ES, "kept", lambda condition: condition.status == "True")

    assert set(provider.books) == {numbers[states["kept"]], numbers[states["given-up"]]}
    assert provider.made == 4
    assert await written(shop, "kept") == version


async def absent(shop: Any, state: str) -> bool:
    return await shop.bench.find(STATES, state) is None


async def tried_often(shop: Any, state: str) -> bool:
    """Return whether it was tried more often than a generator that no longer exists."""
    record = shop.memories.generator_states.find(ObjectKey(shop.bench.namespace, state))
    return record is not None and record.attempts > CleanupLimits().hopeless.attempts


async def written(shop: Any, name: str) -> str:
    """Return the version of a Secret: it changes with every write."""
    return str((await shop.bench.find(SECRETS, name))["metadata"]["resourceVersion"])
