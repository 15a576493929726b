"""Generated values are recorded, retired and cleaned up. On a live API server, with a real provider process."""

import base64
from typing import Any

import pytest

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.generators.clustergenerator import CLUSTER_GENERATOR
from eso_api.generators.generatorstate import GENERATOR_STATE
from eso_api.generators.tokens import GRAFANA
from eso_api.v2.generator import CLUSTER_GENERATOR_V2, GENERATOR
from eso_operator.generators.ledger import FINALIZER, IDEMPOTENCY_KEY
from eso_testkit.operator.generatingprovider import generating
from eso_testkit.operator.operators import MAKER
from eso_testkit.operator.transports import LostResponses, LostWrites
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.clock import SystemClock, parse_rfc3339, rfc3339
from kubebase.meta import JsonObject
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import NAMESPACES, SECRETS

pytestmark = pytest.mark.live

ES = EXTERNAL_SECRET.resource()
STATES = GENERATOR_STATE.resource()
GENERATORS = GENERATOR.resource()
MAKERS = MAKER.resource()
CONFIG: JsonObject = {"url": "https://maker.example.com", "auth": {"tokenSecretRef": {"name": "token", "key": "t"}}}
REF: JsonObject = {"apiVersion": MAKERS.api_version, "kind": "Maker", "name": "config"}
REFUSED = ProviderError(ErrorReason.PERMISSION_DENIED, "the account may not do that")


def spec(**fields: Any) -> JsonObject:
    return {"providerConfig": {"providerRef": REF}, **fields}


async def furnished(shop: Any, **fields: Any) -> None:
    """A v2 Generator `gen`, its configuration, its credentials."""
    await shop.bench.create(SECRETS, "token", data={"t": "cw=="})
    await shop.bench.create(MAKERS, "config", spec=CONFIG)
    await shop.bench.create(GENERATORS, "gen", spec=spec(**fields))


def held(found: list[JsonObject]) -> bool:
    return len(found) == 1 and FINALIZER in found[0]["metadata"].get("finalizers", [])


def number_in(secret: JsonObject | None) -> int | None:
    """Return the number of the generated value that a Secret holds; None without a Secret."""
    if secret is None:
        return None
    return int(base64.b64decode(secret["data"]["password"]).decode().removeprefix("value-"))


def retired(state: JsonObject) -> bool:
    """Return whether it has a deadline, and not only because the result of its call is unknown."""
    waits = IDEMPOTENCY_KEY in state["metadata"].get("annotations", {})
    return "garbageCollectionDeadline" in state["spec"] and not waits


async def test_a_v2_generator_gets_its_configuration_and_its_state_is_kept(workshop: Any) -> None:
    """R92, R97, R121, R122."""
    async with workshop() as shop:
        await furnished(shop)

        await shop.sync("db", GENERATORS, "gen")

        (state,) = await shop.until_states(held, "the state is not held")
        assert await shop.states() == [state]
        assert shop.provider.cleaned == []
    assert shop.provider.specs == [CONFIG]
    assert state["spec"]["state"] == {"number": 1}
    inline = state["spec"]["resource"]["spec"]["providerConfig"]["inline"]
    assert (inline["kind"], inline["spec"]) == ("Maker", CONFIG)
    assert state["metadata"]["ownerReferences"][0]["kind"] == "ExternalSecret"


async def test_states_survive_a_restart_and_a_value_made_once_stays(workshop: Any) -> None:
    """R22, R122: the next operator makes nothing new, and cleans up what the last one made."""
    provider = generating()
    async with workshop(provider) as shop:
        await furnished(shop)
        await shop.sync("db", GENERATORS, "gen")
        before = await shop.until_states(held, "the state is not held")

    async with workshop(provider) as shop:
        await shop.sync("witness", GENERATORS, "gen")
        await shop.holds("db", "value-1")
        assert before[0]["metadata"]["uid"] in [each["metadata"]["uid"] for each in await shop.states()]
        assert (provider.made, provider.cleaned) == (2, [])

        await shop.bench.delete(STATES, before[0]["metadata"]["name"])

        await eventually(lambda: _books(provider, {2}), "the state of the first operator is not cleaned up")
    assert provider.cleaned[0].state == {"number": 1}


