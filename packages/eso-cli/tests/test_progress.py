"""The sign of progress is for people at a terminal only."""

from __future__ import annotations

from io import StringIO

import pytest

from eso_cli.progress import waiting


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_what_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()

    with waiting("starting", screen) as ended:
        ended()

    assert "starting" in screen.getvalue()


@pytest.mark.parametrize(
    ("stream", "terminal"),
    [
        pytest.param(StringIO(), "xterm", id="a file or pipe"),
        pytest.param(Terminal(), "dumb", id="a terminal that cannot erase a line"),
    ],
)
def test_other_outputs_get_nothing(stream: StringIO, terminal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", terminal)

    with waiting("starting", stream) as ended:
        ended()

    assert stream.getvalue() == ""
