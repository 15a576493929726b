"""When a PushSecret pushes, and the report of its outcome (contract 1.2, 1.3, 1.10)."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from eso_operator.controllers.outcomes import Conflicted, Ignored, Step
from eso_operator.controllers.pushsecret.checks import BEFORE_PUSH, BEFORE_SOURCE, first_stop, refresh_due
from eso_operator.controllers.pushsecret.ownership import ValueConflict
from eso_operator.controllers.pushsecret.record import LastPush, RemoteKey
from eso_operator.controllers.pushsecret.snapshot import (
    PushSnapshot,
    PushStore,
    SourceVersion,
)
from eso_operator.controllers.pushsecret.status import (
    Pushed,
    PushFailed,
    SourceDeleted,
    orphaned,
    report_of,
)
from eso_operator.controllers.refresh import Due, NotDue, current_version
from eso_operator.sources.fetch import Failure
from eso_testkit.operator.pushsecrets import bulk, chosen, push_secret, pushed
from eso_wire.errors import RetryClass
from kubebase.clock import rfc3339
from kubebase.meta import ObjectKey
from kuberun.controller import Backoff, Done, Requeue
from kuberun.events import EventType

NOW = datetime(2024, 5, 1, 12, 0, tzinfo=UTC)
SOURCE = SourceVersion("source", "uid", "7", NOW - timedelta(days=1))
STORES = (chosen(),)


def synced_ago(seconds: float | None, *, ready: str = "True", reason: str = "Synced", **spec: Any) -> Any:
    """A PushSecret that pushed so long ago; None for one that has a version and no time."""
    push = push_secret(**spec)
    status = msgspec.structs.replace(
        push.status,
        synced_resource_version=current_version(push),
        refresh_time=None if seconds is None else rfc3339(NOW - timedelta(seconds=seconds)),
        conditions=report_of(push, Pushed(), NOW).status.conditions,
    )
    conditions = [msgspec.structs.replace(each, status=ready, reason=reason) for each in status.conditions]
    push.status = msgspec.structs.replace(status, conditions=conditions)
    return push


def snapshot(
    push: Any,
    *,
    sources: tuple[SourceVersion, ...] = (SOURCE,),
    stores: tuple[PushStore, ...] | Failure = STORES,
    remembered: LastPush | None = None,
) -> PushSnapshot:
    return PushSnapshot(push, NOW, remembered, sources, stores)


def remembered(
    seconds: float = 60, *, source: str = SOURCE.mark, store: str = "SecretStore/store uid-store", renew: float = 0
) -> LastPush:
    at = NOW - timedelta(seconds=seconds)
    renew_at = at + timedelta(seconds=renew) if renew else None
    return LastPush(at, "1", frozenset({source}), frozenset({store}), renew_at)


@pytest.mark.parametrize(
    ("seen", "due"),
    [
        pytest.param(snapshot(push_secret()), True, id="never pushed"),
        pytest.param(snapshot(synced_ago(60)), False, id="fresh"),
        pytest.param(snapshot(synced_ago(3601)), True, id="its interval has passed, R4"),
        pytest.param(snapshot(synced_ago(None)), True, id="no time is written"),
        pytest.param(snapshot(synced_ago(-60)), True, id="pushed in the future"),
        pytest.param(snapshot(synced_ago(9999, refreshInterval="0")), False, id="interval 0 pushes once"),
        pytest.param(snapshot(synced_ago(9999, refreshInterval=0)), False, id="interval 0 as a number, R23"),
        pytest.param(snapshot(synced_ago(60, ready="False", reason="Errored")), True, id="the last push failed"),
        pytest.param(
            snapshot(synced_ago(60, ready="False", reason="SourceDeleted"), sources=()), False, id="no source"
        ),
        pytest.param(snapshot(synced_ago(60, ready="False", reason="SourceDeleted")), True, id="the source is back"),
        pytest.param(
            snapshot(synced_ago(60, ready="False", reason="SourceDeleted", refreshInterval="0")),
            True,
            id="the source is back, interval 0",
        ),
        pytest.param(snapshot(synced_ago(60), sources=()), True, id="the source is gone"),
        pytest.param(snapshot(synced_ago(60), remembered=remembered()), False, id="nothing changed"),
        pytest.param(
            snapshot(synced_ago(60), remembered=remembered(source="source uid 6")), True, id="the source changed, R16"
        ),
        pytest.param(
            snapshot(synced_ago(60), remembered=remembered(source="source other 7")),
            True,
            id="the source is another Secret of that name",
        ),
        pytest.param(
            snapshot(synced_ago(60, refreshInterval="0"), remembered=remembered(source="source uid 6")),
            False,
            id="interval 0 does not follow its source",
        ),
        pytest.param(
            snapshot(synced_ago(60), remembered=remembered(store="SecretStore/store other")),
            True,
            id="the store is another one of that name",
        ),
        pytest.param(
            snapshot(synced_ago(60), sources=(SourceVersion("source", "new", "9", NOW - timedelta(seconds=30)),)),
            True,
            id="after a restart, a source that was created after the last push is noticed",
        ),
        pytest.param(
            snapshot(synced_ago(9000), remembered=remembered(10)), False, id="what is remembered is later than written"
        ),
        pytest.param(
            snapshot(synced_ago(60), remembered=remembered(renew=30)), True, id="generated values end before, R24"
        ),
        pytest.param(
            replace(snapshot(synced_ago(60, refreshInterval="0")), freed=True),
            True,
            id="interval 0, but another PushSecret overwrote a value and withdrew",
        ),
    ],
)
def test_whether_it_is_due(seen: PushSnapshot, due: bool) -> None:
    assert isinstance(refresh_due(seen), Due if due else NotDue)


def test_a_restart_does_not_let_generated_values_end() -> None:
    """R24: their end is on record, and nothing is remembered of them."""
    push = synced_ago(60)
    written = report_of(push, Pushed(renew_within=30.0), NOW - timedelta(seconds=60)).status
    push.status = msgspec.structs.replace(push.status, renew_time=written.renew_time)

    assert isinstance(refresh_due(snapshot(push)), Due)
    assert report_of(push, Pushed(), NOW).status.renew_time is None


@pytest.mark.parametrize(("recorded", "due"), [({"SecretStore/store": {"db": {}}}, True), ({}, False)])
def test_after_a_restart_what_is_selected_by_label_and_gone_is_noticed(recorded: dict[str, Any], due: bool) -> None:
    """A selector without matches does not cause repeated reconciles."""
    push = synced_ago(60, selector={"secret": {"selector": {"matchLabels": {"team": "blue"}}}})
    push.status = msgspec.structs.replace(push.status, synced_push_secrets=recorded)

    assert isinstance(refresh_due(snapshot(push, sources=())), Due if due else NotDue)


@pytest.mark.parametrize("written", ["soon", "0000-01-01T00:00:00Z", "2024-05-01T11:59:00"])
def test_an_unreadable_time_counts_as_never_written(written: str) -> None:
    """Any user can write a status."""
    push = synced_ago(60)
    push.status = msgspec.structs.replace(push.status, refresh_time=written, renew_time=written)

    assert refresh_due(snapshot(push)) == Due("it never pushed")
    assert report_of(push, Pushed(), NOW).status.refresh_time == rfc3339(NOW)


def test_a_time_that_lies_in_the_future_is_put_right_at_once() -> None:
    push = synced_ago(-3600)

    assert report_of(push, Pushed(), NOW).flush


@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_an_edit_of_metadata_pushes_again(field: str) -> None:
    """Seed 14."""
    push = synced_ago(1, refreshInterval="0")
    setattr(push.metadata, field, {"a": "b"})

    assert isinstance(refresh_due(snapshot(push)), Due)


def test_an_object_that_is_not_due_waits_until_its_exact_time() -> None:
    assert refresh_due(snapshot(synced_ago(600, refreshInterval="30m"))) == NotDue("it is fresh", 1200.0)


# --- checks -----------------------------------------------------------------------------------------------------------


def test_a_data_to_that_names_an_unlisted_store_stops_before_the_source_is_read() -> None:
    """E4."""
    stop = first_stop(snapshot(push_secret(dataTo=[bulk("other")])), BEFORE_SOURCE)

    assert isinstance(stop, PushFailed)
    assert stop.failures[0].path == "spec.dataTo[0].storeRef"


RENAME = {"regexp": {"source": "a", "target": "b"}}


@pytest.mark.parametrize(
    ("spec", "paths"),
    [
        pytest.param({"dataTo": [bulk(remoteKey="all")]}, [], id="one remote secret"),
        pytest.param({"dataTo": [bulk(rewrite=[RENAME])]}, [], id="a rewrite"),
        pytest.param(
            {"dataTo": [bulk(remoteKey="all", rewrite=[RENAME])]},
            ["spec.dataTo[0].rewrite"],
            id="one remote secret and a rewrite",
        ),
        pytest.param(
            {"dataTo": [bulk(storeRef={"apiVersion": "external-secrets.io/v1", "name": "store"})]},
            [],
            id="a store that is listed without its version",
        ),
        pytest.param({"refreshInterval": "soon"}, ["spec.refreshInterval"], id="an interval that cannot be read"),
    ],
)
def test_a_spec_that_breaks_a_rule_of_our_crd_is_refused_and_not_retried(spec: Any, paths: list[str]) -> None:
    stop = first_stop(snapshot(push_secret(**spec)), BEFORE_SOURCE)

    failures = stop.failures if isinstance(stop, PushFailed) else ()
    assert [each.path for each in failures] == paths
    assert all(each.retry is RetryClass.NEVER for each in failures)


@pytest.mark.parametrize(
    ("stores", "expected"),
    [
        pytest.param(
            Failure("spec.secretStoreRefs[0]", "StoreNotFound", "none"), PushFailed, id="a store is missing, E6"
        ),
        pytest.param((), Ignored, id="no store is ours"),
        pytest.param((chosen(team="b"),), PushFailed, id="dataTo by label finds none, E7"),
        pytest.param((chosen(team="a"),), type(None), id="all is well"),
    ],
)
def test_stores_are_checked_before_the_first_push(stores: Any, expected: type) -> None:
    push = push_secret(dataTo=[bulk(storeRef={"labelSelector": {"matchLabels": {"team": "a"}}})])

    assert isinstance(first_stop(snapshot(push, stores=stores), BEFORE_PUSH), expected)


# --- what is said -----------------------------------------------------------------------------------------------------

FAILURE = Failure("spec.data[0]", "AccessDenied", "no permission", "prod/db", "SecretStore store")
LIMITED = Failure("p", "RateLimited", "m", retry_after=90.0)
NEVER = Failure("p", "NotImplemented", "m", retry=RetryClass.NEVER)


def ready(report: Any) -> tuple[str, str]:
    condition = next(each for each in report.status.conditions if each.type == "Ready")
    return condition.status, condition.reason


@pytest.mark.parametrize(
    ("outcome", "condition", "events", "then"),
    [
        pytest.param(
            Pushed(wrote=True), ("True", "Synced"), [(EventType.NORMAL, "Synced")], Requeue, id="everything is pushed"
        ),
        pytest.param(
            SourceDeleted(),
            ("False", "SourceDeleted"),
            [(EventType.NORMAL, "SourceDeleted")],
            Done,
            id="the source is gone",
        ),
        pytest.param(
            PushFailed(Step.PUSH, (FAILURE,)),
            ("False", "Errored"),
            [(EventType.WARNING, "Errored")],
            Backoff,
            id="a push failed",
        ),
        pytest.param(
            PushFailed(Step.DELETE_PUSHED, (FAILURE,), events=orphaned(["store: a"])),
            ("False", "Errored"),
            [(EventType.WARNING, "Orphaned"), (EventType.WARNING, "Errored")],
            Backoff,
            id="a deletion failed and something was let go",
        ),
    ],
)
def test_condition_event_and_requeue(outcome: Any, condition: Any, events: Any, then: type) -> None:
    report = report_of(push_secret(), outcome, NOW)

    assert ready(report) == condition
    assert [(events.type, events.reason) for events in report.events] == events
    assert isinstance(report.result, then)


@pytest.mark.parametrize("outcome", [NotDue("fresh", 5.0), Ignored("not ours"), Conflicted("meanwhile")])
def test_outcomes_that_say_nothing(outcome: Any) -> None:
    push = synced_ago(60)

    report = report_of(push, outcome, NOW)

    assert report.status == push.status
    assert report.events == ()


def test_a_failure_changes_neither_time_nor_version_and_says_the_same_once() -> None:
    push = push_secret()
    first = report_of(push, PushFailed(Step.PUSH, (FAILURE,)), NOW)
    push.status = first.status

    again = report_of(push, PushFailed(Step.PUSH, (FAILURE,)), NOW + timedelta(minutes=1))

    assert (first.status.refresh_time, first.status.synced_resource_version) == (None, "")
    assert again.events == ()
    assert again.status.outcomes == first.status.outcomes
    assert [outcome.step for outcome in again.status.outcomes] == ["Push"]
    assert again.status.conditions[0].message.startswith(
        "could not set secret: spec.data[0] (key: prod/db): AccessDenied: no permission"
    )


def test_a_failure_that_waiting_does_not_heal_is_looked_at_again_at_the_interval() -> None:
    assert report_of(push_secret(), PushFailed(Step.PUSH, (NEVER,)), NOW).result == Requeue(
        3600.0, "it may have been put right"
    )
    assert report_of(push_secret(refreshInterval="0"), PushFailed(Step.PUSH, (NEVER,)), NOW).result == Done()


def test_a_failure_is_retried_no_sooner_than_the_provider_says() -> None:
    assert report_of(push_secret(), PushFailed(Step.PUSH, (LIMITED, FAILURE)), NOW).result == Backoff(
        "could not set secret", 90.0, longest=3600.0
    )


@pytest.mark.parametrize(
    ("interval", "failure", "within", "expected"),
    [
        pytest.param("1h", FAILURE, 64.0, 64, id="the back-off's longest"),
        pytest.param("1h", FAILURE, 8.0, None, id="soon: not worth a write each time"),
        pytest.param("1h", LIMITED, 8.0, 90, id="as the provider asked"),
        pytest.param("1h", NEVER, 64.0, 3600, id="hopeless: at the interval"),
        pytest.param("0", NEVER, 64.0, None, id="hopeless: only on a change"),
    ],
)
def test_after_a_failed_push_the_status_says_when_it_is_tried_again(
    interval: str, failure: Failure, within: float, expected: float | None
) -> None:
    push = push_secret(refreshInterval=interval)

    status = report_of(push, PushFailed(Step.PUSH, (failure,)), NOW, retry_within=within).status

    assert status.next_attempt_time == (None if expected is None else rfc3339(NOW + timedelta(seconds=expected)))


@pytest.mark.parametrize("outcome", [Pushed(), SourceDeleted()], ids=["synced", "source deleted"])
def test_no_attempt_is_announced_once_nothing_fails(outcome: Any) -> None:
    push = push_secret()
    push.status = report_of(push, PushFailed(Step.PUSH, (LIMITED,)), NOW).status
    assert push.status.next_attempt_time is not None

    assert report_of(push, outcome, NOW).status.next_attempt_time is None


def test_existing_values_are_a_condition_of_their_own_next_to_ready() -> None:
    """R8."""
    push = push_secret(updatePolicy="IfNotExists")

    report = report_of(push, Pushed(existing=("SecretStore store: prod/db",)), NOW)
    push.status = report.status
    gone = report_of(push, Pushed(), NOW)

    kinds = {each.type: (each.status, each.reason) for each in report.status.conditions}
    assert kinds == {"Ready": ("True", "Synced"), "SecretAlreadyExists": ("True", "SecretAlreadyExists")}
    assert "prod/db" in report.status.conditions[1].message
    assert "left alone" in report.status.conditions[0].message
    assert [each.type for each in gone.status.conditions] == ["Ready"]


def test_a_weaker_guarantee_is_stated_in_condition_and_event() -> None:
    report = report_of(push_secret(updatePolicy="IfNotExists"), Pushed(weaker=("SecretStore s",)), NOW)

    assert "SecretStore s cannot create atomically" in report.status.conditions[0].message
    assert report.events[0].message == report.status.conditions[0].message


def test_a_push_that_changed_nothing_causes_no_event_and_no_immediate_write() -> None:
    first = report_of(push_secret(), Pushed(pushed("a"), wrote=True), NOW)
    push = push_secret()
    push.status = first.status

    soon = report_of(push, Pushed(pushed("a")), NOW + timedelta(minutes=1))
    later = report_of(push, Pushed(pushed("a")), NOW + timedelta(minutes=6))
    other = report_of(push, Pushed(pushed("b")), NOW + timedelta(minutes=1))

    assert (first.flush, soon.flush, later.flush, other.flush) == (True, False, True, True)
    assert (soon.events, later.events) == ((), ())


def test_the_next_push_is_an_interval_away_or_before_generated_values_end() -> None:
    push = push_secret(refreshInterval="10m")

    assert report_of(push, Pushed(), NOW).result == Requeue(600.0, "a push is due")
    assert report_of(push, Pushed(renew_within=60.0), NOW).result == Requeue(60.0, "a push is due")
    assert report_of(push_secret(refreshInterval=0), Pushed(), NOW).result == Done()


def test_messages_are_bounded() -> None:
    many = tuple(Failure(f"spec.data[{number}]", "AccessDenied", "x" * 2000, "k") for number in range(100))

    report = report_of(push_secret(), PushFailed(Step.PUSH, many), NOW)

    assert len(report.status.conditions[0].message) <= 1024
    assert len(report.status.outcomes) == 50
    assert all(len(outcome.message) <= 1024 for outcome in report.status.outcomes)


# --- contention -------------------------------------------------------------------------------------------------------

HERE, THERE = ObjectKey("team-a", "other"), ObjectKey("team-b", "other")
CONFLICTS = [ValueConflict(RemoteKey("SecretStore/store", "app/db", "password"), (HERE, THERE))]
OUTCOMES = [
    pytest.param(Pushed(), id="synced"),
    pytest.param(NotDue("it is fresh", None), id="not due"),
    pytest.param(PushFailed(Step.PUSH, (Failure("spec.data[1]", "AccessDenied", "no"),)), id="another entry failed"),
]


def contended(outcome: Any) -> Any:
    """A PushSecret that says so already."""
    push = synced_ago(60)
    push.status = report_of(push, outcome, NOW, conflicts=CONFLICTS).status
    return push


def condition(report: Any) -> Any:
    return next((each for each in report.status.conditions if each.type == "Contended"), None)


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_contention_names_the_place_the_others_and_what_to_do(outcome: Any) -> None:
    report = report_of(synced_ago(60), outcome, NOW, conflicts=CONFLICTS)

    found = condition(report)
    assert (found.status, found.reason, report.flush) == ("True", "DifferentValues", True)
    assert found.message == (
        'remote key "app/db", property "password", in SecretStore/store: PushSecret other also writes it, with a'
        " different value (and so does an object in another namespace). The last writer wins: change the remoteKey of"
        " one of them, or give them the same value"
    )
    assert [each.reason for each in report.events if each.type is EventType.WARNING][-1] == "Contended"


def test_contention_with_other_namespaces_names_none_of_their_objects() -> None:
    conflicts = [ValueConflict(RemoteKey("ClusterSecretStore/store", "app/db", ""), (ObjectKey("team-b", "billing"),))]

    found = condition(report_of(synced_ago(60), Pushed(), NOW, conflicts=conflicts))

    assert found.reason == "SharedPlace"
    assert found.message.startswith(
        'remote key "app/db" in ClusterSecretStore/store: an object in another namespace also writes it. '
    )
    assert [name for name in ("team-b", "billing") if name in found.message] == []


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_ongoing_contention_is_reported_once(outcome: Any) -> None:
    report = report_of(contended(outcome), outcome, NOW, conflicts=CONFLICTS)

    assert "Contended" not in [each.reason for each in report.events]


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_ended_contention_is_cleared_and_unknown_contention_stays(outcome: Any) -> None:
    ended = report_of(contended(outcome), outcome, NOW, conflicts=())
    unknown = report_of(contended(outcome), outcome, NOW, conflicts=None)

    assert (condition(ended), ended.flush) == (None, True)
    assert condition(unknown) is not None


# --- what starts ------------------------------------------------------------------------------------------------------

STARTING = Failure("spec.data[0]", "ProviderStarting", "provider fake is starting", "remote", waits=40.0)


def test_a_new_object_says_once_and_without_an_event_that_its_provider_starts() -> None:
    push = push_secret()

    first = report_of(push, PushFailed(Step.PUSH, (STARTING,)), NOW)
    push.status = first.status
    again = report_of(push, PushFailed(Step.PUSH, (STARTING,)), NOW + timedelta(minutes=1))

    (ready,) = first.status.conditions
    assert (ready.status, ready.reason) == ("Unknown", "Errored")
    assert ready.message == "waiting: spec.data[0] (key: remote): ProviderStarting: provider fake is starting"
    assert [each.reason for each in first.status.outcomes] == ["ProviderStarting"]
    assert first.events == again.events == ()
    assert isinstance(first.result, Requeue)
    assert first.result.delay == 40.0
    assert again.status == first.status


def test_an_object_whose_provider_starts_stays_as_it_was() -> None:
    push = synced_ago(60)

    report = report_of(push, PushFailed(Step.PUSH, (STARTING,)), NOW)

    assert report.status is push.status
    assert report.events == ()


def test_an_object_of_which_only_a_part_waits_fails() -> None:
    lasting = Failure("spec.data[1]", "AccessDenied", "no")

    report = report_of(synced_ago(60), PushFailed(Step.PUSH, (STARTING, lasting)), NOW)

    assert [each.status for each in report.status.conditions] == ["False"]
