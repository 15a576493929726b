"""RE2's own message about an invalid regular expression. RE2 itself is not imported here."""

from __future__ import annotations

from typing import Final

_LONGEST: Final = 200
"""RE2 repeats the invalid part of the pattern, which may be the whole pattern."""


def re2_message(error: Exception) -> str:
    """Return the message of a `re2.error` as RE2 wrote it: the problem and, if known, the invalid part."""
    message = error.args[0] if error.args else ""
    return message.decode(errors="replace") if isinstance(message, bytes) else str(message)


def problem_in(error: Exception) -> str:
    """Return the message for a condition, for example `missing ]: [a-z`."""
    text = re2_message(error)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
