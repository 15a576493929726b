"""The data directory with SQLite as an undo log: current objects, and for each recent revision the version it replaced.

A write stores the new body once (objects) and moves the old body to history inside SQLite. Event bodies are not stored
again: reading the history backwards from the current objects gives the body of every event, and proves on each start
that the two tables agree. Statements only touch SQLite's page cache, so they run where they are called; `commit` does
the writing and the fsync, and may run in another thread while the connection is otherwise unused.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import errno
import fcntl
import os
import sqlite3
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from localkube.storage.records import Change, Key, Record, tombstone

# --- A data directory cannot be opened, or its disk is full. Other failures while serving are StatusErrors ------------


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


# --- The data directory: private, locked by one server, with small key files that are never overwritten ---------------


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


# --- Encryption at rest: AES-256-GCM with a key file next to the database ---------------------------------------------
# Each stored body is bound to its object's key and revision, so ciphertexts cannot be swapped between rows. The check
# value in the database distinguishes a wrong key from damaged data before anything is read or written.


KEY_FILE = "encryption.key"
_KEY_BYTES = 32
_NONCE_BYTES = 12
_CHECK = b"localkube"


class Cipher:
    def __init__(self, key: bytes) -> None:
        self._aead = AESGCM(key)

    @classmethod
    def ephemeral(cls) -> Cipher:
        """Make a key that is never saved: for a store in memory."""
        return cls(os.urandom(_KEY_BYTES))

    @classmethod
    def create(cls, path: Path) -> Cipher:
        key = os.urandom(_KEY_BYTES)
        create_private(path, base64.b64encode(key) + b"\n")
        return cls(key)

    @classmethod
    def load(cls, path: Path) -> Cipher:
        try:
            key = base64.b64decode(path.read_bytes(), validate=False)
        except FileNotFoundError as exc:
            raise StorageError(f"encryption key {path} is missing; put it back, the stored Secrets need it") from exc
        except (OSError, binascii.Error) as exc:
            raise StorageError(f"encryption key {path} cannot be read; restore it from a backup") from exc
        if len(key) != _KEY_BYTES:
            raise StorageError(f"encryption key {path} is not a 256-bit key; restore it from a backup")
        return cls(key)

    def seal(self, key: Key, revision: int, body: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._aead.encrypt(nonce, body, _bound_to(key, revision))

    def open(self, key: Key, revision: int, sealed: bytes) -> bytes:
        try:
            return self._aead.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], _bound_to(key, revision))
        except InvalidTag as exc:
            raise StorageError(f"{key.resource} {key.path} at revision {revision} is damaged in the database") from exc

    def check_value(self) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._aead.encrypt(nonce, _CHECK, _CHECK)

    def verify(self, check_value: bytes, path: Path) -> None:
        try:
            self._aead.decrypt(check_value[:_NONCE_BYTES], check_value[_NONCE_BYTES:], _CHECK)
        except InvalidTag as exc:
            raise StorageError(
                f"encryption key {path} does not belong to this database; put the right one back"
            ) from exc


def _bound_to(key: Key, revision: int) -> bytes:
    return f"{key.resource}\0{key.namespace}\0{key.name}\0{revision}".encode()


SCHEMA_VERSION = 1
DATABASE_FILE = "localkube.db"

_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE objects (
    resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    uid TEXT NOT NULL, revision INTEGER NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (resource, namespace, name)
) WITHOUT ROWID;
CREATE TABLE history (
    revision INTEGER PRIMARY KEY, at REAL NOT NULL, type TEXT NOT NULL,
    resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    previous_uid TEXT, previous_revision INTEGER, previous BLOB
);
"""
_REMEMBER_NEW = "INSERT INTO history (revision, at, type, resource, namespace, name) VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
_REMEMBER_OLD = (
    "INSERT INTO history SELECT ?1, ?2, ?3, resource, namespace, name, uid, revision, body"
    " FROM objects WHERE resource = ?4 AND namespace = ?5 AND name = ?6"
)
_PUT = "INSERT OR REPLACE INTO objects (resource, namespace, name, uid, revision, body) VALUES (?, ?, ?, ?, ?, ?)"
_REMOVE = "DELETE FROM objects WHERE resource = ? AND namespace = ? AND name = ?"


@dataclass(frozen=True, slots=True)
class Contents:
    """The state that a store loads after a restart."""

    objects: dict[Key, Record]
    changes: list[Change]
    compacted: int


