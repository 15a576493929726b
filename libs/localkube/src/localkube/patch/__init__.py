"""Patches of every kind, and the field ownership that server-side apply keeps. Pure: objects in, objects out."""

from localkube.patch.operations import json_patch, merge_patch
from localkube.patch.ownership import apply, keep_times, reset_fields, track_update
from localkube.patch.strategic import strategic_merge

__all__ = [
    "apply",
    "json_patch",
    "keep_times",
    "merge_patch",
    "reset_fields",
    "strategic_merge",
    "track_update",
]
