"""The operator as a process of its own: starts, answers, validates, stops."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import aiohttp
import pytest

from eso_api.secretstore import SECRET_STORE
from eso_testkit.operator.operators import SERVICE, Bench, free_port, scripted
from kubebase.testing.waiting import eventually

STORES = SECRET_STORE.resource()
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
FAKE = {"provider": {"fake": {"data": [{"key": "a", "value": "b"}]}}}


ALONE = """
import sys

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        root = name.partition(".")[0]
        others = {"eso_sdk", "eso_conformance", "eso_tools", "eso_cli", "localkube"}
        if root.startswith("eso_provider_") or root in others:
            raise ModuleNotFoundError(f"{root} is no part of the core", name=root)

sys.meta_path.insert(0, NotInstalled())
"""
"""Code that Python runs first: of the workspace's distributions, only those of the core can be imported."""


@contextmanager
def running(log: Path, arguments: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    (log.parent / "sitecustomize.py").write_text(ALONE)
    command = [sys.executable, "-m", "eso_operator", *arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env={**os.environ, "PYTHONPATH": str(log.parent)}
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def fetched(url: str) -> tuple[int, str] | None:
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.status, await answer.text()
    except aiohttp.ClientError:
        return None


@pytest.mark.live
async def test_the_process_leads_serves_probes_and_metrics_validates_a_store_and_stops_in_good_order(
    bench: Bench, tmp_path: Path
) -> None:
    """R70, R166: where no provider is installed."""
    live, metrics, log = free_port(), free_port(), tmp_path / "log"
    arguments = [
        f"--kubeconfig={bench.kubeconfig}",
        f"--core-namespace={bench.namespace}",
        f"--trusted-provider={bench.namespace}/{SERVICE}=127.0.0.1:{bench.port}",
        f"--live-addr=127.0.0.1:{live}",
        f"--metrics-addr=127.0.0.1:{metrics}",
        "--enable-leader-election",
        "--zap-time-encoding=RFC3339",
        "--loglevel=INFO",
        "--client-qps=100",
    ]

    async def is_ready() -> bool:
        answer = await fetched(f"http://127.0.0.1:{live}/readyz")
        return answer is not None and answer[0] == 200

    with running(log, arguments) as process:
        await eventually(is_ready, "never ready")
        await bench.install(scripted())
        await bench.create(STORES, "fake", spec=FAKE)
        await bench.ready(STORES, "fake", lambda condition: condition.reason == "Valid")
        shown = await fetched(f"http://127.0.0.1:{metrics}/metrics")
        store = await bench.api.get(f"/apis/external-secrets.io/v1/namespaces/{bench.namespace}/secretstores/fake")
        lease, *_ = (await bench.api.get(LEASES.format(bench.namespace))).body["items"]
        process.send_signal(signal.SIGTERM)
        code = await asyncio.to_thread(process.wait, 30)

    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    assert code == 0
    assert (lines[0]["msg"], lines[0]["version"]) == ("the operator starts", version("eso-operator"))
    assert lines[0]["commit"]
    assert lines[0]["identity"] == f"spiffe://cluster.local/ns/{bench.namespace}/sa/external-secrets"
    assert shown is not None
    assert f'secretstore_reconcile_duration{{name="fake",namespace="{bench.namespace}"}}' in shown[1]
    assert {"leadership acquired", "drained", "lease released", "flag without effect"} <= {
        line["msg"] for line in lines
    }
    assert all(line["ts"].endswith("Z") for line in lines)
    assert [(each["manager"], each.get("subresource")) for each in store.body["metadata"]["managedFields"][1:]] == [
        ("external-secrets", "status")
    ]
    assert {each["manager"] for each in lease["metadata"]["managedFields"]} == {"external-secrets"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["--no-such-flag"], "--no-such-flag", id="unknown flag"),
        pytest.param(["--metrics-auth"], "--metrics-secure", id="metrics auth without TLS"),
        pytest.param(["--kubeconfig=/nonexistent"], "/nonexistent", id="no kubeconfig"),
    ],
)
def test_a_process_that_cannot_start_says_why_and_ends_with_1(arguments: list[str], words: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "eso_operator", *arguments], capture_output=True, timeout=60, check=False
    )

    assert ended.returncode == 1
    assert words in ended.stderr.decode()
    assert "Traceback" not in ended.stderr.decode()
