"""What a conformance case is: one sentence about providers, and a function that finds out whether it is true.

Cases are grouped in profiles. A case that does not apply (the provider does not offer the operation, the fixture names
no such key) says so by raising `NotApplicable`; a provider that breaks the contract by raising `Violation`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from eso_conformance.subject import Subject


class Profile(StrEnum):
    """What is asked of a provider."""

    READ = "read"
    WRITE = "write"
    GENERATOR = "generator"
    SUBSCRIBE = "subscribe"
    TLS = "tls"


class Violation(Exception):  # noqa: N818 - a verdict, not an accident
    """The provider does not do what the contract says. The text never holds a value."""


class NotApplicable(Exception):  # noqa: N818 - a verdict, not an accident
    """The case cannot be tried on this provider; the text says why."""


Check = Callable[["Subject"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Case:
    """One sentence about providers that must be true."""

    profile: Profile
    group: str
    sentence: str
    check: Check

    def __str__(self) -> str:
        return f"{self.group}: {self.sentence}"


def case(profile: Profile, group: str, sentence: str) -> Callable[[Check], Case]:
    """Turns a check into a case."""
    return lambda check: Case(profile, group, sentence, check)


def expect(holds: object, otherwise: str) -> None:
    """The contract holds here, or the case fails with these words."""
    if not holds:
        raise Violation(otherwise)


def violated(why: str) -> NoReturn:
    raise Violation(why)
