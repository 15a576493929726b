"""Targets that several ExternalSecrets write to: each keeps up its own keys. On a live API server."""

import pytest

from eso_testkit.operator.scenes import Scene, decoded
from kubebase.meta import JsonObject, Resource
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import CONFIG_MAPS, SECRETS

pytestmark = [pytest.mark.live, pytest.mark.asyncio(loop_scope="module")]

SECRET: JsonObject = {}
CONFIG_MAP: JsonObject = {"manifest": {"apiVersion": "v1", "kind": "ConfigMap"}}
KINDS = [pytest.param(SECRETS, SECRET, id="a Secret"), pytest.param(CONFIG_MAPS, CONFIG_MAP, id="a ConfigMap")]
ONCE: JsonObject = {"refreshPolicy": "CreatedOnce"}


def shared(kind: JsonObject, policy: str) -> JsonObject:
    return {"name": "shared", "creationPolicy": policy, **kind}


async def until_holds(stage: Scene, resource: Resource, data: dict[str, str]) -> None:
    seen: list[object] = []

    async def look() -> bool:
        found = await stage.bench.find(resource, "shared") or {}
        held = decoded(found) if resource is SECRETS else found.get("data")
        seen[:] = [held]
        return held == data

    try:
        await eventually(look, "")
    except AssertionError:
        raise AssertionError(f"{resource.kind} shared holds {seen}") from None


@pytest.mark.parametrize(("resource", "kind"), KINDS)
@pytest.mark.parametrize("refresh", [pytest.param({}, id="periodic"), pytest.param(ONCE, id="created once")])
async def test_a_deleted_shared_target_comes_back_with_the_keys_of_all(
    stage: Scene, resource: Resource, kind: JsonObject, refresh: JsonObject
) -> None:
    """L7: the first ExternalSecret creates it again, and the others find their keys missing."""
    stage.backend(a="A", b="B")
    await stage.sync("one", {"a": "a"}, target=shared(kind, "CreateOrMerge"), **refresh)
    await stage.sync("two", {"b": "b"}, target=shared(kind, "CreateOrMerge"), **refresh)
    await until_holds(stage, resource, {"a": "A", "b": "B"})

    await stage.bench.delete(resource, "shared")

    await until_holds(stage, resource, {"a": "A", "b": "B"})


@pytest.mark.parametrize(("resource", "kind"), KINDS)
async def test_an_edited_shared_target_is_repaired_by_all(stage: Scene, resource: Resource, kind: JsonObject) -> None:
    """L10: the hash that the first one writes covers what the others have lost."""
    stage.backend(a="A", b="B", c="C")
    await stage.bench.create(resource, "shared", data={})
    await stage.sync("one", {"a": "a"}, target=shared(kind, "Merge"), **ONCE)
    await stage.sync("two", {"b": "b", "c": "c"}, target=shared(kind, "Merge"), **ONCE)
    await until_holds(stage, resource, {"a": "A", "b": "B", "c": "C"})

    await stage.bench.patch(resource, "shared", {"data": {"a": "ZWRpdGVk", "b": "ZWRpdGVk"}})

    await until_holds(stage, resource, {"a": "A", "b": "B", "c": "C"})


@pytest.mark.parametrize(("resource", "kind"), KINDS)
async def test_merge_takes_up_a_target_that_another_one_makes(
    stage: Scene, resource: Resource, kind: JsonObject
) -> None:
    """L9: it is managed, and as its hash says, and was never merged into."""
    stage.backend(a="A", b="B")
    await stage.apply("merged", {"b": "b"}, target=shared(kind, "Merge"), **ONCE)
    await stage.ready("merged", "ResourceMissing" if kind else "SecretMissing")

    await stage.sync("one", {"a": "a"}, target=shared(kind, "Orphan"), **ONCE)

    await until_holds(stage, resource, {"a": "A", "b": "B"})
    await stage.ready("merged", "ResourceSynced" if kind else "SecretSynced")


async def test_an_unchanged_shared_secret_is_not_read_again(stage: Scene) -> None:
    stage.backend(a="A", b="B")
    await stage.sync("one", {"a": "a"}, target=shared(SECRET, "CreateOrMerge"))
    await stage.sync("two", {"b": "b"}, target=shared(SECRET, "CreateOrMerge"))
    await stage.until_idle()
    stage.api_calls.requests.clear()

    await stage.change("one", refreshPolicy="CreatedOnce")
    await stage.change("two", refreshPolicy="CreatedOnce")
    await stage.until_idle()

    assert stage.api_calls.about(stage.bench.namespace, "/secrets/shared") == []
