"""Generated values that reached a store are not replaced because a status was lost or a process ended."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from google.protobuf.message import Message

from eso_api.generators.generatorstate import GENERATOR_STATE
from eso_api.pushsecret import PUSH_SECRET
from eso_api.values import SecretBytes
from eso_testkit.operator.operators import MAKER
from eso_testkit.operator.pushsecrets import entry
from eso_testkit.operator.storingprovider import EVERYTHING, StoringProvider
from eso_testkit.operator.transports import Fault, Faulty
from eso_wire import codec
from eso_wire._generated import provider_pb2 as pb
from eso_wire.paths import short_name
from eso_wire.values import CleanupOutcome, Generated, Operation
from kubebase.clock import SystemClock
from kubebase.meta import JsonObject
from kubebase.testing.waiting import eventually
from kuberun.testing.rawapi import MERGE_PATCH

pytestmark = pytest.mark.live

PUSHES = PUSH_SECRET.resource()
STATES = GENERATOR_STATE.resource()
MAKERS = MAKER.resource()
REF = {"apiVersion": MAKERS.api_version, "kind": "Maker", "name": "maker"}
REQUESTS = 14
"""More than a push has, so that the last strike never comes."""
POLICIES = [
    pytest.param({"refreshInterval": "0"}, id="interval 0"),
    pytest.param({"refreshInterval": "1h", "deletionPolicy": "Delete"}, id="every hour, deleted with its object"),
    pytest.param({"refreshInterval": "0", "updatePolicy": "IfNotExists"}, id="if not exists"),
]


@dataclass(slots=True)
class Numbering(StoringProvider):
    """Every generated value is a new one; `history` has the values of each remote key, in order."""

    made: int = 0
    books: dict[str, str] = field(default_factory=dict)
    """The values that exist, by the state that cleans them up."""
    history: dict[str, list[str]] = field(default_factory=dict)

    def put(self, place: str, value: bytes, owner: str = "") -> None:
        self.history.setdefault(place, []).append(value.decode())
        StoringProvider.put(self, place, value, owner)

    def _respond(self, method: str, request: bytes) -> Message:
        match short_name(method):
            case "Generate":
                self.made += 1
                state = f'"{self.made}"'
                self.books[state] = f"value-{self.made}"
                value = SecretBytes(self.books[state].encode())
                return codec.to_generate_response(Generated({"password": value}, state=SecretBytes(state.encode())))
            case "Cleanup":
                _, asked = codec.from_cleanup_request(pb.CleanupRequest.FromString(request))
                gone = self.books.pop(asked.state.reveal().decode(), None) if asked.state else None
                outcome = CleanupOutcome.ALREADY_GONE if gone is None else CleanupOutcome.CLEANED
                return codec.to_cleanup_response(outcome)
        return StoringProvider._respond(self, method, request)


def numbering(operations: frozenset[Operation] = EVERYTHING, **fields: Any) -> Numbering:
    return Numbering(SystemClock(), operations=operations, **fields)


async def apply_all(stage: Any, faults: Faulty, **spec: Any) -> None:
    """Create one PushSecret for each request that can be disturbed."""
    await stage.bench.create(MAKERS, "maker", spec={"url": "x"})
    names = [f"subject-{number:03}" for number in range(1, REQUESTS + 1)]
    ticks = itertools.count()

    async def touch(name: str) -> None:
        patch = {"metadata": {"annotations": {"touched": str(next(ticks))}}}
        path = PUSHES.path(stage.bench.namespace, name)
        assert (await stage.bench.api.patch(path, patch, MERGE_PATCH)).status == 200

    faults.touch = touch
    faults.strikes = {name: number for number, name in enumerate(names, start=1)}
    for name in names:
        await stage.apply(name, entry("password", name), selector={"generatorRef": REF}, **spec)


async def states_fit(stage: Any, provider: Numbering, faults: Faulty) -> None:
    """The value in the store has the only state without a deadline, and was not cleaned up."""

    async def fit() -> bool:
        kept: dict[str, list[str]] = {}
        for state in (await stage.bench.api.get(STATES.path(stage.bench.namespace))).body["items"]:
            if "garbageCollectionDeadline" not in state["spec"]:
                owner = state["metadata"]["ownerReferences"][0]["name"]
                kept.setdefault(owner, []).append(f"value-{state['spec']['state']}")
        used = {name: provider.values[name].decode() for name in faults.strikes}
        return all(kept.get(name) == [value] for name, value in used.items()) and set(used.values()) <= set(
            provider.books.values()
        )

    await eventually(fit, "the states do not fit the values in use")


def replaced(provider: Numbering, most: int = 0) -> dict[str, int]:
    """How often a value that was in its store was replaced, by object."""
    return {name: len(seen) - 1 for name, seen in provider.history.items() if len(seen) > 1 + most}


async def quiet(stage: Any, names: Any) -> None:
    """Everything was handled, and nothing is pending."""
    for name in names:
        await stage.ready(name)
    await stage.push("witness", entry("password", "witness"), selector={"generatorRef": REF}, refreshInterval="0")
    for name in names:
        assert "pendingPush" not in await stage.status(name)


@pytest.mark.parametrize("fault", [Fault.TOUCHED, Fault.LOST, Fault.UNANSWERED], ids=lambda fault: fault.value)
@pytest.mark.parametrize("spec", POLICIES)
async def test_a_disturbed_request_never_replaces_a_pushed_value(staged: Any, fault: Fault, spec: JsonObject) -> None:
    """An edit of the object asks for another push, as always: one, however its status collides."""
    provider, faults = numbering(), Faulty(fault)
    async with staged(provider, through=faults.over) as stage:
        await apply_all(stage, faults, **spec)

        await quiet(stage, faults.strikes)

        assert replaced(provider, most=1 if fault is Fault.TOUCHED else 0) == {}
        assert len(faults.struck) < REQUESTS
        await states_fit(stage, provider, faults)


@pytest.mark.parametrize("fault", [Fault.KILLED_BEFORE, Fault.KILLED_AFTER], ids=lambda fault: fault.value)
@pytest.mark.parametrize("spec", POLICIES)
async def test_the_next_process_does_not_replace_a_pushed_value(
    staged: Any, rerun: Callable[..., Any], fault: Fault, spec: JsonObject
) -> None:
    provider, faults = numbering(), Faulty(fault)
    async with staged(provider, through=faults.over, tidy=False) as stage:
        await apply_all(stage, faults, **spec)

        async def over() -> bool:
            statuses = {name: await stage.status(name) for name in faults.strikes}
            done = {name for name, status in statuses.items() if "refreshTime" in status}
            return done | faults.dead == set(faults.strikes)

        await eventually(over, "neither done nor dead")
    faults.dead.clear()
    faults.strikes = dict.fromkeys(faults.strikes, 0)

    async with rerun(provider, through=faults.over) as stage:
        await quiet(stage, faults.strikes)

        assert replaced(provider) == {}
        await states_fit(stage, provider, faults)


async def test_an_existing_value_that_has_no_version_is_pushed_again_after_the_end_of_the_process(
    staged: Any, rerun: Callable[..., Any]
) -> None:
    """Nobody can say whether the value that exists is the new one. This is what remains."""
    provider, faults = numbering(reports_versions=False), Faulty(Fault.KILLED_BEFORE)
    provider.put("subject-001", b"from before")
    async with staged(provider, through=faults.over, tidy=False) as stage:
        await stage.bench.create(MAKERS, "maker", spec={"url": "x"})
        faults.strikes = {"subject-001": 100}
        spec = {"selector": {"generatorRef": REF}, "refreshInterval": "0"}
        provider.meanwhile["PushSecrets"] = lambda: _now(faults)
        await stage.apply("subject-001", entry("password", "subject-001"), **spec)
        await eventually(lambda: _died(faults), "nothing was pushed")
    faults.dead.clear()
    faults.strikes = {"subject-001": 0}

    async with rerun(provider, through=faults.over) as stage:
        await quiet(stage, faults.strikes)

    assert provider.history["subject-001"] == ["from before", "value-1", "value-2"]


async def _now(faults: Faulty) -> None:
    faults.dead.add("subject-001")


async def _died(faults: Faulty) -> bool:
    return bool(faults.dead)
