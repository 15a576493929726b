"""PushSecrets with a live operator: a provider that keeps pushed values, a ready store, objects in one line."""

from __future__ import annotations

import base64
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_operator.settings import Settings
from eso_operator.wiring import Operator
from eso_testkit.operator.operators import Bench
from eso_testkit.operator.storingprovider import StoringProvider, storing
from kubebase.meta import Condition, JsonObject
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import SECRETS
from kuberun.transport import Transport

PUSHES = PUSH_SECRET.resource()
STORES = SECRET_STORE.resource()
FAKE_STORE: JsonObject = {"provider": {"fake": {"data": [{"key": "a", "value": "b"}]}}}


def encoded(data: Mapping[str, str]) -> dict[str, str]:
    return {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}


@dataclass(slots=True)
class Stage:
    """The actions and observations of users. Source Secret and store are called `source` and `store` by default."""

    bench: Bench
    provider: StoringProvider
    operator: Operator
    _ticks: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    async def source(self, name: str = "source", labels: Mapping[str, str] | None = None, **data: str) -> None:
        await self.bench.create(SECRETS, name, metadata={"labels": dict(labels or {})}, data=encoded(data))

    async def edit(self, name: str = "source", **data: str) -> None:
        await self.bench.patch(SECRETS, name, {"data": encoded(data)})

    async def store(self, name: str = "store", **spec: Any) -> None:
        labels = spec.pop("labels", {})
        await self.bench.create(STORES, name, metadata={"labels": labels}, spec={**FAKE_STORE, **spec})

    async def apply(self, name: str, *data: JsonObject, **spec: Any) -> None:
        metadata = spec.pop("metadata", {})
        full = {
            "secretStoreRefs": [{"name": "store"}],
            "selector": {"secret": {"name": "source"}},
            **({"data": list(data)} if data else {}),
            **spec,
        }
        await self.bench.create(PUSHES, name, metadata=metadata, spec=full)

    async def push(self, name: str, *data: JsonObject, **spec: Any) -> JsonObject:
        """Create it and wait until it is Ready."""
        await self.apply(name, *data, **spec)
        return await self.ready(name)

    async def change(self, name: str, **spec: Any) -> None:
        await self.bench.patch(PUSHES, name, {"spec": spec})

    async def force(self, name: str) -> None:
        await self.bench.patch(PUSHES, name, {"metadata": {"annotations": {"force-sync": str(next(self._ticks))}}})

    async def ready(self, name: str, *words: str) -> JsonObject:
        return await self.bench.ready(PUSHES, name, _is("True", "Synced", words))

    async def broken(self, name: str, *words: str, reason: str = "Errored") -> JsonObject:
        return await self.bench.ready(PUSHES, name, _is("False", reason, words))

    async def status(self, name: str) -> JsonObject:
        found = await self.bench.find(PUSHES, name) or {}
        return dict(found.get("status") or {})

    async def condition(self, name: str, type_: str) -> JsonObject | None:
        found = (await self.status(name)).get("conditions", [])
        return next((each for each in found if each["type"] == type_), None)

    async def until(self, look: Callable[[], bool], complaint: str) -> None:
        async def looked() -> bool:
            return look()

        await eventually(looked, complaint)

    async def holds(self, **values: str) -> None:
        """Wait until the backend holds exactly this."""
        wanted = {key.replace("__", "#"): text.encode() for key, text in values.items()}
        try:
            await self.until(lambda: self.provider.values == wanted, "")
        except AssertionError:
            raise AssertionError(
                f"the backend has {sorted(self.provider.stored)}, not exactly what is wanted"
            ) from None

    async def gone(self, name: str) -> None:
        async def look() -> bool:
            return await self.bench.find(PUSHES, name) is None

        await eventually(look, f"PushSecret {name} is still there")

    async def event(self, name: str, type_: str, reason: str, *words: str) -> None:
        async def look() -> bool:
            listed = await self.bench.api.get(f"/api/v1/namespaces/{self.bench.namespace}/events")
            return any(
                (each["type"], each["reason"], each["involvedObject"]["name"]) == (type_, reason, name)
                and all(word in each["message"] for word in words)
                for each in listed.body["items"]
            )

        await eventually(look, f"no event {reason} {words} about {name}")


Staging = Callable[..., AbstractAsyncContextManager[Stage]]


@pytest.fixture
def staged(bench: Bench) -> Staging:
    """An operator with a provider and a store."""

    @asynccontextmanager
    async def stage(
        provider: StoringProvider | None = None,
        *,
        settings: Settings | None = None,
        ready: bool = True,
        tidy: bool = True,
        through: Callable[[Transport], Transport] = lambda plain: plain,
    ) -> AsyncIterator[Stage]:
        kept = provider or storing()
        # Namespaces of earlier tests may still be on their way out, with PushSecrets that would find this provider.
        alone = replace(bench.settings, namespace=bench.namespace)
        async with bench.operator(settings or alone, through=through) as operator:
            found = Stage(bench, kept, operator)
            await bench.install(kept)
            if ready:
                await found.store()
                await bench.ready(STORES, "store", lambda condition: condition.status == "True")
            yield found
            if tidy:
                await _tidied(found)

    return stage


@pytest.fixture
def rerun(bench: Bench) -> Staging:
    """The next operator in the same cluster, with the provider and the store of the one before."""

    @asynccontextmanager
    async def stage(
        provider: StoringProvider, *, through: Callable[[Transport], Transport] = lambda plain: plain
    ) -> AsyncIterator[Stage]:
        alone = replace(bench.settings, namespace=bench.namespace)
        async with bench.operator(alone, through=through) as operator:
            found = Stage(bench, provider, operator)
            yield found
            await _tidied(found)

    return stage


async def _tidied(stage: Stage) -> None:
    """Let go what waits for its finalizer, which only an operator with this provider can finish."""
    stage.provider.delete_errors.clear()
    path = PUSHES.path(stage.bench.namespace)

    async def look() -> bool:
        names = [each["metadata"]["name"] for each in (await stage.bench.api.get(path)).body["items"]]
        for name in names:
            await stage.bench.api.delete(PUSHES.path(stage.bench.namespace, name))
        return not names

    await eventually(look, "PushSecrets stay")


def _is(status: str, reason: str, words: tuple[str, ...]) -> Callable[[Condition], bool]:
    return lambda condition: (
        (condition.status, condition.reason) == (status, reason) and all(word in condition.message for word in words)
    )
