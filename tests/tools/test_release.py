"""Versions and releases: all places agree, one call writes them, and what cannot be released is refused first."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from delivery.artifacts import with_date
from delivery.versions import PLACES, VersionError, current, found, parsed, write
from delivery.workspace import ROOT, distributions

CHANGELOG = "# Changelog\n\n<!-- towncrier release notes start -->\n\n## 0.1.0 (2026-11-17)\n"


# --- one version ------------------------------------------------------------------------------------------------------


def test_all_distributions_charts_and_providers_have_one_version() -> None:
    places = dict(found())

    assert len(set(places.values())) == 1, places
    assert len(places) >= len(distributions()) + len(list(ROOT.glob("deploy/charts/*"))) + 1
    assert any(place.startswith("deploy/compose.yaml:") for place in places)


def copy_places(folder: Path) -> Path:
    for place in PLACES:
        for file in ROOT.glob(place.files):
            copied = folder / file.relative_to(ROOT)
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, copied)
    return folder


def test_one_call_writes_every_place(tmp_path: Path) -> None:
    tree = copy_places(tmp_path)

    write("97.98.99", tree)

    assert current(tree) == "97.98.99"
    assert len(list(found(tree))) == len(list(found()))
    assert (tree / "providers/vault/src/eso_provider_vault/provider.py").read_text().count("97.98.99") == 1


def test_a_place_that_disagrees_is_named(tmp_path: Path) -> None:
    tree = copy_places(tmp_path)
    chart = tree / "deploy/charts/eso-provider/Chart.yaml"
    chart.write_text(re.sub(r"^version: .*$", "version: 7.0.0", chart.read_text(), flags=re.MULTILINE))

    with pytest.raises(VersionError, match=r"but not deploy/charts/eso-provider/Chart\.yaml:\d+ \(7\.0\.0\)"):
        current(tree)


def test_a_distribution_without_a_version_is_named(tmp_path: Path) -> None:
    tree = copy_places(tmp_path)
    (tree / "providers/vault/pyproject.toml").write_text("[project]\n")

    with pytest.raises(VersionError, match=r"providers/vault/pyproject\.toml has no version"):
        current(tree)


@pytest.mark.parametrize("text", ["", "1", "1.2", "v1.2.3", "1.2.3rc1", "1.2.3-rc.1", "01.2.3", "1.2.3\n", "1.2.3.4"])
def test_a_version_has_three_numbers(text: str) -> None:
    with pytest.raises(VersionError, match=r"write X\.Y\.Z"):
        parsed(text)


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small repository with the tools of a release."""
    folder = copy_places(tmp_path / "tree")
    shutil.copytree(
        ROOT / "tools" / "delivery", folder / "tools/delivery", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(ROOT / "tools" / "release.py", folder / "tools")
    (folder / "CHANGELOG.md").write_text(CHANGELOG)
    (folder / ".gitignore").write_text("__pycache__/\n")
    for command in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "start"]):
        git(folder, *command)
    return folder


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Tester", "-c", "user.email=tester@example.com"]
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def release(tree: Path, version: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "tools/release.py", "prepare", version],
        cwd=tree,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def refusal(tree: Path, version: str, **environment: str) -> str:
    """Return the one sentence of a refusal, after which nothing has changed."""
    before = (git(tree, "rev-parse", "HEAD"), git(tree, "status", "--porcelain"))

    done = release(tree, version, **environment)

    assert done.returncode == 1
    assert (git(tree, "rev-parse", "HEAD"), git(tree, "status", "--porcelain")) == before
    (sentence,) = done.stderr.splitlines()
    return sentence


@pytest.mark.parametrize("version", ["", "1.2", "v0.2.0"])
def test_a_text_that_is_no_version_is_refused(tree: Path, version: str) -> None:
    expected = f'make release: "{version}" is not a version; write X.Y.Z, for example VERSION=0.2.0'

    assert refusal(tree, version) == expected


def test_a_tree_with_changes_is_refused(tree: Path) -> None:
    (tree / "notes.txt").write_text("")

    assert refusal(tree, "0.2.0") == (
        "make release: the tree has a changed or new file (notes.txt); commit or remove them"
    )


def test_a_tag_that_exists_is_refused(tree: Path) -> None:
    git(tree, "tag", "v0.2.0")

    assert refusal(tree, "0.2.0") == "make release: the tag v0.2.0 exists; choose a newer version"


def test_a_version_that_the_changelog_has_is_refused(tree: Path) -> None:
    expected = "make release: CHANGELOG.md already has 0.1.0; choose a version after it"

    assert refusal(tree, "0.1.0") == expected
    assert refusal(tree, "0.0.9") == expected


def test_missing_tools_are_refused_before_anything_is_written(tree: Path, tmp_path: Path) -> None:
    missing = refusal(tree, "0.2.0", ESO_RELEASE_TOOLS=str(tmp_path / "none"))
    for module in ("towncrier", "cyclonedx_py"):
        (tmp_path / "some" / module).mkdir(parents=True)
    no_helm = refusal(tree, "0.2.0", ESO_RELEASE_TOOLS=str(tmp_path / "some"), HELM="/nonexistent/helm")

    assert missing.startswith("make release: towncrier is missing; `make release` installs it into ")
    assert no_helm.startswith("make release: HELM names /nonexistent/helm, which cannot be run; ")


# --- equal bytes ------------------------------------------------------------------------------------------------------


def test_a_wheel_is_built_twice_with_equal_bytes(tmp_path: Path) -> None:
    """From another folder, with other times and permissions; `make test-images` does it with all of them."""
    built = []
    for number, mask in enumerate((0o022, 0o077)):
        folder = tmp_path / str(number) / "kubebase"
        shutil.copytree(ROOT / "libs" / "kubebase", folder, copy_function=shutil.copyfile)
        before = os.umask(mask)
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(folder / "out")],
            cwd=folder,
            env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"},
            check=True,
            capture_output=True,
            timeout=100,
        )
        os.umask(before)
        built.append({path.name: path.read_bytes() for path in (folder / "out").iterdir()})

    assert len(built[0]) == 2
    assert built[0] == built[1]
    (wheel,) = (tmp_path / "0" / "kubebase" / "out").glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        assert {entry.date_time[0] for entry in opened.infolist()} == {2023}


def test_a_chart_package_depends_on_its_files_only(tmp_path: Path) -> None:
    packages = []
    for number in range(2):
        folder = tmp_path / str(number)
        (folder / "chart").mkdir(parents=True)
        for name in sorted(("Chart.yaml", "values.yaml"), reverse=bool(number)):
            (folder / "chart" / name).write_text(f"{name}\n")
            os.utime(folder / "chart" / name, (number, number))
        subprocess.run(["tar", "czf", "chart.tgz", "--sort=none", "chart/"], cwd=folder, check=True)
        packages.append(with_date((folder / "chart.tgz").read_bytes(), 1700000000))

    assert packages[0] == packages[1]
