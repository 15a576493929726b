"""The installed `eso` command, run as its users run it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ESO = Path(sys.executable).parent / "eso"
SECONDS = 120.0

Eso = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def eso() -> Eso:
    def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(ESO), *arguments], input=stdin, capture_output=True, text=True, check=False, timeout=SECONDS
        )

    return run
