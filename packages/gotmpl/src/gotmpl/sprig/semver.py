"""Semantic versions and constraints, as the Masterminds library reads them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from gotmpl.errors import FuncError, Quoted
from gotmpl.quoting import quote
from gotmpl.signatures import STRING, Func, Functions, GoType
from gotmpl.values import GoObject, Uint64, Value

FUNCTIONS = Functions()
MAX_LENGTH = 1024

_VERSION = re.compile(
    r"v?([0-9]+)(?:\.([0-9]+))?(?:\.([0-9]+))?"
    r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?\Z"
)


@dataclass(frozen=True)
class Version(GoObject):
    go_type: ClassVar[str] = "*semver.Version"
    kind: ClassVar[str] = "ptr"

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
        """The original's deep copy leaves every private field behind."""
        return Version(0, 0, 0)

    def go_syntax(self) -> str:
        numbers = f"major:{self.major:#x}, minor:{self.minor:#x}, patch:{self.patch:#x}"
        texts = f"pre:{quote(self.prerelease)}, metadata:{quote(self.metadata)}, original:{quote(self.original)}"
        return f"&semver.Version{{{numbers}, {texts}}}"


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


def compare(left: Version, right: Version) -> int:
    a, b = _key(left), _key(right)
    return (a > b) - (a < b)


def _key(version: Version) -> tuple[Any, ...]:
    """Sorts versions: a prerelease comes before its release; numeric parts before others."""
    parts = [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in version.prerelease.split(".") if part]
    return (version.major, version.minor, version.patch, not version.prerelease, parts)


def _increment_patch(version: Version) -> Version:
    if version.prerelease:
        return _fresh(version.major, version.minor, version.patch)
    return _fresh(version.major, version.minor, version.patch + 1)


def _fresh(major: int, minor: int, patch: int) -> Version:
    return Version(major, minor, patch, original=f"{major}.{minor}.{patch}")


_METHODS: Mapping[str, Func] = {
    name: Func(name, call, params)
    for name, call, params in (
        ("Major", lambda v: Uint64(v.major), ()),
        ("Minor", lambda v: Uint64(v.minor), ()),
        ("Patch", lambda v: Uint64(v.patch), ()),
        ("Prerelease", lambda v: v.prerelease, ()),
        ("Metadata", lambda v: v.metadata, ()),
        ("Original", lambda v: v.original, ()),
        ("String", lambda v: v.go_string(), ()),
        ("IncMajor", lambda v: _fresh(v.major + 1, 0, 0), ()),
        ("IncMinor", lambda v: _fresh(v.major, v.minor + 1, 0), ()),
        ("IncPatch", _increment_patch, ()),
        ("Compare", compare, (VERSION,)),
        ("Equal", lambda v, o: compare(v, o) == 0, (VERSION,)),
        ("LessThan", lambda v, o: compare(v, o) < 0, (VERSION,)),
        ("GreaterThan", lambda v, o: compare(v, o) > 0, (VERSION,)),
        ("LessThanEqual", lambda v, o: compare(v, o) <= 0, (VERSION,)),
        ("GreaterThanEqual", lambda v, o: compare(v, o) >= 0, (VERSION,)),
    )
}
Version.methods = _METHODS

