"""An operator on a cluster without its CustomResourceDefinitions says which ones, waits, and goes on."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace

import aiohttp
import pytest
from structlog.testing import capture_logs

from eso_operator.missingkinds import Definitions, LeftOutKinds
from eso_operator.settings import Reconcilers
from eso_testkit.operator.operators import Bench
from eso_testkit.operator.transports import UnservedGroup, UnservedKinds
from kubebase.meta import Resource
from kubebase.testing.clock import VirtualClock
from kubebase.testing.waiting import eventually
from kuberun.client import Client
from kuberun.errors import NotServed, ServiceUnavailable
from kuberun.health import Healthy, Unhealthy
from kuberun.requests import Request

SECRETS = Resource("", "v1", "secrets", "Secret")
THINGS = Resource("example.com", "v1", "things", "Thing")
PARTS = Resource("example.com", "v1", "parts", "Part")
OTHERS = Resource("other.example.com", "v2", "others", "Other")
MISSING = "CustomResourceDefinitions are missing"


@dataclass
class Discovery:
    """An API server that serves these resources, and tells so unless it is away."""

    served: list[Resource] = field(default_factory=list)
    away: bool = False
    asked: list[str] = field(default_factory=list)

    async def request(self, request: Request) -> bytes:
        self.asked.append(request.path)
        if self.away:
            raise ServiceUnavailable(503, "ServiceUnavailable", "away")
        found = [resource for resource in self.served if resource.root == request.path]
        if not found:
            raise NotServed(404, "", "no such group")
        return json.dumps({"resources": [{"name": each.plural, "kind": each.kind} for each in found]}).encode()

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise AssertionError(f"nothing is watched: {request.path}")

    async def close(self) -> None:
        return


class Story:
    """A running `Definitions`, and its reports."""

    def __init__(self, server: Discovery, *resources: Resource) -> None:
        self.server = server
        self.clock = VirtualClock()
        client = Client(server)
        self.definitions = Definitions(client, self.clock, resources, left_out=LeftOutKinds(client, ""))

    async def looks(self, *servers: Sequence[Resource] | None) -> list[Healthy | Unhealthy]:
        """Return the result of the probe after each check; None means a server that does not respond."""
        verdicts: list[Healthy | Unhealthy] = []
        async with asyncio.TaskGroup() as group:
            for number, served in enumerate(servers):
                self.server.away, self.server.served = served is None, list(served or ())
                if not number:
                    running = group.create_task(self.definitions.run())
                await self.clock.advance(5.0 if number else 0.0)
                verdicts.append(await self.definitions.check())
            running.cancel()
        return verdicts


async def test_missing_definitions_are_named_until_they_exist() -> None:
    story = Story(Discovery(), SECRETS, THINGS, PARTS, OTHERS)

    with capture_logs() as lines:
        verdicts = await story.looks([THINGS], [THINGS], [THINGS, PARTS, OTHERS])

    first, second, last = verdicts
    assert isinstance(first, Unhealthy)
    assert "others.other.example.com (v2), parts.example.com (v1)" in first.reason
    assert "deploy/crds" in first.reason
    assert first == second
    assert last == Healthy()
    assert [line["event"] for line in lines] == [MISSING, "all CustomResourceDefinitions are there"]
    assert lines[0]["missing"] == ["others.other.example.com (v2)", "parts.example.com (v1)"]


async def test_a_server_that_does_not_answer_lacks_nothing() -> None:
    story = Story(Discovery(), THINGS)

    with capture_logs() as lines:
        verdicts = await story.looks(None, [], None)

    unknown, missing, still = verdicts
    assert unknown == Healthy()
    assert isinstance(missing, Unhealthy)
    assert still == missing
    assert [line["event"] for line in lines] == [MISSING]


async def test_the_check_stops_once_all_definitions_are_served() -> None:
    story = Story(Discovery(), SECRETS, THINGS)

    with capture_logs() as lines:
        await story.looks([THINGS], [THINGS], [THINGS])

    assert story.server.asked == ["/apis/example.com/v1"]
    assert lines == []


async def probed(port: int) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/readyz") as answer:
        return answer.status, await answer.text()


@pytest.mark.live
async def test_an_operator_waits_for_its_definitions_and_becomes_ready_when_they_appear(bench: Bench) -> None:
    group = UnservedGroup("generator.external-secrets.io")

    with capture_logs() as lines:
        async with bench.operator(through=group.over) as operator:
            port = await operator.health.wait_listening()

            async def said() -> bool:
                return any(line["event"] == MISSING for line in lines)

            async def unready() -> str | None:
                code, text = await probed(port)
                return text if code == 503 and "missing CustomResourceDefinitions" in text else None

            async def ready() -> bool:
                return (await probed(port))[0] == 200

            await eventually(said, "the missing definitions are not logged")
            text = await eventually(unready, "the probe does not say what is missing")
            assert "generators.generator.external-secrets.io (v2alpha1)" in text

            group.hides = False

            await eventually(ready, "not ready, although everything is there", within=90)


@pytest.mark.live
async def test_an_operator_is_ready_without_the_kinds_that_it_does_not_use(bench: Bench) -> None:
    hidden = UnservedKinds("pushsecrets", "clusterpushsecrets", "clustergenerators", "uuids", "generatorstates")
    off = Reconcilers(push_secret=False, cluster_push_secret=False, generator_state=False)

    async with bench.operator(replace(bench.settings, reconcilers=off), through=hidden.over) as operator:
        port = await operator.health.wait_listening()

        async def ready() -> bool:
            return (await probed(port))[0] == 200

        await eventually(ready, "not ready without kinds that are off or optional")