async def test_a_state_that_was_due_while_no_operator_ran_is_cleaned_up_by_the_next(workshop: Any) -> None:
    """R122."""
    provider = generating()
    async with workshop(provider) as shop:
        await furnished(shop)
        await shop.sync("db", GENERATORS, "gen")
        (state,) = await shop.until_states(held, "the state is not held")
    past = {"spec": {"garbageCollectionDeadline": "2020-01-01T00:00:00Z"}}
    await shop.bench.patch(STATES, state["metadata"]["name"], past)

    async with workshop(provider) as shop:
        await shop.until_gone()

    assert provider.books == {}


async def test_the_old_value_is_cleaned_up_after_the_new_one_is_in_place(workshop: Any) -> None:
    async with workshop() as shop:
        await furnished(shop)
        await shop.sync("db", GENERATORS, "gen", refreshInterval="1h")

        await shop.force("db")
        await shop.holds("db", "value-2")

        found = await shop.until_states(held, "the old state does not go")
        assert found[0]["spec"]["state"] == {"number": 2}
        assert only(shop.provider).state == {"number": 1}
        assert set(shop.provider.books) == {2}


@pytest.mark.parametrize(
    ("trouble", "path"),
    [
        pytest.param(LostResponses, "/secrets/db", id="whether the Secret was written is not known"),
        pytest.param(LostWrites, "/secrets/former", id="what stood under its former name cannot be deleted"),
    ],
)
async def test_a_value_that_may_be_in_use_is_not_cleaned_up(
    workshop: Any, trouble: type[LostResponses | LostWrites], path: str
) -> None:
    """Hearing of the write may fail, and so may what follows it: the Secret holds the new value all the same."""
    door = trouble()

    async with workshop(through=door.over) as shop:
        await furnished(shop)
        await shop.sync("db", GENERATORS, "gen", refreshInterval="1h", target={"name": "former"})

        door.losing = path
        await shop.bench.patch(ES, "db", {"spec": {"target": {"name": "db"}}})
        await eventually(lambda: shop.bench.find(SECRETS, "db"), "the Secret is not written")
        # In this order: a former Secret that is still there at the end held its value all the time.
        kept, states = set(shop.provider.books), await shop.states()
        in_use = {number_in(await shop.bench.find(SECRETS, name)) for name in ("db", "former")} - {None}
        assert in_use <= kept
        assert not any(retired(state) for state in states if state["spec"]["state"].get("number") in in_use)
        door.losing = ""

        await shop.bench.ready(ES, "db", lambda condition: condition.status == "True")
        (state,) = await shop.until_states(held, "what is not in use any more does not go")
        await shop.holds("db", f"value-{state['spec']['state']['number']}")
        assert set(shop.provider.books) == {state["spec"]["state"]["number"]}


async def test_resources_of_an_unanswered_call_are_recorded_and_cleaned_up_by_their_key(workshop: Any) -> None:
    """However often it is tried: it is the same call, under the same key."""
    async with workshop(generating(loses_responses=True)) as shop:
        await furnished(shop)
        await shop.apply("db", GENERATORS, "gen")
        await shop.bench.ready(ES, "db", lambda condition: condition.status == "False")
        (state,) = await shop.states()
        assert state["metadata"]["annotations"][IDEMPOTENCY_KEY] in shop.provider.numbers
        assert "garbageCollectionDeadline" in state["spec"]

        await shop.bench.delete(ES, "db")
        # Not every API server of a test has a garbage collector.
        await shop.bench.api.delete(STATES.path(shop.bench.namespace, state["metadata"]["name"]))
        await shop.until_gone()

        assert shop.provider.made == 1
        assert shop.provider.books == {}


async def test_a_call_whose_answer_came_late_leaves_one_record_of_its_value(workshop: Any) -> None:
    async with workshop(generating(loses_responses=True)) as shop:
        await furnished(shop)
        await shop.apply("db", GENERATORS, "gen")
        await shop.bench.ready(ES, "db", lambda condition: condition.status == "False")

        shop.provider.loses_responses = False
        await shop.bench.ready(ES, "db", lambda condition: condition.status == "True")

        (state,) = await shop.until_states(held, "there is not one state")
        assert state["spec"]["state"] == {"number": 1}
        assert IDEMPOTENCY_KEY not in state["metadata"].get("annotations", {})
        assert "garbageCollectionDeadline" not in state["spec"]


async def test_state_that_a_lost_response_may_leave_is_reported(workshop: Any) -> None:
    """By the key of the call, where the backend cannot find what it made."""
    async with workshop(generating(loses_responses=True, finds_by_key=False)) as shop:
        await furnished(shop)
        await shop.apply("db", GENERATORS, "gen")
        await shop.bench.ready(ES, "db", lambda condition: condition.status == "False")
        (state,) = await shop.states()

        await shop.bench.delete(ES, "db")
        await shop.bench.api.delete(STATES.path(shop.bench.namespace, state["metadata"]["name"]))

        (key,) = shop.provider.numbers
        await shop.event("CleanupFailed", "may have made in a call without answer", key)


