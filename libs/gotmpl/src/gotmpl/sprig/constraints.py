"""Constraints on semantic versions (`>=1.2 <2 || ^3.1`), as the Masterminds library reads them.

A version in a constraint may omit parts or write `x` or `*` for them. The meaning depends on the operator.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gotmpl.errors import FuncError, Quoted
from gotmpl.signatures import STRING, Functions
from gotmpl.sprig.semver import MAX_LENGTH, Version, compare, parse

FUNCTIONS = Functions()

_NUMBER = r"[0-9|xX*]+"
_VERSION = (
    rf"v?({_NUMBER})(\.{_NUMBER})?(\.{_NUMBER})?"
    r"(-[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
_BOUND = re.compile(rf"\s*(!=|>=|=>|<=|=<|~>|=|>|<|~|\^|)\s*({_VERSION})\s*")
_RANGE = re.compile(rf"\s*({_VERSION})\s+-\s+({_VERSION})\s*")
_WILDCARDS = frozenset({"", "x", "X", "*", ".x", ".X", ".*"})


@FUNCTIONS.add("semverCompare", params=(STRING, STRING))
def semver_compare(constraint: str, text: str) -> bool:
    alternatives = read(constraint)
    version = parse(text)
    return any(alternative.holds(version) for alternative in alternatives)


class Bound(NamedTuple):
    operator: str
    version: Version
    parts: int
    """How many of major, minor, patch are given; the rest are wildcards."""

    def holds(self, version: Version) -> bool:
        order, parts, low = compare(version, self.version), self.parts, self.version
        match self.operator:
            case "" | "=":
                return order == 0 if parts == 3 else self._near(version)
            case "!=":
                return self._differs(version)
            case ">":
                if parts in {1, 2}:
                    return _numbers(version)[:parts] > _numbers(low)[:parts]
                return order > 0
            case ">=" | "=>":
                return order >= 0
            case "<":
                return order < 0
            case "<=" | "=<":
                return order <= 0 if parts == 3 else _numbers(version)[: parts or 2] <= _numbers(low)[: parts or 2]
            case "~" | "~>":
                return self._near(version)
            case _:
                return order >= 0 and self._within_caret(version)

    def _near(self, version: Version) -> bool:
        """Match `~1.2.3` and `1.2.x`: same minor version, or major if only that is given; `~0.0.0` matches all."""
        if compare(version, self.version) < 0:
            return False
        if _numbers(self.version) == (0, 0, 0) and self.parts in {0, 3}:
            return True
        given = 1 if self.parts == 1 else 2
        return _numbers(version)[:given] == _numbers(self.version)[:given]

    def _differs(self, version: Version) -> bool:
        if self.parts in {0, 3}:
            return compare(version, self.version) != 0
        if _numbers(version)[: self.parts] != _numbers(self.version)[: self.parts]:
            return True
        return self.parts == 2 and version.prerelease != self.version.prerelease

    def _within_caret(self, version: Version) -> bool:
        """Match versions in which nothing left of the first non-zero number changes."""
        low = self.version
        if low.major or self.parts == 1:
            return version.major == low.major
        if low.minor or self.parts == 2:
            return _numbers(version)[:2] == _numbers(low)[:2]
        return _numbers(version) == _numbers(low)


def _numbers(version: Version) -> tuple[int, int, int]:
    return version.major, version.minor, version.patch


class Alternative(NamedTuple):
    """Bounds that must all hold. Prereleases match only if one of the bounds names a prerelease."""

    bounds: tuple[Bound, ...]

    def holds(self, version: Version) -> bool:
        if version.prerelease and not any(bound.version.prerelease for bound in self.bounds):
            return False
        return all(bound.holds(version) for bound in self.bounds)


def read(text: str) -> list[Alternative]:
    """Parse the alternatives between `||`."""
    if len(text) > MAX_LENGTH:
        raise FuncError("improper constraint: too long")
    written = _RANGE.sub(lambda found: f">= {found[1]}, <= {found[6]} ", text)
    return [_alternative(part, text) for part in written.split("||")]


def _alternative(part: str, whole: str) -> Alternative:
    found: list[re.Match[str]] = []
    at = 0
    while not found or at < len(part):
        bound = _BOUND.match(part, at)
        if bound is None or (found and part[at - 1] != "," and not part[at - 1].isspace()):
            raise FuncError("improper constraint: ", Quoted(part, origin=whole))
        found.append(bound)
        at = bound.end()
        if part[at : at + 1] == ",":
            at += 1
            if at == len(part):
                raise FuncError("improper constraint: ", Quoted(part, origin=whole))
    return Alternative(tuple(map(_bound, found)))


def _bound(found: re.Match[str]) -> Bound:
    operator, written, *numbers, prerelease = found.groups("")
    given = next((count for count, number in enumerate(numbers) if number in _WILDCARDS), 3)
    if given < 3:
        written = ".".join([*(number.removeprefix(".") for number in numbers[:given]), *"0" * (3 - given)]) + prerelease
    try:
        return Bound(operator, parse(written), given)
    except FuncError:
        raise FuncError("constraint parser error") from None
