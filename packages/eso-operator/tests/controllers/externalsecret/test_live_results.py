"""Values that a provider returns or lacks, and Secrets that must not change. On a live API server."""

from pathlib import Path
from typing import Any

import pytest

from eso_operator.targets.metadata import HASH_ANNOTATION
from eso_testkit.operator.operators import MAKER
from eso_testkit.operator.scenes import ES, FAKE_STORE, STORE, STORES, Scene
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.meta import JsonObject
from kubebase.testing.servers import ApiServer
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import SECRETS
from kuberun.testing.kubectl import Kubectl

pytestmark = [pytest.mark.live, pytest.mark.asyncio(loop_scope="module")]

ONE = {"password": "db"}
MAKERS = MAKER.resource()
BOTH = {"password": "db", "user": "user"}


def deletion(policy: str, **fields: Any) -> JsonObject:
    return {"deletionPolicy": policy, **fields}


# --- immutable --------------------------------------------------------------------------------------------------------


async def test_an_immutable_target_is_created_and_then_left_as_it_is(stage: Scene) -> None:
    """I1, I2, I6."""
    stage.backend(db="v1")
    await stage.sync("db", ONE, target={"immutable": True})
    created = await stage.secret("db")
    assert created is not None
    assert created["immutable"] is True

    stage.backend(db="v2")
    reads = stage.reads
    await stage.force("db")
    await eventually(lambda: _read_again(stage, reads), "the backend is not read")
    await stage.until_idle()

    assert await stage.data("db") == {"password": "v1"}
    await stage.ready("db", "SecretSynced")
    await stage.change("db", target={"immutable": False})
    es = await stage.broken("db", "could not update secret, target is immutable")
    [outcome] = es["status"]["outcomes"]
    assert (outcome["step"], outcome["path"], outcome["reason"]) == ("Write", "spec.target", "TargetImmutable")


async def _read_again(stage: Scene, before: int) -> bool:
    return stage.reads > before


async def test_making_a_target_immutable_keeps_the_data_it_has(stage: Scene) -> None:
    """I3, L27: foreign keys included, even under Owner."""
    stage.backend(db="v1")
    await stage.put_secret("db", {"old": "x"}, labels={"team": "a"})

    await stage.sync("db", ONE, target={"immutable": True})

    secret = await stage.secret("db")
    assert secret is not None
    assert secret["immutable"] is True
    assert await stage.data("db") == {"old": "x"}
    assert secret["metadata"]["labels"]["team"] == "a"
    assert secret["metadata"]["ownerReferences"]


