"""W3C trace context of calls."""

import re

import pytest

from eso_wire.trace import TraceParent, new_trace_id

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(f"00-{TRACE}-{PARENT}-01", TraceParent(TRACE, PARENT, "01"), id="sampled"),
        pytest.param(f"00-{TRACE}-{PARENT}-00", TraceParent(TRACE, PARENT, "00"), id="not sampled"),
        pytest.param(f"cc-{TRACE}-{PARENT}-01-more", TraceParent(TRACE, PARENT, "01"), id="a later version says more"),
        pytest.param(f"00-{TRACE}-{PARENT}-01-more", None, id="this version says no more"),
        pytest.param(f"ff-{TRACE}-{PARENT}-01", None, id="a version that never is"),
        pytest.param(f"00-{'0' * 32}-{PARENT}-01", None, id="no trace"),
        pytest.param(f"00-{TRACE}-{'0' * 16}-01", None, id="no parent"),
        pytest.param(f"00-{TRACE.upper()}-{PARENT}-01", None, id="capitals"),
        pytest.param(f"00-{TRACE[:-1]}-{PARENT}-01", None, id="too short"),
        pytest.param(f"00-{TRACE}-{PARENT}-01\n", None, id="a line end"),
        pytest.param(f"cc-{TRACE}-{PARENT}-01-{'x' * 1000}", None, id="far too long"),
        pytest.param(b"00-", None, id="bytes"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_a_header_is_read_as_the_standard_says(text: str | bytes, expected: TraceParent | None) -> None:
    assert TraceParent.parsed(text) == expected


def test_every_call_has_a_place_of_its_own_in_the_trace() -> None:
    first, second = TraceParent.within(TRACE), TraceParent.within(TRACE)

    assert first.trace_id == second.trace_id == TRACE
    assert first.parent_id != second.parent_id
    assert TraceParent.parsed(str(first)) == first


def test_a_new_trace_has_an_id_of_the_standard() -> None:
    assert re.fullmatch("[0-9a-f]{32}", new_trace_id())
    assert new_trace_id() != new_trace_id()
