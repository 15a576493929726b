"""Errors of shaping values. Their messages never contain a value."""

from __future__ import annotations


class ShapeError(ValueError):
    """Fetched values cannot be shaped as the entry asks. The message names the key and the remedy."""
