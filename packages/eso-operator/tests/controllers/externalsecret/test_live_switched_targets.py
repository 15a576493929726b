"""A target that becomes another one takes the object before it along, if that was ours. On a live API server."""

from collections.abc import Awaitable, Callable

import pytest

from eso_operator.targets.metadata import CREATED_BY_LABEL, MANAGED_LABEL, owner_digest
from eso_testkit.operator.scenes import ES, Scene
from kubebase.meta import JsonObject, Resource
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import CONFIG_MAPS, WIDGETS

pytestmark = [pytest.mark.live, pytest.mark.asyncio(loop_scope="module")]

ONE = {"password": "db"}
CONFIG_MAP = {"manifest": {"apiVersion": "v1", "kind": "ConfigMap"}}
WIDGET = {"manifest": {"apiVersion": "example.com/v1", "kind": "Widget"}}
SECRET: JsonObject = {"manifest": None}
ON_RECORD = {"apiVersion": "v1", "kind": "ConfigMap", "name": "db"}


async def until_gone(stage: Scene, resource: Resource, name: str) -> None:
    async def gone() -> bool:
        return await stage.bench.find(resource, name) is None

    await eventually(gone, f"{resource.kind} {name} does not go")


async def recorded(stage: Scene) -> list[JsonObject]:
    return list((await stage.status("db")).get("manifests", []))


@pytest.mark.parametrize(
    ("before", "old", "after", "new", "left"),
    [
        pytest.param(CONFIG_MAP, CONFIG_MAPS, SECRET, None, [], id="a ConfigMap, then a Secret"),
        pytest.param(WIDGET, WIDGETS, SECRET, None, [], id="a custom kind, then a Secret"),
        pytest.param(
            WIDGET, WIDGETS, {"manifest": {"apiVersion": "v1", "kind": "Secret"}}, None, [], id="a Secret spelled out"
        ),
        pytest.param(WIDGET, WIDGETS, CONFIG_MAP, CONFIG_MAPS, [ON_RECORD], id="one kind, then another"),
        pytest.param(
            CONFIG_MAP,
            CONFIG_MAPS,
            {**WIDGET, "name": "other"},
            WIDGETS,
            [{"apiVersion": "example.com/v1", "kind": "Widget", "name": "other"}],
            id="another kind and another name",
        ),
        pytest.param(
            CONFIG_MAP, CONFIG_MAPS, {"name": "other"}, CONFIG_MAPS, [{**ON_RECORD, "name": "other"}], id="another name"
        ),
    ],
)
async def test_the_object_before_it_goes_and_is_told_of(  # noqa: PLR0917 - a table
    stage: Scene, before: JsonObject, old: Resource, after: JsonObject, new: Resource | None, left: list[JsonObject]
) -> None:
    stage.backend(db="v1")
    await stage.sync("db", ONE, target=before)
    assert await stage.bench.find(old, "db") is not None

    await stage.change("db", target=after)

    await until_gone(stage, old, "db")
    await stage.until_event("db", "Normal", "Deleted", f"Deleted {old.kind} db because it was orphaned")
    if new is None:
        assert await stage.data("db") == {"password": "v1"}
    else:
        assert await stage.bench.find(new, str(after.get("name", "db"))) is not None
    await eventually(lambda: _has(stage, left), "what is on record is not what there is")


async def _has(stage: Scene, manifests: list[JsonObject]) -> bool:
    return await recorded(stage) == manifests


async def test_a_target_that_cannot_be_written_keeps_the_one_before_it(stage: Scene) -> None:
    stage.backend(db="v1")
    await stage.sync("db", ONE, target=CONFIG_MAP)

    await stage.change("db", target={"manifest": {"apiVersion": "example.com/v1", "kind": "Gadget"}})
    await stage.broken("db", "Gadget", reason="ResourceSyncedError")
    await stage.change("db", target={"manifest": None, "template": {"data": {"a": "{{ .none }}"}}})
    await stage.broken("db", "none")
    await stage.until_idle()

    assert (await stage.config_map("db") or {})["data"] == {"password": "v1"}
    await stage.change("db", target={"template": None})
    await until_gone(stage, CONFIG_MAPS, "db")


async def test_another_version_is_another_spelling_of_the_same_object(stage: Scene) -> None:
    """On record under a version that is not served: it is found, and neither lost nor taken for another object."""
    stage.backend(db="v1")
    await stage.sync("db", ONE, target=WIDGET)
    before = await stage.bench.find(WIDGETS, "db") or {}
    await stage.patch_status("db", {"manifests": [{"apiVersion": "example.com/v9", "kind": "Widget", "name": "db"}]})

    await stage.force("db")
    await stage.until_idle()

    assert (await stage.bench.find(WIDGETS, "db") or {})["metadata"]["uid"] == before["metadata"]["uid"]
    await stage.change("db", target=SECRET)
    await until_gone(stage, WIDGETS, "db")


async def test_a_new_object_is_on_record_before_it_is_made_and_costs_nothing_after_that(stage: Scene) -> None:
    stage.backend(db="v1")

    await stage.sync("db", ONE, target=CONFIG_MAP)
    await stage.until_idle()

    mine = stage.api_calls.writes(stage.bench.namespace)
    writes = [(method, path.rsplit("/", 2)[-2:]) for method, path in mine if "/sentinel" not in path]
    assert writes[:3] == [
        ("PATCH", ["db", "status"]),
        ("POST", [stage.bench.namespace, "configmaps"]),
        ("PATCH", ["db", "status"]),
    ]
    assert await recorded(stage) == [ON_RECORD]
    stage.api_calls.requests.clear()
    await stage.change("db", refreshPolicy="CreatedOnce")
    await stage.until_idle()
    assert stage.api_calls.writes(stage.bench.namespace, "/db") == []


