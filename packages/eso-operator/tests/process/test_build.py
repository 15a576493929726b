"""The version and commit that the operator reports."""

from importlib.metadata import version
from pathlib import Path

import pytest

from eso_operator.build import this_build
from eso_operator.flags import parse


@pytest.mark.parametrize(
    ("environ", "written", "commit"),
    [
        pytest.param({}, None, "unknown", id="a plain checkout"),
        pytest.param({}, "abc123\n", "abc123", id="a wheel"),
        pytest.param({"ESO_COMMIT": "def456"}, "abc123\n", "def456", id="the variable wins"),
    ],
)
def test_the_commit_is_that_of_the_build(
    environ: dict[str, str], written: str | None, commit: str, tmp_path: Path
) -> None:
    file = tmp_path / "commit.txt"
    if written is not None:
        file.write_text(written)

    assert str(this_build(environ, file)) == f"{version('eso-operator')} (commit {commit})"


def test_the_command_prints_version_and_commit(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["--version"], {})

    assert ended.value.code == 0
    assert capsys.readouterr().out == f"eso-operator {this_build()}\n"
