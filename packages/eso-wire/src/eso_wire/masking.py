"""Short values and the names of keys: what may stay where a message is cleaned of values.

A value such as `prod` is part of many names. Masked there, `app/prod/db` becomes `app/…/db`, which misleads whoever
looks for the key and tells them what a value is. The caller wrote the names itself, so they reveal nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

SENSIBLE: Final = 8
"""Values shorter than this are not masked inside the names of a request."""


def without_short(text: str, spellings: Iterable[str], names: Sequence[str], mask: str) -> str:
    """The text without these short values, except where they are part of a name of the request."""
    present = [spelling for spelling in spellings if spelling in text]
    if not present:
        return text
    kept = {name for name in names if name in text and any(spelling in name for spelling in present)}
    parts = re.split(f"({'|'.join(map(re.escape, sorted(kept, key=len, reverse=True)))})", text) if kept else [text]
    for spelling in present:
        parts[::2] = [part.replace(spelling, mask) for part in parts[::2]]
    return "".join(parts)
