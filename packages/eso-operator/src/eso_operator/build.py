"""The version and the commit that this process was built from.

`make dist` writes the commit into the wheel. `ESO_COMMIT` overrides it; a plain checkout says `unknown`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

COMMIT_FILE: Final = Path(__file__).parent / "commit.txt"


@dataclass(frozen=True, slots=True)
class Build:
    version: str
    commit: str

    def __str__(self) -> str:
        return f"{self.version} (commit {self.commit})"


def this_build(environ: Mapping[str, str] = os.environ, file: Path = COMMIT_FILE) -> Build:
    """Return the version of the installed distribution and its commit."""
    written = file.read_text(encoding="ascii").strip() if file.exists() else ""
    return Build(version("eso-operator"), environ.get("ESO_COMMIT") or written or "unknown")
