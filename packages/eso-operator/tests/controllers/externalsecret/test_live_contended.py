"""ExternalSecrets that undo each other's writes to one Secret, on a live API server."""

from __future__ import annotations

import pytest

from eso_testkit.operator.scenes import ES, Scene
from kubebase.meta import JsonObject
from kubebase.testing.waiting import eventually

pytestmark = [pytest.mark.live, pytest.mark.asyncio(loop_scope="module")]

OFTEN: JsonObject = {"refreshInterval": "1s"}
MERGE: JsonObject = {"name": "shared", "creationPolicy": "Merge"}
ORPHAN: JsonObject = {"name": "shared", "creationPolicy": "Orphan"}


async def contention(stage: Scene, name: str) -> JsonObject | None:
    found = (await stage.status(name)).get("conditions", [])
    return next((each for each in found if each["type"] == "Contended"), None)


async def contended(stage: Scene, name: str, *words: str) -> JsonObject:
    """Return the condition once it is there and has these words."""

    async def look() -> JsonObject | None:
        found = await contention(stage, name)
        return found if found is not None and all(word in found["message"] for word in words) else None

    return await eventually(look, f"ExternalSecret {name} does not say that it is contended: {words}")


async def at_peace(stage: Scene, name: str) -> None:
    """Wait until the condition is gone."""

    async def look() -> bool:
        return await contention(stage, name) is None

    await eventually(look, f"ExternalSecret {name} still says that it is contended", within=90.0)


async def refreshes_of_a_witness(stage: Scene, times: int) -> None:
    """Wait until another ExternalSecret with the shortest interval has read its key that often."""
    if await stage.bench.find(ES, "witness") is None:
        stage.backend(tick="t")
        await stage.sync("witness", {"tick": "tick"}, **OFTEN)

    def ticks() -> int:
        return sum(item.ref.key == "tick" for items in stage.provider.requests for item in items)

    goal = ticks() + times

    async def look() -> bool:
        return ticks() >= goal

    await eventually(look, "the witness does not refresh")


def writes(stage: Scene) -> int:
    return len(stage.api_calls.writes(stage.bench.namespace, "/secrets/shared"))


async def test_two_that_write_different_values_to_one_key_say_so_and_slow_down(stage: Scene) -> None:
    stage.backend(a="A", b="B")
    await stage.put_secret("shared", {})
    await stage.sync("one", {"key": "a", "only": "a"}, target=MERGE, **OFTEN)
    await stage.sync("two", {"key": "b"}, target=MERGE, **OFTEN)

    first = await contended(stage, "one", "ExternalSecret two also writes key key of Secret shared")
    await contended(stage, "two", "ExternalSecret one also writes key key of Secret shared")

    assert (first["status"], first["reason"]) == ("True", "DifferentValues")
    await stage.ready("one", "SecretSynced")
    await stage.until_event("one", "Warning", "Contended")
    before = writes(stage)
    await refreshes_of_a_witness(stage, 8)
    assert writes(stage) - before <= 2


async def test_contention_ends_by_itself_when_the_other_one_stops_writing_the_key(stage: Scene) -> None:
    """An edit is carried out at once; the one that was not edited notices within its pace."""
    stage.backend(a="A", b="B")
    await stage.put_secret("shared", {})
    await stage.sync("one", {"key": "a"}, target=MERGE, **OFTEN)
    await stage.sync("two", {"key": "b"}, target=MERGE, **OFTEN)
    await contended(stage, "one")
    await contended(stage, "two")

    await stage.change("two", data=[{"secretKey": "other", "remoteRef": {"key": "b"}}])

    await at_peace(stage, "two")
    await at_peace(stage, "one")
    await stage.until("shared", {"key": "A", "other": "B"})


async def test_contention_ends_when_the_other_one_is_deleted(stage: Scene) -> None:
    stage.backend(a="A", b="B")
    await stage.put_secret("shared", {})
    await stage.sync("one", {"key": "a"}, target=MERGE, **OFTEN)
    await stage.sync("two", {"key": "b"}, target=MERGE, **OFTEN)
    await contended(stage, "one")

    await stage.bench.delete(ES, "two")

    await at_peace(stage, "one")
    await stage.until("shared", {"key": "A"})


async def test_one_that_removes_the_keys_of_another_and_the_other_both_say_so(stage: Scene) -> None:
    """Orphan keeps no foreign keys, and Merge restores its own at once."""
    stage.backend(a="A", b="B")
    await stage.sync("one", {"a": "a"}, target=ORPHAN, **OFTEN)
    await stage.sync("two", {"b": "b"}, target=MERGE, **OFTEN)

    await contended(stage, "one", "ExternalSecret two also writes")
    await contended(stage, "two", "ExternalSecret one also writes")


@pytest.mark.parametrize(
    ("one", "two"),
    [
        pytest.param({"key": "a"}, {"key": "same"}, id="the same value"),
        pytest.param({"key": "a"}, {"other": "b"}, id="different keys"),
    ],
)
async def test_two_that_agree_are_not_contended(stage: Scene, one: dict[str, str], two: dict[str, str]) -> None:
    stage.backend(a="A", same="A", b="B")
    await stage.put_secret("shared", {})
    await stage.sync("one", one, target=MERGE, **OFTEN)
    await stage.sync("two", two, target=MERGE, **OFTEN)
    await refreshes_of_a_witness(stage, 4)
    before = writes(stage)

    await refreshes_of_a_witness(stage, 6)

    assert (await contention(stage, "one"), await contention(stage, "two")) == (None, None)
    assert writes(stage) == before


async def test_a_value_that_both_read_is_rotated_often_without_contention(stage: Scene) -> None:
    """Each rotation is written by the one that refreshes first; none of them has to wait."""
    stage.backend(a="0")
    await stage.put_secret("shared", {})
    await stage.sync("one", {"key": "a"}, target=MERGE, **OFTEN)
    await stage.sync("two", {"key": "a"}, target=MERGE, **OFTEN)

    for restart_slot in range(1, 7):
        stage.backend(a=str(restart_slot))
        await stage.until("shared", {"key": str(restart_slot)})

    assert (await contention(stage, "one"), await contention(stage, "two")) == (None, None)


async def test_a_key_that_passes_from_one_to_another_is_no_contention(stage: Scene) -> None:
    stage.backend(a="A", b="B")
    await stage.put_secret("shared", {})
    await stage.sync("one", {"key": "a"}, target=MERGE, refreshInterval="1h")

    await stage.sync("two", {"key": "b"}, target=MERGE, **OFTEN)
    await refreshes_of_a_witness(stage, 4)

    assert (await contention(stage, "one"), await contention(stage, "two")) == (None, None)
    await stage.until("shared", {"key": "B"})