async def test_a_call_that_made_nothing_leaves_no_record(workshop: Any) -> None:
    async with workshop(generating(generate_errors=[REFUSED])) as shop:
        await furnished(shop)
        await shop.sync("db", GENERATORS, "gen")

        (state,) = await shop.until_states(held, "the record of the refused call stays")
        assert state["spec"]["state"] == {"number": 1}
        assert shop.provider.cleaned == []


async def test_a_deadline_ahead_is_waited_for(workshop: Any) -> None:
    async with workshop() as shop:
        await furnished(shop)
        await shop.sync("db", GENERATORS, "gen")
        (state,) = await shop.until_states(held, "the state is not held")
        deadline = rfc3339(parse_rfc3339(rfc3339(SystemClock().now())))
        later = deadline.replace(deadline[:4], str(int(deadline[:4]) + 1), 1)
        name = state["metadata"]["name"]

        await shop.bench.patch(STATES, name, {"spec": {"garbageCollectionDeadline": later}})
        await shop.sync("witness", GENERATORS, "gen")
        assert name in [each["metadata"]["name"] for each in await shop.states()]
        await shop.bench.patch(STATES, name, {"spec": {"garbageCollectionDeadline": deadline}})

        await eventually(lambda: _books(shop.provider, {2}), "the state is not cleaned up at its deadline")


async def test_a_state_is_cleaned_up_from_its_stored_configuration_though_the_generator_changed_or_went(
    workshop: Any,
) -> None:
    """R121: the configuration of that time, credentials of the state's namespace."""
    async with workshop() as shop:
        await furnished(shop)
        await shop.sync("db", GENERATORS, "gen")
        (state,) = await shop.until_states(held, "the state is not held")
        await shop.bench.patch(MAKERS, "config", {"spec": {"url": "https://elsewhere.example.com"}})
        await shop.bench.delete(GENERATORS, "gen")

        await shop.bench.delete(STATES, state["metadata"]["name"])

        await shop.until_gone()
    cleaned = only(shop.provider)
    assert (cleaned.spec, cleaned.credentials) == (CONFIG, (b"s",))


@pytest.mark.parametrize("form", ["namespaced", "ClusterGenerator"])
async def test_v1alpha1_generators_are_cleaned_up_with_what_was_stored(workshop: Any, form: str) -> None:
    inner = {
        "url": "https://grafana.example.com",
        "auth": {"token": {"name": "token", "key": "t"}},
        "serviceAccount": {"name": "robot", "role": "Viewer"},
    }
    async with workshop() as shop:
        bench = shop.bench
        name = f"gen-{bench.namespace}"
        kind = (GRAFANA if form == "namespaced" else CLUSTER_GENERATOR).resource()
        whole = inner if form == "namespaced" else {"kind": "Grafana", "generator": {"grafanaSpec": inner}}
        await bench.create(SECRETS, "token", data={"t": "cw=="})
        await bench.create(kind, name, spec=whole)
        await shop.sync("db", kind, name)
        (state,) = await shop.until_states(held, "the state is not held")
        await bench.delete(kind, name)

        await bench.delete(STATES, state["metadata"]["name"])

        await shop.until_gone()
    assert state["spec"]["resource"]["kind"] == "Grafana"
    cleaned = only(shop.provider)
    assert cleaned.spec == state["spec"]["resource"]["spec"]
    assert cleaned.credentials == (b"s",)


async def test_a_cluster_generator_cleans_up_with_the_credentials_of_its_scope(workshop: Any) -> None:
    """R93, R94."""
    async with workshop() as shop:
        bench = shop.bench
        name = f"gen-{bench.namespace}"
        await furnished(shop)
        there = {"providerConfig": {"providerRef": {**REF, "namespace": bench.namespace}}}
        scoped = {**there, "authenticationNamespace": "ProviderReference"}
        await bench.create(CLUSTER_GENERATOR_V2.resource(), name, spec=scoped)
        try:
            await shop.sync("db", CLUSTER_GENERATOR_V2.resource(), name)
            (state,) = await shop.until_states(held, "the state is not held")

            await bench.delete(STATES, state["metadata"]["name"])

            await shop.until_gone()
        finally:
            await bench.delete(CLUSTER_GENERATOR_V2.resource(), name)
    assert only(shop.provider).credentials == (b"s",)


