"""When the backend is read again: intervals, changes, windows. On a live API server."""

import pytest

from eso_testkit.operator.operators import MAKER
from eso_testkit.operator.scenes import ES, Scene
from kubebase.meta import JsonObject
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import SECRETS

pytestmark = [pytest.mark.live, pytest.mark.asyncio(loop_scope="module")]

ONE = {"password": "db"}
NO_SCHEDULE = [{"schedule": "0 0 * * 7", "duration": "1h"}]
ALWAYS = [{"schedule": "@yearly", "duration": "8784h"}]


def reads_of(stage: Scene, key: str) -> int:
    """How often this remote key was asked for."""
    return sum(item.ref.key == key for batch in stage.provider.requests for item in batch)


async def until_reads(stage: Scene, key: str, count: int) -> None:
    async def enough() -> bool:
        return reads_of(stage, key) >= count

    await eventually(enough, f"{key} is not read {count} times")


async def test_a_changed_value_arrives_with_the_next_refresh(stage: Scene) -> None:
    """R45, R125."""
    stage.backend(db="v1")
    await stage.sync("db", ONE, refreshInterval="1s")

    stage.backend(db="v2")

    await stage.until("db", {"password": "v2"})
    await stage.until_event("db", "Normal", "Updated", "secret updated")


async def test_a_refresh_that_changes_nothing_writes_nothing(stage: Scene) -> None:
    """L35; the time of such a refresh is written later."""
    stage.backend(db="v1")
    first = await stage.sync("db", ONE, refreshInterval="1s")
    await stage.until_idle()
    stage.api_calls.requests.clear()

    await until_reads(stage, "db", reads_of(stage, "db") + 2)

    assert stage.api_calls.about(stage.bench.namespace, "/db") == []
    now = await stage.bench.find(ES, "db")
    assert now is not None
    assert now["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"refreshInterval": 0}, id="R46 the integer 0"),
        pytest.param({"refreshInterval": "0"}, id="R46 the text 0"),
        pytest.param({"refreshInterval": "0s"}, id="R46 zero seconds"),
        pytest.param({"refreshInterval": "-1s"}, id="less than nothing"),
        pytest.param({"refreshPolicy": "CreatedOnce", "refreshInterval": "1s"}, id="R48 created once"),
    ],
)
async def test_an_object_that_is_read_once_is_not_read_again_whatever_changes(stage: Scene, spec: JsonObject) -> None:
    """R2, R3, R5 of the catalogue: neither for a label, nor for its spec, nor for force."""
    stage.backend(db="v1", other="o1")
    await stage.sync("db", ONE, **spec)

    stage.backend(db="v2")
    await stage.force("db")
    await stage.change("db", data=[{"secretKey": "password", "remoteRef": {"key": "other"}}])
    await stage.until_idle()

    assert await stage.data("db") == {"password": "v1"}
    assert (reads_of(stage, "db"), reads_of(stage, "other")) == (1, 0)


async def test_an_object_that_is_read_once_is_read_again_for_a_missing_target(stage: Scene) -> None:
    """R3 of the catalogue."""
    stage.backend(db="v1")
    await stage.sync("db", ONE, refreshInterval=0)

    await stage.change("db", target={"name": "other"})

    await stage.until("other", {"password": "v1"})


async def test_a_value_generated_once_survives_a_spec_that_was_broken_for_a_while(stage: Scene) -> None:
    """R22: a mended spec is Ready again, and the password is still the one that people use."""
    makers = MAKER.resource()
    await stage.bench.create(makers, "maker", spec={})
    ref = {"apiVersion": makers.api_version, "kind": "Maker", "name": "maker"}
    entries = [{"sourceRef": {"generatorRef": ref}}]
    await stage.sync("db", dataFrom=entries, refreshInterval=0)

    await stage.change("db", dataFrom=[])
    await stage.broken("db", "data or dataFrom")
    await stage.change("db", dataFrom=entries)
    await stage.ready("db", "SecretSynced")

    assert stage.provider.calls["Generate"] == 1


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"refreshPolicy": "OnChange", "refreshInterval": 0}, id="R47 on change"),
        pytest.param({"refreshPolicy": "Periodic"}, id="periodic"),
    ],
)
async def test_any_change_of_the_object_is_a_refresh(stage: Scene, spec: JsonObject) -> None:
    stage.backend(db="v1", other="o1")
    await stage.sync("db", ONE, **spec)

    stage.backend(db="v2")
    await stage.force("db")
    await stage.until("db", {"password": "v2"})
    stage.backend(db="v3")
    await stage.bench.patch(ES, "db", {"metadata": {"labels": {"any": "label"}}})
    await stage.until("db", {"password": "v3"})
    await stage.change("db", data=[{"secretKey": "password", "remoteRef": {"key": "other"}}])
    await stage.until("db", {"password": "o1"})


async def test_on_change_does_not_refresh_by_time(stage: Scene) -> None:
    """R47."""
    stage.backend(db="v1")
    await stage.sync("quiet", ONE, refreshPolicy="OnChange", refreshInterval="1s")
    await stage.sync("busy", {"password": "sentinel"}, refreshInterval="1s")

    await until_reads(stage, "sentinel", 3)

    assert reads_of(stage, "db") == 1


async def test_a_change_of_the_status_alone_is_no_reason_to_look(stage: Scene) -> None:
    """R13 of the catalogue."""
    stage.backend(db="v1")
    await stage.sync("db", ONE)
    await stage.until_idle()
    stage.api_calls.requests.clear()

    await stage.patch_status("db", {"refreshTime": "2001-01-01T00:00:00Z"})
    await stage.until_idle()

    assert reads_of(stage, "db") == 1
    assert stage.api_calls.about(stage.bench.namespace, "/db") == []


@pytest.mark.parametrize(
    ("windows", "open_now"),
    [
        pytest.param({"kind": "allow", "windows": ALWAYS}, True, id="allowed at all times"),
        pytest.param({"kind": "deny", "windows": ALWAYS}, False, id="denied at all times"),
        pytest.param({"kind": "allow", "windows": NO_SCHEDULE}, False, id="catalogue R12 allowed by no schedule"),
        pytest.param({"kind": "deny", "windows": NO_SCHEDULE}, True, id="catalogue R12 denied by no schedule"),
    ],
)
async def test_windows_decide_about_routine_refreshes_only(stage: Scene, windows: JsonObject, open_now: bool) -> None:
    """R8, R9 of the catalogue: the first sync, repair and a changed object come through any window."""
    stage.backend(db="v1")
    await stage.sync("db", ONE, refreshInterval="1s", syncWindows=windows)
    await stage.sync("busy", {"password": "sentinel"}, refreshInterval="1s")

    stage.backend(db="v2")
    await until_reads(stage, "sentinel", 3)

    assert (await stage.data("db") == {"password": "v2"}) is open_now
    await stage.bench.delete(SECRETS, "db")
    await stage.until("db", {"password": "v2"})
    stage.backend(db="v3")
    await stage.force("db")
    await stage.until("db", {"password": "v3"})
