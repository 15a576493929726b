"""The time from a change in another cluster until the target Secret has it, and the reads that it costs.

Source: a localkube process. Target: `eso up` with its own API server, operator and provider process. Each Secret is
changed once, spread over some seconds; the refresh interval is an hour, so only the watch can deliver the change.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from report import Row, shown
from stage import ES, NAMESPACES, SECRETS, STORES_OF_NAMESPACE, is_ready, parallel, read, until

from eso_testkit.cli.upprocess import UpProcess, up_running
from kubebase.meta import JsonObject, Kind, ObjectKey
from kuberun import config
from kuberun.client import Client
from kuberun.requests import Selection
from kuberun.testing.localserver import LocalServer
from kuberun.transport import AiohttpTransport

CHANGES = 200
A_SECOND = 20
IDLE_SECONDS = 10
TEAM, SOURCE = "team", "source"


def measure() -> list[Row]:
    with (
        tempfile.TemporaryDirectory() as folder,
        _source(Path(folder)) as source,
        up_running(Path(folder) / "up", "--provider", "kubernetes") as up,
    ):
        return asyncio.run(_measure(source, up))


@contextmanager
def _source(folder: Path) -> Iterator[LocalServer]:
    (folder / "source").mkdir()
    server = LocalServer(folder / "source")
    try:
        yield server
    finally:
        server.stop()


async def _measure(source: LocalServer, up: UpProcess) -> list[Row]:
    async with _client(source.kubeconfig) as there, _client(up.kubeconfig) as here:
        await _prepare(source, there, here)
        arrivals = Arrivals(here)
        async with asyncio.TaskGroup() as group:
            follower = group.create_task(arrivals.follow())
            await until(lambda: _all_ready(here), "not all ExternalSecrets are ready")
            await until(lambda: _quiet(up), "the provider goes on reading")
            reads = _reads(up)
            sent = await _change_all(there)
            await until(lambda: _arrived(arrivals), "not all changes arrived")
            cost = _reads(up) - reads
            await asyncio.sleep(IDLE_SECONDS)
            idle = _reads(up) - reads - cost
            follower.cancel()
    delays = sorted(arrivals.at[number] - sent[number] for number in range(CHANGES))
    p99 = delays[int(CHANGES * 0.99) - 1]
    return [
        Row("change in the source cluster until it is in the target Secret: p99", f"{p99:.2f} s", "<= 1 s", p99 <= 1.0),
        shown("the same: median, longest", f"{delays[CHANGES // 2]:.2f} s, {delays[-1]:.2f} s"),
        Row("reads of the source for each change", f"{cost / CHANGES:.2f}", "<= 1", cost <= CHANGES),
        Row(f"reads in {IDLE_SECONDS} seconds without a change", f"{idle:.0f}", "0", idle == 0),
    ]


@dataclass(slots=True)
class Arrivals:
    """When each target Secret got its new value."""

    client: Client
    at: dict[int, float] = field(default_factory=dict)

    async def follow(self) -> None:
        source = self.client.source(SECRETS, Selection(TEAM))
        page = await source.list_page(limit=0, continue_token="", resource_version="")
        async with source.watch(resource_version=page.resource_version, timeout_seconds=3600) as frames:
            async for frame in frames:
                document = json.loads(frame)["object"]
                text = (document.get("data") or {}).get("value", "")
                if base64.b64decode(text).startswith(b"after"):
                    number = int(document["metadata"]["name"].rpartition("-")[2])
                    self.at.setdefault(number, time.monotonic())


async def _prepare(source: LocalServer, there: Client, here: Client) -> None:
    await there.create(NAMESPACES, {"metadata": {"name": SOURCE}})
    secrets = [_secret(SOURCE, f"app-{at}", value="before") for at in range(CHANGES)]
    await _create_all(there, SECRETS, secrets)
    await here.create(NAMESPACES, {"metadata": {"name": TEAM}})
    await here.create(SECRETS, _secret(TEAM, "credentials", token=source.token))
    provider = {
        "remoteNamespace": SOURCE,
        "server": {"url": source.url, "caBundle": base64.b64encode(source.ca_file.read_bytes()).decode()},
        "auth": {"token": {"bearerToken": {"name": "credentials", "key": "token"}}},
    }
    store = {"metadata": {"name": "source", "namespace": TEAM}, "spec": {"provider": {"kubernetes": provider}}}
    await here.create(STORES_OF_NAMESPACE, store)
    followers = [_external_secret(at) for at in range(CHANGES)]
    await _create_all(here, ES, followers)


async def _create_all(client: Client, kind: Kind[Any], objects: Sequence[JsonObject]) -> None:
    await parallel([client.create(kind, each) for each in objects])


async def _change_all(there: Client) -> dict[int, float]:
    """Change one Secret after the other, at a steady pace; return when each was changed."""
    sent: dict[int, float] = {}
    begun = time.monotonic()
    for number in range(CHANGES):
        await asyncio.sleep(max(0.0, begun + number / A_SECOND - time.monotonic()))
        sent[number] = time.monotonic()
        value = base64.b64encode(f"after-{number}".encode()).decode()
        await there.merge_patch(SECRETS, ObjectKey(SOURCE, f"app-{number}"), {"data": {"value": value}})
    return sent


async def _all_ready(here: Client) -> bool:
    page = await here.list(ES)
    return len(page.items) == CHANGES and all(is_ready(one) for one in page.items if isinstance(one, dict))


async def _arrived(arrivals: Arrivals) -> bool:
    return len(arrivals.at) == CHANGES


async def _quiet(up: UpProcess) -> bool:
    """Return whether the stream is open and no ExternalSecret has read for three seconds."""
    before = _reads(up)
    await asyncio.sleep(3.0)
    return _reads(up) == before and _calls(up, "ListSecrets") > 0


def _reads(up: UpProcess) -> float:
    return _calls(up, "GetSecret")


def _calls(up: UpProcess, call: str) -> float:
    text = read(f"http://{up.provider_ready('kubernetes')['metrics']}/metrics")
    pattern = rf'^externalsecret_provider_api_calls_count{{call="{call}".*}} (\S+)$'
    return sum(float(value) for value in re.findall(pattern, text, re.MULTILINE))


@asynccontextmanager
async def _client(kubeconfig: Path) -> AsyncIterator[Client]:
    client = Client(AiohttpTransport(config.load(kubeconfig)))
    try:
        yield client
    finally:
        await client.close()


def _secret(namespace: str, name: str, **values: str) -> JsonObject:
    return {"metadata": {"name": name, "namespace": namespace}, "stringData": values}


def _external_secret(number: int) -> JsonObject:
    return {
        "metadata": {"name": f"app-{number}", "namespace": TEAM},
        "spec": {
            "refreshInterval": "1h",
            "secretStoreRef": {"name": "source"},
            "data": [{"secretKey": "value", "remoteRef": {"key": f"app-{number}", "property": "value"}}],
        },
    }
