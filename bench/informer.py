"""An informer of 10,000 ExternalSecrets: memory per object, and time to sync compared with decoding the same list."""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from report import Row, ratio, shown

from eso_api.externalsecret import EXTERNAL_SECRET, ExternalSecret
from kubebase.clock import SystemClock
from kuberun.informer import Informer
from kuberun.requests import Request
from kuberun.source import ResourceSource

OBJECTS = 10_000
PAGE = 500
ROUNDS = 5


def external_secret(number: int) -> dict[str, object]:
    """Return an object of about 3 kB with its managedFields, as in a cluster."""
    owned: dict[str, object] = {f"f:field-{n}": {"f:nested": {}, "k:{}": {".": {}, "f:value": {}}} for n in range(20)}
    return {
        "metadata": {
            "name": f"app-{number}",
            "namespace": f"team-{number % 50}",
            "uid": f"00000000-0000-4000-8000-{number:012d}",
            "resourceVersion": str(1_000_000 + number),
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app.kubernetes.io/name": f"app-{number}", "team": f"team-{number % 50}"},
            "annotations": {"note": "made by the benchmark"},
            "managedFields": [{"manager": "kubectl", "operation": "Apply", "fieldsV1": owned}],
        },
        "spec": {
            "refreshInterval": "1h",
            "secretStoreRef": {"kind": "ClusterSecretStore", "name": "vault"},
            "target": {"name": f"app-{number}", "creationPolicy": "Owner"},
            "data": [
                {"secretKey": f"key-{n}", "remoteRef": {"key": f"apps/{number}", "property": f"key-{n}"}}
                for n in range(3)
            ],
        },
        "status": {
            "refreshTime": "2026-01-01T00:00:00Z",
            "syncedResourceVersion": "1-f47fe3c0b255b6dd8047cdffa772587bb829efe7a1cb70febeda2eb2",
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "SecretSynced",
                    "message": "secret synced",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
            ],
        },
    }


def pages() -> list[bytes]:
    made: list[bytes] = []
    for start in range(0, OBJECTS, PAGE):
        last = start + PAGE >= OBJECTS
        metadata = (
            {"resourceVersion": "2000000"} if last else {"resourceVersion": "2000000", "continue": str(start + PAGE)}
        )
        items = [external_secret(number) for number in range(start, start + PAGE)]
        made.append(json.dumps({"metadata": metadata, "items": items}).encode())
    return made


class Recorded:
    """A transport that answers from memory, so that only our own work is measured."""

    def __init__(self, answers: list[bytes]) -> None:
        self._answers = answers

    async def request(self, request: Request) -> bytes:
        token = dict(request.query).get("continue", "") or "0"
        return self._answers[int(token) // PAGE]

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[bytes]]:  # noqa: ARG002 the protocol names it
        yield _silence()

    async def close(self) -> None: ...


async def _silence() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


class _Plain(msgspec.Struct):
    items: list[ExternalSecret]


async def synced(answers: list[bytes]) -> Informer[ExternalSecret]:
    source = ResourceSource(Recorded(answers), EXTERNAL_SECRET.kind())
    informer = Informer(source, clock=SystemClock(), name="bench")
    task = asyncio.get_running_loop().create_task(informer.run())
    await informer.wait_synced()
    task.cancel()
    await asyncio.wait([task])
    return informer


def measure() -> list[Row]:
    answers = pages()
    decoder = msgspec.json.Decoder(_Plain)
    ratios: list[float] = []
    for _ in range(ROUNDS):
        gc.collect()
        started = time.perf_counter()
        decoded = [decoder.decode(page) for page in answers]
        plain = time.perf_counter() - started
        del decoded
        gc.collect()
        started = time.perf_counter()
        informer = asyncio.run(synced(answers))
        ours = time.perf_counter() - started
        assert len(informer.cache) == OBJECTS
        del informer
        ratios.append(ours / plain)
    held = subprocess.run(
        [sys.executable, str(Path(__file__)), "memory"], capture_output=True, text=True, check=True
    ).stdout.strip()
    size = sum(map(len, answers)) // OBJECTS
    return [
        ratio("informer, 10,000 objects: time to synced / msgspec decode", statistics.median(ratios), at_most=2.0),
        shown("informer: bytes of memory for one object", held),
        shown("one object as JSON, in bytes", str(size)),
    ]


def _resident() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def memory() -> None:
    """Measure, in a separate process, how much the store adds to resident memory."""
    asyncio.run(synced(pages()[-1:]))  # excludes the cost of imports and decoders
    answers = pages()
    gc.collect()
    before = _resident()
    informer = asyncio.run(synced(answers))
    gc.collect()
    print((_resident() - before) // len(informer.cache))


if __name__ == "__main__" and sys.argv[1:] == ["memory"]:
    memory()
