"""Wheels and sdists of all distributions. Equal commits give equal bytes: the commit's date is the date of every file.

The wheel of the operator holds the commit that it was built from, in a file that a checkout does not have.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from delivery.workspace import ROOT, distributions

COMMIT_FILE: Final = Path("packages/eso-operator/src/eso_operator/commit.txt")
WITHOUT_GIT: Final = "1580601600"
"""The date of files if there is no commit, which is hatchling's own default."""
SECONDS: Final = 300


class BuildError(Exception):
    """A distribution that cannot be built; the message has the builder's own words."""


def git(*arguments: str, root: Path = ROOT) -> str:
    """Return the output of a git command; empty if it fails."""
    command = ["git", *arguments]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=60).stdout.strip()


def epoch(root: Path = ROOT) -> str:
    """Return the date of the commit, in seconds, as SOURCE_DATE_EPOCH has it."""
    return git("log", "-1", "--format=%ct", root=root) or WITHOUT_GIT


def build(out: Path, formats: Iterable[str], root: Path = ROOT) -> None:
    """Build all distributions into a folder, in place of those that it holds. `formats` are `wheel` and `sdist`."""
    out.mkdir(parents=True, exist_ok=True)
    for old in (*out.glob("*.whl"), *out.glob("*.tar.gz")):
        old.unlink()
    targets = [part for each in formats for part in ("-t", each)]
    command = [sys.executable, "-m", "hatchling", "build", *targets, "-d", str(out.resolve())]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch(root)}

    def build_one(folder: Path) -> None:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS
        )
        if done.returncode:
            raise BuildError(f"{folder.name} cannot be built: {done.stderr.strip()}")

    with _commit_written(root), ThreadPoolExecutor(2) as pool:
        list(pool.map(build_one, [each.folder for each in distributions(root).values()]))


@contextmanager
def _commit_written(root: Path) -> Iterator[None]:
    commit = git("rev-parse", "HEAD", root=root)
    file = root / COMMIT_FILE
    try:
        if commit:
            file.write_text(f"{commit}\n", encoding="ascii")
        yield
    finally:
        file.unlink(missing_ok=True)
