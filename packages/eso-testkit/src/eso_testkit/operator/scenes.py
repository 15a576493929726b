"""ExternalSecrets under a live operator: a store that is ready, objects in one line, requests that are counted.

async with scene(bench, {"db/password": "v1"}) as stage:
    await stage.sync("db", {"password": "db/password"})
    assert await stage.data("db") == {"password": "v1"}
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_operator.settings import Settings
from eso_operator.wiring import Operator
from eso_testkit.operator.operators import Bench, scripted
from eso_testkit.operator.scriptedprovider import ScriptedProvider
from eso_testkit.operator.transports import Between
from kubebase.meta import Condition, JsonObject
from kubebase.testing.waiting import eventually
from kuberun.requests import Request
from kuberun.testing.builders import CONFIG_MAPS, SECRETS
from kuberun.testing.rawapi import MERGE_PATCH
from kuberun.transport import Transport

ES = EXTERNAL_SECRET.resource()
STORES = SECRET_STORE.resource()
FAKE_STORE: JsonObject = {"provider": {"fake": {"data": [{"key": "a", "value": "b"}]}}}
STORE = "fake"
_SENTINEL = "sentinel"


@dataclass
class CountedTransport(Between):
    """Records the operator's requests to the API server, except watches and events."""

    inner: Transport
    requests: list[tuple[str, str]] = field(default_factory=list)

    async def request(self, request: Request) -> bytes:
        if not request.path.endswith("/events") and "/events/" not in request.path:
            self.requests.append((request.method, request.path))
        return await self.inner.request(request)

    def about(self, *texts: str) -> list[tuple[str, str]]:
        """Return the requests whose path contains all of these texts."""
        return [(method, path) for method, path in self.requests if all(word in path for word in texts)]

    def writes(self, *texts: str) -> list[tuple[str, str]]:
        return [(method, path) for method, path in self.about(*texts) if method != "GET"]


@dataclass(slots=True)
class Scene:
    """A cluster with an operator, a provider and one store; what people do in it and see of it."""

    bench: Bench
    operator: Operator
    provider: ScriptedProvider
    api_calls: CountedTransport
    _ticks: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def reads(self) -> int:
        """Return how often the backend was read."""
        return self.provider.calls["GetSecrets"]

    def backend(self, **data: str) -> None:
        """Add these values to the backend."""
        self.provider.data |= {key: text.encode() for key, text in data.items()}

    # --- what people do -----------------------------------------------------------------------------------------------

    async def apply(self, name: str, keys: Mapping[str, str] | None = None, **spec: Any) -> JsonObject:
        """Create an ExternalSecret: target keys by remote key, and further fields of its spec."""
        entries = [{"secretKey": key, "remoteRef": {"key": remote}} for key, remote in (keys or {}).items()]
        metadata = spec.pop("metadata", {})
        full = {"secretStoreRef": {"name": STORE}, **({"data": entries} if entries else {}), **spec}
        return await self.bench.create(ES, name, metadata=metadata, spec=full)

    async def sync(self, name: str, keys: Mapping[str, str] | None = None, **spec: Any) -> JsonObject:
        """Create it and wait until it is Ready."""
        await self.apply(name, keys, **spec)
        return await self.ready(name)

    async def change(self, name: str, **spec: Any) -> None:
        await self.bench.patch(ES, name, {"spec": spec})

    async def force(self, name: str) -> None:
        """Force a refresh, as users do."""
        await self.bench.patch(ES, name, {"metadata": {"annotations": {"force-sync": str(next(self._ticks))}}})

    async def put_secret(self, name: str, data: Mapping[str, str], **metadata: Any) -> JsonObject:
        return await self.bench.create(SECRETS, name, data=encoded(data), metadata=metadata)

    async def edit(self, name: str, data: Mapping[str, str | None]) -> None:
        changed = {key: None if value is None else _base64(value) for key, value in data.items()}
        await self.bench.patch(SECRETS, name, {"data": changed})

    # --- what people see ----------------------------------------------------------------------------------------------

    async def ready(self, name: str, reason: str = "", *texts: str) -> JsonObject:
        """Return the ExternalSecret once it is Ready (with that reason, and these texts in its message)."""
        return await self.bench.ready(ES, name, _refers_to("True", reason, texts))

    async def broken(self, name: str, *texts: str, reason: str = "SecretSyncedError") -> JsonObject:
        return await self.bench.ready(ES, name, _refers_to("False", reason, texts))

    async def status(self, name: str) -> JsonObject:
        found = await self.bench.find(ES, name) or {}
        return dict(found.get("status") or {})

    async def secret(self, name: str) -> JsonObject | None:
        return await self.bench.find(SECRETS, name)

    async def data(self, name: str) -> dict[str, str] | None:
        """Return the data of the Secret, as text."""
        found = await self.secret(name)
        return None if found is None else decoded(found)

    async def until(self, name: str, data: Mapping[str, str] | None) -> None:
        """Wait until the Secret contains exactly this; None: until it is deleted."""
        found_keys: list[object] = []

        async def read_state() -> bool:
            found = await self.data(name)
            found_keys[:] = [sorted(found) if found is not None else None]
            return found == data

        try:
            await eventually(read_state, "")
        except AssertionError:
            raise AssertionError(f"Secret {name} does not become as wanted; it has the keys {found_keys}") from None

    async def config_map(self, name: str) -> JsonObject | None:
        return await self.bench.find(CONFIG_MAPS, name)

    async def until_event(self, name: str, type_: str, reason: str, message: str = "") -> None:
        await self.bench.until_event(name, type_, reason, message)

    async def until_idle(self) -> None:
        """Wait until the operator has handled all changes made before this call: it has handled one made now."""
        found = await self.secret(_SENTINEL)
        if found is None:
            await self.sync(_SENTINEL, {"value": "sentinel"}, refreshInterval="0")
        for _ in range(2):  # the second comes back after everything that was queued while the first was looked at
            before = await self.secret(_SENTINEL) or {"metadata": {"uid": ""}}
            await self.bench.delete(SECRETS, _SENTINEL)
            await eventually(lambda old=before: self._is_new(old), "a deleted Secret does not come back")  # type: ignore[misc]  # bound per turn

    async def _is_new(self, old: JsonObject) -> bool:
        found = await self.secret(_SENTINEL)
        return found is not None and found["metadata"]["uid"] != old["metadata"]["uid"]

    async def patch_status(self, name: str, status: JsonObject) -> None:
        """Patch the status of an ExternalSecret, as another client would."""
        path = ES.path(self.bench.namespace, name) + "/status"
        answer = await self.bench.api.patch(path, {"status": status}, MERGE_PATCH)
        assert answer.status == 200, answer.body  # noqa: S101 - this is a test kit


