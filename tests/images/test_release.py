"""A whole release in a clone: its files, their versions, and a second build from the same commit with equal bytes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from delivery.workspace import PINS, ROOT, distributions, images, repository

pytestmark = pytest.mark.timeout(1800)  # the first test makes the release

VERSION = "97.98.99"
IMAGES = images(distributions())
AGAIN = """
import sys
from pathlib import Path
from delivery import artifacts
from delivery.checks import require_tools
from delivery.workspace import ROOT
out = ROOT / "dist" / "again"
artifacts.build(out, ("wheel", "sdist"))
tools = require_tools(ROOT)
artifacts.write_charts(ROOT, tools, out)
artifacts.write_crds(ROOT, sys.argv[1], out)
artifacts.write_sbom(ROOT, "vault", sys.argv[1], tools, out)
"""


def run(*command: str, clone: Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=clone,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=1500,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def clone_of(root: Path, folder: Path) -> Path:
    run("git", "clone", "--quiet", str(root), str(folder), clone=ROOT)
    for name, value in (("name", "Tester"), ("email", "tester@example.com")):
        run("git", "config", f"user.{name}", value, clone=folder)
    return folder


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of this commit, in which a release was made."""
    clone = clone_of(ROOT, tmp_path_factory.mktemp("release") / "clone")
    run(sys.executable, "tools/release.py", "prepare", VERSION, clone=clone)
    run(sys.executable, "tools/release.py", "artifacts", clone=clone)
    return clone


@pytest.fixture(scope="module")
def out(release: Path) -> Path:
    return release / "dist" / VERSION


def test_a_release_has_every_file_and_its_checksums_are_right(out: Path) -> None:
    names = {path.name for path in out.iterdir()}
    stems = [f"{name.replace('-', '_')}-{VERSION}" for name in distributions()]

    run("sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS", clone=out)
    assert names == {
        "SHA256SUMS",
        f"external-secrets-{VERSION}.tgz",
        f"eso-provider-{VERSION}.tgz",
        f"external-secrets-crds-{VERSION}.yaml",
        *(f"{stem}-py3-none-any.whl" for stem in stems),
        *(f"{stem}.tar.gz" for stem in stems),
        *(f"{repository(image)}-{VERSION}.cdx.json" for image in IMAGES),
    }
    assert len((out / "SHA256SUMS").read_text().splitlines()) == len(names) - 1


def test_the_commit_of_a_release_has_its_changelog_and_no_fragment(release: Path) -> None:
    changelog = (release / "CHANGELOG.md").read_text()

    assert re.search(rf"^## {re.escape(VERSION)} \(\d{{4}}-\d\d-\d\d\)$", changelog, re.MULTILINE)
    assert run("git", "log", "-1", "--format=%s", clone=release) == f"release: {VERSION}\n"
    assert {path.name for path in (release / "changelog.d").iterdir()} == {"README.md", "template.md.jinja"}
    assert run("git", "status", "--porcelain", clone=release) == ""


def test_every_wheel_has_the_licence_and_that_of_the_operator_its_commit(release: Path, out: Path) -> None:
    for path in out.glob("*.whl"):
        with zipfile.ZipFile(path) as wheel:
            (licence,) = (name for name in wheel.namelist() if name.endswith(".dist-info/licenses/LICENSE"))
            assert wheel.read(licence) == (ROOT / "LICENSE").read_bytes()
    with zipfile.ZipFile(out / f"eso_operator-{VERSION}-py3-none-any.whl") as wheel:
        assert wheel.read("eso_operator/commit.txt").decode() == run("git", "rev-parse", "HEAD", clone=release)


def test_an_sdist_has_what_its_wheel_is_built_of(out: Path, tmp_path: Path) -> None:
    """eso-testkit takes files from its neighbours, which an sdist does not have."""
    with tarfile.open(out / f"eso_testkit-{VERSION}.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")

    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "../out", clone=next(tmp_path.iterdir()))

    (built,) = (tmp_path / "out").glob("*.whl")
    with zipfile.ZipFile(built) as again, zipfile.ZipFile(out / built.name) as first:
        assert sorted(again.namelist()) == sorted(first.namelist())


def test_the_charts_say_the_version_and_hold_all_crds(out: Path) -> None:
    with tarfile.open(out / f"external-secrets-{VERSION}.tgz") as package:
        chart = yaml.safe_load(package.extractfile("external-secrets/Chart.yaml") or b"")
        crds = [name for name in package.getnames() if name.startswith("external-secrets/files/crds/")]

    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)
    assert len(crds) == len(list((ROOT / "deploy" / "crds").glob("*.yaml")))


def test_the_bundle_has_all_crds(out: Path) -> None:
    documents = list(yaml.safe_load_all((out / f"external-secrets-crds-{VERSION}.yaml").read_text()))

    assert {one["kind"] for one in documents} == {"CustomResourceDefinition"}
    assert len(documents) == len(list((ROOT / "deploy" / "crds").glob("*.yaml")))


@pytest.mark.parametrize("image", IMAGES)
def test_a_bill_of_materials_lists_what_the_image_installs(image: str, out: Path) -> None:
    listed = json.loads((out / f"{repository(image)}-{VERSION}.cdx.json").read_text())
    pins = (ROOT / PINS / f"{image}.txt").read_text()
    pinned = {line.split("==")[0] for line in pins.splitlines() if re.match(r"\w", line) and "win32" not in line}
    own = set((ROOT / PINS / f"{image}.own").read_text().split())

    found = {re.sub(r"[-_.]+", "-", each["name"]).lower(): each["version"] for each in listed["components"]}

    assert listed["bomFormat"] == "CycloneDX"
    assert set(found) == pinned | own
    assert {found[name] for name in own} == {VERSION}


def test_another_build_of_the_commit_has_equal_bytes(
    release: Path, out: Path, tmp_path: Path, umask: Callable[[int], None]
) -> None:
    """In another folder, with other permissions and times."""
    umask(0o077)
    again = clone_of(release, tmp_path / "elsewhere")

    run(sys.executable, "-c", AGAIN, VERSION, clone=again, PYTHONPATH=str(again / "tools"))

    built = sorted((again / "dist" / "again").iterdir())
    assert len(built) == 2 * len(distributions()) + 4
    assert [path.name for path in built if path.read_bytes() != (out / path.name).read_bytes()] == []
    shutil.rmtree(again)


@pytest.fixture
def umask(request: pytest.FixtureRequest) -> Callable[[int], None]:
    def change(mask: int) -> None:
        before = os.umask(mask)
        request.addfinalizer(lambda: os.umask(before))

    return change
