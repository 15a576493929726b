"""A Secret that is pushed, read again and written back, on a live API server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.pushsecret import PUSH_SECRET
from eso_testkit.operator.pushsecrets import entry
from eso_testkit.operator.scenes import decoded
from kubebase.meta import JsonObject
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import SECRETS

pytestmark = pytest.mark.live

ES = EXTERNAL_SECRET.resource()
PUSHES = PUSH_SECRET.resource()
OFTEN: dict[str, Any] = {"refreshInterval": "1s"}


def growing(key: str = "value") -> JsonObject:
    return {"data": {key: "{{ .%s }}+" % key}}  # noqa: UP031 - braces of the template


@dataclass(slots=True)
class Circle:
    """ExternalSecrets next to the PushSecrets of a stage."""

    stage: Any

    async def read(self, name: str, remote: str, *more: tuple[str, str], template: JsonObject | None = None) -> None:
        entries = [{"secretKey": key, "remoteRef": {"key": each}} for key, each in (("value", remote), *more)]
        target = {"template": template} if template is not None else {}
        spec = {"secretStoreRef": {"name": "store"}, "data": entries, "target": target, **OFTEN}
        await self.stage.bench.create(ES, name, spec=spec)

    async def pushes(self, name: str, source: str, remote: str) -> None:
        await self.stage.apply(name, entry("value", remote), selector={"secret": {"name": source}})

    async def condition(self, resource: Any, name: str) -> JsonObject | None:
        found = await self.stage.bench.find(resource, name) or {}
        conditions = found.get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == "Contended"), None)

    async def contended(self, resource: Any, name: str, *words: str) -> JsonObject:
        async def look() -> JsonObject | None:
            found = await self.condition(resource, name)
            return found if found is not None and all(word in found["message"] for word in words) else None

        return await eventually(look, f"{resource.kind} {name} does not say that it is contended: {words}")

    async def at_peace(self, resource: Any, name: str) -> None:
        async def look() -> bool:
            return await self.condition(resource, name) is None

        await eventually(look, f"{resource.kind} {name} still says that it is contended", within=90.0)

    async def holds(self, name: str, value: str, key: str = "value") -> None:
        async def look() -> bool:
            found = await self.stage.bench.find(SECRETS, name)
            return found is not None and decoded(found).get(key) == value

        await eventually(look, f"Secret {name} does not get its value")

    async def refreshes_of_a_witness(self, times: int) -> None:
        """Wait until another ExternalSecret with the shortest interval has read its key that often."""
        provider = self.stage.provider
        if await self.stage.bench.find(ES, "witness") is None:
            provider.put("tick", b"t")
            await self.read("witness", "tick")

        def ticks() -> int:
            return sum(item.ref.key == "tick" for items in provider.requests for item in items)

        goal = ticks() + times
        await self.stage.until(lambda: ticks() >= goal, "the witness does not refresh")


async def test_a_value_that_grows_at_every_turn_is_reported_and_slowed_down(staged: Any) -> None:
    async with staged() as stage:
        circle = Circle(stage)
        stage.provider.put("db", b"v")
        await circle.read("app", "db", template=growing())
        await circle.pushes("back", "app", "db")

        found = await circle.contended(
            ES, "app", 'pushed to remote key "db" in SecretStore/store by PushSecret back and read again'
        )
        other = await circle.contended(PUSHES, "back", "read again by ExternalSecret app")

        assert (found["status"], found["reason"], other["reason"]) == ("True", "FeedsItself", "FeedsItself")
        turns = len(stage.provider.pushes)
        await circle.refreshes_of_a_witness(8)
        assert len(stage.provider.pushes) - turns <= 1
        assert len(stage.provider.values["db"]) <= len(b"v++++++")


async def test_the_loop_is_over_when_the_push_secret_is_deleted(staged: Any) -> None:
    async with staged() as stage:
        circle = Circle(stage)
        stage.provider.put("db", b"v")
        await circle.read("app", "db", template=growing())
        await circle.pushes("back", "app", "db")
        await circle.contended(ES, "app")

        await stage.bench.delete(PUSHES, "back")
        await stage.gone("back")

        await circle.at_peace(ES, "app")


async def test_the_loop_is_over_when_the_template_is_corrected(staged: Any) -> None:
    """An edit is carried out at once, and nothing waits any more."""
    async with staged() as stage:
        circle = Circle(stage)
        stage.provider.put("db", b"v")
        await circle.read("app", "db", template=growing())
        await circle.pushes("back", "app", "db")
        await circle.contended(PUSHES, "back")

        await stage.bench.patch(ES, "app", {"spec": {"target": {"template": None}}})

        await circle.at_peace(ES, "app")
        await circle.at_peace(PUSHES, "back")
        stage.provider.put("db", b"new", "external-secrets")
        await circle.holds("app", "new")


async def test_a_loop_through_two_external_secrets_is_found(staged: Any) -> None:
    async with staged() as stage:
        circle = Circle(stage)
        stage.provider.put("one", b"v")
        await circle.read("first", "one", template=growing())
        await circle.pushes("there", "first", "two")
        await circle.holds("first", "v+")
        await stage.until(lambda: "two" in stage.provider.stored, "nothing is pushed")
        await circle.read("second", "two")
        await circle.pushes("back", "second", "one")

        found = await circle.contended(ES, "first", 'remote key "one"', "PushSecret back")

        assert found["reason"] == "FeedsItself"


@pytest.mark.parametrize("rotated", ["token", "value"], ids=["another value of the Secret", "the pushed value"])
async def test_a_round_trip_that_comes_to_rest_is_legal_while_values_are_rotated(staged: Any, rotated: str) -> None:
    async with staged() as stage:
        circle = Circle(stage)
        stage.provider.put("value", b"0", "external-secrets")
        stage.provider.put("token", b"0")
        await circle.read("app", "value", ("token", "token"))
        await circle.pushes("back", "app", "value")
        await stage.until(lambda: len(stage.provider.pushes) > 0, "it is not pushed")

        for turn in range(1, 7):
            stage.provider.put(rotated, str(turn).encode(), stage.provider.stored[rotated].owner)
            await circle.holds("app", str(turn), rotated)
            # Not before: a push that is under way would put the old value back.
            await stage.until(lambda turn=turn: len(stage.provider.pushes) > turn, "it is not pushed")

        assert (await circle.condition(ES, "app"), await circle.condition(PUSHES, "back")) == (None, None)


async def test_a_mirror_of_a_value_that_is_rotated_often_is_legal(staged: Any) -> None:
    """The Secret is pushed under another remote key, which nobody reads."""
    async with staged() as stage:
        circle = Circle(stage)
        stage.provider.put("db", b"0")
        await circle.read("app", "db", template=growing())
        await circle.pushes("mirror", "app", "copy")

        for turn in range(1, 7):
            stage.provider.put("db", str(turn).encode())
            await stage.until(
                lambda turn=turn: stage.provider.values.get("copy") == f"{turn}+".encode(),
                "the copy is not pushed",
            )

        assert (await circle.condition(ES, "app"), await circle.condition(PUSHES, "mirror")) == (None, None)
