"""Fixtures for the tests of the API: collections of the test's namespace, a custom kind, polling, known differences."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml

from kubebase.testing.servers import ApiServer
from kuberun.testing.rawapi import RawApi, Reply

HERE = Path(__file__).parent
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
EVENTUALLY_SECONDS = 60.0


class Eventually(Protocol):
    async def __call__(self, ask: Callable[[], Awaitable[Reply]], holds: Callable[[Reply], bool]) -> Reply: ...


@pytest.fixture
def configmaps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


@pytest.fixture
def secrets(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/secrets"


@pytest.fixture
def eventually() -> Eventually:
    """Ask again until the reply holds: for what a server does in the background. Fails at a deadline."""

    async def poll(ask: Callable[[], Awaitable[Reply]], holds: Callable[[Reply], bool]) -> Reply:
        async with asyncio.timeout(EVENTUALLY_SECONDS):
            while not holds(reply := await ask()):  # noqa: ASYNC110 - the server is another process, so there is no event
                await asyncio.sleep(0.05)
        return reply

    return poll


@pytest.fixture
def differs(api_server: ApiServer) -> Callable[..., Any]:
    """`differs("row of DIFFERENCES.md", localkube=..., kube=...)`: what this server answers, where the two disagree."""

    def choose(row: str, **answers: Any) -> Any:
        assert f"| {row} |" in (HERE / "DIFFERENCES.md").read_text(), f"DIFFERENCES.md has no row {row!r}"
        return answers[api_server.name]

    return choose


@pytest.fixture
async def install(api: RawApi, eventually: Eventually) -> AsyncIterator[Callable[[dict[str, Any]], Awaitable[Reply]]]:
    """Create a CustomResourceDefinition, wait until it is served, and delete it after the test."""
    names: list[str] = []

    async def create(crd: dict[str, Any]) -> Reply:
        created = await api.post(CRDS, crd)
        assert created.status == 201, created.body
        names.append(crd["metadata"]["name"])
        return await wait_served(api, eventually, crd)

    yield create
    for name in names:
        await api.delete(f"{CRDS}/{name}")
        await eventually(lambda path=f"{CRDS}/{name}": api.get(path), lambda gone: gone.status == 404)  # type: ignore[misc]  # mypy cannot infer a lambda with a default


@pytest.fixture(scope="session")
def installed() -> set[str]:
    """Names of the definitions that this run's server already has."""
    return set()


@pytest.fixture
async def widgets(api: RawApi, namespace: str, eventually: Eventually, installed: set[str]) -> str:
    """The collection of the kind in widget_crd.yaml, in the test's namespace."""
    crd = yaml.safe_load((HERE / "widget_crd.yaml").read_text())
    if crd["metadata"]["name"] not in installed:
        created = await api.post(CRDS, crd)
        assert created.status == 201, created.body
        await wait_served(api, eventually, crd)
        installed.add(crd["metadata"]["name"])
    return f"/apis/shop.example.com/v1/namespaces/{namespace}/widgets"


@pytest.fixture
def widget() -> Callable[..., dict[str, Any]]:
    def build(name: str = "w", *, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
        metadata = {"name": name, "labels": labels} if labels else {"name": name}
        return {
            "apiVersion": "shop.example.com/v1",
            "kind": "Widget",
            "metadata": metadata,
            "spec": {"size": 1, **spec},
        }

    return build


@pytest.fixture
def crd() -> Callable[..., dict[str, Any]]:
    """A small definition; `versions` and `names` replace parts of it."""

    def build(plural: str, kind: str, *, schema: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
        openapi = schema or {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": openapi}}
        names = {"plural": plural, "kind": kind, **spec.pop("names", {})}
        group = spec.pop("group", "shop.example.com")
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{group}"},
            "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version], **spec},
        }

    return build


async def wait_served(api: RawApi, eventually: Eventually, crd: dict[str, Any]) -> Reply:
    def is_established(reply: Reply) -> bool:
        conditions = (reply.body.get("status") or {}).get("conditions") or []
        return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)

    spec = crd["spec"]
    reply = await eventually(lambda: api.get(f"{CRDS}/{crd['metadata']['name']}"), is_established)
    for version in (one["name"] for one in spec["versions"] if one["served"]):
        collection = f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"
        await eventually(lambda path=collection: api.get(path), lambda listed: listed.status == 200)  # type: ignore[misc]  # mypy cannot infer a lambda with a default
    return reply
