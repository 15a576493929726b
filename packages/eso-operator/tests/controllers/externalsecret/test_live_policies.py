"""The effect of policies on a target that is deleted, shared, left behind or used twice. On a live API server."""

import base64

import pytest

from eso_operator.targets.metadata import HASH_ANNOTATION, MANAGED_LABEL
from eso_testkit.operator.operators import MAKER
from eso_testkit.operator.scenes import ES, Scene
from kubebase.meta import JsonObject
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import SECRETS

pytestmark = [pytest.mark.live, pytest.mark.asyncio(loop_scope="module")]

ONE = {"password": "db"}


async def without(stage: Scene, name: str) -> None:
    """The ExternalSecret is deleted, and gone."""
    await stage.bench.delete(ES, name)

    async def gone() -> bool:
        return await stage.bench.find(ES, name) is None

    await eventually(gone, "the ExternalSecret does not go")


# --- Orphan: a target that may be missing -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refresh", "comes_back"),
    [
        pytest.param({"refreshPolicy": "CreatedOnce"}, False, id="L6 created once: it stays deleted"),
        pytest.param({"refreshPolicy": "OnChange"}, True, id="L6 on change: until the object changes"),
        pytest.param({"refreshInterval": "1h"}, True, id="L5 periodic: until something is due"),
    ],
)
async def test_under_orphan_a_deleted_secret_stays_deleted_until_something_is_due(
    stage: Scene, refresh: JsonObject, comes_back: bool
) -> None:
    """R52."""
    stage.backend(db="v1")
    await stage.sync("db", ONE, target={"creationPolicy": "Orphan"}, **refresh)

    await stage.bench.delete(SECRETS, "db")
    await stage.until_idle()

    assert await stage.secret("db") is None
    await stage.force("db")
    await stage.until_idle()
    if comes_back:
        await stage.until("db", {"password": "v1"})
    else:
        assert await stage.secret("db") is None


async def test_under_orphan_a_deleted_secret_comes_back_with_the_interval(stage: Scene) -> None:
    """L5, R52."""
    stage.backend(db="v1")
    await stage.sync("db", ONE, target={"creationPolicy": "Orphan"}, refreshInterval="1s")

    await stage.bench.delete(SECRETS, "db")

    await stage.until("db", {"password": "v1"})


# --- shared -----------------------------------------------------------------------------------------------------------


async def test_the_last_refresh_wins_if_two_objects_merge_the_same_key(stage: Scene) -> None:
    """L32: at each refresh of either, and at no other time: the two do not wake each other."""
    stage.backend(a="of-first", b="of-second")
    await stage.put_secret("shared", {"own": "x"})
    merged = {"name": "shared", "creationPolicy": "Merge"}
    await stage.sync("first", {"same": "a"}, target=merged)

    await stage.sync("second", {"same": "b"}, target=merged)

    for name in ("first", "second"):
        await stage.force(name)
        await stage.until("shared", {"own": "x", "same": f"of-{name}"})
        await stage.until_idle()
        assert await stage.data("shared") == {"own": "x", "same": f"of-{name}"}
    await stage.ready("first", "SecretSynced")
    await stage.ready("second", "SecretSynced")


# --- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "policies",
    [
        pytest.param({"creationPolicy": "Orphan"}, id="L22 orphan"),
        pytest.param({"creationPolicy": "Orphan", "deletionPolicy": "Delete"}, id="L23 orphan and delete: not owned"),
        pytest.param({"creationPolicy": "Merge"}, id="L22 merge"),
        pytest.param({"creationPolicy": "Merge", "deletionPolicy": "Merge"}, id="L22 merge, both ways"),
        pytest.param({"creationPolicy": "CreateOrMerge"}, id="L22 create-or-merge"),
    ],
)
async def test_a_target_without_an_owner_outlives_its_external_secret(stage: Scene, policies: JsonObject) -> None:
    """R52: with everything that was written to it."""
    stage.backend(db="v1")
    await stage.put_secret("db", {"password": "before"})
    await stage.sync("db", ONE, target=policies)
    before = await stage.secret("db")

    await without(stage, "db")
    await stage.until_idle()

    assert before is not None
    assert await stage.secret("db") == before
    assert await stage.data("db") == {"password": "v1"}
    assert MANAGED_LABEL in before["metadata"]["labels"]
    assert HASH_ANNOTATION in before["metadata"]["annotations"]


async def test_a_secret_that_policy_none_never_touched_stays_as_it_is(stage: Scene) -> None:
    """L22, L36, L37, R55: the backend is read all the same, so that the condition tells whether it could be."""
    stage.backend(db="v1")
    before = await stage.put_secret("db", {"own": "x"})
    await stage.sync("db", ONE, target={"creationPolicy": "None"})
    assert stage.reads == 1

    await without(stage, "db")

    assert await stage.secret("db") == before


async def test_with_deletion_policy_delete_an_object_whose_secret_never_was_goes_at_once(stage: Scene) -> None:
    """L24."""
    await stage.apply("db", ONE, target={"deletionPolicy": "Delete"})
    await stage.ready("db", "SecretDeleted")
    assert await stage.secret("db") is None

    await without(stage, "db")

    assert stage.api_calls.writes(stage.bench.namespace, "/secrets/db") == []


