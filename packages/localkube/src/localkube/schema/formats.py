"""The string formats a custom resource's schema may name; each check says whether a text has the format.

A format that is not listed here is not enforced, as in kube-apiserver, which strips what it does not know.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Callable
from datetime import date
from email.utils import parseaddr
from typing import Final
from urllib.parse import urlsplit

from localkube.schema import regex

FormatCheck = Callable[[str], bool]


def check_for(format_name: str) -> FormatCheck | None:
    """The check of one format; dashes in the name do not matter (`date-time` is `datetime`)."""
    return _CHECKS.get(format_name.replace("-", ""))


def is_known(schema_type: str, format_name: str) -> bool:
    """Whether the format is enforced for values of the type."""
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
    """RFC 3339, with the real server's leniency: lower-case letters are fine, hour 24 is not."""
    matched = _DATE_TIME.fullmatch(text)
    if matched is None or not is_date(matched["date"]):
        return False
    hour, minute, second = (int(part) for part in matched["time"].split(":"))
    return hour <= 23 and minute <= 59 and second <= 59


def is_date(text: str) -> bool:
    if _DATE.fullmatch(text) is None:
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def is_duration(text: str) -> bool:
    """A Go duration, or a number with a unit word somewhere in the text ("2 hours")."""
    if _GO_DURATION.fullmatch(text):
        return True
    units = [unit.lower() for unit in _WORD_DURATION.findall(text)]
    return any(unit in _DURATION_UNITS or unit.startswith(_DURATION_WORDS) for unit in units)


def is_base64(text: str) -> bool:
    """Base64 without line breaks; the empty text is not accepted."""
    return _BASE64.fullmatch(text) is not None


def is_uri(text: str) -> bool:
    """What a request line accepts: an absolute URI, or a path that starts with a slash."""
    if not text or any(mark < " " or mark == "\x7f" for mark in text) or _BAD_ESCAPE.search(text):
        return False
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return False
    if " " in parts.netloc:
        return False
    return text.startswith("/") or (bool(parts.scheme) and _SCHEME.match(text) is not None)


def _is_email(text: str) -> bool:
    address = parseaddr(text)[1]
    return bool(address) and _EMAIL.fullmatch(address) is not None


def _is_hostname(text: str) -> bool:
    """One label with at most one inner dash, or dotted labels that end in a top-level domain of letters."""
    labels = text.split(".")
    if len(text.encode()) > 255 or any(len(label.encode()) > 63 for label in labels):
        return False
    if len(labels) == 1:
        runes = text[:1] + text[1:].removeprefix("-")
        return bool(runes) and all(_is_host_rune(rune) for rune in runes)
    *inner, top = labels
    return len(top) >= 2 and all(rune.isalpha() for rune in top) and all(_is_host_label(label) for label in inner)


def _is_host_label(label: str) -> bool:
    runes = [_is_host_rune(rune) for rune in label]
    return bool(label) and runes[0] and runes[-1] and all(runes[i] or label[i] == "-" for i in range(len(label)))


def _is_host_rune(rune: str) -> bool:
    return rune.isalpha() or rune in "0123456789" or unicodedata.category(rune).startswith("S")


def _is_ipv4(text: str) -> bool:
    """Leading zeros do not matter."""
    return _without_zeros(text) is not None


def _without_zeros(text: str) -> str | None:
    parts = text.split(".")
    if len(parts) != 4 or not all(re.fullmatch("[0-9]{1,20}", part) and int(part) < 256 for part in parts):
        return None
    return ".".join(str(int(part)) for part in parts)


def _is_ipv6(text: str) -> bool:
    if "%" in text:
        return False
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _is_cidr(text: str) -> bool:
    address, slash, bits = text.partition("/")
    if not slash or not bits.isdecimal() or (len(bits) > 1 and bits.startswith("0")):
        return False
    try:
        ipaddress.ip_interface(f"{_without_zeros(address) or address}/{int(bits)}")
    except ValueError:
        return False
    return "%" not in address


def _is_isbn10(text: str) -> bool:
    digits = text.replace("-", "").replace(" ", "")
    if re.fullmatch("[0-9]{9}[0-9X]", digits) is None:
        return False
    total = sum((index + 1) * int(digit) for index, digit in enumerate(digits[:9]))
    total += 10 * (10 if digits[9] == "X" else int(digits[9]))
    return total % 11 == 0


