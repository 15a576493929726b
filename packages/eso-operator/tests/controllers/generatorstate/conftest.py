"""Generators that remember, under a live operator."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.generators.generatorstate import GENERATOR_STATE
from eso_operator.settings import DEFAULT_GATES, FeatureGate, Settings
from eso_operator.wiring_controllers import Memories
from eso_testkit.operator.generatingprovider import GeneratingProvider, generating
from eso_testkit.operator.operators import Bench
from kubebase.meta import JsonObject, Resource
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import SECRETS
from kuberun.transport import Transport

ES = EXTERNAL_SECRET.resource()
STATES = GENERATOR_STATE.resource()


@dataclass(slots=True)
class Workshop:
    """The actions and observations of users."""

    bench: Bench
    provider: GeneratingProvider
    ticks: list[int] = field(default_factory=list)
    memories: Memories = field(default_factory=Memories)
    """Those of the running operator."""

    async def apply(self, name: str, resource: Resource, generator: str, **spec: Any) -> None:
        """An ExternalSecret with that generator as its only source."""
        ref = {"apiVersion": resource.api_version, "kind": resource.kind, "name": generator}
        full = {"refreshInterval": "0", "dataFrom": [{"sourceRef": {"generatorRef": ref}}], **spec}
        await self.bench.create(ES, name, spec=full)

    async def sync(self, name: str, resource: Resource, generator: str, **spec: Any) -> None:
        await self.apply(name, resource, generator, **spec)
        await self.bench.ready(ES, name, lambda condition: condition.status == "True")

    async def force(self, name: str) -> None:
        self.ticks.append(1)
        note = {"annotations": {"force-sync": str(len(self.ticks))}}
        await self.bench.patch(ES, name, {"metadata": note})

    async def states(self) -> list[JsonObject]:
        listed = await self.bench.api.get(STATES.path(self.bench.namespace))
        return list(listed.body["items"])

    async def until_states(self, wanted: Callable[[list[JsonObject]], bool], complaint: str) -> list[JsonObject]:
        async def look() -> list[list[JsonObject]]:
            found = await self.states()
            return [found] if wanted(found) else []

        return (await eventually(look, complaint))[0]

    async def until_gone(self) -> None:
        await self.until_states(lambda found: not found, "there are still GeneratorStates")

    async def holds(self, name: str, password: str) -> None:
        async def look() -> bool:
            found = await self.bench.find(SECRETS, name) or {}
            return base64.b64decode((found.get("data") or {}).get("password", "")) == password.encode()

        await eventually(look, f"Secret {name} does not become as wanted")

    async def event(self, reason: str, *words: str) -> None:
        async def look() -> bool:
            listed = await self.bench.api.get(f"/api/v1/namespaces/{self.bench.namespace}/events")
            return any(
                (each["type"], each["reason"], each["involvedObject"]["kind"]) == ("Warning", reason, "GeneratorState")
                and all(word in each["message"] for word in words)
                for each in listed.body["items"]
            )

        await eventually(look, f"no event {reason} {words}")


Opening = Callable[..., AbstractAsyncContextManager[Workshop]]


@pytest.fixture
async def workshop(bench: Bench) -> AsyncIterator[Opening]:
    """An operator with a provider. Retired states are due at once; none is left to the operators of other tests."""

    @asynccontextmanager
    async def opened(
        provider: GeneratingProvider | None = None,
        *,
        grace: float = 0.0,
        gates: frozenset[FeatureGate] = DEFAULT_GATES,
        generic: bool = False,
        through: Callable[[Transport], Transport] = lambda plain: plain,
    ) -> AsyncIterator[Workshop]:
        shop = Workshop(bench, provider or generating())
        settings = replace(with_grace(bench.settings, grace), gates=gates)
        settings = replace(settings, sync=replace(settings.sync, generic_targets=generic))
        async with bench.operator(settings, through=through) as operator:
            if bench.host is None:
                await bench.install(shop.provider)
            shop.memories = operator.memories
            yield shop

    yield opened
    for state in await Workshop(bench, generating()).states():
        name = state["metadata"]["name"]
        await bench.patch(STATES, name, {"metadata": {"finalizers": None}})
        await bench.api.delete(STATES.path(bench.namespace, name))


def with_grace(settings: Settings, grace: float) -> Settings:
    return replace(settings, sync=replace(settings.sync, generator_grace=grace))
