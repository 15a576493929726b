"""The `eso` command: as a process, as its users run it, and inside this process, for tests of its answers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog
from typer.testing import CliRunner

from eso_cli.main import commands

ESO = Path(sys.executable).parent / "eso"
SECONDS = 120.0

Eso = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def logs_of_later_tests() -> Iterator[None]:
    """Commands inside this process silence its logs."""
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def eso() -> Eso:
    def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(ESO), *arguments], input=stdin, capture_output=True, text=True, check=False, timeout=SECONDS
        )

    return run


@pytest.fixture(scope="session")
def eso_inside() -> Eso:
    """Return the command without its process, which computes for a second or two to import everything again."""

    def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        done = CliRunner().invoke(commands, arguments, input=stdin, catch_exceptions=False)
        return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)

    return run
