"""Log lines: JSON, with the time as asked for, and nothing secret whatever is passed."""

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import structlog

from eso_api.values import SecretBytes
from eso_operator.telemetry.logs import configure, timestamp
from eso_operator.telemetry.settings import LogLevel, LogSettings, TimeEncoding
from kubebase.meta import JsonObject, ObjectKey
from kubebase.testing.clock import START, VirtualClock

CANARY = "CANARY-value"


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root, before = logging.getLogger(), list(logging.getLogger().handlers)
    level = root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = before
    root.setLevel(level)


def logged(settings: LogSettings = LogSettings()) -> tuple[Any, io.StringIO]:  # noqa: B008 - immutable
    stream = io.StringIO()
    configure(settings, VirtualClock(), stream)
    return structlog.get_logger("test"), stream


def test_a_line_is_one_json_object_with_message_level_time_and_keys() -> None:
    log, stream = logged()

    log.info("store became ready", store=ObjectKey("team", "vault"), seconds=1.5)

    assert json.loads(stream.getvalue()) == {
        "level": "info",
        "ts": START.timestamp(),
        "msg": "store became ready",
        "store": "team/vault",
        "seconds": 1.5,
    }
    assert stream.getvalue().count("\n") == 1


def test_lines_below_the_level_are_not_written() -> None:
    log, stream = logged(LogSettings(level=LogLevel.WARN))

    log.info("not this")
    log.warning("but this")

    assert [json.loads(line)["msg"] for line in stream.getvalue().splitlines()] == ["but this"]


class Odd:
    def __repr__(self) -> str:
        return CANARY


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(SecretBytes(CANARY.encode()), id="secret"),
        pytest.param(CANARY.encode(), id="bytes"),
        pytest.param(Odd(), id="any object"),
        pytest.param(ValueError(CANARY), id="exception"),
        pytest.param({"a": [SecretBytes(CANARY.encode())]}, id="nested"),
        pytest.param([[[[[[CANARY]]]]]], id="too deep to look at"),
    ],
)
def test_a_field_that_is_neither_name_nor_number_is_not_printed(value: object) -> None:
    log, stream = logged()

    log.info("something happened", value=value)

    assert CANARY not in stream.getvalue()
    assert json.loads(stream.getvalue())["value"]


def test_a_library_is_logged_by_name_and_place_without_its_text() -> None:
    _, stream = logged()

    logging.getLogger("somelib").error("failed with %s", CANARY)

    line = json.loads(stream.getvalue())
    assert (line["library"], line["level"]) == ("somelib", "error")
    assert line["place"].startswith("test_logs.py:")
    assert CANARY not in stream.getvalue()


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        pytest.param(TimeEncoding.EPOCH, 1893456000.25, id="epoch"),
        pytest.param(TimeEncoding.MILLIS, 1893456000250.0, id="millis"),
        pytest.param(TimeEncoding.NANO, 1893456000250000000, id="nano"),
        pytest.param(TimeEncoding.ISO8601, "2030-01-01T00:00:00.250Z", id="iso8601"),
        pytest.param(TimeEncoding.RFC3339, "2030-01-01T00:00:00Z", id="rfc3339"),
        pytest.param(TimeEncoding.RFC3339NANO, "2030-01-01T00:00:00.25Z", id="rfc3339nano"),
    ],
)
def test_time_encodings(encoding: TimeEncoding, expected: object) -> None:
    assert timestamp(datetime(2030, 1, 1, microsecond=250_000, tzinfo=UTC), encoding) == expected


UNCAUGHT = {
    "in the main thread": "raise ValueError(canary)",
    "in another thread": "thread = threading.Thread(target=int, args=(canary,)); thread.start(); thread.join()",
    "while memory is freed": "type('Odd', (), {'__del__': lambda self: int(canary)})()",
    "behind another error": "try:\n  int(canary)\nexcept ValueError as error:\n  raise RuntimeError(canary) from error",
}


def last_words(crash: str) -> JsonObject:
    """The one line that a process writes which knows the canary and runs this code."""
    program = f"""
import sys, threading, warnings
from eso_operator.telemetry import logs
from eso_operator.telemetry.settings import LogSettings
from kubebase.clock import SystemClock
logs.configure(LogSettings(), SystemClock())
logs.log_uncaught_errors()
canary = sys.stdin.read()
{crash}
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], input=CANARY, capture_output=True, text=True, timeout=60, check=False
    )
    assert CANARY not in ended.stdout + ended.stderr
    line: JsonObject = json.loads(ended.stderr)
    return line


@pytest.mark.parametrize("crash", [pytest.param(code, id=f"an error {where}") for where, code in UNCAUGHT.items()])
def test_last_words_are_a_type_and_a_place(crash: str) -> None:
    line = last_words(crash)

    assert line["level"] == "error"
    assert line["error"].endswith("Error")


def test_a_warning_of_a_library_is_logged_without_its_text() -> None:
    line = last_words("warnings.warn(canary)")

    assert (line["level"], line["library"]) == ("warning", "py.warnings")
