"""Build one image from the wheels in dist/, with buildah, podman or docker.

image.py NAME BASE [--tag TAG] [--show]

NAME is `operator`, `eso`, `providers` or the name of a provider. BASE is an image with Python 3.11 or newer and pip; it
is named by digest, so that the same command gives the same image. An image that exists on this machine only
(`localhost/…`) needs none. The variable SOURCE holds the address of the source code, for the label of that name;
BUILD_FLAGS holds more flags of the builder, such as `--volume` of a folder with wheels where there is no package index.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from delivery.versions import VersionError, current
from delivery.workspace import ROOT, distributions, images, repository, target

BUILDERS: Final = ("buildah", "podman", "docker")
SECONDS: Final = 1800


class CannotBuildError(Exception):
    """The message says what is missing and what to do."""


def main(arguments: list[str]) -> int:
    """Build the image, or print the command that would; return the exit code."""
    parser = argparse.ArgumentParser(prog="make image", description="Build one image from the wheels in dist/.")
    parser.add_argument("name", help="operator, eso, providers, or a provider")
    parser.add_argument("base", help="image with Python, as NAME@sha256:DIGEST")
    parser.add_argument("--tag", default="", help="the image's whole name; by default eso-NAME:VERSION")
    parser.add_argument("--show", action="store_true", help="print the command instead of running it")
    options = parser.parse_args(arguments)
    try:
        command = build_command(options.name, options.base, options.tag, os.environ)
    except (CannotBuildError, VersionError) as problem:
        print(f"make image: {problem}", file=sys.stderr)
        return 1
    if options.show:
        print(shlex.join(command))
        return 0
    return subprocess.run(command, cwd=ROOT, check=False, timeout=SECONDS).returncode


def build_command(name: str, base: str, tag: str, environment: Mapping[str, str]) -> list[str]:
    """Return the command that builds the image. Raises CannotBuildError if it would fail."""
    known = images(distributions())
    if name not in known:
        raise CannotBuildError(f'there is no image "{name}"; choose NAME from {", ".join(known)}')
    if "@sha256:" not in base and not base.startswith("localhost/"):
        raise CannotBuildError(
            "BASE must name an image with its digest, such as BASE=python:3.11-slim@sha256:…,"
            " so that the build can be repeated"
        )
    builder = next((each for each in BUILDERS if shutil.which(each, path=environment.get("PATH"))), None)
    if builder is None:
        raise CannotBuildError(f"none of {', '.join(BUILDERS)} is installed; install one of them")
    version = current()
    require_wheels(name, version)
    source = environment.get("SOURCE", "")
    given = {"BASE": base, "NAME": name, "VERSION": version, "REVISION": revision(), "SOURCE": source}
    return [
        *(builder, "build", "--file", "deploy/Containerfile", "--target", target(name)),
        *shlex.split(environment.get("BUILD_FLAGS", "")),
        *(part for key, value in given.items() for part in ("--build-arg", f"{key}={value}")),
        *("--tag", tag or f"{repository(name)}:{version}", "."),
    ]


def require_wheels(name: str, version: str) -> None:
    """Check that dist/ has a wheel of this version for each distribution of the image."""
    own = (ROOT / "requirements" / "images" / f"{name}.own").read_text(encoding="utf-8").split()
    wheels = [Path(f"{each.replace('-', '_')}-{version}-py3-none-any.whl") for each in own]
    if missing := [str(wheel) for wheel in wheels if not (ROOT / "dist" / wheel).exists()]:
        raise CannotBuildError(f"dist/ lacks {missing[0]}; run `make dist`")


def revision() -> str:
    """Return the commit that is checked out; empty outside of a repository."""
    command = ["git", "rev-parse", "HEAD"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60).stdout.strip()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
