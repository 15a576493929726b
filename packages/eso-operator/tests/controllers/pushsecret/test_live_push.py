"""PushSecrets on a live API server, with a real gRPC server and real certificates behind the store."""

from dataclasses import replace
from typing import Any

import pytest

from eso_api.generators.generatorstate import GENERATOR_STATE
from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import CLUSTER_SECRET_STORE, SECRET_STORE
from eso_api.v2.provider import PROVIDER
from eso_api.v2.secretstore import SECRET_STORE_V2
from eso_operator.generators.ledger import FINALIZER
from eso_testkit.operator.operators import BACKEND, MAKER
from eso_testkit.operator.pushsecrets import bulk, entry
from eso_testkit.operator.storingprovider import denied, storing
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import CONFIG_MAPS, NAMESPACES, SECRETS

pytestmark = pytest.mark.live

PUSHES = PUSH_SECRET.resource()
STORES = SECRET_STORE.resource()
FAKE: dict[str, Any] = {"provider": {"fake": {"data": [{"key": "a", "value": "b"}]}}}


async def test_a_secret_is_pushed_key_by_key(staged: Any) -> None:
    """R13, R14, R15; seed 1: the provider receives the bytes, the status names store and remote keys."""
    async with staged() as stage:
        await stage.source(password="p", user="u", other="o")

        found = await stage.push("db", entry("password", "prod/db", "password"), entry("user", "prod/user"))

        assert stage.provider.values == {"prod/db#password": b"p", "prod/user": b"u"}
        assert len(stage.provider.pushes) == 1
        await stage.event("db", "Normal", "Synced")
    synced = found["status"]["syncedPushSecrets"]
    assert sorted(synced["SecretStore/store"]) == ["prod/db/password", "prod/user"]
    assert synced["SecretStore/store"]["prod/user"]["match"]["remoteRef"]["remoteKey"] == "prod/user"
    assert found["status"]["syncedVersions"]["SecretStore/store"]["prod/user"].startswith("v")
    assert found["status"]["syncedResourceVersion"].startswith("1-")
    assert found["status"]["refreshTime"]


async def test_a_push_interval_that_is_too_short_is_reported(staged: Any) -> None:
    async with staged() as stage:
        await stage.source(password="p")

        found = await stage.push("db", entry("password", "prod/db"), refreshInterval="1ms")

    (ready,) = (each for each in found["status"]["conditions"] if each["type"] == "Ready")
    assert "spec.refreshInterval 1ms is shorter than this operator allows: 1s is used" in ready["message"]


async def test_whole_secrets_templates_rules_and_metadata_go_through(staged: Any) -> None:
    """Seeds 11, 12, 13: a template makes keys, dataTo takes them, and what a provider needs to know comes along."""
    envelope = {"apiVersion": "kubernetes.external-secrets.io/v1alpha1", "kind": "PushSecretMetadata", "spec": {"a": 1}}
    rules = [
        bulk(regexp="^url$", rewrite=[{"regexp": {"source": "^", "target": "app/"}}]),
        bulk(regexp="/", conversionStrategy="ReverseUnicode"),
        bulk(remoteKey="bundle", regexp="^(user|url)$"),
    ]
    template = {
        "type": "example.com/db",
        "metadata": {"labels": {"made-by": "{{ .user }}"}},
        "data": {"url": "db://{{ .user }}", "user": "{{ .user }}-{{ .user }}"},
        "templateFrom": [{"configMap": {"name": "more", "items": [{"key": "greeting"}]}}],
    }
    async with staged() as stage:
        await stage.source(labels={"team": "a"}, user="u", _U002f_x="escaped")
        await stage.bench.create(CONFIG_MAPS, "more", data={"greeting": "hello {{ .user }}"})

        await stage.push("all", entry("greeting", "g", metadata=envelope), dataTo=rules, template=template)
        await stage.push("whole", entry("", "whole"), entry("", "part", "p"), template=template)

        values, batch = stage.provider.values, stage.provider.pushes[0]
    assert values["app/url"] == b"db://u"
    assert values["/x"] == b"escaped"
    assert values["bundle"] == b"url=db://u;user=u-u"
    assert values["g"] == b"hello u"
    assert values["whole"] == b"_U002f_x=escaped;greeting=hello u;url=db://u;user=u-u"
    assert values["part#p"] == values["whole"]
    assert len(stage.provider.pushes) == 2
    assert (batch.source.type, dict(batch.source.labels)) == ("example.com/db", {"team": "a", "made-by": "u"})
    assert batch.source.annotations == {}
    assert next(item.provider_metadata for item in batch.items if item.remote.key == "g") == envelope


