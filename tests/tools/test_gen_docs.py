"""The reference pages: what the code has and the page does not say, and the other way round, stops the build."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
PAGES = ("flags.md", "metrics.md", "status.md", "templates.md")


def generate(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "tools" / "gen_docs.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the reference that a test may spoil."""
    return shutil.copytree(REFERENCE, tmp_path / "reference")


def test_words_that_do_not_fit_the_code_are_refused(folder: Path) -> None:
    words = yaml.safe_load((folder / "status.yaml").read_text(encoding="utf-8"))
    words["causes"]["Lost"] = words["causes"].pop("StoreNotFound")
    words["kinds"]["ExternalSecret"]["conditions"].pop("Ready True SecretDeleted")
    words["kinds"]["PushSecret"]["events"]["Forgotten"] = "never"
    words["kinds"]["States"] = words["kinds"].pop("GeneratorState")
    (folder / "status.yaml").write_text(yaml.safe_dump(words), encoding="utf-8")

    done = generate("--check", folder)

    assert done.returncode == 1
    assert [line.partition("status.yaml: ")[2] for line in done.stderr.splitlines()] == [
        "kind GeneratorState has no words",
        "kind States does not exist",
        "ExternalSecret: condition Ready True SecretDeleted has no words",
        "PushSecret: event Forgotten does not exist",
        "cause StoreNotFound has no words",
        "cause Lost does not exist",
    ]


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        pytest.param("    events:", "    event:", "unknown field `event`", id="a misspelt field"),
        pytest.param("in that version.", "in it.", "status.md", id="a page that is older than its words"),
    ],
)
def test_a_file_of_words_that_changed_is_noticed(before: str, after: str, complaint: str, folder: Path) -> None:
    words = folder / "status.yaml"
    text = words.read_text(encoding="utf-8")
    words.write_text(text.replace(before, after, 1), encoding="utf-8")

    done = generate("--check", folder)

    assert done.returncode == 1
    assert complaint in done.stderr


def test_pages_that_were_edited_by_hand_are_noticed_and_written_anew(folder: Path) -> None:
    pages = {folder / name: (folder / name).read_text(encoding="utf-8") for name in PAGES}
    for page, text in pages.items():
        page.write_text(f"{text}\nby hand\n", encoding="utf-8")

    noticed = generate("--check", folder)
    written = generate(folder)

    assert noticed.returncode == 1
    assert [str(page) for page in pages if str(page) not in noticed.stderr] == []
    assert written.returncode == 0
    assert {page: page.read_text(encoding="utf-8") for page in pages} == pages
