"""Delays after failures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubebase.backoff import ExponentialBackoff


@pytest.mark.parametrize(
    ("failures", "expected"),
    [
        pytest.param(0, 0, id="no failure, no delay"),
        pytest.param(1, 1, id="the first delay"),
        pytest.param(2, 2, id="then doubled"),
        pytest.param(5, 16, id="and doubled again"),
        pytest.param(7, 60, id="never above the cap"),
        pytest.param(1_000_000, 60, id="not even after a million failures"),
    ],
)
def test_delay_without_jitter(failures: int, expected: float) -> None:
    backoff = ExponentialBackoff(first=1, cap=60, jitter=0)

    assert backoff.delay(failures, lambda: 0.5) == expected


@given(
    failures=st.integers(1, 10_000),
    draw=st.floats(0, 1, exclude_max=True),
    jitter=st.floats(0, 1),
    factor=st.floats(1, 10),
)
def test_jitter_only_shortens_and_the_cap_always_holds(
    failures: int, draw: float, jitter: float, factor: float
) -> None:
    backoff = ExponentialBackoff(first=0.5, cap=30, factor=factor, jitter=jitter)

    delay = backoff.delay(failures, lambda: draw)

    assert backoff.ceiling(failures) * (1 - jitter) <= delay <= backoff.ceiling(failures) <= 30


@given(failures=st.integers(1, 200))
def test_delays_never_shrink_with_more_failures(failures: int) -> None:
    backoff = ExponentialBackoff(first=0.3, cap=100, factor=1.7)

    assert backoff.ceiling(failures) <= backoff.ceiling(failures + 1)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"first": 0}, id="no delay at all"),
        pytest.param({"first": 10, "cap": 5}, id="cap below the first delay"),
        pytest.param({"factor": 0.5}, id="shrinking"),
        pytest.param({"jitter": 1.5}, id="negative delays"),
    ],
)
def test_nonsense_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="back-off needs"):
        ExponentialBackoff(**wrong)


@pytest.mark.parametrize(
    ("longest", "expected"),
    [
        pytest.param(0, 60, id="nothing asked for: the cap"),
        pytest.param(30, 60, id="less than the cap: the cap"),
        pytest.param(3600, 512, id="more than the cap: it goes on growing"),
        pytest.param(300, 300, id="more than the cap: up to what was asked for"),
    ],
)
def test_a_delay_may_grow_beyond_the_cap_on_request(longest: float, expected: float) -> None:
    backoff = ExponentialBackoff(first=1, cap=60, jitter=0)

    assert backoff.up_to(longest).delay(10, lambda: 0.5) == expected


@pytest.mark.parametrize(
    ("failures", "told", "shortest", "longest"),
    [
        pytest.param(1, 0.0, 1.0, 1.0, id="no delay is named"),
        pytest.param(9, 0.0, 60.0, 60.0, id="no delay is named, after many failures"),
        pytest.param(1, 45.0, 45.0, 67.5, id="longer than the back-off"),
        pytest.param(9, 2.0, 2.0, 3.0, id="shorter than the back-off"),
    ],
)
def test_a_delay_that_a_server_names_is_kept_and_exceeded_by_half_at_most(
    failures: int, told: float, shortest: float, longest: float
) -> None:
    backoff = ExponentialBackoff(first=1, cap=60, jitter=0)

    assert backoff.retry_delay(failures, lambda: 0.0, told) == shortest
    assert backoff.retry_delay(failures, lambda: 1.0, told) == longest
