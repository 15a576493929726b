"""One `eso up` for all tests of a worker, and the API as a test asks it.

A test has namespaces of its own. A provider that needs special settings of its process has an `eso up` of its own: the
fixture `up` of that file.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from eso_api.kinds import installed_kinds
from eso_provider_doppler.testing.server import DopplerServer
from eso_testkit.cli.upprocess import UpProcess, up_running
from kubebase.meta import JsonObject, Resource
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import CONFIG_MAPS, NAMESPACES, SECRETS, SERVICE_ACCOUNTS
from kuberun.testing.rawapi import RawApi, raw_api

T = TypeVar("T")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guides" / "providers"
DOPPLER_TOKEN = "dp.st.prd.only-an-example"
PATIENCE = 60.0
"""Seconds; processes that were killed are started again with a back-off."""
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
_RESOURCES = {
    (one.group, one.kind): one for one in (NAMESPACES, SECRETS, CONFIG_MAPS, DEPLOYMENTS, SERVICE_ACCOUNTS)
} | {(one.group, one.kind): one for one in (kind.resource() for kind in installed_kinds())}


@dataclass(slots=True)
class Site:
    """A running product. `production` and the other namespaces of the guide are there."""

    up: UpProcess
    manifests: Path
    api: RawApi

    # --- what people write --------------------------------------------------------------------------------------------

    def place(self, example: str) -> None:
        """Put a file of the examples into the folder that is followed, once: put there again, it is applied again."""
        if not (self.manifests / Path(example).name).exists():
            shutil.copy(EXAMPLES / example, self.manifests)

    def guide(self, page: str, team: str, words: Mapping[str, str]) -> list[JsonObject]:
        """Return the manifests of a provider's guide in the namespace of a test, with the words of its server."""
        text = (GUIDES / f"{page}.md").read_text(encoding="utf-8")
        for example, real in {"namespace: team-a": f"namespace: {team}", **words}.items():
            assert example in text, f"the guide {page} has no {example!r}"
            text = text.replace(example, real)
        blocks = re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        return [document for block in blocks for document in yaml.safe_load_all(block)]

    async def apply(self, *documents: JsonObject) -> None:
        for one in documents:
            answer = await self.api.apply(_path(one), one, manager="people", force=True)
            assert answer.status in (200, 201), answer.body

    async def apply_example(self, example: str) -> None:
        await self.apply(*yaml.safe_load_all((EXAMPLES / example).read_text()))

    async def patch(self, resource: Resource, name: str, patch: JsonObject, namespace: str = "") -> None:
        answer = await self.api.patch(resource.path(namespace, name), patch)
        assert answer.status == 200, answer.body

    async def delete(self, resource: Resource, name: str, namespace: str = "") -> None:
        answer = await self.api.delete(resource.path(namespace, name))
        assert answer.status == 200, answer.body

    async def namespace(self, name: str, **labels: str) -> str:
        body = {"metadata": {"name": name, "labels": {key.replace("_", "-"): text for key, text in labels.items()}}}
        answer = await self.api.post(NAMESPACES.path(), body)
        assert answer.status == 201, answer.body
        return name

    # --- what they see ------------------------------------------------------------------------------------------------

    async def find(self, resource: Resource, name: str, namespace: str = "") -> JsonObject | None:
        answer = await self.api.get(resource.path(namespace, name))
        return dict(answer.body) if answer.status == 200 else None

    async def until(self, look: Callable[[], Awaitable[T | None]], complaint: str) -> T:
        return await eventually(look, complaint, within=PATIENCE)

    async def gone(self, resource: Resource, name: str, namespace: str) -> None:
        async def is_gone() -> bool:
            return await self.find(resource, name, namespace) is None

        await self.until(is_gone, f"{resource.kind} {namespace}/{name} is still there")

    async def ready(self, resource: Resource, name: str, namespace: str = "") -> JsonObject:
        """The object once it is ready."""
        seen: list[Any] = []

        async def look() -> JsonObject | None:
            found = await self.find(resource, name, namespace) or {}
            seen[:] = found.get("status", {}).get("conditions", [])
            return found if any((one["type"], one["status"]) == ("Ready", "True") for one in seen) else None

        try:
            return await self.until(look, "")
        except AssertionError:
            raise AssertionError(f"{resource.kind} {namespace}/{name} is not ready: {json.dumps(seen)}") from None

    async def secret(self, name: str, namespace: str, wanted: Callable[[Mapping[str, str]], object]) -> JsonObject:
        """The Secret once its content is as wanted, with `text` for its decoded data."""

        async def look() -> JsonObject | None:
            found = await self.find(SECRETS, name, namespace)
            if found is None:
                return None
            found["text"] = {key: base64.b64decode(value).decode() for key, value in found.get("data", {}).items()}
            return found if wanted(found["text"]) else None

        return await self.until(look, f"Secret {namespace}/{name} has not the content that was wanted")

    # --- what happens to it -------------------------------------------------------------------------------------------

    def kill(self, words: str) -> None:
        """As `kill -9`: the component with these words in its command line."""
        os.kill(self.up.component(words), signal.SIGKILL)

    async def started_again(self, words: str, before: int) -> None:
        async def is_back() -> bool:
            return any(pid != before for pid in self.up.components(words))

        await self.until(is_back, f"{words} was not started again")


@pytest.fixture(scope="session")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("manifests")
    shutil.copy(EXAMPLES / "00-namespaces.yaml", folder)
    return folder


@pytest.fixture(scope="session")
def doppler() -> Iterator[DopplerServer]:
    """Doppler's address is a setting of the provider process, so that the server starts before `eso up`."""
    with DopplerServer.started(tokens={DOPPLER_TOKEN: None}) as running:
        yield running


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory, manifests: Path, doppler: DopplerServer) -> Iterator[UpProcess]:
    """`eso up` with no other flag: each provider starts with its first store or generator."""
    environment = {"DOPPLER_BASE_URL": doppler.url, "NO_PROXY": "127.0.0.1"}
    with up_running(tmp_path_factory.mktemp("up"), "--file", str(manifests), environment=environment) as running:
        yield running


@pytest.fixture
async def site(up: UpProcess, manifests: Path) -> AsyncIterator[Site]:
    async with raw_api(up.url, up.token, str(up.ca_file)) as api:
        yield Site(up, manifests, api)


def _path(obj: JsonObject) -> str:
    """Where it is applied, at the version that it names."""
    group, _, version = obj["apiVersion"].rpartition("/")
    known = _RESOURCES[group, obj["kind"]]
    resource = Resource(group, version, known.plural, known.kind, known.namespaced)
    return resource.path(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