async def test_a_failed_clean_up_is_reported_and_retried(workshop: Any) -> None:
    async with workshop(generating(cleanup_error=REFUSED)) as shop:
        await furnished(shop)
        await shop.sync("db", GENERATORS, "gen")
        (state,) = await shop.until_states(held, "the state is not held")

        await shop.bench.delete(STATES, state["metadata"]["name"])
        await shop.event("CleanupFailed", "Generator gen", REFUSED.message)
        assert held(await shop.states())
        shop.provider.cleanup_error = None

        await shop.until_gone()
    assert len(shop.provider.cleaned) > 1
    assert shop.provider.books == {}


async def test_a_clean_up_that_waits_for_credentials_goes_on_when_they_are_there(workshop: Any) -> None:
    async with workshop() as shop:
        await furnished(shop)
        await shop.sync("db", GENERATORS, "gen")
        (state,) = await shop.until_states(held, "the state is not held")
        await shop.bench.delete(SECRETS, "token")
        await shop.bench.delete(STATES, state["metadata"]["name"])
        await shop.event("CleanupFailed", "token")

        await shop.bench.create(SECRETS, "token", data={"t": "bmV3"})

        await shop.until_gone()
    assert only(shop.provider).credentials == (b"new",)


async def test_a_state_of_a_generator_without_clean_up_is_let_go_at_once(workshop: Any) -> None:
    """Its finalizer would otherwise hold the namespace for ten minutes."""
    async with workshop(generating(cleans_up=False)) as shop:
        await furnished(shop)
        await shop.sync("db", GENERATORS, "gen")
        (state,) = await shop.until_states(held, "the state is not held")

        await shop.bench.delete(STATES, state["metadata"]["name"])

        await shop.until_gone()
        assert await shop.bench.events(state["metadata"]["name"]) == []
    assert shop.provider.cleaned == []


async def test_a_namespace_that_is_deleted_is_not_held_by_what_cannot_be_cleaned_up(workshop: Any) -> None:
    """Its credentials may be deleted before the state is; remaining values are reported outside of the namespace."""
    async with workshop() as shop:
        home = f"{shop.bench.namespace}-home"
        await shop.bench.create(NAMESPACES, home)
        path = STATES.path(home)
        resource = {"apiVersion": GRAFANA.resource().api_version, "kind": "Grafana", "metadata": {"name": "gone"}}
        document = {
            "apiVersion": STATES.api_version,
            "kind": STATES.kind,
            "metadata": {"name": "left", "namespace": home, "finalizers": [FINALIZER]},
            "spec": {"resource": {**resource, "spec": {"auth": {"token": {"name": "x", "key": "x"}}}}, "state": {}},
        }
        answer = await shop.bench.api.post(path, document)
        assert answer.status == 201, answer.body

        await shop.bench.delete(NAMESPACES, home)
        await shop.bench.api.delete(f"{path}/left")

        async def gone() -> bool:
            answer = await shop.bench.api.get(f"{path}/left")
            return bool(answer.status == 404)

        await eventually(gone, "the state holds its namespace")
        await shop.bench.until_event(home, "Warning", "Orphaned")


@pytest.mark.parametrize("policy", ["Enabled", "Disabled"])
async def test_gating_decides_whether_a_generator_that_is_not_ready_makes_anything(workshop: Any, policy: str) -> None:
    """R92, R123."""
    provider = generating(refusal=ProviderError(ErrorReason.BACKEND_ERROR, "the backend is in a bad mood"))
    async with workshop(provider) as shop:
        await furnished(shop, gatingPolicy=policy)
        await shop.bench.ready(GENERATORS, "gen", lambda condition: condition.status == "False")

        await shop.apply("db", GENERATORS, "gen")

        if policy == "Disabled":
            await shop.holds("db", "value-1")
            return
        await shop.bench.ready(ES, "db", lambda condition: "not ready" in condition.message)
        assert provider.made == 0
        provider.refusal = None
        await shop.bench.patch(GENERATORS, "gen", {"metadata": {"annotations": {"look": "again"}}})
        await shop.holds("db", "value-1")


def only(provider: Any) -> Any:
    """Return the cleaned-up values without repetitions, which mean the same."""
    first, *others = provider.cleaned
    assert all(each == first for each in others)
    return first


async def _books(provider: Any, wanted: set[int]) -> bool:
    return set(provider.books) == wanted
