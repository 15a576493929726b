"""Semantic versions, as the Masterminds library parses them. Constraints are in constraints.py."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from gotmpl.errors import FuncError, Quoted
from gotmpl.quoting import quote
from gotmpl.signatures import STRING, Func, Functions, GoType
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
