"""`eso up` serves the dashboard on loopback, says where, and can leave it out."""

from __future__ import annotations

import json
from pathlib import Path

import aiohttp

from eso_cli.testing.upprocess import up_running

SECONDS = 60.0


async def test_the_dashboard_is_printed_named_in_the_ready_file_and_served(tmp_path: Path) -> None:
    with up_running(tmp_path) as up:
        address = json.loads(up.ready_file.read_text())["dashboard"]
        limit = aiohttp.ClientTimeout(total=SECONDS)
        async with aiohttp.ClientSession(timeout=limit) as session, session.get(address) as answer:
            page = await answer.text()
        printed = up.output

    assert address.startswith("http://127.0.0.1:")
    assert f"dashboard {address}\n" in printed
    assert "Nothing here yet" in page


def test_a_flag_of_the_operator_switches_it_off(tmp_path: Path) -> None:
    with up_running(tmp_path, "--", "--dashboard-addr=0") as up:
        ready, printed = json.loads(up.ready_file.read_text()), up.output

    assert "dashboard" not in ready
    assert "dashboard http" not in printed
