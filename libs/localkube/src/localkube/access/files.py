"""Small private files: certificates, tokens, kubeconfigs.

A file is written completely or not at all (written beside, then renamed), and only its owner can read it from the first
byte on.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Replace `path` atomically with a file of mode 0600."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def private_directory(path: Path) -> Path:
    """Make the directory if it is missing, with mode 0700."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path
