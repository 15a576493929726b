"""The structure of the images: what each installs, who runs in it, and what stays out of it.

`make test-images` runs the steps of the Containerfile; these tests need neither wheels nor a network.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from delivery.containerfile import CONTAINERFILE, stages
from delivery.workspace import PINS, ROOT, canonical, contents, distributions, images, target

KNOWN = distributions()
IMAGES = images(KNOWN)
FINAL = ("operator", "provider", "providers", "eso")


def pins(file: Path) -> dict[str, str]:
    """The versions in a file of pins, by canonical name."""
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", file.read_text(), re.MULTILINE))


# --- what an image installs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("image", IMAGES)
def test_the_files_of_an_image_list_what_it_needs(image: str) -> None:
    """R63, R98."""
    needed = contents(IMAGES[image], KNOWN)

    listed = ROOT / PINS / f"{image}.own"
    assert listed.exists(), "run `make pins`"
    assert listed.read_text().split() == list(needed.own), "run `make pins`"
    assert {canonical(each) for each in needed.others} <= set(pins(ROOT / PINS / f"{image}.txt")), "run `make pins`"


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_has_the_versions_that_are_tested(image: str) -> None:
    tested = pins(ROOT / "requirements" / "dev.txt")

    assert pins(ROOT / PINS / f"{image}.txt").items() <= tested.items(), "run `make pins`"


def test_there_are_no_files_of_images_that_do_not_exist() -> None:
    names = {path.name for path in (ROOT / PINS).iterdir()} - {"README.md"}

    assert names == {f"{image}{ending}" for image in IMAGES for ending in (".own", ".txt")}


def test_the_image_of_the_operator_has_no_provider_and_that_of_a_provider_no_operator() -> None:
    for image, offered in IMAGES.items():
        own = set((ROOT / PINS / f"{image}.own").read_text().split())
        providers = {name for name in own if name.startswith("eso-provider-")}
        assert providers == {name for name in offered if name.startswith("eso-provider-")}
        assert ("eso-operator" in own) == (image in ("operator", "eso"))
        assert "eso-testkit" not in own
        assert ("localkube" in own) == (image == "eso")


@pytest.mark.parametrize("name", KNOWN)
def test_a_distribution_carries_the_licence(name: str) -> None:
    folder = KNOWN[name].folder
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]

    assert project["license-files"] == ["LICENSE"]
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes(), "copy LICENSE from the root"
    assert not (folder / "LICENSE").is_symlink(), "an sdist would have a dangling link; copy the file"


# --- the recipe -------------------------------------------------------------------------------------------------------


def test_every_image_has_a_stage() -> None:
    assert {target(image) for image in IMAGES} == set(FINAL)
    assert set(FINAL) <= set(stages())


@pytest.mark.parametrize("name", ["base", *FINAL])
def test_a_final_stage_runs_nothing_and_copies_no_wheel_or_requirements(name: str) -> None:
    stage = stages()[name]

    assert stage.base in ("${BASE}", "base")
    assert stage.texts("RUN") == []
    for text in stage.texts("COPY"):
        source = next(part for part in text.split() if not part.startswith("--"))
        assert source in ("LICENSE", "deploy/crds", "/opt/eso", "/build/state")


def test_images_run_as_a_user_without_rights_and_write_nothing() -> None:
    base = stages()["base"]

    assert base.texts("USER") == ["65532:65532"]
    assert not [name for name in FINAL if stages()[name].texts("USER")]
    (environment,) = base.texts("ENV")
    assert "PYTHONDONTWRITEBYTECODE=1" in environment
    assert "PYTHONUNBUFFERED=1" in environment


def test_images_say_what_they_are() -> None:
    (labels,) = stages()["base"].texts("LABEL")

    for label in ("version", "revision", "source", "licenses", "base.name"):
        assert re.search(rf'org\.opencontainers\.image\.{label}="[^"]+"', labels), label


def test_what_others_wrote_needs_a_hash_and_what_we_wrote_comes_from_the_wheels_alone() -> None:
    others, own = (text for text in stages()["build"].texts("RUN") if " install " in text)

    assert {"--require-hashes", "--only-binary", "--no-cache-dir"} <= set(others.split())
    assert {"--no-deps", "--no-index", "--no-cache-dir", "--find-links"} <= set(own.split())


def test_the_base_is_an_argument() -> None:
    assert re.search(r"^ARG BASE=", CONTAINERFILE.read_text(), re.MULTILINE)
    assert {stage.base for stage in stages().values()} == {"${BASE}", "base"}


def test_the_build_gets_what_it_copies_and_nothing_else() -> None:
    lines = (ROOT / ".dockerignore").read_text().split("\n")
    admitted = {line.removeprefix("!") for line in lines if line.startswith("!")}
    copied = {
        re.sub(r"/\$\{NAME\}\.\w+$", "", source)
        for stage in stages().values()
        for text in stage.texts("COPY")
        if "--from" not in text
        for source in text.split()[:-1]
    }

    assert "*" in lines
    assert admitted == copied


# --- make image -------------------------------------------------------------------------------------------------------


@pytest.fixture
def builder(tmp_path: Path) -> Path:
    """A folder with a program that is called buildah."""
    program = tmp_path / "buildah"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return tmp_path


def make_image(*arguments: str, path: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "tools" / "image.py"), *arguments],
        env={"PATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


PINNED = "python:3.11-slim@sha256:" + 64 * "0"


@pytest.mark.parametrize(
    ("name", "base", "path", "said"),
    [
        pytest.param("", PINNED, "", 'there is no image ""; choose NAME from operator, eso,', id="no name"),
        pytest.param("weather", PINNED, "", 'there is no image "weather"; choose', id="a provider that does not exist"),
        pytest.param("vault", "", "", "BASE must name an image with its digest", id="no base"),
        pytest.param("vault", "python:3.11-slim", "", "BASE must name an image with its digest", id="a base by tag"),
        pytest.param("vault", PINNED, "/nonexistent", "none of buildah, podman, docker is installed", id="no builder"),
    ],
)
def test_an_image_that_cannot_be_built_is_refused_with_a_sentence(name: str, base: str, path: str, said: str) -> None:
    done = make_image(name, base, path=path)

    assert done.returncode == 1
    assert done.stderr.startswith(f"make image: {said}")
    assert len(done.stderr.splitlines()) == 1


def test_a_version_without_wheels_is_refused(builder: Path, tmp_path: Path) -> None:
    clone = tmp_path / "tree"
    for path in ("tools/image.py", "tools/delivery", "requirements/images/vault.own", "providers/vault/pyproject.toml"):
        (clone / path).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-r", str(ROOT / path), str(clone / path)], check=True)

    done = subprocess.run(
        [sys.executable, str(clone / "tools" / "image.py"), "vault", PINNED],
        env={"PATH": str(builder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 1
    assert re.fullmatch(r"make image: dist/ lacks eso_api-\S+\.whl; run `make dist`\n", done.stderr)
