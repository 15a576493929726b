"""What shaping values raises. The text says what, which key, and what to do; never a value."""

from __future__ import annotations


class ShapeError(ValueError):
    """Fetched values cannot become what the entry of the spec asks for."""
