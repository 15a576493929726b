"""Targets other than Secrets. On a live API server."""

import pytest

from eso_operator.targets.metadata import CREATED_BY_LABEL, HASH_ANNOTATION, MANAGED_LABEL, digest
from eso_testkit.operator.scenes import ES, Scene
from kubebase.meta import JsonObject, Resource
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import CONFIG_MAPS, WIDGETS

pytestmark = [pytest.mark.live, pytest.mark.asyncio(loop_scope="module")]

ONE = {"password": "db"}
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap"}
WIDGET = {"apiVersion": "example.com/v1", "kind": "Widget"}


def literal(text: str, target: str) -> JsonObject:
    return {"templateFrom": [{"literal": text, "target": target}]}


async def until_part(stage: Scene, resource: Resource, part: str, expected: object) -> JsonObject:
    """The object `db`, once that part of it is as expected."""

    async def look() -> JsonObject | None:
        found = await stage.bench.find(resource, "db")
        return found if found is not None and found.get(part) == expected else None

    try:
        return await eventually(look, "")
    except AssertionError:
        now = await stage.bench.find(resource, "db")
        raise AssertionError(f"{resource.kind} db has no such {part}: {now}") from None


async def test_a_config_map_gets_plain_text_and_our_marks(stage: Scene) -> None:
    """G2."""
    stage.backend(db="v1")

    await stage.apply("db", ONE, target={"manifest": CONFIG_MAP}, metadata={"labels": {"app": "shop"}})

    es = await stage.ready("db", "ResourceSynced", "secret synced")
    made = await until_part(stage, CONFIG_MAPS, "data", {"password": "v1"})
    labels = made["metadata"]["labels"]
    assert (labels[MANAGED_LABEL], labels["app"]) == ("true", "shop")
    assert CREATED_BY_LABEL in labels
    assert made["metadata"]["annotations"][HASH_ANNOTATION] == digest({"password": "v1"})
    assert made["metadata"]["ownerReferences"][0]["uid"] == es["metadata"]["uid"]
    assert "binding" not in es["status"]
    await stage.until_event("db", "Normal", "Created", "Created ConfigMap db")


@pytest.mark.parametrize(
    ("template", "spec"),
    [
        pytest.param(None, {"data": {"password": "v1"}}, id="G3 no template"),
        pytest.param({"metadata": {"labels": {"a": "b"}}}, {}, id="G4 a template without content"),
        pytest.param(literal("a: '{{ .password }}'", "spec"), {"a": "v1"}, id="G5 all of spec"),
        pytest.param(literal("x: 1", "spec.rules[1]"), {"rules": [None, {"x": 1}]}, id="G7 lists are made"),
    ],
)
async def test_a_custom_resource_is_filled(stage: Scene, template: JsonObject | None, spec: JsonObject) -> None:
    stage.backend(db="v1")
    target: JsonObject = {"manifest": WIDGET, **({"template": template} if template else {})}

    await stage.apply("db", ONE, target=target)

    await stage.ready("db", "ResourceSynced")
    await until_part(stage, WIDGETS, "spec", spec)


@pytest.mark.parametrize("path", ["a..b", "a[-1]", "a[10001]", "a[x]", "[0].x"])
async def test_a_path_that_is_none_is_named(stage: Scene, path: str) -> None:
    """G8."""
    stage.backend(db="v1")

    await stage.apply("db", ONE, target={"manifest": WIDGET, "template": literal("b: c", path)})

    await stage.broken("db", "could not apply template to manifest", reason="ResourceSyncedError")
    assert await stage.bench.find(WIDGETS, "db") is None


async def test_metadata_of_manifests_is_templated_too(stage: Scene) -> None:
    """G12, as the templates of Secrets are."""
    stage.backend(db="v1")
    template = {"metadata": {"labels": {"password": "{{ .password }}"}}, **literal("a: b", "spec")}

    await stage.apply("db", ONE, target={"manifest": WIDGET, "template": template})

    made = await until_part(stage, WIDGETS, "spec", {"a": "b"})
    assert made["metadata"]["labels"]["password"] == "v1"


async def test_templates_kept_elsewhere_reach_any_place(stage: Scene) -> None:
    """G14."""
    stage.backend(db="v1")
    await stage.bench.create(CONFIG_MAPS, "shared", data={"all": "b: '{{ .password }}'"})
    source = {"name": "shared", "items": [{"key": "all", "templateAs": "KeysAndValues"}]}
    template = {"templateFrom": [{"configMap": source, "target": "spec.a"}]}

    await stage.apply("db", ONE, target={"manifest": WIDGET, "template": template})

    await until_part(stage, WIDGETS, "spec", {"a": {"b": "v1"}})


