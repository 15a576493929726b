"""Conformance cases: a statement about providers, and a function that checks it.

Cases are grouped in profiles. A case that does not apply (the provider does not offer the operation, or the fixture
names no such key) raises `NotApplicable`; a violation of the contract raises `Violation`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from eso_conformance.subject import Subject


class Profile(StrEnum):
    """A set of required capabilities of a provider."""

    READ = "read"
    WRITE = "write"
    GENERATOR = "generator"
    SUBSCRIBE = "subscribe"
    TLS = "tls"


class Violation(Exception):  # noqa: N818 - a verdict, not an accident
    """The provider violates the contract. The text never contains a value."""


class NotApplicable(Exception):  # noqa: N818 - a verdict, not an accident
    """The case does not apply to this provider; the text says why."""


Check = Callable[["Subject"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Case:
    """One statement that must be true for every provider."""

    profile: Profile
    group: str
    sentence: str
    check: Check

    def __str__(self) -> str:
        return f"{self.group}: {self.sentence}"


def case(profile: Profile, group: str, sentence: str) -> Callable[[Check], Case]:
    """Turn a check into a case."""
    return lambda check: Case(profile, group, sentence, check)


def expect(holds: object, otherwise: str) -> None:
    """Fail the case with this text unless the condition holds."""
    if not holds:
        raise Violation(otherwise)


def violated(why: str) -> NoReturn:
    raise Violation(why)
