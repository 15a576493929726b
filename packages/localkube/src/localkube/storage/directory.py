"""The data directory: private, locked by one server, with small key files that are made once and never overwritten."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from localkube.storage.trouble import StorageError


class Directory:
    """A locked data directory. The lock ends with the process, also when it is killed."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def open(cls, path: Path) -> Directory:
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.chmod(0o700)
            lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise StorageError(f"data directory {path} cannot be used: {exc.strerror}") from exc
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            owner = os.read(lock, 32).decode(errors="replace").strip() or "unknown"
            os.close(lock)
            raise StorageError(
                f"data directory {path} is in use by another server (process {owner}); stop it or choose another one"
            ) from exc
        os.ftruncate(lock, 0)
        os.write(lock, str(os.getpid()).encode())
        return cls(path, lock)

    def close(self) -> None:
        os.close(self._lock)


def create_private(path: Path, content: bytes) -> None:
    """Write a new file for the owner only, whole or not at all; refuse to replace one."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    with contextlib.ExitStack() as cleanup:
        cleanup.callback(temporary.unlink, missing_ok=True)
        os.link(temporary, path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
