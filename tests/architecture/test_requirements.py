"""Tests name rows of docs/requirements.md: each name is one of the list, and the list has no gap."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LISTED = re.findall(r"^\| (R\d+) \|", (ROOT / "docs" / "requirements.md").read_text(), re.MULTILINE)


def test_the_list_of_requirements_has_no_gap() -> None:
    assert [f"R{number}" for number in range(1, 197)] == LISTED


def test_every_row_that_a_test_names_is_in_the_list() -> None:
    names = subprocess.run(
        ["git", "grep", "-hoE", r"\bR[0-9]{1,3}\b", "--", "*/tests/*.py", "tests/*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()

    assert set(names) - set(LISTED) == set()
    assert len(set(names)) > 100, "the tests name fewer rows than they did; is the pattern still right?"
