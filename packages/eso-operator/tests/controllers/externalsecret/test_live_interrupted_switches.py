"""An operator that ends between writing a target and removing the one before it: the next one does the rest.

Each test has operators of its own, one after the other.
"""

from dataclasses import dataclass, field

import pytest

from eso_testkit.operator.operators import Bench
from eso_testkit.operator.scenes import Scene, generic, running, scene
from eso_testkit.operator.transports import Between
from kubebase.meta import JsonObject, Resource
from kubebase.testing.waiting import eventually
from kuberun.errors import Forbidden, Unreachable
from kuberun.requests import Request
from kuberun.testing.builders import CONFIG_MAPS, SECRETS
from kuberun.transport import Transport

pytestmark = pytest.mark.live

ONE = {"password": "db"}
CONFIG_MAP: JsonObject = {"manifest": {"apiVersion": "v1", "kind": "ConfigMap"}}
ONCE: JsonObject = {"refreshPolicy": "CreatedOnce"}
REFRESHES = [pytest.param({}, id="periodic"), pytest.param(ONCE, id="created once")]


@dataclass
class Killed(Between):
    """From one request on, that one included or not, nothing reaches the API server: as if the process were killed."""

    inner: Transport
    method: str
    path: str
    arrives: bool = False
    dead: bool = field(default=False, init=False)

    async def request(self, request: Request) -> bytes:
        fatal = request.method == self.method and request.path.endswith(self.path)
        if self.dead or (fatal and not self.arrives):
            self.dead = True
            raise Unreachable("killed")
        answer = await self.inner.request(request)
        self.dead = fatal or self.dead
        return answer

    async def happened(self) -> None:
        async def dead() -> bool:
            return self.dead

        await eventually(dead, f"no {self.method} {self.path}")


@dataclass
class Unwilling(Between):
    """Rejects deletions while the test asks for it."""

    inner: Transport
    refuses: bool = True

    async def request(self, request: Request) -> bytes:
        if self.refuses and request.method == "DELETE":
            raise Forbidden(403, "Forbidden", "not now")
        return await self.inner.request(request)


async def until_gone(bench: Bench, resource: Resource) -> None:
    async def gone() -> bool:
        return await bench.find(resource, "db") is None

    await eventually(gone, f"{resource.kind} db does not go")


async def recorded(stage: Scene) -> bool:
    return "manifests" in await stage.status("db")


@pytest.mark.parametrize("refresh", REFRESHES)
@pytest.mark.parametrize(
    ("before", "after", "resource"),
    [
        pytest.param(CONFIG_MAP, {"manifest": None, "name": "now"}, CONFIG_MAPS, id="another kind"),
        pytest.param({}, {"name": "now"}, SECRETS, id="another name"),
    ],
)
async def test_the_next_operator_removes_the_leftovers_of_a_killed_one(
    bench: Bench, refresh: JsonObject, before: JsonObject, after: JsonObject, resource: Resource
) -> None:
    async with scene(bench, {"db": "v1"}, generic(bench)) as stage:
        await stage.sync("db", ONE, target=before, **refresh)
        stage.api_calls.inner = killed = Killed(stage.api_calls.inner, "DELETE", f"/{resource.plural}/db")
        await stage.change("db", target=after)
        await killed.happened()
        provider = stage.provider
    assert await stage.data("now") == {"password": "v1"}
    assert await bench.find(resource, "db") is not None

    async with running(bench, provider, generic(bench)):
        await until_gone(bench, resource)

        await stage.until_event("db", "Normal", "Deleted", "because it was orphaned")
        assert await stage.data("now") == {"password": "v1"}
        await stage.ready("db", "SecretSynced")
        await eventually(lambda: binds(stage, "now"), "workloads are pointed elsewhere")


async def binds(stage: Scene, name: str) -> bool:
    return bool((await stage.status("db")).get("binding") == {"name": name})


async def test_an_object_that_was_made_just_before_is_not_forgotten(bench: Bench) -> None:
    """No status ever said that it was synced, and the target is another one before there is an operator again."""
    async with scene(bench, {"db": "v1"}, generic(bench)) as stage:
        stage.api_calls.inner = killed = Killed(stage.api_calls.inner, "POST", "/configmaps", arrives=True)
        await stage.apply("db", ONE, target=CONFIG_MAP)
        await killed.happened()
        provider = stage.provider
    assert await stage.config_map("db") is not None
    assert "refreshTime" not in await stage.status("db")
    await stage.change("db", target={"manifest": None})

    async with running(bench, provider, generic(bench)):
        await until_gone(bench, CONFIG_MAPS)

        assert await stage.data("db") == {"password": "v1"}


async def test_a_status_that_was_lost_names_the_secret_that_there_is(bench: Bench) -> None:
    """Everything was done but the last word, and nothing is due."""
    async with scene(bench, {"db": "v1"}) as stage:
        await stage.sync("db", ONE, **ONCE)
        stage.api_calls.inner = killed = Killed(stage.api_calls.inner, "DELETE", "/secrets/db", arrives=True)
        await stage.change("db", target={"name": "now"})
        await killed.happened()
        provider = stage.provider
    assert await binds(stage, "db")

    async with running(bench, provider):
        await eventually(lambda: binds(stage, "now"), "workloads are pointed to a Secret that is gone")


@pytest.mark.parametrize("refresh", REFRESHES)
async def test_a_target_that_may_not_be_deleted_is_reported_and_retried(bench: Bench, refresh: JsonObject) -> None:
    async with scene(bench, {"db": "v1"}, generic(bench)) as stage:
        await stage.sync("db", ONE, target=CONFIG_MAP, **refresh)
        stage.api_calls.inner = server = Unwilling(stage.api_calls.inner)

        await stage.change("db", target={"manifest": None})

        await stage.broken("db", "could not delete orphaned secrets", "not now")
        assert await stage.data("db") == {"password": "v1"}
        server.refuses = False
        await until_gone(bench, CONFIG_MAPS)
        await stage.ready("db", "SecretSynced")


async def test_an_unrecorded_target_is_recorded_later(bench: Bench) -> None:
    """As earlier releases and the existing operator leave it: nothing else is due."""
    async with scene(bench, {"db": "v1"}, generic(bench)) as stage:
        await stage.sync("db", ONE, target=CONFIG_MAP, **ONCE)
        provider = stage.provider
    await stage.patch_status("db", {"manifests": None})
    asked = provider.calls["GetSecrets"]

    async with running(bench, provider, generic(bench)):
        await eventually(lambda: recorded(stage), "it is not on record")
        assert provider.calls["GetSecrets"] == asked

        await stage.change("db", target={"manifest": None})

        await until_gone(bench, CONFIG_MAPS)


async def test_kinds_that_are_no_longer_allowed_stay_unchanged_until_they_are_allowed(bench: Bench) -> None:
    async with scene(bench, {"db": "v1"}, generic(bench)) as stage:
        await stage.sync("db", ONE, target=CONFIG_MAP)
        provider = stage.provider
    await stage.change("db", target={"manifest": None})

    async with running(bench, provider):
        await stage.until("db", {"password": "v1"})
        await stage.ready("db", "SecretSynced")

    assert await stage.config_map("db") is not None
    assert await recorded(stage)
    async with running(bench, provider, generic(bench)):
        await until_gone(bench, CONFIG_MAPS)
