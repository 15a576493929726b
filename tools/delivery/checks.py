"""What must hold before a release is made. Each check raises RefusedError with one sentence that says what to do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from delivery.versions import parsed
from delivery.wheels import git

BUILD_SECONDS: Final = 3600
"""Helm is compiled once, on a machine that may be busy."""
_RUN_APART: Final = (
    "import runpy, sys; sys.path.insert(0, sys.argv.pop(1));"
    " runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)


class RefusedError(Exception):
    """A release that cannot be made; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Tools:
    """Programs that a release needs."""

    helm: Path
    uv: Path
    apart: Path
    """The folder with towncrier and cyclonedx-bom."""

    def module(self, name: str) -> list[str]:
        """Return the command of one of these modules. No variable names the folder: other processes would see it."""
        return [sys.executable, "-c", _RUN_APART, str(self.apart), name]


def require_new_version(root: Path, version: str) -> None:
    """Check that the version is newer than every released one, and that its tag is free."""
    numbers = parsed(version)
    if git("tag", "--list", f"v{version}", root=root):
        raise RefusedError(f"the tag v{version} exists; choose a newer version")
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"^## ([0-9]+\.[0-9]+\.[0-9]+) \(", changelog, re.MULTILINE)
    if released and numbers <= max(map(parsed, released)):
        raise RefusedError(f"CHANGELOG.md already has {max(released, key=parsed)}; choose a version after it")


def require_clean_tree(root: Path) -> None:
    """Check that the files are those of a commit, because the wheels name that commit."""
    if not git("rev-parse", "HEAD", root=root):
        raise RefusedError(f"{root} is not a git repository with a commit; make a release from a clone")
    if changed := git("status", "--porcelain", root=root).splitlines():
        count = f"{len(changed)} changed or new files" if len(changed) > 1 else "a changed or new file"
        raise RefusedError(f"the tree has {count} ({changed[0][2:].strip()}); commit or remove them")


def require_tools(root: Path, environment: Mapping[str, str] = os.environ) -> Tools:
    """Find every program before anything is written."""
    venv = Path(sys.prefix)
    apart = Path(environment.get("ESO_RELEASE_TOOLS") or venv / "apart" / "release")
    for module, name in (("towncrier", "towncrier"), ("cyclonedx_py", "cyclonedx-bom")):
        if not (apart / module).is_dir():
            raise RefusedError(f"{name} is missing; `make release` installs it into {apart}, so call it through make")
    uv = venv / "bin" / "uv"
    if not uv.exists():
        raise RefusedError("uv is missing; run `make setup`")
    return Tools(_helm(root, environment), uv, apart)


def _helm(root: Path, environment: Mapping[str, str]) -> Path:
    named = environment.get("HELM", "")
    found = shutil.which(named or "helm", path=environment.get("PATH"))
    if found:
        return Path(found)
    if named:
        raise RefusedError(f"HELM names {named}, which cannot be run; name a Helm binary, or unset HELM to build one")
    script = root / "tools" / "kube-apiserver" / "build.py"
    command = [sys.executable, str(script), "--helm"]
    built = subprocess.run(
        command, env=dict(environment), capture_output=True, text=True, check=False, timeout=BUILD_SECONDS
    )
    if built.returncode:
        last = (built.stderr.strip().splitlines() or ["no message"])[-1]
        raise RefusedError(f"helm is missing and cannot be built ({last}); install it, or set HELM to its path")
    return Path(built.stdout.strip())
