"""Storage: one revision counter, current objects, and the recent history that watches and pages read.

ObjectStorage (overlay, group commit, views)  ->  Database (SQLite)  ->  Cipher | Directory (files)

It handles keys, revisions and bytes, and is independent of kinds, schemas and HTTP.
"""

from localkube.storage.database import StorageError
from localkube.storage.records import Change, Key, Record
from localkube.storage.store import HistoryLimits, ObjectStorage

__all__ = ["Change", "HistoryLimits", "Key", "ObjectStorage", "Record", "StorageError"]
