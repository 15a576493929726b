"""Remote keys: `NAME`, `secret/NAME`, `key/NAME` or `cert/NAME`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from eso_sdk.errors import invalid_request

_NAME: Final = re.compile(r"[0-9A-Za-z-]{1,127}")


class Kind(StrEnum):
    """The kinds of objects in a vault; the text is their prefix in remote keys."""

    SECRET = "secret"  # noqa: S105 - a prefix, not a credential
    KEY = "key"
    CERTIFICATE = "cert"

    @property
    def label(self) -> str:
        """Return the kind's name in messages."""
        return "certificate" if self is Kind.CERTIFICATE else self.value


@dataclass(frozen=True, slots=True)
class Name:
    """One object of a vault."""

    kind: Kind
    name: str

    @classmethod
    def parse(cls, key: str) -> Name:
        """Read a remote key. Segments after the second one have always been ignored."""
        first, slash, rest = key.partition("/")
        if not slash:
            return cls(Kind.SECRET, _checked(key, key))
        if first not in tuple(Kind):
            raise invalid_request(f'"{key}" begins with "{first}/"; the kinds of objects are secret/, key/ and cert/')
        return cls(Kind(first), _checked(rest.partition("/")[0], key))


def _checked(name: str, key: str) -> str:
    if not _NAME.fullmatch(name):
        raise invalid_request(f'"{key}" is not a name in Key Vault: use up to 127 letters, digits and dashes')
    return name
