"""The trace of a call in W3C Trace Context format: `00-<trace id>-<parent id>-<flags>`.

One trace is one piece of work, for example one reconcile with all its calls; each call has its own parent id. Nothing
is recorded or sampled here: the ids connect the log lines of several processes, and are passed on to backends that
trace.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from typing import Final, Self

_SPELLING: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_LONGEST: Final = 256
_NOT_SAMPLED: Final = "00"


@dataclass(frozen=True, slots=True)
class TraceParent:
    """The position of a call in a trace."""

    trace_id: str
    parent_id: str
    flags: str = _NOT_SAMPLED

    @classmethod
    def within(cls, trace_id: str) -> Self:
        """Return a new position in that trace."""
        return cls(trace_id, new_trace_id()[:16])

    @classmethod
    def parsed(cls, text: str | bytes) -> Self | None:
        """Parse a header; None if it is unusable. Additional fields of newer versions are ignored."""
        found = _SPELLING.fullmatch(text) if isinstance(text, str) and len(text) <= _LONGEST else None
        if found is None:
            return None
        version, trace_id, parent_id, flags, more = found.groups()
        if version == "ff" or (version == "00" and more) or not int(trace_id, 16) or not int(parent_id, 16):
            return None
        return cls(trace_id, parent_id, flags)

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.parent_id}-{self.flags}"


def new_trace_id() -> str:
    """Return a random id, never all zeros, which would mean "none"."""
    return uuid.uuid4().hex
