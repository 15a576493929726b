"""Log lines of `eso up`: JSON for collectors, readable text for people."""

from __future__ import annotations

import asyncio
import json
import logging
import stat
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
import structlog

from eso_cli.loglines import LogFile, LogLines, Shown
from eso_cli.up import Site, UpOptions
from eso_operator.flags import parse
from eso_operator.telemetry import logs as operator
from eso_sdk import logs as sdk
from kubebase.clock import SystemClock
from kubebase.testing.clock import VirtualClock
from localkube.server import LocalKube
from localkube.traces import log_lines_to

AT = datetime(2030, 1, 1, 12, 4, 11, tzinfo=UTC)
CLOCK_TIME = "2030-01-01T12:04:11.000Z"


def shown(line: str, *, text: bool = False, show: Shown = Shown.ALL, colour: bool = False) -> list[str]:
    written: list[str] = []
    LogLines(written.append, SystemClock(), text=text, shown=show, colour=colour).passed_on("fake", line)
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
        pytest.param(AT.timestamp(), id="seconds, as an operator on a cluster writes by default"),
        pytest.param(AT.timestamp() * 1000, id="milliseconds"),
        pytest.param(int(AT.timestamp()) * 10**9, id="nanoseconds"),
        pytest.param("2030-01-01T12:04:11.000Z", id="RFC 3339, as the other processes write"),
        pytest.param("2030-01-01T14:04:11+02:00", id="another time zone"),
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
    assert shown(json.dumps({"ts": stamp, "msg": "x"}), text=True) == [f"{'-' * 24} info    fake  x"]


@pytest.mark.parametrize("show", [Shown.QUIET, Shown.USUAL])
@pytest.mark.parametrize(
    ("line", "seen"),
    [
        pytest.param('{"level": "info", "msg": "x"}', False, id="what it does"),
        pytest.param('{"level": "warning", "msg": "x"}', False, id="a warning, which is in a condition too"),
        pytest.param('{"level": "error", "msg": "x"}', True, id="an error"),
        pytest.param("Fatal Python error", True, id="a crash"),
    ],
)
def test_of_a_child_the_user_sees_errors_and_crashes(line: str, seen: bool, show: Shown) -> None:
    assert bool(shown(line, show=show)) is seen


@pytest.mark.parametrize(
    ("show", "seen"),
    [
        pytest.param(Shown.QUIET, ["a problem"], id="quiet"),
        pytest.param(Shown.USUAL, ["starting provider fake", "a problem"], id="usual"),
        pytest.param(Shown.ALL, ["starting provider fake", "a problem"], id="verbose"),
    ],
)
def test_of_eso_up_itself_the_user_sees_what_starts_unless_it_is_quiet(show: Shown, seen: list[str]) -> None:
    written: list[str] = []
    lines = LogLines(written.append, SystemClock(), text=False, shown=show)

    lines.info("up", "starting provider fake")
    lines.warning("up", "a problem")

    assert [json.loads(line)["msg"] for line in written] == seen


def test_every_line_is_kept_as_json_whatever_the_user_sees() -> None:
    log_file: list[str] = []
    lines = LogLines(lambda _: None, SystemClock(), text=True, shown=Shown.QUIET, keep=log_file.append)

    lines.passed_on("operator", '{"level": "debug", "msg": "x"}')
    lines.passed_on("operator", "Fatal Python error")
    lines.info("up", "stopped")

    assert log_file[:2] == ['{"component": "operator", "level": "debug", "msg": "x"}', "operator | Fatal Python error"]
    assert json.loads(log_file[2])["msg"] == "stopped"


def test_a_log_file_is_private_and_bounded(tmp_path: Path) -> None:
    place = tmp_path / "eso.log"
    file = LogFile(place, limit=100)

    for number in range(50):
        file.write(f"line {number:03}")
    file.close()

    former = place.with_name("eso.log.1")
    lines = former.read_text().splitlines() + place.read_text().splitlines()
    assert lines[-1] == "line 049"
    assert lines == sorted(lines)
    assert max(place.stat().st_size, former.stat().st_size) < 200
    assert [stat.S_IMODE(each.stat().st_mode) for each in (place, former)] == [0o600, 0o600]


def test_a_log_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    LogFile(tmp_path / "absent" / "eso.log").write("lost")

    assert not (tmp_path / "absent").exists()


def test_colours_only_mark_the_level() -> None:
    assert shown('{"level": "error", "msg": "x"}', text=True, colour=True)[0].startswith("\x1b[31m")


@pytest.fixture
def logging_restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    hooks = sys.excepthook, sys.unraisablehook, threading.excepthook
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)
    sys.excepthook, sys.unraisablehook, threading.excepthook = hooks


@pytest.mark.usefixtures("logging_restored")
def test_every_process_of_eso_up_writes_the_time_in_one_format(tmp_path: Path) -> None:
    clock, stream = VirtualClock(AT + timedelta(microseconds=250_999)), StringIO()
    site = Site(UpOptions(tmp_path, tmp_path / "kubeconfig", 0, None), LocalKube(tmp_path), (), asyncio.Event())
    flags = site._operator_flags(tmp_path / "kubeconfig")
    site.end()

    def log_line() -> None:
        structlog.get_logger("test").warning("it happened")

    operator.configure(parse(flags, {}).logs, clock, stream)
    log_line()
    sdk.configure(clock, stream)
    log_line()
    with log_lines_to(lambda line: stream.write(f"{line}\n"), clock):
        log_line()
    written: list[str] = []
    LogLines(written.append, clock, text=False).warning("up", "it happened")

    entries = [json.loads(line) for line in (*stream.getvalue().splitlines(), *written)]
    assert [entry["msg"] for entry in entries] == ["it happened"] * 4
    assert [entry["level"] for entry in entries] == ["warning"] * 4
    assert {entry["ts"] for entry in entries} == {"2030-01-01T12:04:11.250Z"}
