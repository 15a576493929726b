"""The errors of a PushSecret, and its reports (contract 1.11). No message contains a value."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from eso_api.pushsecret import PUSH_SECRET
from eso_testkit.operator.pushsecrets import bulk, entry
from eso_testkit.operator.storingprovider import denied, storing
from eso_testkit.operator.transports import Between
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Limits
from kubebase.clock import parse_rfc3339
from kubebase.meta import Resource
from kubebase.testing.waiting import eventually
from kuberun.requests import Request
from kuberun.testing.builders import SECRETS

pytestmark = pytest.mark.live

PUSHES = PUSH_SECRET.resource()
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)
CANARY = "CANARY-5f2d1c"
LIKE = {"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]}
NO_STORE = {"matchLabels": {"no": "body"}}


class StatusWrites(Between):
    """Notes what the API server took at a path that ends like this."""

    def __init__(self, end: str) -> None:
        self._end = end
        self.taken: list[str] = []

    async def request(self, request: Request) -> bytes:
        answer = await self.inner.request(request)
        if request.method == "PATCH" and request.path.endswith(self._end):
            self.taken.append((request.body or b"").decode())
        return answer


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param({"selector": {"secret": {"name": "absent"}}}, ["source secret", "absent"], id="E5 no source"),
        pytest.param({"selector": {"secret": {"selector": LIKE}}}, ["source secret", "Like"], id="E5 no selector"),
        pytest.param(
            {"selector": {"generatorRef": {"kind": "Password", "name": "absent"}}},
            ["source secret", "Password absent"],
            id="E5 no generator",
        ),
        pytest.param({"selector": {"secret": {}}}, ["source secret", "must name a Secret"], id="E5 nothing selected"),
        pytest.param({"secretStoreRefs": [{"name": "absent"}]}, ["StoreNotFound", "absent"], id="E6 no store"),
        pytest.param(
            {"secretStoreRefs": [{"name": "absent", "kind": "ClusterSecretStore"}]},
            ["StoreNotFound", "ClusterSecretStore absent"],
            id="E6 no cluster store",
        ),
        pytest.param({"secretStoreRefs": [{}]}, ["neither name nor labelSelector"], id="E6 an empty reference"),
        pytest.param({"secretStoreRefs": [{"labelSelector": LIKE}]}, ["Like"], id="E6 no store selector"),
        pytest.param(
            {"dataTo": [bulk("other")]}, ["spec.dataTo[0].storeRef", "other"], id="E4 dataTo to an unlisted store"
        ),
        pytest.param(
            {"dataTo": [bulk(storeRef={"labelSelector": NO_STORE})]},
            ["spec.dataTo[0].storeRef", "matches no SecretStore"],
            id="E7 dataTo to no store",
        ),
        pytest.param({"data": [entry("absent", "r")]}, ["spec.data[0]", '"absent"'], id="E11 no key"),
        pytest.param({"dataTo": [bulk(regexp="(")]}, ["spec.dataTo[0]", "RE2"], id="E10 no expression"),
        pytest.param(
            {"data": [entry("password", "r"), entry("user", "r")]}, ["same place"], id="E10 two values for one place"
        ),
        pytest.param({"template": {"data": {"x": "{{ .password | nope }}"}}}, ["spec.template"], id="E8 no template"),
        pytest.param(
            {"template": {"templateFrom": [{"configMap": {"name": "absent", "items": [{"key": "k"}]}}]}},
            ["spec.template", "absent"],
            id="E8 no ConfigMap",
        ),
        pytest.param({"data": [entry("password", "closed")]}, ["AccessDenied", "closed"], id="E13 the push fails"),
    ],
)
async def test_error_catalogue(staged: Any, spec: dict[str, Any], words: list[str]) -> None:
    """Seed 8: Ready=False/Errored with the cause, a Warning event, the entry in the outcomes, and nothing pushed."""
    async with staged(storing(push_errors={"closed": denied("closed")})) as stage:
        await stage.source(password=CANARY, user=CANARY)
        await stage.apply("db", **{"data": [entry("password", "db")], **spec})

        found = await stage.broken("db", *words)

        assert stage.provider.values == {}
        assert found["status"].get("syncedPushSecrets", {}) == {}
        assert "refreshTime" not in found["status"] or found["status"]["refreshTime"] is None
        assert found["status"]["outcomes"]
        assert CANARY not in json.dumps(found)
        await stage.event("db", "Warning", "Errored")


@asynccontextmanager
async def without_data_to_rules(stage: Any) -> AsyncIterator[None]:
    """An API server whose CRD of PushSecrets has no rules for the entries of dataTo."""
    crd = PUSH_SECRET.crd()
    for version in crd["spec"]["versions"]:
        schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["dataTo"]["items"]
        del schema["x-kubernetes-validations"]
    await stage.bench.patch(CRDS, PUSH_SECRET.crd_name, {"spec": crd["spec"]})
    try:
        yield
    finally:
        await stage.bench.patch(CRDS, PUSH_SECRET.crd_name, {"spec": PUSH_SECRET.crd()["spec"]})


async def test_a_rewrite_that_an_older_crd_lets_in_is_refused_rather_than_ignored(staged: Any) -> None:
    spec = {
        "secretStoreRefs": [{"name": "store"}],
        "selector": {"secret": {"name": "source"}},
        "dataTo": [bulk(remoteKey="all", rewrite=[{"regexp": {"source": "^", "target": "app/"}}])],
    }
    async with staged() as stage:
        await stage.source(password=CANARY)
        path = PUSHES.path(stage.bench.namespace)
        body = {"apiVersion": PUSHES.api_version, "kind": PUSHES.kind, "metadata": {"name": "db"}, "spec": spec}

        async def stored() -> bool:
            return bool((await stage.bench.api.post(path, body)).status == 201)

        async def refused() -> bool:
            other = {**body, "metadata": {"name": "other"}}
            return bool((await stage.bench.api.post(f"{path}?dryRun=All", other)).status == 422)

        assert not await stored()
        async with without_data_to_rules(stage):
            # A real API server takes a moment to go by the new schema.
            await eventually(stored, "the API server still has the rule")

        await eventually(refused, "the API server has not got the rule back, which other tests need")
        await stage.broken("db", "invalid PushSecret", "spec.dataTo[0].rewrite", "remoteKey and rewrite")

        assert stage.provider.values == {}
        await stage.bench.patch(PUSHES, "db", {"spec": {"dataTo": [bulk(remoteKey="all")]}})
        await stage.ready("db")


async def test_the_object_recovers_as_soon_as_the_missing_dependency_exists(staged: Any) -> None:
    """Source, store and key come one after the other; no back-off of minutes delays them."""
    async with staged(ready=False) as stage:
        await stage.apply("db", entry("late", "db"))
        await stage.broken("db", "source")
        await stage.source(password="p")
        await stage.broken("db", "store")
        await stage.store()
        await stage.broken("db", '"late"')

        await stage.edit(late="x")

        await stage.holds(db="x")
        await stage.ready("db")


async def test_one_store_that_fails_does_not_hold_up_the_others_and_nothing_is_forgotten(staged: Any) -> None:
    """E9, E13: the status is the union of what was pushed and what was recorded before."""
    async with staged() as stage:
        await stage.source(password="one")
        await stage.push("db", entry("password", "a"), entry("password", "b"), deletionPolicy="Delete")
        stage.provider.push_errors["b"] = denied("b")
        await stage.store("broken", provider={"vault": {"server": "x"}})

        await stage.change(
            "db",
            secretStoreRefs=[{"name": "store"}, {"name": "broken"}],
            data=[entry("password", "b"), entry("password", "c")],
        )
        found = await stage.broken("db", "could not set secret")

        async def recorded() -> bool:
            synced = (await stage.status("db"))["syncedPushSecrets"]  # what is about to be pushed is there for a moment
            return {store: sorted(names) for store, names in synced.items()} == {"SecretStore/store": ["a", "b", "c"]}

        await eventually(recorded, "the record is not what was pushed")
        assert stage.provider.values == {"a": b"one", "b": b"one", "c": b"one"}
        assert {outcome["store"] for outcome in found["status"]["outcomes"]} == {
            "SecretStore store",
            "SecretStore broken",
        }
        assert stage.provider.deletions == []


async def test_a_value_that_cannot_be_sent_is_not_recorded(staged: Any) -> None:
    """Its store cannot be used: nothing has to be withdrawn, so a retry without news writes nothing."""
    writes = StatusWrites("/pushsecrets/db/status")

    async with staged(through=writes.over) as stage:
        await stage.source(password="p")
        await stage.store("broken", provider={"vault": {"server": "x"}})
        stores = [{"name": "broken"}]
        await stage.apply("db", entry("password", "db"), deletionPolicy="Delete", secretStoreRefs=stores)
        await stage.broken("db", "vault")
        before = list(writes.taken)

        await stage.change("db", secretStoreRefs=[{"name": "store"}])
        await stage.ready("db")

        assert not any("syncedPushSecrets" in status for status in before)
        assert any("syncedPushSecrets" in status for status in writes.taken)


async def test_a_provider_that_cannot_take_all_at_once_gets_several_calls(staged: Any) -> None:
    async with staged(storing(limits=Limits(max_batch_items=2))) as stage:
        await stage.source(**{f"key{number}": "x" for number in range(5)})

        await stage.push("db", dataTo=[bulk()])

        assert [len(batch.items) for batch in stage.provider.pushes] == [2, 2, 1]
        assert all(batch.idempotency_key for batch in stage.provider.pushes)


async def test_properties_of_one_remote_secret_are_written_one_after_the_other(staged: Any) -> None:
    async with staged() as stage:
        await stage.source(user="u", password="p")

        await stage.push("db", entry("user", "db", "user"), entry("password", "db", "password"))

        assert [len(batch.items) for batch in stage.provider.pushes] == [1, 1]
        await stage.change("db", refreshInterval="1s")
        await stage.until(lambda: stage.provider.calls["CheckSecrets"] >= 3, "it is not refreshed")
        assert len(stage.provider.pushes) <= 4  # the edit of the interval pushed once more, no refresh did


async def test_a_provider_that_throttles_is_asked_again_when_it_says(staged: Any) -> None:
    async with staged() as stage:
        limited = ProviderError(ErrorReason.RATE_LIMITED, "too many calls", retry_after=1.0)
        stage.provider.push_errors["db"] = limited
        await stage.source(password="p")
        await stage.apply("db", entry("password", "db"))
        await stage.broken("db", "too many calls")

        stage.provider.push_errors.clear()

        await stage.holds(db="p")
        await stage.ready("db")


async def test_the_status_says_when_a_failed_push_is_tried_again_until_it_succeeds(staged: Any) -> None:
    async with staged() as stage:
        busy = ProviderError(ErrorReason.BACKEND_ERROR, "come back later", retry_after=900.0)
        stage.provider.push_errors["db"] = busy
        await stage.source(password="p")
        await stage.apply("db", entry("password", "db"))

        failed = (await stage.broken("db", "come back later"))["status"]
        stage.provider.push_errors.clear()
        await stage.force("db")
        mended = (await stage.ready("db"))["status"]

        began = parse_rfc3339(failed["conditions"][0]["lastTransitionTime"])
        assert parse_rfc3339(failed["nextAttemptTime"]) - began >= timedelta(seconds=900)
        assert mended.get("nextAttemptTime") is None


@pytest.mark.parametrize("policy", ["Replace", "IfNotExists"])
async def test_two_writers_do_not_lose_what_was_pushed(staged: Any, policy: str) -> None:
    """A user edits the object while it is pushed: the record is complete, and what we created is still ours."""
    async with staged() as stage:
        await stage.source(password="p")
        await stage.apply("db", entry("password", "warm-up"))
        await stage.ready("db")
        stage.provider.latency = 0.5
        spec = {"data": [entry("password", "db")], "updatePolicy": policy, "deletionPolicy": "Delete"}
        await stage.apply("second", **spec)
        await stage.until(lambda: stage.provider.calls["PushSecrets"] >= 2, "it is not pushed")
        await stage.force("second")
        stage.provider.latency = 0.0

        found = await stage.ready("second")

        assert list(found["status"]["syncedPushSecrets"]["SecretStore/store"]) == ["db"]
        assert await stage.condition("second", "SecretAlreadyExists") is None
        await stage.bench.delete(PUSHES, "second")
        await stage.gone("second")
        assert list(stage.provider.values) == ["warm-up"]


async def test_no_value_is_in_any_message_event_or_metric(staged: Any, capfd: pytest.CaptureFixture[str]) -> None:
    async with staged() as stage:
        stage.provider.push_errors["echo"] = ProviderError(ErrorReason.BACKEND_ERROR, f"refused {CANARY}")
        await stage.source(password=CANARY)
        await stage.apply("db", entry("password", "echo"), entry("password", "fine"))
        found = await stage.broken("db", "BackendError")
        await stage.event("db", "Warning", "Errored")

        listed = await stage.bench.api.get(f"/api/v1/namespaces/{stage.bench.namespace}/events")
        metrics = stage.operator.metrics.exposition()

    told = json.dumps(found) + json.dumps(listed.body) + str(metrics)
    assert CANARY not in told + "".join(capfd.readouterr())
    assert await stage.bench.find(SECRETS, "source") is not None
