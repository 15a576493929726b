"""A data directory cannot be opened, or its disk is full. Other failures while serving are StatusErrors."""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path


class StorageError(Exception):
    """The message names the directory or file, the reason and the remedy; it never holds stored content."""


def is_full(problem: BaseException) -> bool:
    """Return whether a write failed because the disk, or the user's share of it, is full."""
    if isinstance(problem, OSError):
        return problem.errno in (errno.ENOSPC, errno.EDQUOT)
    return isinstance(problem, sqlite3.Error) and getattr(problem, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL


def no_space(path: Path | None) -> str:
    """Return the sentence about a full disk."""
    where = f"the disk of data directory {path}" if path else "the memory for objects"
    return f"{where} is full; free some space"
