"""The syntax of names, labels, annotation keys and config keys; each check returns its error messages.

The texts are those of kube-apiserver. The patterns are linear in the input, so the standard `re` is safe here.
"""

from __future__ import annotations

import re
from typing import Final

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = _LABEL + r"(\." + _LABEL + ")*"
_DNS1035: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_KEY_NAME: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE: Final = f"({_KEY_NAME})?"
_CONFIG_KEY: Final = "[-._a-zA-Z0-9]+"

_LABEL_RE: Final = re.compile(_LABEL)
_SUBDOMAIN_RE: Final = re.compile(_SUBDOMAIN)
_DNS1035_RE: Final = re.compile(_DNS1035)
_KEY_NAME_RE: Final = re.compile(_KEY_NAME)
_LABEL_VALUE_RE: Final = re.compile(_LABEL_VALUE)
_CONFIG_KEY_RE: Final = re.compile(_CONFIG_KEY)

_ENDS: Final = "and must start and end with an alphanumeric character"
_KEY_CHARACTERS: Final = f"must consist of alphanumeric characters, '-', '_' or '.', {_ENDS}"


def dns_label(value: str) -> list[str]:
    messages = _length(value, 63)
    if _LABEL_RE.fullmatch(value) is None:
        if _SUBDOMAIN_RE.fullmatch(value):
            messages.append("must not contain dots")
        else:
            what = f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', {_ENDS}"
            messages.append(_pattern(what, _LABEL, "my-name", "123-abc"))
    return messages


def dns_subdomain(value: str) -> list[str]:
    messages = _length(value, 253)
    if _SUBDOMAIN_RE.fullmatch(value) is None:
        what = f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', {_ENDS}"
        messages.append(_pattern(what, _SUBDOMAIN, "example.com"))
    return messages


def dns1035_label(value: str) -> list[str]:
    messages = _length(value, 63)
    if _DNS1035_RE.fullmatch(value) is None:
        what = (
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
            "character, and end with an alphanumeric character"
        )
        messages.append(_pattern(what, _DNS1035, "my-name", "abc-123"))
    return messages


def path_segment(value: str) -> list[str]:
    """Check a name of an RBAC object: anything that can be one segment of a URL path."""
    if value in {".", ".."}:
        return [f"may not be '{value}'"]
    return [f"may not contain '{mark}'" for mark in ("/", "%") if mark in value]


def qualified_name(value: str) -> list[str]:
    """Check a label key: an optional DNS subdomain and a slash, then a name."""
    prefix, slash, name = value.rpartition("/")
    messages: list[str] = []
    if "/" in prefix:
        what = _pattern(_KEY_CHARACTERS, _KEY_NAME, "MyName", "my.name", "123-abc")
        return [
            f"a valid label key {what} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
        ]
    if slash:
        wrong = dns_subdomain(prefix) if prefix else [_EMPTY]
        messages += [f"prefix part {message}" for message in wrong]
    if not name:
        messages.append(f"name part {_EMPTY}")
    messages += [f"name part {message}" for message in _length(name, 63, "bytes")]
    if _KEY_NAME_RE.fullmatch(name) is None:
        messages.append("name part " + _pattern(_KEY_CHARACTERS, _KEY_NAME, "MyName", "my.name", "123-abc"))
    return messages


def label_value(value: str) -> list[str]:
    messages = _length(value, 63, "bytes")
    if _LABEL_VALUE_RE.fullmatch(value) is None:
        what = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', " + _ENDS
        messages.append(_pattern(what, _LABEL_VALUE, "MyValue", "my_value", "12345"))
    return messages


def config_key(value: str) -> list[str]:
    """Check a key of a Secret's or ConfigMap's data."""
    messages = _length(value, 253)
    if _CONFIG_KEY_RE.fullmatch(value) is None:
        what = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
        messages.append(_pattern(what, _CONFIG_KEY, "key.name", "KEY_NAME", "key-name"))
    if value == ".":
        messages.append("must not be '.'")
    elif value == "..":
        messages.append("must not be '..'")
    elif value.startswith(".."):
        messages.append("must not start with '..'")
    return messages


_EMPTY: Final = "must be non-empty"


def _length(value: str, limit: int, unit: str = "characters") -> list[str]:
    return [f"must be no more than {limit} {unit}"] if len(value.encode()) > limit else []


def _pattern(what: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{what} (e.g. {shown}regex used for validation is '{pattern}')"
