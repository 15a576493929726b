"""A secret value can be read only through reveal()."""

import copy
import dataclasses
import io
import json
import logging
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import structlog
import yaml

from eso_api import SecretBytes

PLANTED = b"CANARY-7f3a"


def secret() -> SecretBytes:
    return SecretBytes(PLANTED)


@dataclasses.dataclass
class Holder:
    value: SecretBytes


class StructHolder(msgspec.Struct):
    value: SecretBytes


@pytest.mark.parametrize(
    "show",
    [
        pytest.param(repr, id="repr"),
        pytest.param(lambda value: f"{value!r:>20}", id="f-string with conversion"),
        pytest.param(lambda value: "%r" % (value,), id="percent formatting of its repr"),  # noqa: UP031 - this operator is under test
        pytest.param(lambda value: ascii([value]), id="inside a list"),
        pytest.param(lambda value: repr(Holder(value)), id="inside a dataclass"),
        pytest.param(lambda value: repr(StructHolder(value)), id="inside a struct"),
        pytest.param(lambda value: str(KeyError(value)), id="inside an exception"),
    ],
)
def test_showing_a_secret_shows_nothing_of_it(show: Callable[[SecretBytes], str]) -> None:
    shown = show(secret())

    assert "CANARY" not in shown
    assert "<secret>" in shown


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(str, id="str"),
        pytest.param(print, id="print"),
        pytest.param(lambda value: f"{value}", id="f-string"),
        pytest.param(lambda value: f"{value!s}", id="f-string with conversion"),
        pytest.param(lambda value: format(value, "x"), id="format with a specification"),
        pytest.param("{}".format, id="format of a text"),
        pytest.param(lambda value: "%s" % (value,), id="percent formatting"),  # noqa: UP031 - this operator is under test
        pytest.param(lambda value: "Bearer " + value, id="after a text"),
        pytest.param(lambda value: value + ":", id="before a text"),
        pytest.param(lambda value: b"Bearer " + value, id="after bytes"),
    ],
)
def test_a_secret_that_would_become_text_says_how_to_reveal_it(text: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError, match=r"\.reveal\(\)") as caught:
        text(secret())

    assert "CANARY" not in str(caught.value)


@pytest.mark.parametrize(
    ("leak", "error"),
    [
        pytest.param(pickle.dumps, TypeError, id="pickle"),
        pytest.param(copy.copy, TypeError, id="copy"),
        pytest.param(copy.deepcopy, TypeError, id="deepcopy"),
        pytest.param(lambda value: dataclasses.asdict(Holder(value)), TypeError, id="dataclasses.asdict"),
        pytest.param(msgspec.json.encode, TypeError, id="msgspec to JSON"),
        pytest.param(msgspec.msgpack.encode, TypeError, id="msgspec to MessagePack"),
        pytest.param(lambda value: msgspec.json.encode(StructHolder(value)), TypeError, id="msgspec inside a struct"),
        pytest.param(msgspec.to_builtins, TypeError, id="msgspec to builtins"),
        pytest.param(json.dumps, TypeError, id="json"),
        pytest.param(yaml.safe_dump, yaml.YAMLError, id="yaml, safe"),
        pytest.param(yaml.dump, TypeError, id="yaml"),
        pytest.param(bytes, TypeError, id="bytes()"),
        pytest.param(memoryview, TypeError, id="memoryview()"),
        pytest.param(list, TypeError, id="iteration"),
        pytest.param(lambda value: value[0], TypeError, id="indexing"),
        pytest.param(lambda value: b"C" in value, TypeError, id="containment"),
        pytest.param(lambda value: b"".join([value]), TypeError, id="joining"),
        pytest.param(lambda value: value + b"x", TypeError, id="concatenation"),
        pytest.param(lambda value: value < secret(), TypeError, id="ordering"),
        pytest.param(hash, TypeError, id="hashing"),
        pytest.param(lambda value: value == PLANTED, TypeError, id="comparison with bytes"),
        pytest.param(lambda value: value == "CANARY-7f3a", TypeError, id="comparison with text"),
        pytest.param(vars, TypeError, id="vars()"),
        pytest.param(lambda value: value.__getstate__(), TypeError, id="getstate"),
        pytest.param(lambda value: setattr(value, "_raw", b""), AttributeError, id="assignment"),
        pytest.param(lambda value: delattr(value, "_raw"), AttributeError, id="deletion"),
    ],
)
def test_a_secret_refuses_to_leave_by_accident(leak: Callable[[Any], object], error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        leak(secret())

    assert "CANARY" not in str(caught.value)


def test_a_log_record_that_formats_a_secret_is_lost_but_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The standard library reports the failed record on standard error, with the repr of its arguments."""
    lines, reported = io.StringIO(), io.StringIO()
    monkeypatch.setattr("sys.stderr", reported)
    logger = logging.getLogger("test_values")
    monkeypatch.setattr(logger, "handlers", [logging.StreamHandler(lines)])
    monkeypatch.setattr(logger, "propagate", False)
    monkeypatch.setattr(logger, "level", logging.INFO)

    logger.info("applied %s", secret())
    logger.info("applied %r", secret())

    assert lines.getvalue() == "applied <secret>\n"
    assert "Arguments: (<secret>,)" in reported.getvalue()
    assert "CANARY" not in reported.getvalue()


def test_a_structured_log_line_shows_the_repr_of_a_secret() -> None:
    lines = io.StringIO()
    chain = [structlog.processors.JSONRenderer()]
    log = structlog.wrap_logger(structlog.WriteLogger(lines), processors=chain)

    log.msg("applied", value=secret(), many=[secret()])

    assert json.loads(lines.getvalue()) == {"event": "applied", "value": "<secret>", "many": ["<secret>"]}


def test_the_traceback_of_an_exception_that_holds_a_secret_can_be_printed() -> None:
    shown = "".join(traceback.format_exception(ValueError(secret())))

    assert "ValueError" in shown
    assert "CANARY" not in shown


def test_reveal_gives_the_value() -> None:
    assert secret().reveal() == PLANTED


def test_a_secret_does_not_follow_the_buffer_it_was_made_from() -> None:
    buffer = bytearray(b"first")
    value = SecretBytes(buffer)

    buffer[:] = b"other"

    assert value.reveal() == b"first"


@pytest.mark.parametrize(
    ("other", "equal"),
    [
        pytest.param(SecretBytes(PLANTED), True, id="same value"),
        pytest.param(SecretBytes(b"CANARY-7f3b"), False, id="another value"),
        pytest.param(SecretBytes(b""), False, id="empty"),
        pytest.param(None, False, id="nothing"),
    ],
)
def test_secrets_compare_by_value_with_secrets_only(other: object, equal: bool) -> None:
    assert (secret() == other) is equal


def test_length_and_truth_say_whether_there_is_a_value() -> None:
    assert len(secret()) == len(PLANTED)
    assert secret()
    assert not SecretBytes(b"")


@pytest.mark.parametrize("raw", [7, [1, 2], "text", None], ids=["a number", "numbers", "text", "nothing"])
def test_a_secret_is_made_of_bytes_alone(raw: Any) -> None:
    with pytest.raises(TypeError, match=f"not of {type(raw).__name__}"):
        SecretBytes(raw)
