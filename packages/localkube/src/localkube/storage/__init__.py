"""Where objects live: one revision counter, current objects, and the recent history that watches and pages read.

    Store (overlay, group commit, views)  ->  Database (SQLite)  ->  Cipher | Directory (files)

It knows keys, revisions and bytes; it knows nothing about kinds, schemas or HTTP.
"""

from localkube.storage.records import Change, Key, Record
from localkube.storage.store import HistoryLimits, Store
from localkube.storage.trouble import StorageError

__all__ = ["Change", "HistoryLimits", "Key", "Record", "StorageError", "Store"]
