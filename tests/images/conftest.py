"""Images without a registry: the steps of deploy/Containerfile, run in folders of this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from delivery.containerfile import stages
from delivery.versions import current
from delivery.workspace import ROOT

WHEELHOUSE = ROOT / ".venv" / "wheelhouse"
TOOLS = Path(sys.executable).parent
FOREIGN = "65532"

collect_ignore_glob = [] if os.environ.get("ESO_TEST_IMAGES") else ["test_*.py"]


@dataclass(frozen=True, slots=True)
class Image:
    """What the image's /opt/eso would hold, in a folder that every user can read."""

    name: str
    root: Path
    sandbox: tuple[str, ...]

    @property
    def python(self) -> Path:
        return self.root / "opt/eso/bin/python"

    def command(self, *arguments: str) -> list[str]:
        """Return a command of the image, for a process that sees a read-only machine."""
        return [*self.sandbox, "--", str(self.root / "opt/eso/bin" / arguments[0]), *arguments[1:]]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(*arguments), capture_output=True, text=True, check=False, timeout=120)


class Images:
    """Images of this worker, built once each."""

    def __init__(self, folder: Path, sandbox: tuple[str, ...]) -> None:
        self._folder = folder
        self._sandbox = sandbox
        self._built: dict[str, Image] = {}

    def __getitem__(self, name: str) -> Image:
        if name not in self._built:
            root = self._folder / name
            build(name, root)
            self._built[name] = Image(name, root, self._sandbox)
        return self._built[name]


def readable(path: Path) -> bool:
    """Tell whether every user can reach this file."""
    return all(each.stat().st_mode & 0o005 == 0o005 for each in (path, *path.parents))


def interpreter() -> Path:
    """Return a Python of this version that every user can run, or else the one that runs this test."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    found = [Path(folder) / name for folder in (f"{sys.base_prefix}/bin", "/usr/local/bin", "/usr/bin")]
    usable = [path for path in found if path.exists() and readable(path.resolve())]
    return [*usable, *found][0]


def build(name: str, root: Path) -> None:
    """Run the stage `build` of the Containerfile for an image, with a folder in place of the root directory."""
    given = {"NAME": name, "VERSION": current()}
    environment = {
        **given,
        "PATH": f"{interpreter().parent}:{TOOLS}:/usr/local/bin:/usr/bin:/bin",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(WHEELHOUSE),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    for step in stages()["build"].instructions:
        match step.word:
            case "ARG":
                assert step.text in given
            case "COPY":
                copy(re.sub(r"\$\{(\w+)\}", lambda found: given[found[1]], step.text), root)
            case "RUN":
                command = re.sub(r"(?<![\w.])/(opt|build)\b", f"{root}/\\1", step.text)
                done = subprocess.run(
                    ["sh", "-c", command], env=environment, capture_output=True, text=True, check=False, timeout=280
                )
                assert done.returncode == 0, f"{step.text}\n{done.stdout}\n{done.stderr}"
            case _:
                raise AssertionError(f"this test cannot run {step.word} of the stage `build`")


def copy(text: str, root: Path) -> None:
    *sources, inside = text.split()
    folder = root / inside.strip("/")
    folder.mkdir(parents=True, exist_ok=True)
    for source in sources:
        found = list(ROOT.glob(source))
        assert found, f"COPY {text}: there is no {source}"
        for file in found:
            shutil.copy(file, folder)


@pytest.fixture(scope="session")
def place() -> Iterator[Path]:
    """A folder that the foreign user can read, which those of pytest are not."""
    folder = Path(tempfile.mkdtemp(prefix="eso-images-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def sandbox() -> tuple[str, ...]:
    """Return the words before a command that take away writing, the environment, and the user's name."""
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed; on Debian: apt install bubblewrap")
    drop = ("setpriv", f"--reuid={FOREIGN}", f"--regid={FOREIGN}", "--clear-groups")
    user = drop if os.geteuid() == 0 and readable(interpreter().resolve()) else ()
    words = (
        *(*user, "bwrap", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--unshare-user", "--unshare-pid"),
        *("--uid", FOREIGN, "--gid", FOREIGN, "--die-with-parent", "--clearenv", "--chdir", "/"),
        *("--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin", "--setenv", "PYTHONDONTWRITEBYTECODE", "1"),
    )
    tried = subprocess.run([*words, "--", "true"], capture_output=True, text=True, check=False, timeout=60)
    if tried.returncode:
        pytest.skip(f"this machine forbids user namespaces: {tried.stderr.strip()}")
    return words


@pytest.fixture(scope="session")
def built(place: Path, sandbox: tuple[str, ...]) -> Images:
    return Images(place, sandbox)