async def test_an_immutable_secret_with_other_data_is_refused_with_no_write(stage: Scene) -> None:
    """I4; after the Secret was deleted (I7), it is created again."""
    stage.backend(db="v1")
    before = await stage.bench.create(SECRETS, "db", data={"password": "eA=="}, immutable=True)

    await stage.apply("db", ONE)

    await stage.broken("db", "could not update secret, target is immutable")
    now = await stage.secret("db")
    assert now is not None
    assert now["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    await stage.bench.delete(SECRETS, "db")
    await stage.until("db", {"password": "v1"})
    await stage.ready("db")


async def test_an_immutable_secret_with_the_same_data_gets_our_marks_in_one_write(stage: Scene) -> None:
    """I5."""
    stage.backend(db="v1")
    await stage.bench.create(SECRETS, "db", data={"password": "djE="}, immutable=True)

    await stage.sync("db", ONE)

    secret = await stage.secret("db")
    assert secret is not None
    assert secret["immutable"] is True
    assert HASH_ANNOTATION in secret["metadata"]["annotations"]
    assert len(stage.api_calls.writes(stage.bench.namespace, "/secrets/db")) == 1


# --- missing ----------------------------------------------------------------------------------------------------------


async def test_under_retain_a_missing_key_is_an_error_and_nothing_is_written(stage: Scene) -> None:
    """P5, R56: the operator neither creates a Secret with the available keys nor changes an existing one."""
    stage.backend(db="v1")

    await stage.apply("db", BOTH)

    es = await stage.broken("db", "could not get secret data from provider", "spec.data[1] (key: user)")
    assert await stage.secret("db") is None
    assert [outcome["path"] for outcome in es["status"]["outcomes"]] == ["spec.data[1]"]
    assert "refreshTime" not in es["status"]
    await stage.until_event("db", "Warning", "UpdateFailed", "user")
    stage.backend(user="u1")
    healed = await stage.ready("db")
    before = await stage.secret("db")
    assert await stage.data("db") == {"password": "v1", "user": "u1"}
    assert "outcomes" not in healed["status"]
    stage.backend(db="v2")
    del stage.provider.data["user"]
    await stage.force("db")
    await stage.broken("db", "spec.data[1] (key: user)")
    assert await stage.secret("db") == before


async def test_every_failing_entry_is_listed_with_its_cause(stage: Scene) -> None:
    stage.backend(db="v1")
    stage.provider.item_errors["denied"] = ProviderError(ErrorReason.PERMISSION_DENIED, "no right to read denied")

    await stage.apply(
        "db",
        {"a": "missing", "b": "db", "c": "denied"},
        dataFrom=[
            {"extract": {"key": "gone"}},
            {"sourceRef": {"storeRef": {"name": "no-store"}}, "find": {"path": "x"}},
        ],
    )

    es = await stage.broken("db")
    outcomes = {outcome["path"]: outcome for outcome in es["status"]["outcomes"]}
    assert set(outcomes) == {"spec.data[0]", "spec.data[2]", "spec.dataFrom[0].extract", "spec.dataFrom[1].find"}
    assert outcomes["spec.data[2]"]["remoteKey"] == "denied"
    assert outcomes["spec.data[2]"]["store"] == f"SecretStore {STORE}"
    assert outcomes["spec.dataFrom[1].find"]["store"] == "SecretStore no-store"
    assert all(outcome["reason"] and outcome["message"] and outcome["since"] for outcome in outcomes.values())


@pytest.mark.parametrize("policy", ["Delete", "Merge"])
async def test_a_key_that_vanishes_is_removed_and_reported(stage: Scene, policy: str) -> None:
    """P6, R57, R58; the texts of events are those that alerts know."""
    stage.backend(db="v1", user="u1")
    extract = {"extract": {"key": "doc"}}
    await stage.sync("db", BOTH, target=deletion(policy), dataFrom=[extract])
    del stage.provider.data["user"]

    await stage.force("db")

    await stage.until("db", {"password": "v1"})
    await stage.ready("db", "SecretSynced")
    of_data = "secret does not exist at provider using spec.dataFrom[1] (key=user)"
    of_data_from = "secret does not exist at provider using spec.dataFrom[0]"
    await stage.until_event("db", "Normal", "MissingProviderSecret", of_data)
    await stage.until_event("db", "Normal", "MissingProviderSecret", of_data_from)


async def test_when_everything_vanishes_delete_deletes_and_brings_it_back(stage: Scene) -> None:
    """P7, P8, P13, R57."""
    await stage.apply("db", ONE, target=deletion("Delete"), refreshInterval="1s")
    await stage.ready("db", "SecretDeleted", "secret deleted due to DeletionPolicy=Delete")
    assert ("Normal", "Deleted") not in await stage.bench.events("db")

    stage.backend(db="v1")
    await stage.until("db", {"password": "v1"})
    del stage.provider.data["db"]

    await stage.until("db", None)
    await stage.ready("db", "SecretDeleted")
    await stage.until_event("db", "Normal", "Deleted", "secret deleted due to DeletionPolicy=Delete")


async def test_delete_without_ownership_is_refused(stage: Scene) -> None:
    """P9."""
    await stage.apply("db", ONE, target=deletion("Delete", creationPolicy="Orphan"))

    await stage.broken("db", "could not delete secret", "Owner")


@pytest.mark.parametrize(
    ("creation", "before", "after"),
    [
        pytest.param("Merge", {"own": "x"}, {"own": "x"}, id="P10 merge: foreign keys and the Secret stay"),
        pytest.param("Owner", None, {}, id="P11 owner: an empty Secret is made"),
    ],
)
async def test_when_everything_vanishes_merge_removes_keys(
    stage: Scene, creation: str, before: dict[str, str] | None, after: dict[str, str]
) -> None:
    """R58."""
    if before is not None:
        await stage.put_secret("db", before)
        stage.backend(db="v1")
    await stage.sync("db", ONE, target=deletion("Merge", creationPolicy=creation))

    stage.provider.data.pop("db", None)
    await stage.force("db")

    await stage.until("db", after)
    await stage.ready("db", "SecretSynced")


async def test_a_find_that_never_found_anything_says_so(stage: Scene) -> None:
    await stage.apply("db", dataFrom=[{"find": {"path": "none/", "name": {"regexp": ".*"}}}])

    await stage.ready("db", "SecretSynced", "spec.dataFrom[0].find: it matches no key")

    await stage.until_event("db", "Warning", "Unexpected")


async def test_a_find_that_finds_nothing_retains_what_is_there(stage: Scene) -> None:
    """P12: and makes nothing that is not."""
    await stage.apply("db", dataFrom=[{"find": {"path": "none/", "name": {"regexp": ".*"}}}])

    es = await stage.ready("db", "SecretSynced", "secret retained due to DeletionPolicy=Retain")
    assert await stage.secret("db") is None
    assert es["status"]["refreshTime"]


async def test_a_find_in_a_folder_that_does_not_exist_is_an_error_and_keeps_the_secret(stage: Scene) -> None:
    stage.backend(**{"kept/a": "v1"})
    await stage.apply("db", dataFrom=[{"find": {"path": "kept/", "name": {"regexp": ".*"}}}])
    await stage.until("db", {"kept_a": "v1"})

    stage.provider.missing_paths.add("kept/")
    await stage.force("db")

    await stage.broken("db", 'folder "kept/" does not exist')
    assert await stage.data("db") == {"kept_a": "v1"}


async def test_a_find_in_a_folder_that_does_not_exist_deletes_under_delete(stage: Scene) -> None:
    stage.backend(**{"lost/a": "v1"})
    find = [{"find": {"path": "lost/", "name": {"regexp": ".*"}}}]
    await stage.apply("db", dataFrom=find, target=deletion("Delete"))
    await stage.until("db", {"lost_a": "v1"})

    stage.provider.missing_paths.add("lost/")
    await stage.force("db")

    await stage.until("db", None)
    await stage.ready("db", "SecretDeleted")


# --- which one wins, and where from -----------------------------------------------------------------------------------


async def test_later_entries_win_and_data_wins_over_data_from(stage: Scene) -> None:
    """P14, P15, P16, R127, R128, R34."""
    stage.backend(**{"app/a": "a1", "app/b": "b1", "over": "o1", "doc": "whole"})
    prefix = {"regexp": {"source": "^app/(.*)", "target": "$1"}}

    await stage.sync(
        "db",
        {"b": "over"},
        dataFrom=[
            {"find": {"path": "app/", "name": {"regexp": ".*"}}, "rewrite": [prefix]},
            {"extract": {"key": "doc"}, "rewrite": [{"regexp": {"source": "value", "target": "a"}}]},
            {"sourceRef": {"storeRef": {"name": STORE}}},
        ],
    )

    assert await stage.data("db") == {"a": "whole", "b": "o1"}


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        pytest.param(
            {
                "find": {"path": "odd/", "name": {"regexp": ".*"}},
                "rewrite": [{"regexp": {"source": "x", "target": "y"}}],
            },
            ("odd/key", "rewrite"),
            id="K2 with any rewrite a slash is an error",
        ),
        pytest.param(
            {"extract": {"key": "text", "decodingStrategy": "Base64"}}, ("Base64", "value"), id="K7 no base64"
        ),
        pytest.param(
            {
                "find": {"path": "odd/", "name": {"regexp": ".*"}},
                "rewrite": [{"regexp": {"source": "(", "target": "y"}}],
            },
            ("RE2",),
            id="K14 no expression",
        ),
        pytest.param(
            {"extract": {"key": "null", "nullBytePolicy": "Fail"}}, ("null byte", "value"), id="K11 a null byte"
        ),
    ],
)
async def test_values_that_cannot_be_shaped_are_an_error_that_names_the_key(
    stage: Scene, entry: JsonObject, words: tuple[str, ...]
) -> None:
    stage.backend(**{"odd/key": "x", "text": "!!", "null": "a\0b"})

    await stage.apply("db", dataFrom=[entry])

    await stage.broken("db", "spec.dataFrom[0]", *words)
    assert await stage.secret("db") is None


