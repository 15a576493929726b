"""Sync windows: when periodic refreshes may run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from eso_api.externalsecret import SyncWindow, SyncWindows
from eso_operator.controllers.externalsecret.windows import ScheduleError, may_refresh, next_change, parse_schedule
from eso_render.metering import busy_seconds


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def windows(kind: str, *pairs: tuple[str, str]) -> SyncWindows:
    return SyncWindows(
        kind=kind, windows=[SyncWindow(schedule=schedule, duration=duration) for schedule, duration in pairs]
    )


@pytest.mark.parametrize(
    ("schedule", "moment", "fires"),
    [
        pytest.param("*/15 * * * *", "2026-03-01T10:00:00", "2026-03-01T10:15:00", id="every quarter of an hour"),
        pytest.param("0 2 * * mon", "2026-03-01T10:00:00", "2026-03-02T02:00:00", id="a weekday by name"),
        pytest.param("0 2 * * 0", "2026-03-01T10:00:00", "2026-03-08T02:00:00", id="Sunday is 0"),
        pytest.param("0 0 13 * fri", "2026-03-07T00:00:00", "2026-03-13T00:00:00", id="either day is enough"),
        pytest.param("0 0 1 jan ?", "2026-03-01T00:00:00", "2027-01-01T00:00:00", id="a month by name"),
        pytest.param("0 0 29 2 *", "2026-03-01T00:00:00", "2028-02-29T00:00:00", id="a leap day"),
        pytest.param("5/20 * * * *", "2026-03-01T10:06:00", "2026-03-01T10:25:00", id="a step without an end"),
        pytest.param("@daily", "2026-03-01T10:00:00", "2026-03-02T00:00:00", id="a word"),
        pytest.param("@every 90m", "2026-03-01T10:00:00", "2026-03-01T11:30:00", id="a period"),
        pytest.param("10 10 * * *", "2026-03-01T10:10:00", "2026-03-02T10:10:00", id="strictly after"),
    ],
)
def test_a_schedule_fires(schedule: str, moment: str, fires: str) -> None:
    assert parse_schedule(schedule).after(at(moment)) == at(fires)


def test_a_day_that_never_comes_never_fires() -> None:
    assert parse_schedule("0 0 31 2 *").after(at("2026-03-01T00:00:00")) is None


@pytest.mark.parametrize(
    "schedule",
    ["* * * *", "60 * * * *", "* * * * 7", "* * 0 * *", "5-1 * * * *", "x * * * *", "*/0 * * * *", "@every x"],
)
def test_an_invalid_schedule_is_rejected(schedule: str) -> None:
    with pytest.raises(ScheduleError):
        parse_schedule(schedule)


NIGHTLY = ("0 2 * * *", "1h")


@pytest.mark.parametrize(
    ("rules", "moment", "allowed"),
    [
        pytest.param(None, "2026-03-01T10:00:00", True, id="no windows"),
        pytest.param(windows("allow", NIGHTLY), "2026-03-01T02:30:00", True, id="inside an allowed window"),
        pytest.param(windows("allow", NIGHTLY), "2026-03-01T02:00:00", True, id="its first moment belongs to it"),
        pytest.param(windows("allow", NIGHTLY), "2026-03-01T03:00:00", True, id="its last moment belongs to it"),
        pytest.param(windows("allow", NIGHTLY), "2026-03-01T03:00:01", False, id="after it"),
        pytest.param(windows("deny", NIGHTLY), "2026-03-01T02:30:00", False, id="inside a denied window"),
        pytest.param(windows("deny", NIGHTLY), "2026-03-01T10:00:00", True, id="outside a denied window"),
        pytest.param(windows("allow", ("broken", "1h")), "2026-03-01T10:00:00", False, id="a broken allowed window"),
        pytest.param(windows("deny", ("broken", "1h")), "2026-03-01T10:00:00", True, id="a broken denied window"),
        pytest.param(windows("allow", ("@every 1h", "2h")), "2026-03-01T10:00:00", True, id="a period within duration"),
        pytest.param(
            windows("allow", ("@every 2h", "1h")), "2026-03-01T10:00:00", False, id="a period beyond duration"
        ),
        pytest.param(windows("other", NIGHTLY), "2026-03-01T10:00:00", True, id="an unknown kind"),
    ],
)
def test_windows_decide_whether_a_refresh_may_run(rules: SyncWindows | None, moment: str, allowed: bool) -> None:
    assert may_refresh(rules, at(moment)) is allowed


@pytest.mark.parametrize("kind", ["allow", "deny"])
@pytest.mark.parametrize("hour", range(24))
def test_nothing_changes_before_the_next_change(kind: str, hour: int) -> None:
    rules = windows(kind, NIGHTLY, ("30 12 * * *", "45m"))
    now = at(f"2026-03-01T{hour:02}:10:00")

    change = next_change(rules, now)

    assert change is not None
    assert change > now
    before = [
        may_refresh(rules, now + timedelta(seconds=step)) for step in range(0, int((change - now).total_seconds()), 60)
    ]
    assert len(set(before)) == 1
    assert may_refresh(rules, change) is not before[0]


def test_many_windows_cost_little_however_rarely_they_open() -> None:
    """In processor time: 500 of them took seconds, for each of which nothing else ran."""
    rare = [f"{minute} {hour} 31 2,4,6,9,11 *" for minute in range(25) for hour in range(20)]
    many = windows("allow", *((schedule, "1m") for schedule in rare))
    now = at("2026-03-01T00:00:30")
    begun = busy_seconds()

    assert not may_refresh(many, now)
    assert next_change(many, now) is None

    assert len(many.windows) == 500
    assert busy_seconds() - begun < 0.5


def test_a_schedule_of_a_million_parts_is_refused() -> None:
    with pytest.raises(ScheduleError, match="longer than 1024 characters"):
        parse_schedule("1," * 500_000 + "1 * * * *")
