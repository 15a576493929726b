"""The distributions of the workspace, and the images that are made of them.

An image has the distributions that its commands need and nothing else. Distributions of others are pinned by hash in
`requirements/images/NAME.txt`; those of the workspace are listed in `NAME.own`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDERS: Final = ("libs", "packages", "providers")
PINS: Final = Path("requirements/images")
COMMON_PROVIDERS: Final = ("aws", "azure", "gcp", "generators", "kubernetes", "vault", "webhook")
"""The providers of the image `providers`. The provider `fake` is for trials."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """One project of the workspace, as its pyproject.toml describes it."""

    name: str
    folder: Path
    dependencies: tuple[str, ...]
    """With the extra `sdk`: a vendor's library that a command loads on demand."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What an image installs: names of the workspace, and requirements on distributions of others."""

    own: tuple[str, ...]
    others: tuple[str, ...]


def canonical(requirement: str) -> str:
    """Return the name that a requirement begins with, as package indexes compare names."""
    name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


def distributions(root: Path = ROOT) -> dict[str, Distribution]:
    """Return all distributions by name."""
    found = {}
    for file in sorted(file for folder in FOLDERS for file in root.glob(f"{folder}/*/pyproject.toml")):
        project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
        vendors = project.get("optional-dependencies", {}).get("sdk", [])
        found[project["name"]] = Distribution(project["name"], file.parent, (*project["dependencies"], *vendors))
    return found


def images(known: Mapping[str, Distribution]) -> dict[str, tuple[str, ...]]:
    """Return the images by name, each with the distributions whose commands it offers."""
    providers = [name.removeprefix("eso-provider-") for name in known if name.startswith("eso-provider-")]
    return {
        "operator": ("eso-operator", "eso-tools"),
        "eso": ("eso-cli",),
        "providers": tuple(f"eso-provider-{name}" for name in COMMON_PROVIDERS),
        **{name: (f"eso-provider-{name}",) for name in sorted(providers)},
    }


def target(image: str) -> str:
    """Return the stage of deploy/Containerfile that makes this image."""
    return image if image in ("operator", "eso", "providers") else "provider"


def repository(image: str) -> str:
    """Return the last part of the image's name, as the charts expect it."""
    names = {"operator": "eso-operator", "eso": "eso", "providers": "eso-providers"}
    return names.get(image, f"eso-provider-{image}")


def contents(wanted: tuple[str, ...], known: Mapping[str, Distribution]) -> Contents:
    """Return everything that these distributions need, those of the workspace included."""
    own: set[str] = set()
    others: set[str] = set()
    waiting = list(wanted)
    while waiting:
        name = waiting.pop()
        if name in own:
            continue
        own.add(name)
        for requirement in known[name].dependencies:
            if canonical(requirement) in known:
                waiting.append(canonical(requirement))
            else:
                others.add(requirement)
    return Contents(tuple(sorted(own)), tuple(sorted(others, key=str.lower)))
