"""The shortest refresh interval."""

from __future__ import annotations

import pytest

from eso_operator.controllers.refresh import interval_note, interval_of, with_min_interval
from eso_testkit.operator.externalsecrets import external_secret
from eso_testkit.operator.pushsecrets import push_secret


@pytest.mark.parametrize(
    ("interval", "counts"),
    [
        pytest.param("1ms", 1.0, id="a millisecond is too short"),
        pytest.param("999ms", 1.0, id="a little too short"),
        pytest.param("1s", 1.0, id="just long enough"),
        pytest.param("1h", 3600.0, id="ordinary"),
        pytest.param(1, 1.0, id="a number of seconds"),
        pytest.param("0", 0.0, id="never is not short"),
        pytest.param("-1s", -1.0, id="less than never"),
        pytest.param("soon", 3600.0, id="not an interval: the default counts"),
    ],
)
def test_the_interval_that_counts(interval: int | str, counts: float) -> None:
    assert interval_of(with_min_interval(external_secret(refreshInterval=interval), 1.0)) == counts
    assert interval_of(with_min_interval(push_secret(refreshInterval=interval), 1.0)) == counts
    assert bool(interval_note(interval, 1.0)) is (interval in ("1ms", "999ms"))


def test_the_administrator_sets_the_shortest() -> None:
    assert interval_of(with_min_interval(external_secret(refreshInterval="10s"), 60.0)) == 60.0
    assert interval_note("10s", 60.0) == (
        "spec.refreshInterval 10s is shorter than this operator allows: 1m0s is used (--min-refresh-interval)"
    )