# --- what is not ours -------------------------------------------------------------------------------------------------


Act = Callable[[Scene], Awaitable[None]]


async def let_go(stage: Scene) -> None:
    await stage.bench.patch(CONFIG_MAPS, "db", {"metadata": {"ownerReferences": None}})


async def unmark(stage: Scene) -> None:
    await stage.bench.patch(CONFIG_MAPS, "db", {"metadata": {"labels": {CREATED_BY_LABEL: None}}})


async def give_to_another(stage: Scene) -> None:
    other = await stage.bench.create(CONFIG_MAPS, "other", data={})
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": other["metadata"]["uid"]}
    references = [{**owner, "controller": True}]
    await stage.bench.patch(CONFIG_MAPS, "db", {"metadata": {"ownerReferences": references}})


async def replace_by_another(stage: Scene) -> None:
    other = await stage.bench.create(CONFIG_MAPS, "other", data={})
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": other["metadata"]["uid"]}
    labels = {MANAGED_LABEL: "true", CREATED_BY_LABEL: owner_digest(stage.bench.namespace, "db")}
    await stage.bench.delete(CONFIG_MAPS, "db")
    metadata = {"ownerReferences": [{**owner, "controller": True}], "labels": labels}
    await stage.bench.create(CONFIG_MAPS, "db", data={"theirs": "x"}, metadata=metadata)


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(let_go, id="without an owner"),
        pytest.param(unmark, id="without our label"),
        pytest.param(give_to_another, id="of another owner"),
        pytest.param(replace_by_another, id="another object with our labels"),
    ],
)
async def test_an_object_that_is_no_longer_ours_stays(stage: Scene, act: Act) -> None:
    """The target becomes a kind that cannot be written first, so that the object is left to others."""
    stage.backend(db="v1")
    await stage.sync("db", ONE, target=CONFIG_MAP)
    await stage.change("db", target={"manifest": {"apiVersion": "example.com/v1", "kind": "Gadget"}})
    await stage.broken("db", "Gadget", reason="ResourceSyncedError")
    await act(stage)
    before = await stage.config_map("db")

    await stage.change("db", target=SECRET)

    await stage.until("db", {"password": "v1"})
    await eventually(lambda: _has(stage, []), "it is still on record")
    assert await stage.config_map("db") == before


@pytest.mark.parametrize("policy", ["Orphan", "Merge", "CreateOrMerge"])
async def test_an_object_that_was_never_owned_stays(stage: Scene, policy: str) -> None:
    stage.backend(db="v1")
    await stage.bench.create(CONFIG_MAPS, "db", data={"theirs": "x"})
    await stage.sync("db", ONE, target={**CONFIG_MAP, "creationPolicy": policy})
    assert await recorded(stage) == []
    before = await stage.config_map("db")

    await stage.change("db", target={"manifest": None, "creationPolicy": "Owner"})

    await stage.until("db", {"password": "v1"})
    await stage.until_idle()
    assert await stage.config_map("db") == before


async def test_a_forged_record_deletes_nothing(stage: Scene) -> None:
    stage.backend(db="v1")
    await stage.sync("db", ONE)
    before = await stage.bench.create(CONFIG_MAPS, "theirs", data={"a": "b"})
    names = [{"apiVersion": "v1", "kind": "Namespace", "name": stage.bench.namespace}, {**ON_RECORD, "name": "theirs"}]
    await stage.patch_status("db", {"manifests": [*names, {**ON_RECORD, "kind": "Nothing"}]})

    await stage.force("db")

    await eventually(lambda: _has(stage, []), "it is still on record")
    assert await stage.config_map("theirs") == before


async def test_a_target_left_behind_under_another_policy_goes_once_the_policy_is_owner_again(stage: Scene) -> None:
    """L16, L19."""
    stage.backend(db="v1")
    await stage.sync("db", ONE, target=CONFIG_MAP)

    await stage.change("db", target={"manifest": None, "creationPolicy": "Orphan"})
    await stage.until("db", {"password": "v1"})
    await stage.until_idle()

    assert await stage.config_map("db") is not None
    await stage.change("db", target={"creationPolicy": "Owner"})
    await until_gone(stage, CONFIG_MAPS, "db")
    assert await stage.data("db") == {"password": "v1"}


# --- no values --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "resource"),
    [
        pytest.param(CONFIG_MAP, SECRET, CONFIG_MAPS, id="another kind"),
        pytest.param(CONFIG_MAP, {"name": "other"}, CONFIG_MAPS, id="another name"),
    ],
)
async def test_with_deletion_policy_delete_the_object_before_it_goes_with_its_values(
    stage: Scene, before: JsonObject, after: JsonObject, resource: Resource
) -> None:
    stage.backend(db="v1")
    await stage.sync("db", ONE, target={**before, "deletionPolicy": "Delete"})
    del stage.provider.data["db"]

    await stage.change("db", target=after)

    await until_gone(stage, resource, "db")
    await stage.bench.delete(ES, "db")
    await until_gone(stage, ES, "db")


async def test_with_deletion_policy_delete_a_secret_under_an_earlier_name_goes_with_its_values(stage: Scene) -> None:
    stage.backend(db="v1")
    await stage.sync("db", ONE, target={"deletionPolicy": "Delete"})
    del stage.provider.data["db"]

    await stage.change("db", target={"name": "renamed"})

    await stage.until("db", None)
    await stage.ready("db", "SecretDeleted")
    assert await stage.secret("renamed") is None
