"""Servers for tests that cannot be installed beside everything else; `requirements/README.md` says why."""

from __future__ import annotations

import sys
from pathlib import Path

from kubebase.testing.servers import ServerFailedError


def apart(name: str) -> Path:
    """Return the folder that `make test` installed a server into."""
    folder = Path(sys.prefix) / "apart" / name
    if not folder.is_dir():
        raise ServerFailedError(f"{name} is not installed; run `make test`, or `make .venv/.stamp/apart-{name}`")
    return folder
