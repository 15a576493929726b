"""SQLite as an undo log: current objects, and for each recent revision the version it replaced.

A write stores the new body once (objects) and moves the old body to history inside SQLite. Event bodies are not stored
again: reading the history backwards from the current objects gives the body of every event, and proves on each start
that the two tables agree. Statements only touch SQLite's page cache, so they run where they are called; `commit` does
the writing and the fsync, and may run in another thread while the connection is otherwise unused.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localkube.storage.cipher import KEY_FILE, Cipher
from localkube.storage.errors import StorageError, is_full, no_space
from localkube.storage.records import Change, Key, Record, tombstone

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