@asynccontextmanager
async def scene(
    bench: Bench, data: Mapping[str, str] | None = None, settings: Settings | None = None
) -> AsyncIterator[Scene]:
    """Start everything and wait until the store is ready."""
    provider = scripted_with(data or {})
    async with running(bench, provider, settings) as stage:
        await bench.install(provider)
        await bench.create(STORES, STORE, spec=FAKE_STORE)
        await bench.ready(STORES, STORE, lambda condition: condition.status == "True")
        yield stage


@asynccontextmanager
async def running(bench: Bench, provider: ScriptedProvider, settings: Settings | None = None) -> AsyncIterator[Scene]:
    """Start an operator and the parts that are not running yet."""
    counted: list[CountedTransport] = []

    def count(transport: Transport) -> Transport:
        counted.append(CountedTransport(transport))
        return counted[-1]

    async with bench.operator(settings, through=count) as operator:
        yield Scene(bench, operator, provider, counted[0])


def scripted_with(data: Mapping[str, str]) -> ScriptedProvider:
    """Return a provider whose backend contains this, and the values that the scene itself needs."""
    return scripted(data={"sentinel": b"here", **{key: text.encode() for key, text in data.items()}})


def generic(bench: Bench) -> Settings:
    """Return settings that permit targets of any kind."""
    settings = bench.settings
    return replace(settings, sync=replace(settings.sync, generic_targets=True))


def encoded(data: Mapping[str, str]) -> dict[str, str]:
    return {key: _base64(value) for key, value in data.items()}


def decoded(secret: JsonObject) -> dict[str, str]:
    return {key: base64.b64decode(value).decode() for key, value in (secret.get("data") or {}).items()}


def _base64(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


def _refers_to(status: str, reason: str, texts: tuple[str, ...]) -> Any:
    def wanted(condition: Condition) -> bool:
        same = condition.status == status and reason in ("", condition.reason)
        return same and all(word in condition.message for word in texts)

    return wanted
