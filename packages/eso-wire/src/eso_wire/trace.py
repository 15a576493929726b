"""The trace a call belongs to, as W3C Trace Context spells it: `00-<trace id>-<parent id>-<flags>`.

One trace is one piece of work, for instance one reconcile with all the calls it makes; each call has a parent id of its
own. Nothing is recorded or sampled here: the ids tie log lines of several processes together, and go on to backends
that trace.
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
    """Where in which trace a call was made."""

    trace_id: str
    parent_id: str
    flags: str = _NOT_SAMPLED

    @classmethod
    def within(cls, trace_id: str) -> Self:
        """A new place in that trace."""
        return cls(trace_id, new_trace_id()[:16])

    @classmethod
    def parsed(cls, text: str | bytes) -> Self | None:
        """What a header says; None when it says nothing that can be used. A newer version may say more than ours."""
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
    """Random, and never all zeros, which would mean "none"."""
    return uuid.uuid4().hex
