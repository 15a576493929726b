"""The one version of all distributions, charts, providers and of the compose file: read, compared and written.

Each place is a file with a pattern; a pattern that matches nothing is an error, so that no place is lost silently.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from delivery.workspace import ROOT

VERSION: Final = r"[0-9]+\.[0-9]+\.[0-9]+"
RELEASE: Final = re.compile(r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)")


class VersionError(Exception):
    """Places that disagree, or a place without a version; the message names them."""


@dataclass(frozen=True, slots=True)
class Place:
    """A pattern in files. Its first group is the text before the version."""

    files: str
    pattern: str
    required: bool = True


PLACES: Final = (
    Place("libs/*/pyproject.toml", rf'^(version = "){VERSION}(?=")'),
    Place("packages/*/pyproject.toml", rf'^(version = "){VERSION}(?=")'),
    Place("providers/*/pyproject.toml", rf'^(version = "){VERSION}(?=")'),
    Place("deploy/charts/*/Chart.yaml", rf"^(version: ){VERSION}$"),
    Place("deploy/charts/*/Chart.yaml", rf"^(appVersion: ){VERSION}$", required=False),
    # What a provider says in the handshake.
    Place("providers/*/src/*/provider.py", rf'(\bversion=|\bVERSION: Final = )"{VERSION}"'),
    Place("deploy/compose.yaml", rf"(\$\{{ESO_VERSION:-){VERSION}(?=\}})"),
    Place("docs/guides/*.md", rf"(\bTAG=\S+:){VERSION}", required=False),
)


def found(root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """Yield each place as `file:line` with its version. Raises VersionError for a file without one."""
    for place in PLACES:
        for file in sorted(root.glob(place.files)):
            text = file.read_text(encoding="utf-8")
            matches = list(re.finditer(place.pattern, text, re.MULTILINE))
            where = file.relative_to(root)
            if place.required and not matches:
                raise VersionError(f"{where} has no version that matches {place.pattern}")
            for match in matches:
                (version,) = re.findall(VERSION, match[0])
                yield f"{where}:{text.count(chr(10), 0, match.start()) + 1}", version


def current(root: Path = ROOT) -> str:
    """Return the version of the workspace. Raises VersionError if two places disagree."""
    places = dict(found(root))
    counts = {version: list(places.values()).count(version) for version in places.values()}
    if not counts:
        raise VersionError(f"{root} has no version anywhere; is it a checkout?")
    version = max(counts, key=lambda each: counts[each])
    if others := [f"{place} ({each})" for place, each in places.items() if each != version]:
        raise VersionError(f"most places have version {version}, but not {', '.join(others)}; make them equal")
    return version


def write(version: str, root: Path = ROOT) -> None:
    """Write the version into every place."""
    for place in PLACES:
        for file in sorted(root.glob(place.files)):
            text = file.read_text(encoding="utf-8")
            changed = re.sub(place.pattern, lambda match: re.sub(VERSION, version, match[0]), text, flags=re.MULTILINE)
            if changed != text:
                file.write_text(changed, encoding="utf-8")


def parsed(version: str) -> tuple[int, ...]:
    """Return the numbers of a version X.Y.Z, to compare them. Raises VersionError for any other text."""
    match = RELEASE.fullmatch(version)
    if match is None:
        raise VersionError(f'"{version}" is not a version; write X.Y.Z, for example VERSION=0.2.0')
    return tuple(map(int, match.groups()))
