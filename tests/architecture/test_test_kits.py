"""Test kits are extras: no wheel for production has one, and `eso-sdk[testing]` has what a provider's author needs."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from eso_sdk.scaffold import write

ROOT = Path(__file__).resolve().parents[2]
KIT = "eso-testkit"
DISTRIBUTIONS = {
    tomllib.loads(path.read_text())["project"]["name"]: path.parent
    for pattern in ("libs/*", "packages/*", "providers/*")
    for path in sorted(ROOT.glob(f"{pattern}/pyproject.toml"))
}
PRODUCTION = sorted(DISTRIBUTIONS.keys() - {KIT})
OF_AN_AUTHOR = ("eso-api", "eso-conformance", "eso-sdk", "eso-wire", "kubebase", KIT)
"""The packages of this workspace that `pip install eso-sdk[testing]` installs."""


def build(name: str, folder: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / name)],
        cwd=DISTRIBUTIONS[name],
        check=True,
        capture_output=True,
        timeout=100,
    )
    (path,) = (folder / name).glob("*.whl")
    return path


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every distribution, built as `make dist` builds it."""
    folder = tmp_path_factory.mktemp("wheels")
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(DISTRIBUTIONS, pool.map(lambda name: build(name, folder), DISTRIBUTIONS), strict=True))


def files_of(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as opened:
        return [name for name in opened.namelist() if ".dist-info/" not in name]


def kit_imports(source: str) -> Iterator[str]:
    """Modules of test kits that a file imports, wherever the import stands in it."""
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module or ''}.{alias.name}" for alias in node.names]
        yield from (name for name in names if {"testing", "eso_testkit"} & set(name.split(".")))


def test_no_wheel_for_production_has_a_test_kit(wheels: dict[str, Path]) -> None:
    found = [
        f"{name}: {file}" for name in PRODUCTION for file in files_of(wheels[name]) if "testing" in Path(file).parts
    ]

    assert found == []
    assert all(any(file.endswith("/__init__.py") for file in files_of(wheels[name])) for name in PRODUCTION)


@pytest.mark.parametrize("name", PRODUCTION)
def test_code_for_production_imports_no_test_kit(name: str) -> None:
    files = [path for path in (DISTRIBUTIONS[name] / "src").rglob("*.py") if "testing" not in path.parts]

    found = [f"{path.name}: {module}" for path in files for module in kit_imports(path.read_text())]

    assert files
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "import kubebase.testing.clock",
        "from eso_sdk import testing",
        "from eso_testkit.operator.operators import running",
        "def late():\n  from eso_sdk.testing import Client",
    ],
    ids=["a module by its name", "a package from its parent", "the kit of this repository", "inside a function"],
)
def test_every_form_of_import_is_noticed(source: str) -> None:
    assert list(kit_imports(source))


def test_wheels_of_an_author_do_not_overwrite_each_other(wheels: dict[str, Path]) -> None:
    files = [file for name in OF_AN_AUTHOR for file in files_of(wheels[name])]

    assert len(files) == len(set(files))
    assert {file.rpartition("/")[0] for file in files_of(wheels[KIT])} == {"eso_sdk/testing", "kubebase/testing"}


@pytest.fixture
def installed(wheels: dict[str, Path], tmp_path: Path) -> Path:
    folder = tmp_path / "installed"
    for name in OF_AN_AUTHOR:
        with zipfile.ZipFile(wheels[name]) as opened:
            opened.extractall(folder)
    return folder


def run(*arguments: str, path: Sequence[Path]) -> subprocess.CompletedProcess[str]:
    """Python without `site`, so that nothing is found through the editable installs of this workspace."""
    everything = [*path, Path(sysconfig.get_path("purelib"))]
    return subprocess.run(
        [sys.executable, "-S", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, everything))},
        cwd=path[0],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def test_the_tests_of_a_new_provider_run_on_the_wheels_of_an_author(installed: Path, tmp_path: Path) -> None:
    root = tmp_path / "weather"
    write(root, "weather")

    ran = run("-m", "pytest", "-p", "no:cacheprovider", str(root), path=[installed, root / "src"])

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " passed" in ran.stdout


def test_every_module_of_the_kit_finds_what_it_imports(installed: Path, wheels: dict[str, Path]) -> None:
    modules = [file.removesuffix(".py").replace("/", ".") for file in files_of(wheels[KIT]) if "__init__" not in file]

    ran = run("-c", f"import {', '.join(modules)}; print(kubebase.__file__)", path=[installed])

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith(str(installed))
