"""The reasons of the Ready condition of an ExternalSecret; `Secret` or `Resource` precedes them."""

from __future__ import annotations

from typing import Final

SYNCED: Final = "Synced"
DELETED: Final = "Deleted"
MISSING: Final = "Missing"
FAILED: Final = "SyncedError"
