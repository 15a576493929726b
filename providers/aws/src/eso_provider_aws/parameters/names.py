"""Names of parameters: by name or ARN, with a version or label after a colon."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from eso_sdk.errors import invalid_request

_ARN: Final = "arn:"
_PARTS_OF_ARN: Final = 6


@dataclass(frozen=True, slots=True)
class Address:
    """One version of a parameter; the latest one without a selector."""

    name: str
    """Name or ARN."""
    selector: str = ""
    """Number of a version, or a label."""

    def __str__(self) -> str:
        return f"{self.name}:{self.selector}" if self.selector else self.name

    @property
    def is_arn(self) -> bool:
        return self.name.startswith(_ARN)

    @property
    def parameter(self) -> str:
        """Return the same text for every spelling of a parameter.

        An ARN does not show whether the name begins with a slash.
        """
        return self.name.rpartition(":parameter/")[2].lstrip("/")


def address_of(key: str, version: str = "") -> Address:
    """Split a key into name and selector. Names contain no colons."""
    parts = key.strip().split(":")
    count = _PARTS_OF_ARN if key.startswith(_ARN) else 1
    name, selector = ":".join(parts[:count]), ":".join(parts[count:])
    if selector and version:
        raise invalid_request(f'"{key}" ends with a version or label, and version names another; remove one of them')
    return Address(name, selector or version)


def name_to_write(key: str) -> str:
    """Return the name of the parameter to write. Raise for versions and for parameters of another account."""
    address = address_of(key)
    if address.is_arn:
        raise invalid_request(f'"{key}" is an ARN, and Parameter Store writes by name only; use the parameter\'s name')
    if address.selector:
        raise invalid_request(f'"{key}" names a version or label, which cannot be written; remove what follows ":"')
    return address.name