async def test_a_key_that_the_api_server_rejects_is_reported_with_its_reason(stage: Scene) -> None:
    """K6."""
    stage.provider.data["ключ"] = b"x"

    await stage.apply("db", dataFrom=[{"find": {"path": "ключ", "name": {"regexp": ".*"}}}])

    await stage.broken("db", "could not update secret", "Invalid")


async def test_an_entry_of_data_cannot_have_a_generator(stage: Scene) -> None:
    """P18: it does not read the default store instead."""
    stage.backend(db="v1")
    entry = {
        "secretKey": "password",
        "remoteRef": {"key": "db"},
        "sourceRef": {"generatorRef": {"kind": "Password", "name": "p"}},
    }

    await stage.apply("db", data=[entry])

    await stage.broken("db", "spec.data[0]", "Password p is a generator", "dataFrom")
    assert stage.reads == 0


async def test_values_of_a_generator_are_renamed_and_written(stage: Scene) -> None:
    """R21, R22, R23: an interval of 0 makes them once."""
    await stage.bench.create(MAKERS, "maker", spec={})
    ref = {"apiVersion": MAKERS.api_version, "kind": "Maker", "name": "maker"}
    rewrite = [{"regexp": {"source": "password", "target": "token"}}]

    await stage.sync("db", refreshInterval=0, dataFrom=[{"sourceRef": {"generatorRef": ref}, "rewrite": rewrite}])
    await stage.force("db")
    await stage.until_idle()

    assert await stage.data("db") == {"token": "generated"}
    assert stage.provider.calls["Generate"] == 1


