"""RE2's words about an invalid pattern."""

from __future__ import annotations

import pytest
import re2

from kubebase.patterns import problem_in

QUIET = re2.Options()
QUIET.log_errors = False


def failure(pattern: str) -> Exception:
    with pytest.raises(re2.error) as caught:
        re2.compile(pattern, QUIET)
    found: Exception = caught.value
    return found


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        pytest.param("[a-z", "missing ]: [a-z", id="a bracket"),
        pytest.param("(?=x)", "invalid perl operator: (?=", id="look-ahead"),
        pytest.param("[ä", "missing ]: [ä", id="letters beyond ASCII"),
    ],
)
def test_the_problem_is_told_in_the_words_of_re2(pattern: str, expected: str) -> None:
    assert problem_in(failure(pattern)) == expected


def test_a_long_pattern_is_cut_off() -> None:
    shown = problem_in(failure("[" + "a" * 5000))

    assert shown.startswith("missing ]: [aaa")
    assert len(shown) < 250


def test_an_error_without_words_gives_none() -> None:
    assert problem_in(ValueError()) == ""
