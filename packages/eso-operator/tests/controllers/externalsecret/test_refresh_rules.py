"""When the backend is read again, as a pure rule."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from eso_operator.controllers.externalsecret.checks import refresh_due
from eso_operator.controllers.externalsecret.snapshot import restart_slot_of
from eso_operator.controllers.refresh import (
    Due,
    LastSync,
    NotDue,
    current_version,
    interval_of,
    last_sync,
    refreshes_by_itself,
    watches_changes,
)
from eso_testkit.operator.externalsecrets import external_secret, snapshot, synced
from kubebase.clock import rfc3339
from kubebase.meta import JsonObject
from kubebase.testing.clock import START

HOUR = timedelta(hours=1)


def after(delay: timedelta, **spec: Any) -> Due | NotDue:
    """Some time after a sync."""
    return refresh_due(snapshot(synced(external_secret(**spec)), START + delay))


@pytest.mark.parametrize("policy", ["Periodic", "OnChange", "CreatedOnce"])
@pytest.mark.parametrize(
    "last", [LastSync(None, ""), LastSync(START, ""), LastSync(None, "1-x")], ids=["never", "no version", "no time"]
)
def test_an_object_that_never_synced_is_due(policy: str, last: LastSync) -> None:
    es = external_secret(refreshPolicy=policy, refreshInterval=0)

    assert isinstance(refresh_due(snapshot(es, last=last)), Due)


@pytest.mark.parametrize(
    "written",
    [
        pytest.param("9999-12-31T23:59:59Z", id="the end of time"),
        pytest.param("2030-01-01t00:00:00z", id="small letters"),
        pytest.param("2030-01-01", id="a day"),
        pytest.param("soon", id="a word"),
    ],
)
def test_an_impossible_time_of_the_last_refresh_does_not_fail_the_reconcile(written: str) -> None:
    """The status is an object that others can write, too."""
    es = synced(external_secret())
    es = msgspec.structs.replace(es, status=msgspec.structs.replace(es.status, refresh_time=written))

    restart_slot = restart_slot_of(es, last_sync(es), START)

    assert restart_slot is None
    assert isinstance(refresh_due(snapshot(es, START + 2 * HOUR, last=last_sync(es))), Due)


@pytest.mark.parametrize(
    ("delay", "expected"),
    [
        pytest.param(timedelta(0), NotDue("it is fresh", 3600), id="at once"),
        pytest.param(timedelta(minutes=10), NotDue("it is fresh", 3000), id="catalogue R1 the rest of the interval"),
        pytest.param(HOUR, Due("its interval has passed"), id="exactly then"),
        pytest.param(5 * HOUR, Due("its interval has passed"), id="long after"),
        pytest.param(-HOUR, Due("its last refresh lies in the future"), id="catalogue R6 before it"),
    ],
)
def test_a_periodic_refresh_is_due_after_its_interval(delay: timedelta, expected: Due | NotDue) -> None:
    """R45."""
    assert after(delay) == expected


@pytest.mark.parametrize("interval", [1, "1s", "100ms"])
def test_the_shortest_interval_is_one_all_the_same(interval: object) -> None:
    """R45."""
    assert after(timedelta(seconds=1), refreshInterval=interval) == Due("its interval has passed")
    assert refreshes_by_itself(external_secret(refreshInterval=interval))


@pytest.mark.parametrize("interval", [0, "0", "0s", "-1h", -5])
def test_an_interval_of_nothing_is_never_due_again(interval: object) -> None:
    """R46, R22, R23; R3, R5 of the catalogue."""
    es = synced(external_secret(refreshInterval=interval))
    changed = external_secret(refreshInterval=interval, metadata={"generation": 2}, status=es.status)

    assert refresh_due(snapshot(es, START + 100 * HOUR)) == NotDue("an interval of 0 reads once", None)
    assert isinstance(refresh_due(snapshot(changed, START + HOUR, new_templates=True)), NotDue)


@pytest.mark.parametrize(
    ("policy", "expected"), [("Periodic", Due), ("OnChange", Due), ("CreatedOnce", NotDue)], ids=str
)
@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"generation": 2}, id="its spec"),
        pytest.param({"labels": {"a": "b"}}, id="a label"),
        pytest.param({"annotations": {"any": "thing"}}, id="an annotation"),
    ],
)
def test_a_changed_object_is_due(policy: str, expected: type, change: dict[str, Any]) -> None:
    """R47, R48; R2 of the catalogue."""
    before = synced(external_secret(refreshPolicy=policy))
    es = external_secret(refreshPolicy=policy, metadata=change, status=before.status)

    assert isinstance(refresh_due(snapshot(es, START + timedelta(seconds=1))), expected)


@pytest.mark.parametrize(
    ("policy", "expected"), [("Periodic", Due), ("OnChange", Due), ("CreatedOnce", NotDue)], ids=str
)
def test_a_changed_template_counts_as_a_change(policy: str, expected: type) -> None:
    es = synced(external_secret(refreshPolicy=policy))

    assert isinstance(refresh_due(snapshot(es, START, new_templates=True)), expected)


@pytest.mark.parametrize("policy", ["OnChange", "CreatedOnce"])
def test_time_alone_is_no_reason(policy: str) -> None:
    due = after(1000 * HOUR, refreshPolicy=policy)

    assert isinstance(due, NotDue)
    assert due.after is None


# --- windows ----------------------------------------------------------------------------------------------------------

NIGHT = {"schedule": "0 2 * * *", "duration": "1h"}


def at(hour: int, minute: int = 0, second: int = 0) -> datetime:
    return datetime(2030, 1, 2, hour, minute, second, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "now", "expected"),
    [
        pytest.param("allow", at(1), 3600.0, id="catalogue R8 closed: until it opens"),
        pytest.param("allow", at(2), None, id="catalogue R10 exactly when it opens"),
        pytest.param("allow", at(3), None, id="catalogue R10 exactly when it closes"),
        pytest.param("allow", at(3, 0, 1), 23 * 3600.0 - 1, id="closed again: until tomorrow"),
        pytest.param("deny", at(1), None, id="deny: open outside"),
        pytest.param("deny", at(2), 3601.0, id="deny: until it is over"),
    ],
)
def test_windows_hold_a_routine_refresh_back_by_an_exact_timer(
    kind: str, now: datetime, expected: float | None
) -> None:
    es = synced(external_secret(syncWindows={"kind": kind, "windows": [NIGHT]}), at(0) - 10 * HOUR)

    due = refresh_due(snapshot(es, now))

    assert due == (
        Due("its interval has passed") if expected is None else NotDue("its sync windows are closed", expected)
    )


@pytest.mark.parametrize("reason", ["never synced", "changed", "new template"])
def test_windows_hold_back_nothing_else(reason: str) -> None:
    """R9 of the catalogue."""
    closed = {"kind": "allow", "windows": [NIGHT]}
    es = synced(external_secret(syncWindows=closed), at(0))
    if reason == "never synced":
        es = external_secret(syncWindows=closed)
    elif reason == "changed":
        es = external_secret(syncWindows=closed, metadata={"generation": 2}, status=es.status)

    assert isinstance(refresh_due(snapshot(es, at(12), new_templates=reason == "new template")), Due)


@pytest.mark.parametrize(
    ("kind", "schedule", "is_due"),
    [
        pytest.param("allow", "0 0 * * 7", False, id="catalogue R12 allow, broken: blocked"),
        pytest.param("deny", "0 0 * * 7", True, id="catalogue R12 deny, broken: permitted"),
        pytest.param("allow", "@every 3h", False, id="catalogue R11 every, longer than the window"),
        pytest.param("allow", "@every 30m", True, id="every, shorter than the window"),
    ],
)
def test_odd_schedules(kind: str, schedule: str, is_due: bool) -> None:
    window = {"schedule": schedule, "duration": "1h"}
    es = synced(external_secret(syncWindows={"kind": kind, "windows": [window]}), at(0))

    assert isinstance(refresh_due(snapshot(es, at(12))), Due) is is_due


# --- after a restart --------------------------------------------------------------------------------------------------


def restart_slot(uid: str, overdue: timedelta, interval: str = "1h") -> float:
    """Seconds that an object, overdue by that much at the first look, waits for its turn."""
    es = synced(external_secret(refreshInterval=interval, metadata={"uid": uid}))
    now = START + timedelta(seconds=interval_of(es)) + overdue
    found = restart_slot_of(es, LastSync(START, "x"), now)
    assert found is not None
    return (found - now).total_seconds()


def test_overdue_refreshes_are_spread_deterministically_after_a_start() -> None:
    rounds = [restart_slot(f"uid-{number}", HOUR) for number in range(200)]

    assert rounds == [restart_slot(f"uid-{number}", HOUR) for number in range(200)]
    assert all(0 < each <= 300 for each in rounds)
    for fifth in range(5):
        assert 20 <= sum(fifth * 60 < each <= (fifth + 1) * 60 for each in rounds) <= 60


def test_short_intervals_are_spread_over_a_quarter_of_them() -> None:
    assert all(0 < restart_slot(f"uid-{number}", HOUR, "8s") <= 2 for number in range(50))


def test_refreshes_that_are_not_overdue_at_the_start_keep_their_time() -> None:
    """R1 of the catalogue."""
    es = synced(external_secret())

    assert restart_slot_of(es, LastSync(START, "x"), START + HOUR / 2) is None
    assert refresh_due(snapshot(es, START + HOUR / 2)) == NotDue("it is fresh", 1800)


def test_a_turn_of_a_clock_that_was_set_back_is_not_waited_for() -> None:
    es = synced(external_secret())
    now = START + 2 * HOUR

    assert refresh_due(snapshot(es, now, restart_slot=now + HOUR)) == Due("its interval has passed")


def test_an_overdue_refresh_waits_for_its_turn_and_no_change_does() -> None:
    es = synced(external_secret())
    now = START + 2 * HOUR
    waiting = {"restart_slot": now + timedelta(seconds=100)}

    assert refresh_due(snapshot(es, now, **waiting)) == NotDue("it is fresh", 100)
    assert refresh_due(snapshot(es, now + timedelta(seconds=100), **waiting)) == Due("its interval has passed")
    changed = external_secret(metadata={"generation": 2}, status=es.status)
    assert isinstance(refresh_due(snapshot(changed, now, **waiting)), Due)


def test_values_that_end_before_the_interval_does_are_renewed_in_time() -> None:
    """R24."""
    es = synced(external_secret(refreshInterval="24h"))
    last = LastSync(START, current_version(es), START + HOUR)

    before = replace(snapshot(es, START + HOUR / 2), last=last)
    after_all = replace(snapshot(es, START + HOUR), last=last)

    assert refresh_due(before) == NotDue("it is fresh", 1800.0)
    assert refresh_due(after_all) == Due("its interval has passed")


@pytest.mark.parametrize(
    ("interval_factor", "hours", "expected"),
    [
        pytest.param(1.0, 1, Due("its interval has passed"), id="as ever"),
        pytest.param(3.0, 1, NotDue("it is fresh", 7200.0), id="it would hear of every change"),
        pytest.param(3.0, 3, Due("its interval has passed"), id="but not for ever"),
    ],
)
def test_an_object_that_hears_of_all_changes_is_polled_less_often(
    interval_factor: float, hours: int, expected: Due | NotDue
) -> None:
    es = synced(external_secret(refreshInterval="1h"))

    assert refresh_due(snapshot(es, START + hours * HOUR, interval_factor=interval_factor)) == expected


def test_values_that_end_are_renewed_however_well_changes_are_heard() -> None:
    es = synced(external_secret(refreshInterval="1h"))
    last = LastSync(START, current_version(es), START + HOUR / 2)

    assert refresh_due(replace(snapshot(es, START + HOUR / 2, interval_factor=9.0), last=last)) == Due(
        "its interval has passed"
    )


@pytest.mark.parametrize(
    ("spec", "hears"),
    [
        pytest.param({}, True, id="by default"),
        pytest.param({"refreshTrigger": "Auto"}, True, id="Auto"),
        pytest.param({"refreshTrigger": "Poll"}, False, id="Poll"),
        pytest.param({"refreshPolicy": "CreatedOnce"}, False, id="R48 created once"),
        pytest.param({"refreshPolicy": "OnChange"}, False, id="on change"),
        pytest.param({"refreshInterval": "0"}, False, id="an interval of 0"),
    ],
)
def test_who_hears_of_changes(spec: JsonObject, hears: bool) -> None:
    assert watches_changes(external_secret(**spec)) is hears


def test_a_restart_does_not_let_values_end() -> None:
    """R24: their end is on record."""
    es = synced(external_secret(refreshInterval="24h"))
    es.status = msgspec.structs.replace(es.status, renew_time=rfc3339(START + HOUR))

    assert last_sync(es).renew_at == START + HOUR


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, Due("its backend changed"), id="periodic"),
        pytest.param({"refreshPolicy": "CreatedOnce"}, NotDue("it is created once", None), id="R48 created once"),
        pytest.param({"refreshPolicy": "OnChange"}, NotDue("it did not change", None), id="on change"),
        pytest.param({"refreshInterval": 0}, NotDue("an interval of 0 reads once", None), id="an interval of 0"),
    ],
)
def test_an_announced_change_brings_a_routine_refresh_forward(spec: dict[str, Any], expected: Due | NotDue) -> None:
    es = synced(external_secret(**spec))

    assert refresh_due(snapshot(es, START + timedelta(seconds=1), notified_at=1.0)) == expected


def test_an_announced_change_waits_for_the_sync_window() -> None:
    closed = {"kind": "deny", "windows": [{"schedule": "@yearly", "duration": "8784h"}]}
    es = synced(external_secret(syncWindows=closed))

    due = refresh_due(snapshot(es, START + timedelta(seconds=1), notified_at=1.0))

    assert isinstance(due, NotDue)
    assert due.why == "its sync windows are closed"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, True, id="periodic"),
        pytest.param({"refreshInterval": "0s"}, False, id="an interval of 0"),
        pytest.param({"refreshPolicy": "CreatedOnce"}, False, id="R48 created once"),
        pytest.param({"refreshPolicy": "OnChange"}, False, id="on change"),
    ],
)
def test_only_what_refreshes_by_itself_follows_its_backend(spec: dict[str, Any], expected: bool) -> None:
    assert refreshes_by_itself(external_secret(**spec)) is expected
