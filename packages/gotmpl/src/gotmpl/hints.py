"""What the author of a template may have meant: hints that follow Go's own error messages.

A hint names functions and keys of the data that the template was given. It never goes into the data: the keys of a
decoded value are part of the value.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

_SHOWN_KEYS: Final = 10
_LONGEST_KEY: Final = 63
_COMPARED: Final = 1000
"""Comparing names takes time for each of them."""
_ELSEWHERE: Final = {
    "base64": "b64enc",
    "base64decode": "b64dec",
    "base64encode": "b64enc",
    "b64decode": "b64dec",
    "b64encode": "b64enc",
    "base64_decode": "b64dec",
    "base64_encode": "b64enc",
    "json": "toJson",
    "jsondecode": "fromJson",
    "jsonencode": "toJson",
    "parsejson": "fromJson",
    "yamldecode": "fromYaml",
    "yamlencode": "toYaml",
    "length": "len",
    "lowercase": "lower",
    "uppercase": "upper",
    "strip": "trim",
    "sha1": "sha1sum",
    "sha256": "sha256sum",
    "sha512": "sha512sum",
    "startswith": "hasPrefix",
    "endswith": "hasSuffix",
    "urlencode": "urlquery",
    "uuid": "uuidv4",
    "random": "randAlphaNum",
}
"""Functions as other template languages call them."""


def of_function(name: str, known: Iterable[str]) -> str:
    """Return a hint about a function that does not exist, or an empty string."""
    functions = {each.lower(): each for each in known}
    meant = _ELSEWHERE.get(name.lower(), "")
    if meant.lower() not in functions:
        close = get_close_matches(name.lower(), functions, n=1, cutoff=0.7)
        meant = functions[close[0]] if close else ""
    return f"did you mean {meant}?" if meant else ""


def of_key(name: str, keys: Iterable[object]) -> str:
    """Return a hint about a key that the data does not have."""
    known = sorted(key for key in keys if isinstance(key, str))
    if not known:
        return "there are no keys"
    close = get_close_matches(name, known[:_COMPARED], n=1, cutoff=0.7)
    if close and len(close[0]) <= _LONGEST_KEY:
        return f"did you mean {close[0]}?"
    shown = [key if len(key) <= _LONGEST_KEY else f"{key[:_LONGEST_KEY]}…" for key in known[:_SHOWN_KEYS]]
    more = f" and {len(known) - _SHOWN_KEYS} more" if len(known) > _SHOWN_KEYS else ""
    return f"the keys are {', '.join(shown)}{more}"
