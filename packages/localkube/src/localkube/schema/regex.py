"""Regular expressions as Go understands them (RE2: no back-references, linear time), with Go's error texts."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import re2


class PatternError(ValueError):
    """The text is not a regular expression; the message says why."""


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> Any:
    """A compiled pattern; PatternError if it is not valid."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as failure:
        raise PatternError(_go_message(failure)) from None


def _go_message(failure: Exception) -> str:
    argument = failure.args[0] if failure.args else ""
    text = argument.decode(errors="replace") if isinstance(argument, bytes) else str(argument)
    code, _, place = text.partition(": ")
    return f"error parsing regexp: {_GO_CODES.get(code, code)}: `{place}`"


_GO_CODES: Final = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid named capture group": "invalid named capture",
    "no argument for repetition operator": "missing argument to repetition operator",
}
