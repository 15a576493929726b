"""Durations are parsed and printed exactly as in Go."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eso_api.shapes import DURATION_PATTERN
from kubebase import durations
from kubebase.durations import HOUR, MICROSECOND, MILLISECOND, MINUTE, SECOND, DurationError, parse, render, seconds

MAX = (1 << 63) - 1

PARSED = [
    ("0", 0),
    ("-0", 0),
    ("+0", 0),
    ("5s", 5 * SECOND),
    ("30s", 30 * SECOND),
    ("1478s", 1478 * SECOND),
    ("-5s", -5 * SECOND),
    ("+5s", 5 * SECOND),
    ("5.0s", 5 * SECOND),
    ("5.6s", 5 * SECOND + 600 * MILLISECOND),
    ("5.s", 5 * SECOND),
    (".5s", 500 * MILLISECOND),
    ("-.5s", -500 * MILLISECOND),
    ("1.0040s", SECOND + 4 * MILLISECOND),
    ("100.00100s", 100 * SECOND + MILLISECOND),
    ("10ns", 10),
    ("11us", 11 * MICROSECOND),
    ("12µs", 12 * MICROSECOND),
    ("12μs", 12 * MICROSECOND),
    ("13ms", 13 * MILLISECOND),
    ("15m", 15 * MINUTE),
    ("16h", 16 * HOUR),
    ("3h30m", 3 * HOUR + 30 * MINUTE),
    ("10.5s4m", 4 * MINUTE + 10 * SECOND + 500 * MILLISECOND),
    ("-2m3.4s", -(2 * MINUTE + 3 * SECOND + 400 * MILLISECOND)),
    ("1h2m3s4ms5us6ns", HOUR + 2 * MINUTE + 3 * SECOND + 4 * MILLISECOND + 5 * MICROSECOND + 6),
    ("1m1m", 2 * MINUTE),
    ("52763797000ns", 52763797000),
    ("0.3333333333333333333h", 20 * MINUTE),
    ("9007199254740993ns", (1 << 53) + 1),
    ("9223372036854775807ns", MAX),
    ("9223372036854775.807us", MAX),
    ("9223372036s854ms775us807ns", MAX),
    ("-9223372036854775808ns", -(1 << 63)),
    ("-9223372036854775.808us", -(1 << 63)),
    ("0.100000000000000000000h", 6 * MINUTE),
    ("0.830103483285477580700h", 49 * MINUTE + 48 * SECOND + 372539827),
]

REFUSED = [
    ("", "invalid duration"),
    ("3", "missing unit"),
    ("-", "invalid duration"),
    ("s", "invalid duration"),
    (".", "invalid duration"),
    ("-.", "invalid duration"),
    (".s", "invalid duration"),
    ("+.s", "invalid duration"),
    ("1d", 'unknown unit "d"'),
    ("1w", 'unknown unit "w"'),
    ("1 h", 'unknown unit " h"'),
    ("1h ", 'unknown unit "h "'),
    ("1H", 'unknown unit "H"'),
    ("\x85\x85", "invalid duration"),
    ("--5s", "invalid duration"),
    ("1h-5m", 'unknown unit "h-"'),
    ("3000000h", "invalid duration"),
    ("9223372036854775808ns", "invalid duration"),
    ("9223372036854775.808us", "invalid duration"),
    ("9223372036854ms775us808ns", "invalid duration"),
    ("-9223372036854775809ns", "invalid duration"),
    ("1" * 5000 + "s", "invalid duration"),
    ("\u0661s", "invalid duration"),
]

RENDERED = [
    (0, "0s"),
    (1, "1ns"),
    (1100, "1.1µs"),
    (2_200_000, "2.2ms"),
    (3_300_000_000, "3.3s"),
    (245_000_000_000, "4m5s"),
    (245_001_000_000, "4m5.001s"),
    (18_367_001_000_000, "5h6m7.001s"),
    (480_000_000_001, "8m0.000000001s"),
    (HOUR, "1h0m0s"),
    (90 * MINUTE, "1h30m0s"),
    (24 * HOUR, "24h0m0s"),
    (-1, "-1ns"),
    (-90 * SECOND, "-1m30s"),
    (999_999_999, "999.999999ms"),
    (MAX, "2562047h47m16.854775807s"),
    (-(1 << 63), "-2562047h47m16.854775808s"),
]


@pytest.mark.parametrize(("text", "nanoseconds"), [pytest.param(*row, id=row[0]) for row in PARSED])
def test_go_durations_parse(text: str, nanoseconds: int) -> None:
    assert parse(text) == nanoseconds


@pytest.mark.parametrize(("text", "message"), [pytest.param(*row, id=ascii(row[0][:20])) for row in REFUSED])
def test_durations_that_go_refuses_are_refused_with_a_short_reason(text: str, message: str) -> None:
    with pytest.raises(DurationError, match=message) as caught:
        parse(text)

    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(("nanoseconds", "text"), [pytest.param(*row, id=row[1]) for row in RENDERED])
def test_durations_print_as_go_prints_them(nanoseconds: int, text: str) -> None:
    assert render(nanoseconds) == text


@given(st.integers(min_value=-(1 << 63), max_value=MAX))
def test_a_printed_duration_parses_to_the_same_duration(nanoseconds: int) -> None:
    assert parse(render(nanoseconds)) == nanoseconds


@given(st.text(alphabet="0123456789.+-hmsnuµ ", max_size=12))
def test_the_schema_pattern_admits_what_parses(text: str) -> None:
    try:
        parse(text)
    except DurationError:
        return
    assert re.fullmatch(DURATION_PATTERN, text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(0, 0.0, id="R23 integer zero"),
        pytest.param("0", 0.0, id="R23 zero as text"),
        pytest.param(90, 90.0, id="R23 an integer counts seconds"),
        pytest.param("1h", 3600.0, id="a duration"),
        pytest.param("1500ms", 1.5, id="a fraction of a second"),
        pytest.param(-1, -1.0, id="negative"),
    ],
)
def test_an_interval_is_an_integer_of_seconds_or_a_duration(value: int | str, expected: float) -> None:
    assert seconds(value, field="spec.refreshInterval") == expected


@pytest.mark.parametrize("value", ["1d", "", 10**400])
def test_a_bad_interval_names_its_field(value: int | str) -> None:
    with pytest.raises(DurationError, match=r"^spec\.refreshInterval: "):
        seconds(value, field="spec.refreshInterval")


def test_the_units_are_those_of_go() -> None:
    assert set(durations._UNITS) == {"ns", "us", "µs", "μs", "ms", "s", "m", "h"}
