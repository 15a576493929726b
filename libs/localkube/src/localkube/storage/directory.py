"""The data directory: private, locked by one server, with small key files that are made once and never overwritten."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from localkube.storage.errors import StorageError


class Directory:
    """A locked data directory. The lock ends with the process, also when it is killed."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def open(cls, path: Path) -> Directory:
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_owner(path)
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


def _check_owner(path: Path) -> None:
    """Refuse keys, tokens and objects that another user has put there or can change.

    Whoever plants a token or a key is an administrator of the server that trusts it.
    """
    entries = [Path(folder, name) for folder, below, files in os.walk(path) for name in (*below, *files)]
    for each, found in ((path, path.lstat()), (path, path.stat()), *_stats(entries)):
        if found.st_uid != os.geteuid():
            raise StorageError(
                f"data directory {path} is not safe: {each} belongs to another user (uid {found.st_uid});"
                " choose another directory, or remove what you have not put there"
            )
        # A folder inside is as private as the directory. The mode of a link says nothing.
        matters = stat.S_ISREG(found.st_mode) or (each == path and stat.S_ISDIR(found.st_mode))
        if matters and found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise StorageError(
                f"data directory {path} is not safe: other users can write to {each};"
                f" if its content is yours, run chmod -R go-w {path}"
            )


def _stats(entries: Iterable[Path]) -> Iterator[tuple[Path, os.stat_result]]:
    for each in entries:
        with contextlib.suppress(FileNotFoundError):  # removed by a server that runs: the lock will say so
            yield each, each.lstat()


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
