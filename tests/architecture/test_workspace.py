"""The workspace keeps its own promises: pins, front doors, explained exceptions, nothing of one machine."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DISTRIBUTIONS = sorted(
    path.parent
    for pattern in ("libs/*", "packages/*", "providers/*")
    for path in ROOT.glob(f"{pattern}/pyproject.toml")
)
OURS = {tomllib.loads((path / "pyproject.toml").read_text())["project"]["name"] for path in DISTRIBUTIONS}


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).exists()]


def canonical(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found, requirement
    return re.sub(r"[-_.]+", "-", found.group()).lower()


def pinned() -> set[str]:
    lines = (ROOT / "requirements" / "dev.txt").read_text().splitlines()
    return {canonical(line) for line in lines if re.match(r"[A-Za-z0-9]", line)}


@pytest.mark.parametrize("where", DISTRIBUTIONS, ids=lambda path: path.name)
def test_every_dependency_of_a_distribution_is_pinned_by_hash(where: Path) -> None:
    project = tomllib.loads((where / "pyproject.toml").read_text())["project"]

    missing = {canonical(entry) for entry in project["dependencies"]} - pinned() - OURS

    assert not missing


@pytest.mark.parametrize("where", DISTRIBUTIONS, ids=lambda path: path.name)
def test_every_distribution_introduces_itself(where: Path) -> None:
    lines = (where / "README.md").read_text().splitlines()

    assert len(lines) >= 3
    assert lines[0].startswith("# ")


FOLDERS = sorted(
    {path.relative_to(ROOT).parts[0] for path in tracked("*/*")}
    | {f"tests/{path.name}" for path in ROOT.glob("tests/*/")}
)


@pytest.mark.parametrize("folder", [name for name in FOLDERS if not name.startswith(".") and "__" not in name])
def test_every_folder_says_what_it_holds(folder: str) -> None:
    assert (ROOT / folder / "README.md").is_file()


def test_every_pin_carries_a_hash_and_no_download_address() -> None:
    files = tracked("requirements/*.txt")

    assert files
    for path in files:
        text = path.read_text()
        pins = [line for line in text.splitlines() if re.match(r"[A-Za-z0-9]", line)]

        assert "://" not in text, path
        assert pins, path
        assert all(line.endswith("\\") for line in pins), path


def test_no_lock_file_is_committed() -> None:
    assert not tracked("*uv.lock", "*poetry.lock", "*pdm.lock", "*Pipfile.lock")


def test_every_lint_and_type_exception_gives_its_code_and_its_reason() -> None:
    bare = re.compile(
        r"#\s*(noqa(?!: [A-Z]+[0-9]+(, ?[A-Z]+[0-9]+)*\s+\S)|type: ignore(?!\[[a-z-]+(, ?[a-z-]+)*\]\s+#\s*\S))"
    )
    here = Path(__file__)

    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked("*.py")
        if path != here and "_generated" not in path.parts
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if bare.search(line)
    ]

    assert not found


def test_no_log_call_prints_a_traceback_whose_frames_may_hold_secrets() -> None:
    """Formatters show exception texts and local variables; both may hold values."""
    printing = re.compile(r"\blog\w*\.exception\(|exc_info\s*=")

    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked("libs/*/src/**.py", "packages/*/src/**.py", "providers/*/src/**.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if printing.search(line)
    ]

    assert not found


def test_decisions_fit_one_page_and_are_numbered_without_gaps() -> None:
    pages = sorted(path for path in (ROOT / "docs" / "adr").glob("*.md") if path.name != "README.md")

    assert pages
    assert [int(path.name[:4]) for path in pages] == list(range(1, len(pages) + 1))
    assert all(len(path.read_text().splitlines()) <= 60 for path in pages)