async def test_an_object_made_again_leaves_an_immutable_secret_as_it_was(stage: Scene) -> None:
    """L27."""
    stage.backend(db="v1")
    spec: JsonObject = {
        "target": {"creationPolicy": "Orphan", "immutable": True},
        "refreshPolicy": "CreatedOnce",
    }
    await stage.sync("db", ONE, **spec)
    stage.backend(db="v2")
    await without(stage, "db")

    await stage.sync("db", ONE, **spec)

    assert await stage.data("db") == {"password": "v1"}


# --- asked for twice, made for nothing --------------------------------------------------------------------------------


async def test_the_same_key_twice_is_refused_under_retain_and_otherwise_the_last_wins(stage: Scene) -> None:
    """P17."""
    stage.backend(a="a1", b="b1")
    twice = [{"secretKey": "same", "remoteRef": {"key": key}} for key in ("a", "b")]

    await stage.apply("refused", data=twice)
    await stage.sync("db", data=twice, target={"deletionPolicy": "Merge"})

    await stage.broken(
        "refused", "spec.data[1].secretKey", "same is given twice", "rename or remove one of the entries"
    )
    assert await stage.secret("refused") is None
    assert await stage.data("db") == {"same": "b1"}


async def test_a_generator_of_a_group_that_has_none_is_an_error_and_nothing_is_asked(stage: Scene) -> None:
    """P24."""
    ref = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "w"}

    await stage.apply("db", dataFrom=[{"sourceRef": {"generatorRef": ref}}])

    await stage.broken("db", "spec.dataFrom[0]", "Widget")
    assert stage.provider.calls["Generate"] == 0


async def test_generated_values_are_cleaned_up_when_a_later_entry_fails(stage: Scene) -> None:
    """P25."""
    stage.provider.state = b'{"id": 1}'
    await stage.bench.create(MAKER.resource(), "maker", spec={})
    ref = {"apiVersion": MAKER.resource().api_version, "kind": "Maker", "name": "maker"}

    await stage.apply("db", dataFrom=[{"sourceRef": {"generatorRef": ref}}, {"extract": {"key": "missing"}}])

    await stage.broken("db", "spec.dataFrom[1]", "missing")
    assert await stage.secret("db") is None

    async def cleaned_up() -> bool:
        return stage.provider.calls["Cleanup"] > 0

    await eventually(cleaned_up, "what was made for nothing is not cleaned up")


# --- values that people know in one form ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "printed"),
    [
        pytest.param("{{ (.number | fromJson).n }}", "1e+06", id="T23 a large number of JSON is a float"),
        pytest.param("{{ .number | fromJson | toJson }}", '{"n":1000000}', id="T23 but not in JSON again"),
        pytest.param("{{ .text | b64dec }}", "illegal base64 data at input byte 2", id="T24 an error is the value"),
    ],
)
async def test_templates_print_what_the_go_operator_prints(stage: Scene, template: str, printed: str) -> None:
    stage.backend(number='{"n": 1000000}', text="no base64")

    await stage.sync("db", {"number": "number", "text": "text"}, target={"template": {"data": {"a": template}}})

    secret = await stage.secret("db")
    assert secret is not None
    assert base64.b64decode(secret["data"]["a"]).decode() == printed


# --- another writer disagrees ---


async def test_a_target_that_another_writer_keeps_reverting_is_repaired_at_a_limited_rate(stage: Scene) -> None:
    """A change of the object is a new wish, and goes through at once."""
    stage.backend(db="v1")
    await stage.sync("db", ONE)

    came = ""
    for _ in range(60):
        await stage.edit("db", {"password": "theirs"})
        came = await eventually(lambda: came_of(stage), "neither repaired nor given up")
        if came != "repaired":
            break

    assert came.startswith("could not update secret: ")
    assert "managedFields" in came
    await stage.force("db")
    await stage.until("db", {"password": "v1"})
    await stage.ready("db")


async def came_of(stage: Scene) -> str:
    """Return the result of an edit: repaired, or the message of the condition; empty before either."""
    if await stage.data("db") == {"password": "v1"}:
        return "repaired"
    [ready] = (await stage.status("db"))["conditions"]
    return str(ready["message"]) if ready["status"] == "False" else ""


@pytest.mark.parametrize(
    ("held", "spec"),
    [
        pytest.param(
            {"data": {"old": "eA=="}}, {"template": {"metadata": {"labels": {"a": "no label!"}}}}, id="T17 no label"
        ),
        pytest.param(
            {"data": {"tls.crt": "eA==", "tls.key": "eA=="}, "type": "kubernetes.io/tls"},
            {},
            id="a type that needs keys",
        ),
    ],
)
async def test_a_secret_that_cannot_be_taken_over_stays_as_it_is(
    stage: Scene, held: JsonObject, spec: JsonObject
) -> None:
    """L28: neither emptied nor owned, so that it is not deleted either."""
    stage.backend(db="v1")
    before = await stage.bench.create(SECRETS, "db", **held)

    await stage.apply("db", ONE, target=spec)

    await stage.broken("db", "could not update secret", "Invalid")
    now = await stage.secret("db")
    assert now is not None
    assert now["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
