"""`eso provider serve NAME NAME`: one process, a certificate and a port for each provider, one endpoint for probes."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from eso_cli.serving import several_trial_flags
from eso_testkit.cli.providerprocess import START_SECONDS
from eso_wire.tls import load_material
from kubebase.testing.servers import Child

ESO = Path(sys.executable).parent / "eso"
CALL_SECONDS = 10.0


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Path]:
    """Two providers, and one that is not installed, in a folder where they have made their certificates."""
    ready, flags = tmp_path / "ready.json", "--listen 127.0.0.1:0 --live 127.0.0.1:0 --ready-file ready.json"
    eso = f'"{ESO}"'
    command = f'cd "{tmp_path}" && exec {eso} provider serve fake absent generators {flags}'
    child = Child(["sh", "-c", command], tmp_path / "log")
    try:
        child.wait_until(ready.exists, seconds=START_SECONDS)
        yield tmp_path
    finally:
        child.stop()


async def fetched(url: str) -> tuple[int, str]:
    timeout = aiohttp.ClientTimeout(total=CALL_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as answer:
        return answer.status, await answer.text()


async def test_the_providers_that_can_serve_do(served: Path) -> None:
    ready = json.loads((served / "ready.json").read_text())

    status, states = await fetched(f"http://{ready['live']}/readyz")
    _, metrics = await fetched(f"http://{ready['metrics']}/metrics")
    reached = {name: address for name, address in ready["providers"].items() if address}
    for address in reached.values():
        host, _, port = address.rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.close()

    assert (status, states) == (200, "ok\nfake serving\nabsent failed\ngenerators serving\n")
    assert set(reached) == {"fake", "generators"}
    assert 'eso_provider_serving{provider="fake"} 1.0' in metrics
    assert 'eso_provider_serving{provider="absent"} 0.0' in metrics
    log = (served / "log").read_text()
    assert 'no provider \\"absent\\" is installed' in log
    assert "Traceback" not in log


def test_each_provider_that_is_tried_out_has_certificates_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    flags = several_trial_flags(("fake", "vault"), ["--drain=1"], {})

    assert flags[:2] == ["--listen", "127.0.0.1:8080"]
    assert [flag.partition("=")[0] for flag in flags[2:4]] == ["--fake.tls-dir", "--vault.tls-dir"]
    folders = [Path(flag.partition("=")[2]) for flag in flags[2:4]]
    assert load_material(folders[0]).ca != load_material(folders[1]).ca


@pytest.mark.parametrize("flag", ["--tls-dir=mine", "--vault.tls-dir=mine", "--help"])
def test_certificates_that_are_named_are_used(flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert several_trial_flags(("fake", "vault"), [flag], {}) == []
    assert not (tmp_path / ".eso").exists()
