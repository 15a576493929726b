"""Every command of `eso` explains itself in the same style."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from eso_cli.main import commands


def tree(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield every command of the tree by its words; typer has its own copy of click's types."""
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from tree(below, f"{path} {name}")


COMMANDS = dict(tree(typer.main.get_command(commands), "eso"))
PARAMETERS = {
    f"{path} {parameter.opts[0]}": str(getattr(parameter, "help", None) or "")
    for path, command in COMMANDS.items()
    for parameter in command.params
}


def is_sentence(text: str) -> bool:
    """Return whether a text begins with a capital letter and ends with one full stop."""
    return text[:1].isupper() and text.endswith(".") and not text.endswith("..")


def test_each_command_is_described_by_a_sentence() -> None:
    first_lines = {path: (command.help or "").partition("\n")[0] for path, command in COMMANDS.items()}

    assert {path: text for path, text in first_lines.items() if not is_sentence(text)} == {}


def test_each_option_and_argument_is_described_by_a_sentence() -> None:
    assert {name: text for name, text in PARAMETERS.items() if not is_sentence(text)} == {}


def test_the_same_option_means_the_same_in_each_command() -> None:
    said: dict[str, set[str]] = {}
    for name, text in PARAMETERS.items():
        for option in ("--namespace", "--context", "--output"):
            if name.endswith(f" {option}"):
                said.setdefault(option, set()).add(text)

    assert {option: len(texts) for option, texts in said.items()} == {"--namespace": 1, "--context": 1, "--output": 1}


@pytest.mark.parametrize("path", COMMANDS)
def test_each_command_has_a_short_option_for_its_help(path: str) -> None:
    shown = [CliRunner().invoke(commands, [*path.split()[1:], option]) for option in ("-h", "--help")]

    assert [each.exit_code for each in shown] == [0, 0]
    assert shown[0].output == shown[1].output
    assert "usage: " in shown[0].output.lower()


@pytest.mark.parametrize("path", sorted(COMMANDS.keys() - {"eso operator"}))
def test_the_help_shows_no_type_of_python(path: str) -> None:
    shown = CliRunner().invoke(commands, [*path.split()[1:], "--help"], env={"COLUMNS": "300"}).output

    options = [line for line in shown.splitlines() if " --" in line]
    assert [
        line for line in options if re.search(r"<[a-z]|list\[|\b(str|bool|int|float|None|Path|class)\b", line)
    ] == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param("eso provider serve fa", {"fake"}, id="an installed provider"),
        pytest.param("eso up --provider va", {"vault"}, id="a provider of eso up"),
        pytest.param("eso conformance --profile s", {"subscribe"}, id="a profile"),
        pytest.param("eso status --kubeconfig /nowhere --namespace d", set(), id="no namespace without a server"),
    ],
)
def test_words_are_completed(words: str, expected: set[str]) -> None:
    environment = {"_ESO_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}

    offered = CliRunner().invoke(commands, prog_name="eso", env=environment).output

    assert set(offered.split()) == expected