@pytest.mark.parametrize("policy", ["Owner", "Orphan"])
async def test_additions_of_other_writers_are_removed_from_owned_objects(stage: Scene, policy: str) -> None:
    """G9."""
    stage.backend(db="v1")
    await stage.bench.create(WIDGETS, "db", spec={"extra": "x"}, metadata={"finalizers": ["example.com/theirs"]})

    await stage.apply("db", ONE, target={"manifest": WIDGET, "creationPolicy": policy})

    made = await until_part(stage, WIDGETS, "spec", {"data": {"password": "v1"}})
    assert made["metadata"]["finalizers"] == ["example.com/theirs"]
    await stage.bench.patch(WIDGETS, "db", {"metadata": {"finalizers": None}})


async def test_merging_keeps_siblings(stage: Scene) -> None:
    """G6."""
    stage.backend(db="v1")
    await stage.bench.create(
        WIDGETS, "db", spec={"a": {"own": "x"}, "list": [{"n": 1}]}, metadata={"labels": {"t": "a"}}
    )
    template = {
        "templateFrom": [
            {"literal": "ours: '{{ .password }}'", "target": "spec.a"},
            {"literal": "ours: 1", "target": "spec.list[0]"},
        ]
    }

    await stage.apply("db", ONE, target={"manifest": WIDGET, "creationPolicy": "Merge", "template": template})

    await stage.ready("db", "ResourceSynced")
    merged = {"a": {"own": "x", "ours": "v1"}, "list": [{"n": 1, "ours": 1}]}
    made = await until_part(stage, WIDGETS, "spec", merged)
    assert "ownerReferences" not in made["metadata"]
    assert made["metadata"]["labels"]["t"] == "a"


@pytest.mark.parametrize(
    ("resource", "manifest", "held"),
    [
        pytest.param(CONFIG_MAPS, CONFIG_MAP, {"data": {"theirs": "x"}}, id="a ConfigMap"),
        pytest.param(CONFIG_MAPS, CONFIG_MAP, {}, id="an empty ConfigMap, of which no account is kept"),
        pytest.param(WIDGETS, WIDGET, {"spec": {"data": {"theirs": "x"}, "more": 1}}, id="a custom kind"),
    ],
)
async def test_merging_adds_and_removes_our_own_keys_only(
    stage: Scene, resource: Resource, manifest: JsonObject, held: JsonObject
) -> None:
    """R54: several of them may share one object, and a key that leaves the spec leaves the object."""
    stage.backend(db="v1", user="u1")
    await stage.bench.create(resource, "shared", **held)
    target = {"name": "shared", "manifest": manifest, "creationPolicy": "Merge"}

    await stage.sync("one", {"password": "db", "old": "db"}, target=target)
    await stage.sync("other", {"user": "user"}, target=target)
    await stage.change("one", data=[{"secretKey": "password", "remoteRef": {"key": "db"}}])

    theirs = held.get("data") or held.get("spec", {}).get("data", {})
    expected = {**theirs, "password": "v1", "user": "u1"}
    await eventually(lambda: _holds(stage, resource, expected), "not every key is as wanted")


async def _holds(stage: Scene, resource: Resource, expected: dict[str, str]) -> bool:
    found = await stage.bench.find(resource, "shared") or {}
    return bool((found.get("data") or found["spec"]["data"]) == expected)


async def test_a_secret_that_is_spelled_out_holds_the_values(stage: Scene) -> None:
    stage.backend(db="v1")

    await stage.sync("db", ONE, target={"manifest": {"apiVersion": "v1", "kind": "Secret"}})

    assert await stage.data("db") == {"password": "v1"}


async def test_merge_waits_for_an_object_that_is_not_there(stage: Scene) -> None:
    """G10."""
    stage.backend(db="v1")

    await stage.apply("db", ONE, target={"manifest": WIDGET, "creationPolicy": "Merge"})

    await stage.ready("db", "ResourceMissing", "resource will not be created due to CreationPolicy=Merge")


@pytest.mark.parametrize(
    ("resource", "part", "content", "edit"),
    [
        pytest.param(CONFIG_MAPS, "data", {"password": "v1"}, {"password": "edited"}, id="a ConfigMap"),
        pytest.param(WIDGETS, "spec", {"data": {"password": "v1"}}, {"data": None}, id="a custom kind"),
    ],
)
async def test_drift_is_repaired_at_once(
    stage: Scene, resource: Resource, part: str, content: JsonObject, edit: JsonObject
) -> None:
    """G11: edited, unmarked and deleted."""
    stage.backend(db="v1")
    manifest = {"apiVersion": resource.api_version, "kind": resource.kind}
    await stage.apply("db", ONE, target={"manifest": manifest}, refreshInterval=0)
    await until_part(stage, resource, part, content)

    await stage.bench.patch(resource, "db", {part: edit})
    await until_part(stage, resource, part, content)
    await stage.bench.patch(resource, "db", {"metadata": {"labels": {MANAGED_LABEL: None}}})

    async def marked() -> bool:
        found = await stage.bench.find(resource, "db")
        return found is not None and MANAGED_LABEL in found["metadata"].get("labels", {})

    await eventually(marked, "the label does not come back")
    await stage.bench.delete(resource, "db")
    await until_part(stage, resource, part, content)


