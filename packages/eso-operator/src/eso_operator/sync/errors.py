"""What shaping values raises, and what errors of writes leave open. No text here has a value in it."""

from __future__ import annotations

from typing import Final

from eso_wire.errors import ErrorReason

UNSURE: Final = frozenset({ErrorReason.BACKEND_TIMEOUT, ErrorReason.BACKEND_UNAVAILABLE, ErrorReason.INTERNAL})
"""An answer was lost: what was asked for may have been done."""


class ShapeError(ValueError):
    """Fetched values cannot become what the entry of the spec asks for: what, which key, and what to do."""
