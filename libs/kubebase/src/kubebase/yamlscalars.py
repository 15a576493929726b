"""Plain scalars of YAML 1.1, resolved as go-yaml v2 does: numbers, booleans, nulls, dates."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

NULL, BOOL, INT, FLOAT, STR, TIMESTAMP, BINARY, MERGE = (
    f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "timestamp", "binary", "merge")
)
KNOWN_TAGS = frozenset(
    {"!", NULL, BOOL, INT, FLOAT, STR, TIMESTAMP, BINARY, MERGE, "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}
)
_RESOLVABLE = frozenset({"", STR, BOOL, INT, FLOAT, NULL, TIMESTAMP})
_TRUE = "y Y yes Yes YES true True TRUE on On ON"
_FALSE = "n N no No NO false False FALSE off Off OFF"
_CONSTANTS: dict[str, tuple[str, Any]] = {
    **dict.fromkeys(_TRUE.split(), (BOOL, True)),
    **dict.fromkeys(_FALSE.split(), (BOOL, False)),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), (NULL, None)),
    **{word: (FLOAT, float("nan")) for word in (".nan", ".NaN", ".NAN")},
    **{word: (FLOAT, float("inf")) for word in (".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF")},
    **{word: (FLOAT, float("-inf")) for word in ("-.inf", "-.Inf", "-.INF")},
}
_HINTED = frozenset("+-0123456789.yYnNtTfFoO~")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_DOTTED = re.compile(r"\.[0-9]+([eE][-+]?[0-9]+)?")
_SEXAGESIMAL = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?")
_INTEGER = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+|0|[1-9][0-9]*)")
_OCTAL = re.compile(r"[-+]?0[0-7]+")
_MAX_DIGITS = 200
"""Longer numbers are far beyond 64 bits, and Python refuses to convert very long ones."""
_DATE = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})"
    r"(?:([Tt ])(\d{1,2}):(\d{1,2}):(\d{1,2})(?:[.,]\d+)?(Z|[+-]\d{2}:\d{2})?)?"
)


class TagError(ValueError):
    """The scalar does not fit its tag."""


def resolve(tag: str, text: str) -> tuple[str, Any]:
    """Return tag and value of a scalar with this tag, or without one."""
    if tag not in _RESOLVABLE:
        return tag, text
    found, value = (STR, text) if tag == STR else _resolved(tag, text)
    if tag in {"", found, STR}:
        return found, value
    if tag == FLOAT and found == INT:
        return FLOAT, float(value)
    raise TagError(f"yaml: cannot decode {_short(found)} `{text}` as a {_short(tag)}")


def _short(tag: str) -> str:
    return tag.replace("tag:yaml.org,2002:", "!!")


def _resolved(tag: str, text: str) -> tuple[str, Any]:
    if text and text[0] not in _HINTED:
        return STR, text
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] == ".":
        return (FLOAT, float(text)) if _DOTTED.fullmatch(text) else (STR, text)
    if text[0].isalpha() or text[0] == "~":
        return STR, text
    if tag in {"", TIMESTAMP} and is_date(text):
        return TIMESTAMP, text
    return _number(text)


def _number(text: str) -> tuple[str, Any]:
    plain = text.replace("_", "")
    exact = _integer(plain)
    if exact is not None and -(2**63) <= exact < 2**64 and (exact < 2**63 or plain[0] != "+"):
        return INT, exact
    if _FLOAT.fullmatch(plain):
        value = float(plain)
        return (FLOAT, value) if value not in {float("inf"), float("-inf")} else (STR, text)
    return STR, text


def _integer(plain: str) -> int | None:
    """Parse with the prefix of a base; a leading 0 alone is octal."""
    if len(plain) > _MAX_DIGITS:
        return None
    if _OCTAL.fullmatch(plain):
        return int(plain, 8)
    return int(plain, 0) if _INTEGER.fullmatch(plain) else None


def is_date(text: str) -> bool:
    """Return whether go-yaml treats the text as a timestamp; it stays text, but is quoted when written."""
    found = _DATE.fullmatch(text)
    if found is None:
        return False
    year, month, day, mark, hour, minute, second, zone = found.groups()
    if (mark in {"T", "t"}) != (zone is not None):
        return False
    try:
        datetime(int(year) or 4, int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0))  # noqa: DTZ001 only its validity matters
    except ValueError:
        return False
    return zone in {None, "Z"} or (int(zone[1:3]) <= 24 and int(zone[4:]) < 60)


def reads_as_text(text: str) -> bool:
    """Return whether the unquoted text is read back as text."""
    if not text or text[0] in _HINTED:
        if _resolved("", text)[0] != STR:
            return False
        return not _SEXAGESIMAL.fullmatch(text)
    return True
