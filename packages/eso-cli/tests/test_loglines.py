"""Log lines of `eso up`: JSON for collectors, readable text for people."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from eso_cli.loglines import LogLines
from kubebase.clock import SystemClock

AT = datetime(2030, 1, 1, 12, 4, 11, tzinfo=UTC)
CLOCK_TIME = f"{AT.astimezone():%H:%M:%S}"


def shown(line: str, *, text: bool = False, quiet: bool = False, colour: bool = False) -> list[str]:
    written: list[str] = []
    LogLines(written.append, SystemClock(), text=text, quiet=quiet, colour=colour).passed_on("fake", line)
    return written


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param('{"msg": "up"}', '{"component": "fake", "msg": "up"}', id="a JSON entry gets the name inside"),
        pytest.param("plain words", "fake | plain words", id="plain words get the name in front"),
        pytest.param("[1, 2]", "fake | [1, 2]", id="JSON other than an object counts as plain words"),
        pytest.param("", "fake | ", id="an empty line stays one"),
    ],
)
def test_a_line_carries_the_name_of_its_component(line: str, expected: str) -> None:
    assert shown(line) == [expected]


@pytest.mark.parametrize(
    "stamp",
    [
        pytest.param(AT.timestamp(), id="seconds, as the operator writes by default"),
        pytest.param(AT.timestamp() * 1000, id="milliseconds"),
        pytest.param(int(AT.timestamp()) * 10**9, id="nanoseconds"),
        pytest.param("2030-01-01T12:04:11Z", id="RFC 3339, as providers write"),
    ],
)
def test_text_begins_with_the_time_level_and_component(stamp: object) -> None:
    line = json.dumps({"level": "warning", "ts": stamp, "msg": "store failed", "key": "team/vault", "why": "no way"})

    assert shown(line, text=True) == [f'{CLOCK_TIME} warning fake  store failed  key=team/vault  why="no way"']


def test_a_terminal_gets_no_control_characters_of_others() -> None:
    (line,) = shown(json.dumps({"msg": "x", "why": "\x1b[2J\n\u202e"}), text=True)

    assert line.isprintable()
    assert line.isascii()


@pytest.mark.parametrize("stamp", [None, True, "soon", [], float("inf"), 10**40])
def test_a_strange_time_does_not_lose_the_line(stamp: object) -> None:
    assert shown(json.dumps({"ts": stamp, "msg": "x"}), text=True) == ["--:--:-- info    fake  x"]


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        pytest.param('{"level": "info", "msg": "x"}', False, id="news is dropped"),
        pytest.param('{"level": "warning", "msg": "x"}', True, id="a warning stays"),
        pytest.param('{"msg": "x"}', True, id="what has no level stays"),
        pytest.param("Fatal Python error", True, id="a crash stays"),
    ],
)
def test_quiet_drops_lines_below_a_warning(line: str, kept: bool) -> None:
    assert bool(shown(line, quiet=True)) is kept


def test_colours_only_mark_the_level() -> None:
    assert shown('{"level": "error", "msg": "x"}', text=True, colour=True)[0].startswith("\x1b[31m")
