"""Short forms of a cluster's verbs: kinds by name, one user, and failures as values."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kubebase.meta import JsonObject
from localkube.cluster import Cluster, Watch
from localkube.errors import StatusError
from localkube.model import (
    DeleteOptions,
    ListQuery,
    ListResult,
    PatchType,
    ServedKind,
    User,
    WatchEvent,
    WatchQuery,
    WriteOptions,
)
from localkube.model import Written as Written  # noqa: PLC0414 - tests name it next to the verbs

ADMIN = User("admin", ("system:masters",))
_PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class Verbs:
    """`resource` is `plural`, `plural.group` or `plural.version.group`."""

    cluster: Cluster
    namespace: str = "default"

    def kind(self, resource: str) -> ServedKind:
        plural, _, rest = resource.partition(".")
        for kind in self.cluster.catalog:
            served = kind.resource
            if served.plural == plural and rest in {served.group, f"{served.version}.{served.group}"}:
                return kind
        raise LookupError(f"{resource} is not served")

    def serves(self, resource: str) -> bool:
        try:
            self.kind(resource)
        except LookupError:
            return False
        return True

    async def create(self, resource: str, obj: JsonObject, **options: Any) -> Written:
        return await self.cluster.create(
            self.kind(resource), self.namespace, obj, _write(options), duplicates=options.get("duplicates", ())
        )

    async def get(self, resource: str, name: str) -> JsonObject:
        return await self.cluster.get(self.kind(resource), self.namespace, name)

    async def update(self, resource: str, obj: JsonObject, subresource: str = "", **options: Any) -> Written:
        name = options.pop("name", None) or obj["metadata"]["name"]
        kind = self.kind(resource)
        return await self.cluster.update(kind, self.namespace, name, obj, _write(options), subresource=subresource)

    async def patch(
        self, resource: str, name: str, patch: Any, how: PatchType = "merge", subresource: str = "", **options: Any
    ) -> Written:
        kind = self.kind(resource)
        return await self.cluster.patch(
            kind, self.namespace, name, how, patch, _write(options), subresource=subresource
        )

    async def delete(self, resource: str, name: str, **options: Any) -> JsonObject:
        return await self.cluster.delete(self.kind(resource), self.namespace, name, DeleteOptions(ADMIN, **options))

    async def list(self, resource: str, **query: Any) -> ListResult:
        query.setdefault("namespace", self.namespace)
        return await self.cluster.list(self.kind(resource), ListQuery(**query))

    async def names(self, resource: str, **query: Any) -> list[str]:  # type: ignore[valid-type]  # the verb shadows it
        return [obj["metadata"]["name"] for obj in (await self.list(resource, **query)).items]

    def watch(self, resource: str, **query: Any) -> Watch:
        query.setdefault("namespace", self.namespace)
        return self.cluster.watch(self.kind(resource), WatchQuery(**query))

    async def exists(self, resource: str, name: str) -> bool:
        try:
            await self.get(resource, name)
        except StatusError as error:
            if error.code != 404:
                raise
            return False
        return True

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Wait for the controllers; the condition is checked after every commit."""
        changed = asyncio.Event()
        stop_listening = self.cluster.store.listen(lambda _: changed.set())
        try:
            async with asyncio.timeout(_PATIENCE):
                while not await condition():
                    changed.clear()
                    with suppress(TimeoutError):
                        await asyncio.wait_for(changed.wait(), 0.05)
        finally:
            stop_listening()

    async def until_gone(self, resource: str, name: str) -> None:
        async def is_gone() -> bool:
            return not await self.exists(resource, name)

        await self.until(is_gone)

    async def until_idle(self) -> None:
        """Wait until the controllers have nothing left to do."""

        async def is_idle() -> bool:
            return self.cluster.is_idle

        await self.until(is_idle)


async def refusal(request: Awaitable[Any]) -> StatusError:
    """Return the failure that a request must end with."""
    try:
        response = await request
    except StatusError as error:
        return error
    raise AssertionError(f"was not refused: {response}")


async def take(watch: Watch, count: int) -> list[WatchEvent]:
    """Read the next events of a watch."""
    async with asyncio.timeout(_PATIENCE):
        return [await anext(watch) for _ in range(count)]


def config_map(name: str = "a", *, data: dict[str, str] | None = None, **metadata: Any) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **metadata} if name else dict(metadata),
        "data": {"x": "1"} if data is None else data,
    }


def manifest(kind: ServedKind, name: str, **fields: Any) -> JsonObject:
    resource = kind.resource
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, **fields}


def definition(plural: str = "things", kind: str = "Thing", **spec: Any) -> JsonObject:
    """Return a CustomResourceDefinition of example.com with spec.size, spec.colour and a status."""
    properties = {
        "spec": {"type": "object", "properties": {"size": {"type": "integer"}, "colour": {"type": "string"}}},
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [version],
            **spec,
        },
    }


def thing(name: str = "t", version: str = "v1", *, spec: JsonObject | None = None, **metadata: Any) -> JsonObject:
    return {
        "apiVersion": f"example.com/{version}",
        "kind": "Thing",
        "metadata": {"name": name, **metadata} if name else dict(metadata),
        "spec": {"size": 1} if spec is None else spec,
    }


def _write(options: dict[str, Any]) -> WriteOptions:
    return WriteOptions(
        options.get("user", ADMIN),
        field_manager=options.get("manager", "tester"),
        field_validation=options.get("validation", "Warn"),
        dry_run=options.get("dry_run", False),
        force=options.get("force", False),
    )