async def test_a_refresh_that_changes_nothing_writes_nothing(stage: Scene) -> None:
    stage.backend(db="v1")
    await stage.apply("db", ONE, target={"manifest": WIDGET})
    await until_part(stage, WIDGETS, "spec", {"data": {"password": "v1"}})
    await stage.until_idle()
    before = await stage.bench.find(WIDGETS, "db")
    stage.api_calls.requests.clear()

    await stage.change("db", refreshInterval="2h")
    await stage.until_idle()

    assert stage.api_calls.writes(stage.bench.namespace, "/widgets/db") == []
    assert await stage.bench.find(WIDGETS, "db") == before


async def test_keys_that_leave_the_spec_leave_the_object(stage: Scene) -> None:
    stage.backend(db="v1", user="u1")
    await stage.apply("db", {"password": "db", "user": "user"}, target={"manifest": CONFIG_MAP})
    await until_part(stage, CONFIG_MAPS, "data", {"password": "v1", "user": "u1"})

    await stage.change("db", data=[{"secretKey": "user", "remoteRef": {"key": "user"}}])

    await until_part(stage, CONFIG_MAPS, "data", {"user": "u1"})


async def test_with_deletion_policy_delete_the_object_goes_with_its_values_and_comes_back(stage: Scene) -> None:
    """G15."""
    stage.backend(db="v1")
    target = {"manifest": WIDGET, "deletionPolicy": "Delete"}
    await stage.apply("db", ONE, target=target)
    await until_part(stage, WIDGETS, "spec", {"data": {"password": "v1"}})

    del stage.provider.data["db"]
    await stage.force("db")
    await stage.ready("db", "ResourceDeleted", "secret deleted due to DeletionPolicy=Delete")
    await stage.until_event("db", "Normal", "Deleted", "Deleted Widget db")
    assert await stage.bench.find(WIDGETS, "db") is None
    stage.backend(db="v2")
    await stage.force("db")
    await until_part(stage, WIDGETS, "spec", {"data": {"password": "v2"}})

    await stage.bench.delete(ES, "db")

    async def gone() -> bool:
        return await stage.bench.find(WIDGETS, "db") is None and await stage.bench.find(ES, "db") is None

    await eventually(gone, "it does not go")


async def test_a_kind_that_is_not_served_is_named_and_does_not_hold_up_deletion(stage: Scene) -> None:
    stage.backend(db="v1")
    manifest = {"apiVersion": "example.com/v1", "kind": "Gadget"}

    await stage.apply("db", ONE, target={"manifest": manifest, "deletionPolicy": "Delete"})

    await stage.broken("db", "could not get target resource", "Gadget", reason="ResourceSyncedError")
    await stage.bench.delete(ES, "db")

    async def gone() -> bool:
        return await stage.bench.find(ES, "db") is None

    await eventually(gone, "the ExternalSecret does not go")


async def test_a_secret_goes_when_the_target_becomes_another_kind_unless_that_cannot_be_written(stage: Scene) -> None:
    stage.backend(db="v1")
    await stage.sync("db", ONE)

    await stage.change("db", target={"manifest": {"apiVersion": "example.com/v1", "kind": "Gadget"}})

    await stage.broken("db", "Gadget", reason="ResourceSyncedError")
    assert await stage.data("db") == {"password": "v1"}

    await stage.change("db", target={"manifest": CONFIG_MAP})

    await until_part(stage, CONFIG_MAPS, "data", {"password": "v1"})
    await stage.until("db", None)
    await stage.until_event("db", "Normal", "Deleted", "secret deleted because it was orphaned")
    await stage.ready("db", "ResourceSynced")


async def test_a_secret_that_becomes_one_spelled_out_as_a_manifest_stays(stage: Scene) -> None:
    stage.backend(db="v1")
    await stage.sync("db", ONE)
    before = await stage.secret("db") or {}

    await stage.change("db", target={"manifest": {"apiVersion": "v1", "kind": "Secret"}})

    await stage.ready("db", "ResourceSynced")
    await stage.until_idle()
    after = await stage.secret("db") or {}
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert await stage.data("db") == {"password": "v1"}


async def test_a_kind_that_keeps_no_content_is_named_and_not_written(stage: Scene) -> None:
    """G13."""
    stage.backend(db="v1")

    await stage.apply("db", ONE, target={"manifest": {"apiVersion": "v1", "kind": "ServiceAccount"}})

    await stage.broken("db", "neither spec nor data", reason="ResourceSyncedError")
    assert await stage.bench.find(Resource("", "v1", "serviceaccounts", "ServiceAccount"), "db") is None
