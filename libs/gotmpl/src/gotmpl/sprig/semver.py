"""Semantic versions and constraints on them, as the Masterminds library reads them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

from gotmpl.errors import FuncError, Quoted
from gotmpl.functions import STRING, Func, Functions, GoType
from gotmpl.quoting import quote
from gotmpl.values import GoObject, Uint64

FUNCTIONS = Functions()
MAX_LENGTH = 1024

_VERSION = re.compile(
    r"v?([0-9]+)(?:\.([0-9]+))?(?:\.([0-9]+))?"
    r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?\Z"
)
_PARTS = re.compile(r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*")
_PRERELEASE = re.compile(r"(?!.*(?:^|\.)0[0-9]+(?:\.|$))[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*")


@dataclass(frozen=True)
class Version(GoObject):
    """The result of `semver`, a pointer. Methods that create another version return a VersionValue."""

    go_type: ClassVar[str] = "*semver.Version"
    kind: ClassVar[str] = "ptr"
    unexported: ClassVar[frozenset[str]] = frozenset({"major", "minor", "patch", "pre", "metadata", "original"})

    major: int
    minor: int
    patch: int
    prerelease: str = ""
    metadata: str = ""
    original: str = ""

    def go_string(self) -> str:
        text = f"{self.major}.{self.minor}.{self.patch}"
        text += f"-{self.prerelease}" if self.prerelease else ""
        return text + (f"+{self.metadata}" if self.metadata else "")

    def copied(self) -> Version:
        """Copy like the original, whose deep copy loses every private field."""
        return type(self)(0, 0, 0)

    def go_syntax(self) -> str:
        numbers = f"major:{self.major:#x}, minor:{self.minor:#x}, patch:{self.patch:#x}"
        texts = f"pre:{quote(self.prerelease)}, metadata:{quote(self.metadata)}, original:{quote(self.original)}"
        return f"{self.go_type.replace('*', '&')}{{{numbers}, {texts}}}"


class VersionValue(Version):
    """A version that is not behind a pointer: it has no comparison methods, and no function accepts it."""

    go_type: ClassVar[str] = "semver.Version"
    kind: ClassVar[str] = "struct"


VERSION = GoType("*semver.Version", (Version,), nilable=True)


def parse(text: str) -> Version:
    found = _VERSION.match(text) if len(text) <= MAX_LENGTH else None
    if found is None:
        raise FuncError("invalid semantic version")
    major, minor, patch, prerelease, metadata = found.groups()
    for number in (major, minor, patch):
        if number and int(number) >= 2**64:
            raise FuncError(
                "error parsing version segment: strconv.ParseUint: parsing ",
                Quoted(number, "q", origin=text),
                ": value out of range",
            )
    for part in (prerelease or "").split("."):
        if part.isdecimal() and len(part) > 1 and part[0] == "0":
            raise FuncError("version segment starts with 0")
    return Version(int(major), int(minor or 0), int(patch or 0), prerelease or "", metadata or "", text)


def compare(left: Version, right: Version | None) -> int:
    if right is None:
        raise FuncError("runtime error: invalid memory address or nil pointer dereference")
    a, b = _key(left), _key(right)
    return (a > b) - (a < b)


def _key(version: Version) -> tuple[Any, ...]:
    """Return the sort key: a prerelease comes before its release; numeric parts before others."""
    parts = [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in version.prerelease.split(".") if part]
    return (version.major, version.minor, version.patch, not version.prerelease, parts)


def _increment_patch(version: Version) -> VersionValue:
    return _next(version, version.major, version.minor, version.patch + (not version.prerelease))


def _next(version: Version, major: int, minor: int, patch: int) -> VersionValue:
    return _changed(replace(version, major=major, minor=minor, patch=patch, prerelease="", metadata=""))


def _set_prerelease(version: Version, text: str) -> VersionValue:
    if text and not _PRERELEASE.fullmatch(text):
        raise FuncError("invalid prerelease string")
    return _changed(replace(version, prerelease=text))


def _set_metadata(version: Version, text: str) -> VersionValue:
    if text and not _PARTS.fullmatch(text):
        raise FuncError("invalid metadata string")
    return _changed(replace(version, metadata=text))


def _changed(version: Version) -> VersionValue:
    """Return the version as a value, which keeps the leading v of its original."""
    prefix = "v" if version.original.startswith("v") else ""
    numbers = version.major, version.minor, version.patch
    return VersionValue(*numbers, version.prerelease, version.metadata, prefix + version.go_string())


VersionValue.methods = {
    name: Func(name, call, params)
    for name, call, params in (
        ("Major", lambda v: Uint64(v.major), ()),
        ("Minor", lambda v: Uint64(v.minor), ()),
        ("Patch", lambda v: Uint64(v.patch), ()),
        ("Prerelease", lambda v: v.prerelease, ()),
        ("Metadata", lambda v: v.metadata, ()),
        ("String", lambda v: v.go_string(), ()),
        ("IncMajor", lambda v: _next(v, v.major + 1, 0, 0), ()),
        ("IncMinor", lambda v: _next(v, v.major, v.minor + 1, 0), ()),
        ("IncPatch", _increment_patch, ()),
        ("SetPrerelease", _set_prerelease, (STRING,)),
        ("SetMetadata", _set_metadata, (STRING,)),
    )
}
_COMPARISONS: Mapping[str, Callable[[Version, Version | None], bool | int]] = {
    "Compare": compare,
    "Equal": lambda v, o: o is not None and compare(v, o) == 0,
    "LessThan": lambda v, o: compare(v, o) < 0,
    "GreaterThan": lambda v, o: compare(v, o) > 0,
    "LessThanEqual": lambda v, o: compare(v, o) <= 0,
    "GreaterThanEqual": lambda v, o: compare(v, o) >= 0,
}
Version.methods = {
    **VersionValue.methods,
    "Original": Func("Original", lambda v: v.original),
    **{name: Func(name, call, (VERSION,)) for name, call in _COMPARISONS.items()},
}


@FUNCTIONS.add("semver", params=(STRING,))
def semver(text: str) -> Version:
    return parse(text)


# --- Constraints on semantic versions (`>=1.2 <2 || ^3.1`), as the Masterminds library reads them ---------------------
# A version in a constraint may omit parts or write `x` or `*` for them. The meaning depends on the operator.


_NUMBER = r"[0-9|xX*]+"
_PARTIAL = (
    rf"v?({_NUMBER})(\.{_NUMBER})?(\.{_NUMBER})?"
    r"(-[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
_BOUND = re.compile(rf"\s*(!=|>=|=>|<=|=<|~>|=|>|<|~|\^|)\s*({_PARTIAL})\s*")
_RANGE = re.compile(rf"\s*({_PARTIAL})\s+-\s+({_PARTIAL})\s*")
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