async def test_a_changed_source_is_pushed_without_waiting_for_the_interval(staged: Any) -> None:
    """R16."""
    async with staged() as stage:
        await stage.source(password="one")
        await stage.push("db", entry("password", "db"))

        await stage.edit(password="two")

        await stage.holds(db="two")


async def test_interval_0_pushes_once_and_again_when_the_object_is_edited(staged: Any) -> None:
    """Seed 14."""
    async with staged() as stage:
        await stage.source(password="one")
        await stage.push("db", entry("password", "db"), refreshInterval="0")
        await stage.edit(password="two")
        await stage.push("other", entry("password", "other"), refreshInterval="0")
        assert stage.provider.values["db"] == b"one"

        await stage.force("db")

        await stage.holds(db="two", other="two")


async def test_copies_that_kubectl_keeps_in_annotations_stay_in_the_cluster(staged: Any) -> None:
    copy = {"kubectl.kubernetes.io/last-applied-configuration": '{"data":{"password":"cA=="}}', "note": "kept"}
    async with staged() as stage:
        await stage.bench.create(SECRETS, "source", metadata={"annotations": copy}, data={"password": "cA=="})

        await stage.push("db", entry("password", "db"))

        assert dict(stage.provider.pushes[0].source.annotations) == {"note": "kept"}


async def test_secrets_by_label_are_pushed_together(staged: Any) -> None:
    """Several Secrets keep each other's values, one that loses its label loses its values, the others stay."""
    async with staged() as stage:
        await stage.source("one", {"push": "yes"}, alpha="1")
        await stage.source("two", {"push": "yes"}, beta="2")
        await stage.source("three", {"push": "no"}, gamma="3")

        await stage.push(
            "labelled",
            selector={"secret": {"selector": {"matchLabels": {"push": "yes"}}}},
            dataTo=[bulk()],
            deletionPolicy="Delete",
        )
        await stage.holds(alpha="1", beta="2")
        await stage.bench.patch(SECRETS, "three", {"metadata": {"labels": {"push": "yes"}}})
        await stage.holds(alpha="1", beta="2", gamma="3")
        await stage.bench.patch(SECRETS, "one", {"metadata": {"labels": {"push": None}}})
        await stage.holds(beta="2", gamma="3")
        await stage.force("labelled")
        await stage.ready("labelled")

        assert stage.provider.values == {"beta": b"2", "gamma": b"3"}


async def test_nothing_is_orphaned_when_no_secret_is_selected(staged: Any) -> None:
    async with staged() as stage:
        await stage.source("one", {"push": "yes"}, alpha="1")
        selector = {"secret": {"selector": {"matchLabels": {"push": "yes"}}}}
        await stage.push("labelled", selector=selector, dataTo=[bulk()], deletionPolicy="Delete")

        await stage.bench.delete(SECRETS, "one")
        await stage.broken("labelled", reason="SourceDeleted")

        assert stage.provider.values == {}
        await stage.source("late", {"push": "yes"}, beta="2")
        await stage.holds(beta="2")


async def test_no_selected_secret_and_nothing_pushed_is_no_error(staged: Any) -> None:
    async with staged() as stage:
        selector = {"secret": {"selector": {"matchLabels": {"push": "yes"}}}}

        await stage.push("labelled", selector=selector, dataTo=[bulk()])

        await stage.ready("labelled", "no Secret matches")


