"""Make a release: `prepare` writes version and changelog and commits them, `artifacts` builds what is published.

release.py prepare VERSION
release.py artifacts

Neither publishes, signs or tags anything; docs/releasing.md describes these steps.
"""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from delivery.artifacts import SUMS, write_all
from delivery.checks import RefusedError, Tools, require_clean_tree, require_new_version, require_tools
from delivery.versions import VersionError, current, parsed, write
from delivery.wheels import BuildError
from delivery.workspace import ROOT

SECONDS = 300


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Run one step; a refusal is one sentence and the exit code 1."""
    try:
        match arguments:
            case ["prepare", version]:
                prepare(root, version)
            case ["artifacts"]:
                artifacts(root)
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except (RefusedError, VersionError, BuildError) as problem:
        print(f"make release: {problem}", file=sys.stderr)
        return 1
    return 0


def prepare(root: Path, version: str) -> None:
    """Check everything first; then write the version, collect the changelog and commit both."""
    parsed(version)
    require_clean_tree(root)
    require_new_version(root, version)
    current(root)
    tools = require_tools(root)
    write(version, root)
    collect_changelog(root, version, tools)
    command = ["git", "commit", "--quiet", "--all", "--message", f"release: {version}"]
    _run(command, root, "the versions and the changelog are written, but git cannot commit them")
    print(f"committed release {version}")


def collect_changelog(root: Path, version: str, tools: Tools) -> None:
    """Move the fragments of changelog.d into CHANGELOG.md."""
    today = datetime.now(UTC).date().isoformat()
    command = [*tools.module("towncrier"), "build", "--yes", "--version", version, "--date", today]
    _run(command, root, "towncrier cannot collect changelog.d")


def artifacts(root: Path) -> None:
    """Build the files of the version that is checked out."""
    require_clean_tree(root)
    version = current(root)
    tools = require_tools(root)
    out = root / "dist" / version
    out.mkdir(parents=True, exist_ok=True)
    write_all(root, version, tools, out)
    print(f"{out.relative_to(root)} has {len(list(out.iterdir()))} files; {SUMS} lists them")


def _run(command: list[str], root: Path, complaint: str) -> None:
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=SECONDS)
    if done.returncode:
        raise RefusedError(f"{complaint}: {(done.stderr.strip() or done.stdout.strip()).splitlines()[-1]}")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
