"""Regular expressions as Go understands them (RE2: no back-references, linear time), with Go's error texts."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

import re2

from kubebase.patterns import re2_message

_PLAIN: Final = re.compile(r"\^([A-Za-z0-9_/:@-]|\\\.|\[\^?[A-Za-z0-9_./:@-]+\]|[+*?])+\$")
_REPEATED: Final = re.compile(r"[+*]")


class PatternError(ValueError):
    """The text is not a regular expression; the message says why."""


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> Any:
    """Return a compiled pattern with a `search` method; PatternError if it is not valid."""
    if _PLAIN.fullmatch(pattern) and len(_REPEATED.findall(pattern)) <= 1:
        # Anchored, no groups, one repetition: linear in Python too, and twenty times as quick.
        return re.compile(pattern[:-1] + r"\Z", re.ASCII)
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as failure:
        raise PatternError(_go_message(failure)) from None


def _go_message(failure: Exception) -> str:
    code, _, place = re2_message(failure).partition(": ")
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