# --- stores -----------------------------------------------------------------------------------------------------------


async def test_stores_by_name_and_label_each_get_everything(staged: Any) -> None:
    """R13, seed 10: namespaced and cluster-scoped ones; another operator's are left out; a late one is found."""
    async with staged(ready=False) as stage:
        name = stage.bench.namespace
        labels = {"labels": {"push": name}}
        await stage.bench.create(CLUSTER_SECRET_STORE.resource(), name, metadata=labels, spec=FAKE)
        await stage.store("near", labels={"push": name})
        await stage.store("foreign", labels={"push": name}, controller="another")
        selector = {"labelSelector": {"matchLabels": {"push": name}}}
        await stage.source(password="p")

        await stage.push(
            "wide",
            entry("password", "db"),
            secretStoreRefs=[selector, {**selector, "kind": "ClusterSecretStore"}, {"name": "near"}],
        )
        assert sorted(stage.provider.stores) == [f"ClusterSecretStore/{name}", "SecretStore/near"]
        await stage.store("late", labels={"push": name})

        await stage.until(lambda: "SecretStore/late" in stage.provider.stores, "a late store is not pushed to")
        await stage.bench.delete(CLUSTER_SECRET_STORE.resource(), name)
        await stage.bench.ready(PUSHES, "wide", lambda condition: condition.status == "True")


async def test_a_store_of_another_operator_alone_is_none_of_our_business(staged: Any) -> None:
    async with staged() as stage:
        await stage.store("foreign", controller="another")
        await stage.source(password="p")
        await stage.apply("foreign", entry("password", "db"), secretStoreRefs=[{"name": "foreign"}])

        await stage.push("ours", entry("password", "ours"))

        assert await stage.status("foreign") == {}
        assert list(stage.provider.values) == ["ours"]


async def test_stores_of_every_form_are_pushed_to_and_told_apart_in_the_status(staged: Any) -> None:
    """R72, R95, R191: v1 kinds and Providers have the keys they ever had, others their group; deletion finds them."""
    async with staged(ready=False) as stage:
        bench = stage.bench
        by_ref = {"providerRef": {"kind": "Backend", "name": "direct"}}
        await bench.create(BACKEND.resource(), "direct", spec={"url": "x"})
        await stage.store("same")
        await bench.create(SECRET_STORE_V2.resource(), "same", spec={"providerConfig": by_ref})
        await bench.create(PROVIDER.resource(), "same", spec=by_ref)
        refs = [
            {"name": "same"},
            {"name": "same", "apiVersion": SECRET_STORE_V2.resource().api_version, "kind": "SecretStore"},
            {"name": "same", "kind": "Provider"},
            {"name": "direct", "apiVersion": BACKEND.resource().api_version, "kind": "Backend"},
        ]
        await stage.source(password="p")

        found = await stage.push("wide", entry("password", "db"), secretStoreRefs=refs, deletionPolicy="Delete")
        assert sorted(found["status"]["syncedPushSecrets"]) == [
            "Provider/same",
            "SecretStore/same",
            f"{BACKEND.group}/Backend/direct",
            f"{SECRET_STORE_V2.group}/SecretStore/same",
        ]
        assert sorted(stage.provider.stores) == [
            "Backend/direct",
            "Provider/same",
            "SecretStore/same",
            "SecretStore/same",
        ]
        await bench.delete(PUSHES, "wide")
        await stage.gone("wide")

        assert len(stage.provider.deletions) == 4


async def test_stores_and_secrets_of_other_namespaces_are_never_used(staged: Any, bench: Any) -> None:
    """Seed 9: by an operator that sees them all."""
    async with staged(ready=False, settings=bench.settings) as stage:
        other = f"{stage.bench.namespace}-other"
        await stage.bench.api.post(NAMESPACES.path(), {"metadata": {"name": other}})
        for resource, name, fields in (
            (STORES, "store", {"spec": FAKE}),
            (SECRETS, "source", {"data": {"password": "cA=="}}),
        ):
            body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, **fields}
            answer = await stage.bench.api.post(resource.path(other), body)
            assert answer.status == 201, answer.body

        await stage.apply("db", entry("password", "db"))
        await stage.broken("db", "source")
        await stage.source(password="p")
        await stage.broken("db", "store")

        assert bench.namespace not in stage.provider.callers
        await bench.delete(NAMESPACES, other)


