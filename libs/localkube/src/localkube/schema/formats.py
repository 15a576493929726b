"""The formats and patterns that a custom resource's schema may name; each check returns whether a text has the format.

Our CRDs use these. Other formats are accepted in a schema and not enforced, as kube-apiserver does with unknown
formats.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from functools import lru_cache
from typing import Any, Final

import re2

from kubebase.patterns import re2_message

FormatCheck = Callable[[str], bool]


def check_for(format_name: str) -> FormatCheck | None:
    """Find the check of one format; dashes in the name do not matter (`date-time` is `datetime`)."""
    return _CHECKS.get(format_name.replace("-", ""))


def is_known(schema_type: str, format_name: str) -> bool:
    """Return whether the format is enforced for values of the type."""
    match schema_type:
        case "" | "string":
            return check_for(format_name) is not None
        case "integer":
            return format_name in {"int32", "int64"}
        case "number":
            return format_name in {"float", "double"}
        case _:
            return False


def is_date_time(text: str) -> bool:
    """Return whether a text is RFC 3339.

    It is as lenient as the real server: lower-case letters are accepted, hour 24 is not.
    """
    matched = _DATE_TIME.fullmatch(text)
    if matched is None or not _is_date(matched["date"]):
        return False
    hour, minute, second = (int(part) for part in matched["time"].split(":"))
    return hour <= 23 and minute <= 59 and second <= 59


def _is_date(text: str) -> bool:
    if _DATE.fullmatch(text) is None:
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_base64(text: str) -> bool:
    """Return whether a text is base64 without line breaks; the empty text is not accepted."""
    return _BASE64.fullmatch(text) is not None


_DATE: Final = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DATE_TIME: Final = re.compile(
    r"(?P<date>\d{4}-\d{2}-\d{2})[Tt](?P<time>\d{2}:\d{2}:\d{2})([.]\d+)?([Zz]|[-+]\d{2}:\d{2})", re.ASCII
)
_BASE64: Final = re.compile("([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})")
_CHECKS: Final[dict[str, FormatCheck]] = {"byte": _is_base64, "date": _is_date, "datetime": is_date_time}


# --- Regular expressions as Go understands them (RE2: no back-references, linear time), with Go's error texts ---------

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