_OPERATOR = r"(=|!=|>=|=>|<=|=<|>|<|~>|~|\^)?"
_PATTERN = (
    r"v?([0-9]+|[xX*])(?:\.([0-9]+|[xX*]))?(?:\.([0-9]+|[xX*]))?"
    r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
_CONSTRAINT = re.compile(rf"\s*{_OPERATOR}\s*{_PATTERN}\s*")
_RANGE = re.compile(rf"\s*({_PATTERN})\s+-\s+({_PATTERN})\s*")


@dataclass(frozen=True, slots=True)
class _Bound:
    operator: str
    version: Version
    parts: int
    """How many of major, minor, patch are given; the rest are wildcards."""


def _bounds(text: str) -> list[list[_Bound]]:
    """Alternatives (||) of bounds that must all hold."""
    if len(text) > MAX_LENGTH:
        raise FuncError("improper constraint: too long")
    return [_all_of(part, text) for part in text.split("||")]


def _all_of(part: str, whole: str) -> list[_Bound]:
    written = part
    part = _RANGE.sub(lambda found: f">={found[1]},<={found[6]}", part)
    out: list[_Bound] = []
    at = 0
    while at < len(part):
        found = _CONSTRAINT.match(part, at)
        if found is None:
            raise FuncError("improper constraint: ", Quoted(written, origin=whole))
        out.append(_bound(found))
        at = found.end()
        if part[at : at + 1] == ",":
            at += 1
            if not part[at:].strip():
                raise FuncError("improper constraint: ", Quoted(written, origin=whole))
    if not out:
        raise FuncError("improper constraint: ", Quoted(written, origin=whole))
    return out


def _bound(found: re.Match[str]) -> _Bound:
    numbers: list[int] = []
    for text in found.groups()[1:4]:
        if text is None or not text.isdecimal():
            break
        numbers.append(int(text))
    filled = numbers + [0] * (3 - len(numbers))
    operator = {"=>": ">=", "=<": "<=", "~>": "~", None: "", "=": ""}.get(found[1], found[1])
    return _Bound(operator or "", Version(filled[0], filled[1], filled[2], found[5] or ""), len(numbers))


def _holds(bound: _Bound, version: Version) -> bool:
    if version.prerelease and not bound.version.prerelease and bound.operator != "!=":
        return False
    low, high = bound.version, _next(bound)
    within = compare(version, low) >= 0 and (high is None or compare(version, high) < 0)
    match bound.operator:
        case "":
            return within if bound.parts < 3 else compare(version, low) == 0
        case "!=":
            return not within or not bound.parts if bound.parts < 3 else compare(version, low) != 0
        case ">":
            return compare(version, low) > 0 if bound.parts == 3 else high is not None and compare(version, high) >= 0
        case ">=":
            return compare(version, low) >= 0
        case "<":
            return compare(version, low) < 0
        case "<=":
            return compare(version, low) <= 0 or (bound.parts < 3 and within)
        case "~":
            limit = _tilde(bound)
            return compare(version, low) >= 0 and (limit is None or compare(version, limit) < 0)
        case _:
            limit = _caret(bound)
            return compare(version, low) >= 0 and (limit is None or compare(version, limit) < 0)


def _next(bound: _Bound) -> Version | None:
    """The first version after everything the wildcard covers."""
    version = bound.version
    match bound.parts:
        case 0:
            return None
        case 1:
            return _fresh(version.major + 1, 0, 0)
        case 2:
            return _fresh(version.major, version.minor + 1, 0)
        case _:
            return _fresh(version.major, version.minor, version.patch + 1)


def _tilde(bound: _Bound) -> Version | None:
    if bound.parts == 0:
        return None
    version = bound.version
    return _fresh(version.major + 1, 0, 0) if bound.parts == 1 else _fresh(version.major, version.minor + 1, 0)


def _caret(bound: _Bound) -> Version | None:
    version = bound.version
    if bound.parts == 0:
        return _fresh(1, 0, 0)
    if version.major or bound.parts == 1:
        return _fresh(version.major + 1, 0, 0)
    if version.minor or bound.parts == 2:
        return _fresh(0, version.minor + 1, 0)
    return _fresh(0, 0, version.patch + 1)


@FUNCTIONS.add("semver", params=(STRING,))
def semver(text: str) -> Version:
    return parse(text)


@FUNCTIONS.add("semverCompare", params=(STRING, STRING))
def semver_compare(constraint: str, text: str) -> Value:
    alternatives = _bounds(constraint)
    version = parse(text)
    return any(all(_holds(bound, version) for bound in bounds) for bounds in alternatives)