# --- generators -------------------------------------------------------------------------------------------------------


async def test_generated_values_are_pushed(staged: Any) -> None:
    """Seed 15, R40: generated again for each push that is due, and read back unchanged."""
    async with staged() as stage:
        await stage.bench.create(MAKER.resource(), "maker", spec={"url": "x"})
        ref = {"generatorRef": {"apiVersion": MAKER.resource().api_version, "kind": "Maker", "name": "maker"}}

        await stage.push("made", entry("password", "db"), selector=ref)
        assert stage.provider.values == {"db": b"generated"}
        stage.provider.generated = {"password": b"rotated"}
        await stage.force("made")

        await stage.holds(db="rotated")
        assert stage.provider.calls["Generate"] == 2


async def test_a_generated_value_is_pushed_once_and_the_remote_one_stays_the_truth(staged: Any) -> None:
    """R6: whatever is generated later, and whatever happens to the objects, the first value stays."""
    async with staged() as stage:
        await stage.bench.create(MAKER.resource(), "maker", spec={"url": "x"})
        ref = {"generatorRef": {"apiVersion": MAKER.resource().api_version, "kind": "Maker", "name": "maker"}}
        await stage.push("made", entry("password", "db"), selector=ref, updatePolicy="IfNotExists")
        stage.provider.generated = {"password": b"another"}

        await stage.force("made")
        await stage.until(lambda: stage.provider.calls["Generate"] == 2, "it is not generated again")
        await stage.bench.delete(PUSHES, "made")
        await stage.gone("made")
        await stage.push("made", entry("password", "db"), selector=ref, updatePolicy="IfNotExists")

        assert stage.provider.values == {"db": b"generated"}


async def test_state_of_generated_values_is_kept_until_every_store_has_the_next(staged: Any) -> None:
    """The older one gets its deadline after the push that replaced it; what reached no store is due at once."""
    async with staged(storing(state=b'{"id": 1}')) as stage:
        await stage.bench.create(MAKER.resource(), "maker", spec={"url": "x"})
        ref = {"generatorRef": {"apiVersion": MAKER.resource().api_version, "kind": "Maker", "name": "maker"}}
        await stage.push("made", entry("password", "db"), selector=ref)
        (first,) = await states(stage)
        assert "garbageCollectionDeadline" not in first["spec"]
        assert first["metadata"]["ownerReferences"][0]["kind"] == "PushSecret"

        stage.provider.generated = {"password": b"rotated"}
        await stage.force("made")
        await stage.holds(db="rotated")
        await eventually(lambda: _flagged(stage, 1, of=2), "the older state is not retired")
        stage.provider.push_errors["db"] = denied("db")
        await stage.force("made")
        await stage.broken("made", "AccessDenied")

        current = [each for each in await states(stage) if "garbageCollectionDeadline" not in each["spec"]]
        assert len(current) == 1
        assert current[0]["metadata"]["uid"] != first["metadata"]["uid"]


async def test_a_generated_value_that_may_have_been_pushed_is_not_cleaned_up(staged: Any) -> None:
    """The answer was lost: the backend may hold it, and then it is in use."""
    async with staged(storing(state=b'{"id": 1}')) as stage:
        await stage.bench.create(MAKER.resource(), "maker", spec={"url": "x"})
        stage.provider.push_errors["db"] = ProviderError(ErrorReason.BACKEND_TIMEOUT, "no answer in time")
        ref = {"generatorRef": {"apiVersion": MAKER.resource().api_version, "kind": "Maker", "name": "maker"}}
        await stage.apply("made", entry("password", "db"), selector=ref)
        await stage.broken("made", "no answer in time")

        first, *_ = await states(stage)

        assert "garbageCollectionDeadline" not in first["spec"]
        assert stage.provider.calls["Cleanup"] == 0


