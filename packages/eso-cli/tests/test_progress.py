"""The line of progress is for people at a terminal, and never mixes with lines that stay."""

from __future__ import annotations

from io import StringIO

import pytest

from eso_cli.progress import Progress

ERASE = "\r\x1b[2K"


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_that_stays_replaces_the_line_of_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    progress = Progress(screen)

    progress.show("starting")
    progress.echo("ready")
    progress.echo("more")

    assert screen.getvalue() == f"{ERASE}starting …{ERASE}"
    assert capsys.readouterr().out == "ready\nmore\n"


@pytest.mark.parametrize(
    ("stream", "terminal"),
    [
        pytest.param(StringIO(), "xterm", id="a file or pipe"),
        pytest.param(Terminal(), "dumb", id="a terminal that cannot erase a line"),
    ],
)
def test_other_outputs_get_nothing(stream: StringIO, terminal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", terminal)
    progress = Progress(stream)

    progress.show("starting")
    progress.clear()

    assert stream.getvalue() == ""
