"""The table from a verdict to condition, status, events and requeue."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from eso_api.common import NamespaceCondition, StoreStatus
from eso_api.v2.policy import ProviderStatus
from eso_operator.controllers.base import Event, Report
from eso_operator.controllers.secretstore.kinds import CLUSTER_STORE, CLUSTER_STORE_V2, STORE, STORE_V2, StoreKind
from eso_operator.controllers.secretstore.status import (
    Before,
    Broken,
    PerCaller,
    ProviderFacts,
    Starting,
    Throttled,
    Unverified,
    Valid,
    Verdict,
    report_of,
    unanchored_regexes,
)
from eso_wire.values import ConditionReport, Operation
from kubebase.meta import Condition
from kubebase.testing.clock import START
from kuberun.controller import Backoff, Requeue, Result
from kuberun.events import EventType
from kuberun.status import find_condition
from kuberun.testing.builders import metadata

READS = ProviderFacts(frozenset({Operation.GET, Operation.FIND_BY_NAME}))
OLD = "2029-12-31T00:00:00Z"


STARTING = Starting("ProviderStarting", "provider fake is starting", 40.0)


def before(kind: StoreKind = STORE, conditions: tuple[Condition, ...] = (), **fields: Any) -> Before:
    status = ProviderStatus if kind in (STORE_V2, CLUSTER_STORE_V2) else StoreStatus
    about = metadata("vault", "team", generation=7, annotations=fields.pop("annotations", {}))
    return Before(kind, about, status(conditions=list(conditions), **fields), interval=300.0, now=START)


def ready(report: Report) -> tuple[str, str, str]:
    condition = report.ready
    assert condition is not None
    return condition.status, condition.reason, condition.message


@pytest.mark.parametrize(
    ("kind", "verdict", "status", "reason", "then"),
    [
        pytest.param(STORE, Valid(READS), "True", "Valid", Requeue(300.0), id="v1 valid"),
        pytest.param(STORE_V2, Valid(READS), "True", "Valid", Requeue(300.0), id="v2 valid, R77"),
        pytest.param(CLUSTER_STORE, PerCaller(READS, "who knows"), "True", "Valid", Requeue(300.0), id="v1 referent"),
        pytest.param(
            CLUSTER_STORE_V2,
            PerCaller(READS, "who knows"),
            "Unknown",
            "ReferentAuthUnverified",
            Requeue(300.0),
            id="v2 referent is honest, R89",
        ),
        pytest.param(
            STORE,
            Unverified(READS, "cannot say"),
            "True",
            "ValidationUnknown",
            Requeue(300.0),
            id="unknown with an error",
        ),
        pytest.param(
            STORE,
            Broken("ProviderNotInstalled", "no provider for aws"),
            "False",
            "InvalidProviderConfig",
            Backoff("ProviderNotInstalled"),
            id="v1 broken keeps the known reason",
        ),
        pytest.param(
            STORE_V2,
            Broken("ProviderIncompatible", "protocol 9"),
            "False",
            "ProviderIncompatible",
            Backoff("ProviderIncompatible"),
            id="v2 broken names the cause, R117 R141",
        ),
        pytest.param(
            STORE,
            Throttled("slow down", 12.0),
            "True",
            "ValidationUnknown",
            Requeue(12.0),
            id="throttled at first sight",
        ),
        pytest.param(STORE, STARTING, "Unknown", "ValidationUnknown", Requeue(40.0), id="v1, its provider starts"),
        pytest.param(STORE_V2, STARTING, "Unknown", "ProviderStarting", Requeue(40.0), id="v2, its provider starts"),
    ],
)
def test_ready_and_requeue_follow_the_verdict(
    kind: StoreKind, verdict: Verdict, status: str, reason: str, then: Result
) -> None:
    report = report_of(before(kind), verdict)

    assert ready(report)[:2] == (status, reason)
    assert type(report.result) is type(then)
    assert getattr(report.result, "delay", None) == getattr(then, "delay", None)


def test_the_cause_stands_at_the_front_of_a_v1_message() -> None:
    report = report_of(before(STORE), Broken("UnknownCA", "provider aws shows a certificate we do not trust"))

    assert ready(report)[2] == "UnknownCA: provider aws shows a certificate we do not trust"


@pytest.mark.parametrize("kind", [STORE, STORE_V2])
@pytest.mark.parametrize("verdict", [Valid(READS), Broken("ProviderNotInstalled", "no provider")])
def test_a_broken_stream_has_its_own_condition_beside_ready(kind: StoreKind, verdict: Verdict) -> None:
    fine = report_of(before(kind), verdict)
    known = replace(before(kind), status=fine.status)

    deaf = report_of(replace(known, stream_trouble="BackendTimeout: no heartbeat for 90 s"), verdict)
    same = report_of(
        replace(known, status=deaf.status, stream_trouble="BackendTimeout: no heartbeat for 90 s"), verdict
    )
    again = report_of(replace(known, status=deaf.status), verdict)

    said = find_condition(deaf.status.conditions, "PushRefreshDegraded")
    assert said is not None
    assert (said.status, said.reason) == ("True", "StreamBroken")
    assert said.message == "BackendTimeout: no heartbeat for 90 s. Changes are found at the refresh interval"
    assert ready(deaf) == ready(fine)
    assert deaf.events == (Event(EventType.WARNING, "PushRefreshDegraded", said.message),)
    assert (same.status, same.events) == (deaf.status, ())
    assert again.status == fine.status
    assert [(events.type, events.reason) for events in again.events] == [(EventType.NORMAL, "PushRefreshRestored")]


@pytest.mark.parametrize(
    "old",
    [
        pytest.param(Condition(type="Ready", status="True", reason="Valid", message="store validated"), id="ready"),
        pytest.param(Condition(type="Ready", status="False", reason="InvalidProviderConfig", message="x"), id="broken"),
    ],
)
def test_a_store_whose_provider_starts_stays_as_it_was(old: Condition) -> None:
    known = before(conditions=(old,))

    report = report_of(known, STARTING)

    assert report.status is known.status
    assert (report.events, report.log) == ((), None)


@pytest.mark.parametrize("kind", [STORE, STORE_V2])
def test_a_new_store_says_once_and_without_an_event_that_its_provider_starts(kind: StoreKind) -> None:
    first = report_of(before(kind), STARTING)
    known = replace(before(kind), status=first.status)

    again = report_of(known, replace(STARTING, message="provider fake is starting, still", seconds=20.0))
    failed = report_of(known, Broken("Refused", "nothing listens"))

    assert "provider fake is starting" in ready(first)[2]
    assert "ProviderStarting" in " ".join(ready(first))
    assert first.events == again.events == ()
    assert again.status is known.status
    assert isinstance(again.result, Requeue)
    assert again.result.delay == 20.0
    assert ready(failed)[0] == "False"
    assert [events.type for events in failed.events] == [EventType.WARNING]


def test_a_throttled_store_stays_as_ready_as_it_was() -> None:
    broken = Condition(type="Ready", status="False", reason="InvalidProviderConfig", message="x")

    throttled = report_of(before(conditions=(broken,)), Throttled("slow down", 12.0))
    recovered = report_of(replace(before(), status=throttled.status), Valid(READS))

    assert ready(throttled) == ("False", "InvalidProviderConfig", "x")
    assert find_condition(throttled.status.conditions, "Throttled") is not None
    assert throttled.events == ()
    assert find_condition(recovered.status.conditions, "Throttled") is None


@pytest.mark.parametrize(
    ("kind", "verdict", "events"),
    [
        pytest.param(STORE, Valid(READS), [("Normal", "Valid")], id="valid"),
        pytest.param(STORE, Unverified(READS, "no"), [("Warning", "ValidationUnknown")], id="unknown"),
        pytest.param(STORE, Broken("X", "no"), [("Warning", "InvalidProviderConfig")], id="broken"),
        pytest.param(
            STORE,
            Valid(replace(READS, maintenance="unmaintained")),
            [("Warning", "StoreUnmaintained"), ("Normal", "Valid")],
            id="unmaintained",
        ),
        pytest.param(
            STORE,
            Valid(replace(READS, maintenance="deprecated")),
            [("Warning", "StoreDeprecated"), ("Normal", "Valid")],
            id="deprecated",
        ),
        pytest.param(
            STORE,
            Valid(replace(READS, warnings=("old API",))),
            [("Warning", "ProviderWarning"), ("Normal", "Valid")],
            id="the provider's warnings",
        ),
    ],
)
def test_events_tell_what_is_new(kind: StoreKind, verdict: Verdict, events: list[tuple[str, str]]) -> None:
    report = report_of(before(kind), verdict)

    assert [(str(events.type), events.reason) for events in report.events] == events


def test_maintenance_is_not_mentioned_where_the_annotation_says_so() -> None:
    annotated = before(annotations={"external-secrets.io/ignore-maintenance-checks": ""})

    report = report_of(annotated, Valid(replace(READS, maintenance="unmaintained")))

    assert report.events == (Event(EventType.NORMAL, "Valid", "store validated"),)


@pytest.mark.parametrize(
    "verdict",
    [
        pytest.param(Valid(READS), id="valid"),
        pytest.param(Unverified(READS, "no"), id="unknown"),
        pytest.param(Broken("X", "no"), id="broken"),
        pytest.param(Throttled("slow", 1.0), id="throttled"),
        pytest.param(Valid(replace(READS, conditions=(ConditionReport("Quota", "True", "Fine", ""),))), id="mirrored"),
    ],
)
@pytest.mark.parametrize("kind", [STORE, STORE_V2], ids=["v1", "v2"])
def test_the_same_verdict_again_changes_nothing_and_tells_nothing(kind: StoreKind, verdict: Verdict) -> None:
    first = report_of(before(kind), verdict)

    again = report_of(replace(before(kind), status=first.status), verdict)

    assert again.status == first.status
    assert again.events == ()


def test_the_time_of_a_transition_is_kept_while_the_status_is() -> None:
    old = Condition(type="Ready", status="True", reason="ValidationUnknown", message="x", last_transition_time=OLD)

    kept = report_of(before(conditions=(old,)), Valid(READS))
    moved = report_of(before(conditions=(old,)), Broken("X", "no"))

    assert kept.ready == msgspec.structs.replace(old, reason="Valid", message="store validated")
    assert moved.ready is not None
    assert moved.ready.last_transition_time == "2030-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("kind", "verdict", "capabilities"),
    [
        pytest.param(STORE, Valid(READS), "ReadOnly", id="valid fills them"),
        pytest.param(STORE, PerCaller(READS, ""), "ReadOnly", id="referent fills them, R89"),
        pytest.param(STORE, Unverified(READS, ""), "ReadWrite", id="v1 unknown leaves them"),
        pytest.param(STORE_V2, Unverified(READS, ""), "ReadOnly", id="v2 unknown fills them"),
        pytest.param(STORE, Broken("X", ""), "ReadWrite", id="broken leaves them"),
    ],
)
def test_capabilities_are_what_was_last_known(kind: StoreKind, verdict: Verdict, capabilities: str) -> None:
    report = report_of(before(kind, capabilities="ReadWrite"), verdict)

    assert report.status.capabilities == capabilities


def test_a_v2_status_lists_operations_and_the_generation_it_speaks_of() -> None:
    report = report_of(before(STORE_V2), Valid(READS))

    assert report.status.operations == ["FIND_BY_NAME", "GET"]
    assert report.status.observed_generation == 7


def test_the_providers_conditions_are_mirrored_bounded_and_go_when_they_are_not_reported() -> None:
    reported = (
        ConditionReport("QuotaLow", "True", "Almost", "10 calls left"),
        ConditionReport("Odd", "Perhaps", "not a reason!", "m" * 5000),
        ConditionReport("not a type", "True"),
    )
    first = report_of(before(), Valid(replace(READS, conditions=reported)))

    gone = report_of(replace(before(), status=first.status), Valid(READS))

    quota, odd = (find_condition(first.status.conditions, name) for name in ("ProviderQuotaLow", "ProviderOdd"))
    assert quota is not None
    assert (quota.status, quota.reason, quota.message) == ("True", "Almost", "10 calls left")
    assert odd is not None
    assert (odd.status, odd.reason, len(odd.message) <= 1024) == ("Unknown", "Reported", True)
    assert len(first.status.conditions) == 3
    assert [condition.type for condition in gone.status.conditions] == ["Ready"]


@pytest.mark.parametrize("kind", [CLUSTER_STORE, CLUSTER_STORE_V2], ids=lambda kind: kind.resource.kind)
def test_a_pattern_that_matches_parts_of_names_is_a_condition_until_it_is_anchored(kind: StoreKind) -> None:
    spec = NamespacedBy(
        conditions=[NamespaceCondition(namespace_regexes=["^team-$", r"\Aops\z", "^dev-", "prod$", "x" * 200])]
    )
    fine = report_of(before(kind), Valid(READS))
    known = replace(before(kind), status=fine.status)

    told = report_of(replace(known, unanchored=unanchored_regexes(spec)), Valid(READS))
    mended = report_of(replace(known, status=told.status), Valid(READS))

    said = find_condition(told.status.conditions, "UnanchoredNamespaceRegexes")
    assert said is not None
    assert (said.status, said.reason) == ("True", "MatchesPartOfName")
    assert said.message.startswith('namespaceRegexes match any part of a name: "^dev-", "prod$", "xxx')
    assert len(said.message) < 400
    assert ready(told) == ready(fine)
    assert mended.status == fine.status


class NamespacedBy(msgspec.Struct):
    conditions: list[NamespaceCondition]