async def test_generated_resources_are_cleaned_up_though_the_push_secret_goes_while_no_operator_runs(
    staged: Any, bench: Any
) -> None:
    """The state is held from the start, as those of ExternalSecrets are."""
    provider = storing(state=b'{"id": 1}')
    async with staged(provider, tidy=False) as stage:
        await stage.bench.create(MAKER.resource(), "maker", spec={"url": "x"})
        ref = {"generatorRef": {"apiVersion": MAKER.resource().api_version, "kind": "Maker", "name": "maker"}}
        await stage.push("made", entry("password", "db"), selector=ref)
    await stage.bench.delete(PUSHES, "made")
    await stage.gone("made")
    (left,) = await states(stage)
    assert left["metadata"]["finalizers"] == [FINALIZER]
    await stage.bench.api.delete(GENERATOR_STATE.resource().path(bench.namespace, left["metadata"]["name"]))

    async with bench.operator(replace(bench.settings, namespace=bench.namespace)):
        await eventually(lambda: _no_states(stage), "the state stays")

    assert provider.calls["Cleanup"] == 1


async def _no_states(stage: Any) -> bool:
    return not await states(stage)


async def test_without_the_controller_that_cleans_up_no_state_is_kept(staged: Any, bench: Any) -> None:
    """Its finalizer would never be removed."""
    off = replace(
        bench.settings,
        namespace=bench.namespace,
        reconcilers=replace(bench.settings.reconcilers, generator_state=False),
    )
    async with staged(storing(state=b'{"id": 1}'), settings=off) as stage:
        await stage.bench.create(MAKER.resource(), "maker", spec={"url": "x"})
        ref = {"generatorRef": {"apiVersion": MAKER.resource().api_version, "kind": "Maker", "name": "maker"}}

        await stage.push("made", entry("password", "db"), selector=ref)

        assert await states(stage) == []


async def test_generated_values_are_renewed_before_they_expire_also_by_the_next_operator(
    staged: Any, bench: Any
) -> None:
    """R24: long before the interval is over."""
    provider = storing(lives=2.0)
    async with staged(provider, tidy=False) as stage:
        await stage.bench.create(MAKER.resource(), "maker", spec={"url": "x"})
        ref = {"generatorRef": {"apiVersion": MAKER.resource().api_version, "kind": "Maker", "name": "maker"}}
        await stage.push("made", entry("password", "db"), selector=ref, refreshInterval="24h")
        provider.generated = {"password": b"second"}
        await stage.holds(db="second")
        assert (await stage.status("made"))["renewTime"]
    provider.generated = {"password": b"third"}

    async with bench.operator(replace(bench.settings, namespace=bench.namespace)):
        await stage.holds(db="third")
        await stage.bench.delete(PUSHES, "made")
        await stage.gone("made")


async def test_nothing_is_made_that_could_not_go_anywhere(staged: Any) -> None:
    """A store is missing: a generator is not even asked, however often it is tried."""
    async with staged() as stage:
        await stage.bench.create(MAKER.resource(), "maker", spec={"url": "x"})
        ref = {"generatorRef": {"apiVersion": MAKER.resource().api_version, "kind": "Maker", "name": "maker"}}
        await stage.apply("made", entry("password", "db"), selector=ref, secretStoreRefs=[{"name": "late"}])
        await stage.broken("made", "StoreNotFound")
        assert stage.provider.calls["Generate"] == 0

        await stage.store("late")

        await stage.holds(db="generated")


async def states(stage: Any) -> list[Any]:
    path = GENERATOR_STATE.resource().path(stage.bench.namespace)
    return list((await stage.bench.api.get(path)).body["items"])


async def _flagged(stage: Any, flagged: int, *, of: int) -> bool:
    found = await states(stage)
    return len(found) == of and sum("garbageCollectionDeadline" in each["spec"] for each in found) == flagged
