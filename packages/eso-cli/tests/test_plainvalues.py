"""Values of options that are converted without typer: the same values and the same errors."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

from eso_cli.plainvalues import NotPlainError, PlainGroup, plain_value


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


def app(group: type[TyperGroup]) -> typer.Typer:
    """Return a command with a parameter of each type that commands of `eso` have."""
    made = typer.Typer(cls=group)

    @made.callback()
    def main() -> None:
        pass

    @made.command()
    def show(
        name: Annotated[str, typer.Argument()],
        other: Annotated[str, typer.Argument()] = "",
        *,
        colour: Annotated[Colour, typer.Option()] = Colour.RED,
        file: Annotated[Path | None, typer.Option()] = None,
        files: Annotated[list[Path] | None, typer.Option("-f")] = None,
        words: Annotated[list[str] | None, typer.Option("-w")] = None,
        port: Annotated[int, typer.Option(min=0, max=9)] = 0,
        seconds: Annotated[float, typer.Option(min=1)] = 60.0,
        loud: Annotated[bool, typer.Option("--loud/--quiet")] = False,
    ) -> None:
        typer.echo(repr((name, other, colour, file, files, words, port, seconds, loud)))

    return made


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["a"], id="defaults"),
        pytest.param(["a", "b", "--colour", "blue", "--loud"], id="a choice and a flag"),
        pytest.param(["a", "--colour", "green"], id="an unknown choice"),
        pytest.param(["a", "--colour", "RED"], id="a choice in capitals"),
        pytest.param(["a", "--file", "/no/such/file", "-f", "x", "-f", "y/z"], id="paths"),
        pytest.param(["a", "--file", "."], id="a folder"),
        pytest.param(["a", "-w", "one", "-w", "two"], id="a list of texts"),
        pytest.param(["a", "--port", "5", "--seconds", "2"], id="numbers"),
        pytest.param(["a", "--port", "10"], id="a number that is too large"),
        pytest.param(["a", "--port", "many"], id="a word in place of a number"),
        pytest.param(["ä", "--file", "ö"], id="letters outside ASCII"),
        pytest.param(["\udcff"], id="bytes that are not Unicode"),
        pytest.param([""], id="an empty text"),
        pytest.param([], id="a missing argument"),
        pytest.param(["a", "b", "c"], id="one argument too many"),
        pytest.param(["a", "--no-such-option"], id="an unknown option"),
    ],
)
def test_a_command_gets_the_values_and_gives_the_errors_of_typer(arguments: list[str]) -> None:
    plain = CliRunner().invoke(app(PlainGroup), ["show", *arguments])
    typers = CliRunner().invoke(app(TyperGroup), ["show", *arguments])

    assert (plain.exit_code, plain.output) == (typers.exit_code, typers.output)


@pytest.mark.skipif(os.geteuid() == 0, reason="the administrator can read every file")
def test_a_file_that_cannot_be_read_is_left_to_typer(tmp_path: Path) -> None:
    file = tmp_path / "closed"
    file.touch(mode=0o000)

    with pytest.raises(NotPlainError):
        plain_value(Path, str(file))
