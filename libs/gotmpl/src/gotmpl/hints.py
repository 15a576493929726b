"""What the author of a template may have meant: hints that follow Go's own error messages.

A hint names functions and keys of the data that the template was given. It never goes into the data: the keys of a
decoded value are part of the value.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kubebase.hints import LONGEST_NAME, did_you_mean, hint, similar

_SHOWN_KEYS: Final = 10
_OTHER_LANGUAGES: Final = {
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
    translated = functions.get(_OTHER_LANGUAGES.get(name.lower(), "").lower())
    return did_you_mean([translated] if translated else similar(name, functions.values()))


def of_key(name: str, keys: Iterable[object]) -> str:
    """Return a hint about a key that the data does not have."""
    known = sorted(key for key in keys if isinstance(key, str))
    if not known:
        return "there are no keys"
    if meant := hint(name, known):
        return meant
    shown = [key if len(key) <= LONGEST_NAME else f"{key[:LONGEST_NAME]}…" for key in known[:_SHOWN_KEYS]]
    more = f" and {len(known) - _SHOWN_KEYS} more" if len(known) > _SHOWN_KEYS else ""
    return f"the keys are {', '.join(shown)}{more}"