def _is_isbn13(text: str) -> bool:
    digits = text.replace("-", "").replace(" ", "")
    if re.fullmatch("[0-9]{13}", digits) is None:
        return False
    total = sum(int(digit) * (3 if index % 2 else 1) for index, digit in enumerate(digits[:12]))
    return (10 - total % 10) % 10 == int(digits[12])


def _is_isbn(text: str) -> bool:
    return _is_isbn10(text) or _is_isbn13(text)


def _is_credit_card(text: str) -> bool:
    digits = re.sub("[^0-9]+", "", text)
    if _CREDIT_CARD.fullmatch(digits) is None:
        return False
    total = 0
    for index, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + index % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def _matches(pattern: str) -> FormatCheck:
    matcher = regex.compiled(pattern)
    return lambda text: matcher.search(text) is not None


def _is_short_name(text: str) -> bool:
    return len(text) <= 63 and re.fullmatch(_NAME, text) is not None


def _is_long_name(text: str) -> bool:
    return len(text) <= 253 and re.fullmatch(rf"{_NAME}(\.{_NAME})*", text) is not None


def _anything(_text: str) -> bool:
    return True


_NAME: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DATE: Final = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DATE_TIME: Final = re.compile(
    r"(?P<date>\d{4}-\d{2}-\d{2})[Tt](?P<time>\d{2}:\d{2}:\d{2})([.]\d+)?([Zz]|[-+]\d{2}:\d{2})", re.ASCII
)
_GO_DURATION: Final = re.compile(r"[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)")
_WORD_DURATION: Final = re.compile(r"[0-9]+\s*([A-Za-zµ]+)")
_DURATION_UNITS: Final = frozenset(["ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"])
_DURATION_WORDS: Final = ("nano", "micro", "milli", "sec", "min", "hour", "day", "week")
_BASE64: Final = re.compile("([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})")
_BAD_ESCAPE: Final = re.compile("%(?![0-9a-fA-F]{2})")
_SCHEME: Final = re.compile("[A-Za-z][A-Za-z0-9+.-]*:")
_EMAIL: Final = re.compile(r'([^@\s]+|"[^"]+")@[^@\s]+')
_CREDIT_CARD: Final = re.compile(
    "4[0-9]{12}([0-9]{3})?|5[1-5][0-9]{14}|6(011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}"
    "|3(0[0-5]|[68][0-9])[0-9]{11}|(2131|1800|35[0-9]{3})[0-9]{11}"
)
_HEX: Final = "[0-9a-f]"
_CHECKS: Final[dict[str, FormatCheck]] = {
    "bsonobjectid": _matches("^[0-9a-fA-F]{24}$"),
    "uri": is_uri,
    "email": _is_email,
    "hostname": _is_hostname,
    "ipv4": _is_ipv4,
    "ipv6": _is_ipv6,
    "cidr": _is_cidr,
    "mac": _matches(
        "^([0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}([:-][0-9A-Fa-f]{2}){0,14}|([0-9A-Fa-f]{4}[.]){2}[0-9A-Fa-f]{4})$"
    ),
    "uuid": _matches(f"(?i)^{_HEX}{{8}}-?{_HEX}{{4}}-?{_HEX}{{4}}-?{_HEX}{{4}}-?{_HEX}{{12}}$"),
    "uuid3": _matches(f"(?i)^{_HEX}{{8}}-?{_HEX}{{4}}-?3{_HEX}{{3}}-?{_HEX}{{4}}-?{_HEX}{{12}}$"),
    "uuid4": _matches(f"(?i)^{_HEX}{{8}}-?{_HEX}{{4}}-?4{_HEX}{{3}}-?[89ab]{_HEX}{{3}}-?{_HEX}{{12}}$"),
    "uuid5": _matches(f"(?i)^{_HEX}{{8}}-?{_HEX}{{4}}-?5{_HEX}{{3}}-?[89ab]{_HEX}{{3}}-?{_HEX}{{12}}$"),
    "isbn": _is_isbn,
    "isbn10": _is_isbn10,
    "isbn13": _is_isbn13,
    "creditcard": _is_credit_card,
    "ssn": _matches(r"^\d{3}[- ]?\d{2}[- ]?\d{4}$"),
    "hexcolor": _matches("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"),
    "rgbcolor": _matches(
        r"^rgb\(\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,"
        r"\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*\)$"
    ),
    "byte": is_base64,
    "password": _anything,
    "date": is_date,
    "duration": is_duration,
    "datetime": is_date_time,
    "k8sshortname": _is_short_name,
    "k8slongname": _is_long_name,
}