class Database:
    def __init__(self, connection: sqlite3.Connection, cipher: Cipher, encrypted: frozenset[str]) -> None:
        self._connection = connection
        self._cipher = cipher
        self._encrypted = encrypted

    @classmethod
    def open(cls, directory: Path | None, encrypted: frozenset[str]) -> Database:
        """Open or create the database; without a directory it lives in memory."""
        try:
            return cls._open(directory, encrypted)
        except (sqlite3.Error, OSError) as exc:
            where = directory / DATABASE_FILE if directory else "memory"
            if is_full(exc):
                raise StorageError(f"database {where} cannot be opened: {no_space(directory)}") from exc
            raise StorageError(f"database {where} cannot be opened: {exc}") from exc

    @classmethod
    def _open(cls, directory: Path | None, encrypted: frozenset[str]) -> Database:
        connection = _connect(directory)
        with contextlib.ExitStack() as on_error:
            on_error.callback(connection.close)
            if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                cipher = _new_cipher(directory)
                _create(connection, cipher)
            else:
                cipher = _known_cipher(connection, directory)
            on_error.pop_all()
        return cls(connection, cipher, encrypted)

    def load(self) -> Contents:
        compacted = int(self._connection.execute("SELECT value FROM meta WHERE name = 'compacted'").fetchone()[0])
        rows = self._connection.execute("SELECT resource, namespace, name, uid, revision, body FROM objects")
        objects: dict[Key, Record] = {}
        for resource, namespace, name, uid, revision, body in rows:
            key = Key(resource, namespace, name)
            objects[key] = Record(revision, uid, self._unseal(key, revision, body))
        return Contents(objects, self._rewind(dict(objects)), compacted)

    def stage(self, changes: Sequence[Change], compact_to: int | None) -> None:
        """Begin a transaction with all writes; `commit` makes it durable."""
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        for change in changes:
            key, record = change.key, change.record
            remember = _REMEMBER_NEW if change.previous is None else _REMEMBER_OLD
            execute(remember, (record.revision, change.at, change.type, *key))
            if change.type == "DELETED":
                execute(_REMOVE, key)
            else:
                body = self._seal(key, record)
                execute(_PUT, (*key, record.uid, record.revision, body))
        if compact_to is not None:
            execute("DELETE FROM history WHERE revision <= ?", (compact_to,))
            execute("UPDATE meta SET value = ? WHERE name = 'compacted'", (str(compact_to),))

    def commit(self) -> None:
        self._connection.execute("COMMIT")

    def rollback(self) -> None:
        """Forget the transaction; SQLite may have done so itself already."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def close(self) -> None:
        self._connection.close()

    def _rewind(self, state: dict[Key, Record]) -> list[Change]:
        changes: list[Change] = []
        rows = self._connection.execute(
            "SELECT revision, at, type, resource, namespace, name, previous_uid, previous_revision, previous"
            " FROM history ORDER BY revision DESC"
        )
        for revision, at, kind, resource, namespace, name, previous_uid, previous_revision, body in rows:
            key = Key(resource, namespace, name)
            previous = None
            if body is not None:
                previous = Record(previous_revision, previous_uid, self._unseal(key, previous_revision, body))
            record = state.pop(key, None)
            if kind == "DELETED" and record is None and previous is not None:
                record = tombstone(previous, revision)
            if record is None or record.revision != revision or (kind == "ADDED") != (previous is None):
                raise StorageError(f"the history of {resource} {key.path} does not match the stored object")
            if previous is not None:
                state[key] = previous
            changes.append(Change(kind, key, record, previous, at))
        changes.reverse()
        return changes

    def _seal(self, key: Key, record: Record) -> bytes:
        if key.resource in self._encrypted:
            return self._cipher.seal(key, record.revision, record.body)
        return record.body

    def _unseal(self, key: Key, revision: int, body: bytes) -> bytes:
        return self._cipher.open(key, revision, body) if key.resource in self._encrypted else body


def _connect(directory: Path | None) -> sqlite3.Connection:
    path = ":memory:"
    if directory is not None:
        path = str(directory / DATABASE_FILE)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # the WAL file inherits the mode
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=32)
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA cache_size = -16000")
    return connection


def _create(connection: sqlite3.Connection, cipher: Cipher) -> None:
    connection.executescript(f"BEGIN; {_TABLES}")
    insert = "INSERT INTO meta (name, value) VALUES (?, ?)"
    values = (("schema", str(SCHEMA_VERSION)), ("compacted", "0"), ("key_check", cipher.check_value()))
    connection.executemany(insert, values)
    connection.execute("COMMIT")


def _new_cipher(directory: Path | None) -> Cipher:
    if directory is None:
        return Cipher.ephemeral()
    path = directory / KEY_FILE
    return Cipher.load(path) if path.exists() else Cipher.create(path)


def _known_cipher(connection: sqlite3.Connection, directory: Path | None) -> Cipher:
    assert directory is not None, "a database in memory is always new"  # noqa: S101 - an invariant, not input
    meta = dict(connection.execute("SELECT name, value FROM meta").fetchall())
    version = int(meta["schema"])
    if version > SCHEMA_VERSION:
        raise StorageError(
            f"database {directory / DATABASE_FILE} has format {version}, this version knows up to {SCHEMA_VERSION};"
            " use a newer version, or another data directory"
        )
    cipher = Cipher.load(directory / KEY_FILE)
    cipher.verify(meta["key_check"], directory / KEY_FILE)
    return cipher
