"""The map is true: every file and every entry point that ARCHITECTURE.md names exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {path.name: path for path in [*ROOT.glob("libs/*/src/*"), *ROOT.glob("packages/*/src/*")]}


def steps() -> Iterator[tuple[str, list[Path], list[str]]]:
    """The rows of the tables that follow an object: their files and entry points."""
    for line in (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 4 and cells[0][0].isdigit():
            yield cells[0], list(places(cells[1])), re.findall(r"`([^`]+)`", cells[2])


def places(cell: str) -> Iterator[Path]:
    """A file named without its package stands beside the one before it, or at the root of its package."""
    package = folder = Path()
    for name in re.findall(r"`([^`]+)`", cell):
        head, _, rest = name.partition("/")
        if head in SOURCES:
            package = SOURCES[head]
            path = package / rest
        else:
            path = folder / name if (folder / name).exists() else package / name
        folder = path.parent
        yield path


@pytest.mark.parametrize(("step", "files", "entries"), [pytest.param(*row, id=f"{row[0]} {row[2]}") for row in steps()])
def test_a_step_names_files_and_entry_points_that_exist(step: str, files: list[Path], entries: list[str]) -> None:
    assert files, step
    assert all(path.exists() for path in files), f"{step}: {[str(path) for path in files if not path.exists()]}"
    modules = [module for path in files for module in (path.rglob("*.py") if path.is_dir() else [path])]
    text = "\n".join(module.read_text(encoding="utf-8") for module in modules)
    for entry in entries:
        name = entry.rpartition(".")[2]
        assert re.search(rf"\b(def|class) {name}\b", text), f"{step}: {entry} is in none of its files"


def named_paths() -> list[str]:
    """Every path in backticks, wherever it stands on the page."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    return sorted(set(re.findall(r"`([\w/.-]+(?:/|\.py|\.md))`", text)))


@cache
def listed() -> list[str]:
    """Every path that the page may name."""
    patterns = ("*", "libs/*/src/**/*", "packages/*/src/**/*", "*/*", "libs/*/*/*", "packages/*/*/*")
    return [str(path) for pattern in patterns for path in ROOT.glob(pattern)]


@pytest.mark.parametrize("named", named_paths())
def test_a_path_on_the_page_exists(named: str) -> None:
    suffix = "/" + named.rstrip("/")

    assert any(path.endswith(suffix) for path in listed()), named
