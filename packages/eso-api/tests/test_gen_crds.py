"""`make gen` writes the CRDs of the types; `make check` detects outdated ones."""

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
Run = Callable[..., int]


@pytest.fixture(scope="module")
def gen_crds() -> Run:
    """Load the tool's entry point by path, because it is a script."""
    spec = importlib.util.spec_from_file_location("gen_crds", ROOT / "tools" / "gen_crds.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return lambda *arguments: int(module.main([str(argument) for argument in arguments]))


def test_the_crds_in_the_tree_are_up_to_date(gen_crds: Run, capsys: pytest.CaptureFixture[str]) -> None:
    code = gen_crds("--check", ROOT / "deploy" / "crds")

    assert (code, capsys.readouterr().err) == (0, "")


def test_check_lists_changed_missing_and_superfluous_files(
    gen_crds: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gen_crds(tmp_path)
    (tmp_path / "externalsecrets.external-secrets.io.yaml").write_text("edited")
    (tmp_path / "pushsecrets.external-secrets.io.yaml").unlink()
    (tmp_path / "leftover.example.com.yaml").write_text("old")

    code = gen_crds("--check", tmp_path)

    assert code == 1
    assert [Path(line).name for line in capsys.readouterr().err.splitlines()[1:]] == [
        "externalsecrets.external-secrets.io.yaml",
        "leftover.example.com.yaml",
        "pushsecrets.external-secrets.io.yaml",
    ]


def test_generating_repairs_the_folder(gen_crds: Run, tmp_path: Path) -> None:
    (tmp_path / "leftover.example.com.yaml").write_text("old")

    codes = [gen_crds(tmp_path), gen_crds("--check", tmp_path)]

    assert codes == [0, 0]
    assert not (tmp_path / "leftover.example.com.yaml").exists()


def test_without_a_folder_it_says_how_to_call_it(gen_crds: Run, capsys: pytest.CaptureFixture[str]) -> None:
    code = gen_crds("--check")

    assert code == 2
    assert "usage" in capsys.readouterr().err
