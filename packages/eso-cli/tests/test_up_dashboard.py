"""`eso up` can leave out the dashboard. That it serves one is tested with `eso up` without flags."""

from __future__ import annotations

import json
from pathlib import Path

from eso_testkit.cli.upprocess import up_running


def test_a_flag_of_the_operator_switches_it_off(tmp_path: Path) -> None:
    with up_running(tmp_path, "--", "--dashboard-addr=0") as up:
        ready, printed = json.loads(up.ready_file.read_text()), up.output

    assert "dashboard" not in ready
    assert "dashboard http" not in printed
