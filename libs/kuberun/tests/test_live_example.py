"""The example program works on an API server and ends cleanly."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kubebase.testing.servers import ApiServer
from kuberun.testing.rawapi import RawApi

EXAMPLE = Path(__file__).parent.parent / "examples" / "labeller.py"


@contextmanager
def running(kubeconfig: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen([sys.executable, EXAMPLE, kubeconfig], stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.live
async def test_a_controller_of_one_screen_labels_old_and_new_objects_and_stops_on_sigterm(
    api_server: ApiServer, api: RawApi, namespace: str, tmp_path: Path
) -> None:
    path, log = f"/api/v1/namespaces/{namespace}/configmaps", tmp_path / "log"

    async def create(name: str) -> None:
        await api.post(path, {"metadata": {"name": name, "annotations": {"example.com/team": "red"}}})

    async def labelled(name: str) -> None:
        for _ in range(300):
            if (await api.get(f"{path}/{name}")).body["metadata"].get("labels") == {"team": "red"}:
                return
            await asyncio.sleep(0.1)
        pytest.fail(f"{name} was not labelled\n{log.read_text()[-2000:]}")

    await create("before")
    with running(api_server.kubeconfig, log) as process:
        await labelled("before")
        await create("after")
        await labelled("after")
        process.send_signal(signal.SIGTERM)
        code = await asyncio.to_thread(process.wait, 30)

    assert code == 0
    assert "draining" in log.read_text()