async def test_kubectl_shows_store_and_interval_that_the_spec_leaves_out(
    stage: Scene, api_server: ApiServer, tmp_path: Path
) -> None:
    stage.backend(db="v1")
    await stage.bench.create(MAKERS, "maker", spec={})
    ref = {"apiVersion": MAKERS.api_version, "kind": "Maker", "name": "maker"}
    await stage.sync("plain", ONE)
    await stage.sync("made", secretStoreRef=None, dataFrom=[{"sourceRef": {"generatorRef": ref}}], refreshInterval="5m")

    shown = Kubectl(api_server, tmp_path, namespace=stage.bench.namespace)("get", "externalsecrets", "plain", "made")

    assert [line.split()[:4] for line in shown.splitlines()[1:]] == [
        ["plain", "SecretStore", STORE, "1h0m0s"],
        ["made", "Maker", "maker", "5m"],
    ]


async def test_a_generator_that_is_made_later_wakes_those_who_wait_for_it(stage: Scene) -> None:
    """P23."""
    ref = {"apiVersion": MAKERS.api_version, "kind": "Maker", "name": "late"}
    await stage.apply("db", dataFrom=[{"sourceRef": {"generatorRef": ref}}])
    await stage.broken("db", "late")

    await stage.bench.create(MAKERS, "late", spec={})

    await stage.until("db", {"password": "generated"})


# --- stores -----------------------------------------------------------------------------------------------------------


async def test_a_store_that_is_made_later_wakes_those_who_wait_for_it(stage: Scene) -> None:
    """P2."""
    stage.backend(db="v1")
    await stage.apply("db", ONE, secretStoreRef={"name": "late"})
    es = await stage.broken("db", "could not get secret data from provider", "SecretStore late")
    assert es["status"]["outcomes"][0]["reason"]

    await stage.bench.create(STORES, "late", spec=FAKE_STORE)

    await stage.ready("db")


async def test_an_object_of_another_class_is_left_alone_until_its_store_is_ours(stage: Scene) -> None:
    """P22."""
    stage.backend(db="v1")
    await stage.bench.create(STORES, "theirs", spec={**FAKE_STORE, "controller": "another"})
    await stage.bench.create(STORES, "marker", spec=FAKE_STORE)
    await stage.bench.ready(STORES, "marker", lambda condition: condition.status == "True")  # so the first is known too
    await stage.apply("db", ONE, secretStoreRef={"name": "theirs"})
    await stage.until_idle()
    assert await stage.status("db") == {}
    assert await stage.secret("db") is None

    await stage.bench.patch(STORES, "theirs", {"spec": {"controller": "default"}})

    await stage.ready("db")


async def test_an_object_without_entries_says_what_is_missing(stage: Scene) -> None:
    await stage.apply("db")

    await stage.broken("db", "invalid ExternalSecret", "data or dataFrom")


@pytest.mark.parametrize(
    ("deletion_policy", "creation_policy"),
    [
        pytest.param("Delete", "Merge", id="R42"),
        pytest.param("Delete", "None", id="R43"),
        pytest.param("Delete", "CreateOrMerge", id="nor create-or-merge"),
        pytest.param("Merge", "None", id="R44"),
    ],
)
async def test_policies_that_contradict_each_other_are_not_even_stored(
    stage: Scene, deletion_policy: str, creation_policy: str
) -> None:
    spec = {
        "secretStoreRef": {"name": STORE},
        "target": {"deletionPolicy": deletion_policy, "creationPolicy": creation_policy},
        "data": [{"secretKey": "a", "remoteRef": {"key": "db"}}],
    }
    body = {"apiVersion": ES.api_version, "kind": ES.kind, "metadata": {"name": "db"}, "spec": spec}

    answer = await stage.bench.api.post(ES.path(stage.bench.namespace), body)

    assert answer.status == 422
    assert (
        f"deletionPolicy {deletion_policy} cannot be combined with creationPolicy {creation_policy}" in answer.message
    )
