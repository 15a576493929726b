"""Writing Secrets of a cluster: pushes with policies and conditions, deletions."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from eso_api.values import SecretBytes
from eso_wire.values import DeleteBatch, DeleteItem, PushItem, PushOutcome, PushPrecondition, RemoteRef, SourceSecret

pytestmark = pytest.mark.live


def item(key: str, value: str | dict[str, str], prop: str = "", **more: Any) -> PushItem:
    payload = (
        SecretBytes(value.encode())
        if isinstance(value, str)
        else {name: SecretBytes(text.encode()) for name, text in value.items()}
    )
    return PushItem(more.pop("item_id", prop or "only"), RemoteRef(key, property=prop), payload, **more)


def metadata(**spec: Any) -> dict[str, Any]:
    envelope = {"apiVersion": "kubernetes.external-secrets.io/v1alpha1", "kind": "PushSecretMetadata"}
    return {**envelope, "spec": spec}


async def test_a_property_is_written_and_the_other_keys_stay(remote: Any, store: Any) -> None:
    await remote.put("db", {"kept": "1", "changed": "old"})

    outcomes = await store.push(item("db", "new", "changed"))

    assert outcomes == [PushOutcome.UPDATED]
    assert (await remote.secret("db"))["text"] == {"kept": "1", "changed": "new"}


async def test_a_secret_that_does_not_exist_is_created_as_opaque(remote: Any, store: Any) -> None:
    assert await store.push(item("new", "value", "key"), source=SourceSecret("kubernetes.io/tls")) == [
        PushOutcome.CREATED
    ]

    found = await remote.secret("new")
    assert (found["type"], found["text"]) == ("Opaque", {"key": "value"})


async def test_a_secret_key_without_property_is_refused(remote: Any, store: Any) -> None:
    (error,) = await store.push(item("db", "value"))

    assert error.reason.value == "INVALID_REQUEST"
    assert "remoteRef.property" in error.message
    assert await remote.secret("db") is None


async def test_a_whole_secret_replaces_the_data_and_copies_the_type(remote: Any, store: Any) -> None:
    source = SourceSecret("example.com/custom")
    await store.push(item("whole", {"a": "1", "b": "2"}), source=source)

    outcomes = await store.push(item("whole", {"b": "3"}), source=source)

    found = await remote.secret("whole")
    assert (outcomes, found["type"], found["text"]) == ([PushOutcome.UPDATED], "example.com/custom", {"b": "3"})


async def test_another_type_of_an_existing_secret_is_refused_with_what_to_do(remote: Any, store: Any) -> None:
    await remote.put("typed", {"a": "1"})

    (error,) = await store.push(item("typed", {"a": "2"}), source=SourceSecret("example.com/custom"))

    assert error.reason.value == "INVALID_REQUEST"
    assert "cannot be changed" in error.message
    assert (await remote.secret("typed"))["text"] == {"a": "1"}


async def test_a_whole_secret_with_property_becomes_json_under_that_key(remote: Any, store: Any) -> None:
    await store.push(item("json", {"b": "<2>", "a": "1"}, "all"))

    assert (await remote.secret("json"))["text"] == {"all": '{"a":"1","b":"<2>"}'}


async def test_bytes_that_are_not_text_are_preserved(remote: Any, store: Any) -> None:
    raw = bytes(range(256))
    await store.push(PushItem("only", RemoteRef("binary", property="raw"), SecretBytes(raw)))

    answer = await remote.api.get(remote.path("binary"))

    assert base64.b64decode(answer.body["data"]["raw"]) == raw


async def test_an_equal_object_is_not_written(remote: Any, store: Any) -> None:
    source = SourceSecret("Opaque", {"app": "shop"}, {"note": "x"})
    await store.push(item("same", "v", "k"), source=source)
    before = await remote.secret("same")

    outcomes = await store.push(item("same", "v", "k"), source=source)

    assert outcomes == [PushOutcome.UNCHANGED]
    assert await remote.secret("same") == before


async def test_many_properties_of_one_secret_are_one_write(remote: Any, store: Any) -> None:
    await remote.put("many", {"kept": "1"})
    before = int((await remote.secret("many"))["metadata"]["resourceVersion"])

    outcomes = await store.push(*(item("many", f"v{at}", f"k{at}") for at in range(12)))

    found = await remote.secret("many")
    text = store.client.metrics.exposition().decode()
    assert set(outcomes) == {PushOutcome.CREATED}
    assert len(found["text"]) == 13
    assert int(found["metadata"]["resourceVersion"]) > before
    assert 'api_calls_count{call="UpdateSecret",provider="Kubernetes",status="success"} 1.0' in text


async def test_pushes_that_race_lose_no_property(remote: Any, store: Any) -> None:
    await remote.put("raced", {"kept": "1"})

    outcomes = await asyncio.gather(*(store.push(item("raced", f"v{at}", f"k{at}")) for at in range(6)))

    assert [one for (one,) in outcomes] == [PushOutcome.CREATED] * 6
    assert len((await remote.secret("raced"))["text"]) == 7


# --- metadata ---------------------------------------------------------------------------------------------------------

SOURCE = SourceSecret("Opaque", {"from": "source", "both": "source"}, {"note": "source"})


@pytest.mark.parametrize(
    ("spec", "labels"),
    [
        pytest.param({}, {"live": "1", "from": "source", "both": "source"}, id="source labels are added by default"),
        pytest.param(
            {"labels": {"both": "entry"}},
            {"live": "1", "from": "source", "both": "entry"},
            id="labels of the entry win over those of the source",
        ),
        pytest.param(
            {"sourceMergePolicy": "Replace", "labels": {"both": "entry"}},
            {"live": "1", "both": "entry"},
            id="source policy Replace leaves the source's labels out",
        ),
        pytest.param(
            {"targetMergePolicy": "Replace"},
            {"from": "source", "both": "source"},
            id="target policy Replace removes what was there",
        ),
        pytest.param(
            {"targetMergePolicy": "Ignore", "labels": {"both": "entry"}},
            {"live": "1"},
            id="target policy Ignore leaves labels alone",
        ),
    ],
)
async def test_labels_are_merged_by_policy(remote: Any, store: Any, spec: dict[str, Any], labels: Any) -> None:
    await remote.put("labelled", {"k": "v"}, metadata={"labels": {"live": "1"}})
    given = metadata(**spec) if spec else None

    await store.push(item("labelled", "w", "k", provider_metadata=given), source=SOURCE)

    found = await remote.secret("labelled")
    assert found["metadata"]["labels"] == labels
    assert found["text"] == {"k": "w"}


async def test_the_annotation_that_holds_the_sources_values_is_not_copied(remote: Any, store: Any) -> None:
    source = SourceSecret("Opaque", {}, {"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "x"})

    await store.push(item("annotated", "v", "k"), source=source)

    assert (await remote.secret("annotated"))["metadata"]["annotations"] == {"note": "x"}


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(metadata(unknown="x"), id="an unknown field of the spec"),
        pytest.param({**metadata(), "more": 1}, id="an unknown field of the envelope"),
        pytest.param({**metadata(), "kind": "Other"}, id="another kind"),
        pytest.param({**metadata(), "apiVersion": "v1"}, id="another apiVersion"),
        pytest.param({"spec": {}}, id="no apiVersion"),
        pytest.param(metadata(sourceMergePolicy="Sometimes"), id="an unknown policy"),
        pytest.param(metadata(labels={"a": 1}), id="a label that is no text"),
    ],
)
async def test_metadata_that_does_not_fit_is_refused(remote: Any, store: Any, given: dict[str, Any]) -> None:
    (error,) = await store.push(item("db", "v", "k", provider_metadata=given))

    assert error.reason.value == "INVALID_REQUEST"
    assert '"db"' in error.message
    assert await remote.secret("db") is None


@pytest.mark.parametrize("every", [False, True], ids=["allowed by its name", "allowed as any namespace"])
async def test_a_cluster_scoped_store_writes_into_an_allowed_namespace_that_metadata_names(
    remote: Any, kube: Any, every: bool
) -> None:
    other = await remote.new_namespace()
    token = await remote.token(namespace=other)
    await remote.put("db", {"k": "here"})

    outcomes = await kube.with_token(token, cluster=True, allowed=["*" if every else other]).push(
        item("db", "v", "k", provider_metadata=metadata(remoteNamespace=other))
    )

    assert outcomes == [PushOutcome.CREATED]
    assert (await remote.secret("db", other))["text"] == {"k": "v"}
    assert (await remote.secret("db"))["text"] == {"k": "here"}


async def test_a_namespace_that_the_store_does_not_allow_is_neither_written_nor_deleted_from(
    remote: Any, kube: Any
) -> None:
    other = await remote.new_namespace()
    await remote.put("db", {"k": "theirs"}, namespace=other)
    store = kube.with_token(await remote.token(namespace=other), cluster=True, allowed=["elsewhere"])
    elsewhere = metadata(remoteNamespace=other)
    removed = DeleteItem("only", RemoteRef("db"), provider_metadata=elsewhere)

    (refused,) = await store.push(item("db", "v", "k", provider_metadata=elsewhere))
    (kept,) = await store.client.delete(store.context, DeleteBatch((removed,)))

    assert refused.reason.value == kept.error.reason.value == "INVALID_REQUEST"
    for word in ('"db"', f'"{other}"', '"config"', "allowedRemoteNamespaces"):
        assert word in refused.message
        assert word in kept.error.message
    assert (await remote.secret("db", other))["text"] == {"k": "theirs"}


async def test_the_namespace_of_the_store_itself_may_be_named(remote: Any, kube: Any) -> None:
    store = await kube.full(cluster=True)

    outcomes = await store.push(item("db", "v", "k", provider_metadata=metadata(remoteNamespace=remote.namespace)))

    assert outcomes == [PushOutcome.CREATED]


# --- the mark ---------------------------------------------------------------------------------------------------------

MARK = "reconcile.external-secrets.io/managed-by"


def elsewhere(namespace: str, **spec: Any) -> dict[str, Any]:
    return metadata(remoteNamespace=namespace, **spec)


@pytest.mark.parametrize("policy", ["Merge", "Replace", "Ignore"])
async def test_a_secret_that_a_push_creates_is_marked_and_stays_so(remote: Any, store: Any, policy: str) -> None:
    given = metadata(targetMergePolicy=policy)

    await store.push(item("new", "1", "k", provider_metadata=given))
    await store.push(item("new", "2", "k", provider_metadata=given))

    found = await remote.secret("new")
    assert found["metadata"]["labels"] == {MARK: "external-secrets"}
    assert found["text"] == {"k": "2"}


async def test_a_secret_of_the_own_namespace_that_go_pushed_is_updated_and_deleted_without_a_mark(
    remote: Any, store: Any
) -> None:
    await remote.put("db", {"k": "of Go"})

    outcomes = await store.push(item("db", "ours", "k"))

    found = await remote.secret("db")
    assert (outcomes, found["text"]) == ([PushOutcome.UPDATED], {"k": "ours"})
    assert MARK not in found["metadata"].get("labels", {})
    assert await store.delete(RemoteRef("db")) == [True]


@pytest.mark.parametrize("prop", ["k", ""], ids=["a property", "the whole Secret"])
async def test_an_unmarked_secret_of_a_chosen_namespace_is_neither_overwritten_nor_deleted(
    remote: Any, kube: Any, prop: str
) -> None:
    other = await remote.new_namespace()
    await remote.put("db", {"k": "theirs"}, namespace=other)
    store = kube.with_token(await remote.token(namespace=other), cluster=True, allowed=[other])
    value = "v" if prop else {"k": "v"}
    removed = DeleteItem("only", RemoteRef("db", property=prop), provider_metadata=elsewhere(other))

    (refused,) = await store.push(item("db", value, prop, provider_metadata=elsewhere(other)))
    (kept,) = await store.client.delete(store.context, DeleteBatch((removed,)))

    assert refused.reason.value == "OWNERSHIP_CONFLICT"
    assert f"{MARK}=external-secrets" in refused.message
    assert (kept.error, kept.existed) == (None, False)
    assert (await remote.secret("db", other))["text"] == {"k": "theirs"}


async def test_a_secret_of_a_chosen_namespace_is_ours_once_it_has_the_mark(remote: Any, kube: Any) -> None:
    other = await remote.new_namespace()
    await remote.put("db", {"k": "of Go"}, namespace=other, metadata={"labels": {MARK: "external-secrets"}})
    store = kube.with_token(await remote.token(namespace=other), cluster=True, allowed=[other])

    outcomes = await store.push(item("db", "ours", "k", provider_metadata=elsewhere(other)))

    assert outcomes == [PushOutcome.UPDATED]
    assert (await remote.secret("db", other))["text"] == {"k": "ours"}


async def test_nobody_but_the_provider_sets_the_mark(remote: Any, store: Any) -> None:
    await remote.put("db", {"k": "theirs"})
    source = SourceSecret("Opaque", {MARK: "external-secrets", "app": "shop"})

    (refused,) = await store.push(item("db", "v", "k", provider_metadata=metadata(labels={MARK: "external-secrets"})))
    await store.push(item("db", "v", "k"), source=source)

    assert refused.reason.value == "INVALID_REQUEST"
    assert MARK in refused.message
    assert (await remote.secret("db"))["metadata"]["labels"] == {"app": "shop"}


async def test_a_namespaced_store_may_not_choose_the_namespace_by_metadata(remote: Any, store: Any) -> None:
    (error,) = await store.push(item("db", "v", "k", provider_metadata=metadata(remoteNamespace=remote.namespace)))

    assert error.reason.value == "INVALID_REQUEST"
    assert "ClusterSecretStore" in error.message


async def test_a_namespace_that_does_not_exist_is_named(kube: Any, remote: Any) -> None:
    admin = kube.with_token(remote.server.token, namespace="no-such-namespace")

    (error,) = await admin.push(item("db", "v", "k"))

    assert error.reason.value in ("INVALID_REQUEST", "PERMISSION_DENIED")
    assert '"no-such-namespace"' in error.message


# --- conditions -------------------------------------------------------------------------------------------------------


async def test_if_absent_leaves_an_existing_key_alone_and_adds_a_missing_one(remote: Any, store: Any) -> None:
    await remote.put("db", {"there": "1"})
    absent = {"precondition": PushPrecondition.IF_ABSENT}

    outcomes = await store.push(item("db", "2", "there", **absent), item("db", "3", "new", **absent))

    assert outcomes == [PushOutcome.SKIPPED_EXISTS, PushOutcome.CREATED]
    assert (await remote.secret("db"))["text"] == {"there": "1", "new": "3"}


async def test_if_version_writes_only_the_version_that_was_read(remote: Any, store: Any) -> None:
    version = await remote.put("db", {"k": "1"})
    condition = {"precondition": PushPrecondition.IF_VERSION, "expected_version": version}

    first = await store.push(item("db", "2", "k", **condition))
    second = await store.push(item("db", "3", "k", **condition))

    assert first == [PushOutcome.UPDATED]
    assert second[0].reason.value == "PRECONDITION_FAILED"
    assert (await remote.secret("db"))["text"] == {"k": "2"}


async def test_an_immutable_secret_is_refused_without_its_value(remote: Any, store: Any) -> None:
    await remote.put("fixed", {"k": "1"}, immutable=True)

    (error,) = await store.push(item("fixed", "canary-value", "k"))

    assert error.reason.value == "INVALID_REQUEST"
    assert "canary-value" not in error.message


# --- deletion ---------------------------------------------------------------------------------------------------------


async def test_deleting_a_property_keeps_the_others(remote: Any, store: Any) -> None:
    await remote.put("db", {"a": "1", "b": "2"})

    assert await store.delete(RemoteRef("db", property="a")) == [True]

    assert (await remote.secret("db"))["text"] == {"b": "2"}


async def test_deleting_the_last_property_deletes_the_secret(remote: Any, store: Any) -> None:
    await remote.put("db", {"a": "1", "b": "2"})

    existed = await store.delete(RemoteRef("db", property="a"), RemoteRef("db", property="b"))

    assert existed == [True, True]
    assert await remote.secret("db") is None


async def test_deleting_without_property_deletes_the_secret(remote: Any, store: Any) -> None:
    await remote.put("db", {"a": "1"})

    assert await store.delete(RemoteRef("db")) == [True]
    assert await store.delete(RemoteRef("db")) == [False]

    assert await remote.secret("db") is None


async def test_deleting_an_absent_property_changes_nothing(remote: Any, store: Any) -> None:
    version = await remote.put("db", {"a": "1"})

    assert await store.delete(RemoteRef("db", property="b"), RemoteRef("db", property="c")) == [False, False]

    assert (await remote.secret("db"))["metadata"]["resourceVersion"] == version


async def test_deleting_honours_the_namespace_that_the_value_was_pushed_to(remote: Any, kube: Any) -> None:
    other = await remote.new_namespace()
    marked = {"labels": {MARK: "external-secrets"}}
    for namespace in (remote.namespace, other):
        await remote.put("db", {"k": "v"}, namespace=namespace, metadata=marked)
    store = kube.with_token(await remote.token(namespace=other), cluster=True, allowed=[other])
    removed = DeleteItem("only", RemoteRef("db"), provider_metadata=metadata(remoteNamespace=other))

    (result,) = await store.client.delete(store.context, DeleteBatch((removed,)))

    assert result.existed
    assert await remote.secret("db", other) is None
    assert (await remote.secret("db"))["text"] == {"k": "v"}
