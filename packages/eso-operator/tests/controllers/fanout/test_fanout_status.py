"""The report of a fan-out, and the time of its next reconcile."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from eso_operator.controllers.base import Event, Report
from eso_operator.controllers.fanout.kinds import (
    CLUSTER_EXTERNAL_SECRETS,
    CLUSTER_PUSH_SECRETS,
    StoredClusterExternalSecret,
    StoredClusterPushSecret,
)
from eso_operator.controllers.fanout.snapshot import Gaps
from eso_operator.controllers.fanout.status import (
    ChildBlocked,
    ChildFailed,
    ChildGone,
    ChildPresent,
    ChildResult,
    Spread,
    Unreadable,
    Unready,
    report_of,
)
from kubebase.clock import rfc3339
from kubebase.meta import JsonObject
from kubebase.testing.clock import START
from kuberun.controller import Backoff, Done, Requeue, Result
from kuberun.events import EventType

TAKEN = "external secret already exists in namespace"


def parent(status: dict[str, Any] | None = None, **spec: Any) -> StoredClusterExternalSecret:
    document = {"metadata": {"name": "all"}, "spec": {"externalSecretSpec": {}, **spec}, "status": status or {}}
    return msgspec.convert(document, StoredClusterExternalSecret)


def report(*results: ChildResult, status: dict[str, Any] | None = None, **spec: Any) -> Report:
    return report_of(CLUSTER_EXTERNAL_SECRETS, parent(status, **spec), Spread("db", results), START)


def ready(reason: str, message: str, status: str = "True") -> JsonObject:
    return {"type": "Ready", "status": status, "reason": reason, "message": message}


def failed(message: str) -> JsonObject:
    return ready("NamespacesFailed", f"one or more namespaces failed: {message}", "False")


def without_times(status: Any) -> JsonObject:
    """Return the written status without the times of its conditions."""
    plain: JsonObject = msgspec.to_builtins(status)
    for condition in plain["conditions"]:
        assert condition.pop("lastTransitionTime")
    return plain


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        pytest.param(
            (), {"conditions": [ready("NoNamespaceMatches", "0 namespaces provisioned")]}, id="nothing matches, C2"
        ),
        pytest.param(
            (ChildPresent("b"), ChildPresent("a"), ChildGone()),
            {"provisionedNamespaces": ["a", "b"], "conditions": [ready("Provisioned", "2 namespaces provisioned")]},
            id="all have it: sorted, C1",
        ),
        pytest.param(
            (ChildFailed("d", "denied"), ChildPresent("b"), ChildBlocked("a", TAKEN)),
            {
                "provisionedNamespaces": ["b"],
                "failedNamespaces": [{"namespace": "a", "reason": TAKEN}, {"namespace": "d", "reason": "denied"}],
                "conditions": [failed(f"a: {TAKEN}; d: denied. 1 namespace provisioned")],
            },
            id="some failed, the others are named too, C6",
        ),
        pytest.param(
            (ChildFailed("a", "old one not deleted"), ChildPresent("a")),
            {
                "provisionedNamespaces": ["a"],
                "failedNamespaces": [{"namespace": "a", "reason": "old one not deleted"}],
                "conditions": [failed("a: old one not deleted. 1 namespace provisioned")],
            },
            id="a namespace has the new one, and still the old one",
        ),
        pytest.param(
            (ChildFailed("a", "first"), ChildBlocked("a", "second")),
            {
                "failedNamespaces": [{"namespace": "a", "reason": "first"}],
                "conditions": [failed("a: first. 0 namespaces provisioned")],
            },
            id="a namespace fails once",
        ),
    ],
)
def test_status(results: tuple[ChildResult, ...], expected: dict[str, Any]) -> None:
    status = report(*results, refreshTime="30m").status

    assert without_times(status) == {"externalSecretName": "db", **expected}


def test_the_status_has_the_defaults_that_the_spec_leaves_out() -> None:
    generated = {"dataFrom": [{"sourceRef": {"generatorRef": {"kind": "Password", "name": "db"}}}]}

    status = without_times(report(externalSecretSpec=generated).status)

    assert status["refreshTime"] == "1h0m0s"
    assert status["externalSecretSpec"] == {"secretStoreRef": {"kind": "Password", "name": "db"}}


RED, BLUE, GREY = Unready("red", "no store"), Unready("blue", "denied"), Unready("grey", "it has not reported yet")


@pytest.mark.parametrize(
    ("unready", "gaps", "expected"),
    [
        pytest.param(
            (RED,),
            Gaps(),
            ready("ChildrenNotReady", "1 namespace provisioned. 1 ExternalSecret is not ready: red: no store"),
            id="a child is not ready, and the parent still is",
        ),
        pytest.param(
            (RED, BLUE, GREY),
            Gaps(),
            ready(
                "ChildrenNotReady",
                "1 namespace provisioned. 3 ExternalSecrets are not ready: red: no store; blue: denied; and 1 more",
            ),
            id="of several the first are named",
        ),
        pytest.param(
            (),
            Gaps(names=("x", "y", "z"), selectors=("spec.namespaceSelectors[1]",)),
            ready(
                "NamespaceNotFound",
                "1 namespace provisioned. spec.namespaces names what does not exist: x; y; and 1 more."
                " No namespace matches spec.namespaceSelectors[1]",
            ),
            id="names that do not exist",
        ),
        pytest.param(
            (),
            Gaps(selectors=("spec.namespaceSelector",)),
            ready("NoNamespaceMatches", "1 namespace provisioned. No namespace matches spec.namespaceSelector"),
            id="a selector that matches nothing",
        ),
        pytest.param(
            (RED,),
            Gaps(names=("x",)),
            ready(
                "ChildrenNotReady",
                "1 namespace provisioned. 1 ExternalSecret is not ready: red: no store."
                " spec.namespaces names what does not exist: x",
            ),
            id="both: the message has all, the reason is the worse one",
        ),
    ],
)
def test_ready_tells_what_is_not_well(unready: tuple[Unready, ...], gaps: Gaps, expected: JsonObject) -> None:
    said = report_of(CLUSTER_EXTERNAL_SECRETS, parent(), Spread("db", (ChildPresent("a"),), unready, gaps), START)

    assert without_times(said.status)["conditions"] == [expected]
    assert said.events == ()


def test_the_time_of_the_condition_is_that_of_its_status() -> None:
    first = report(ChildPresent("a"))
    before = msgspec.to_builtins(first.status)
    later = START + timedelta(hours=1)

    more = report_of(
        CLUSTER_EXTERNAL_SECRETS, parent(before), Spread("db", (ChildPresent("a"), ChildPresent("b"))), later
    )
    broken = report_of(CLUSTER_EXTERNAL_SECRETS, parent(before), Spread("db", (ChildFailed("a", "no"),)), later)

    assert [said.status.conditions[0].last_transition_time for said in (first, more, broken)] == [
        rfc3339(START),
        rfc3339(START),
        rfc3339(later),
    ]


@pytest.mark.parametrize(
    ("results", "refresh_time", "then"),
    [
        pytest.param((ChildPresent("a"),), None, Requeue(3600.0), id="an hour unless it says otherwise"),
        pytest.param((ChildPresent("a"),), "90s", Requeue(90.0), id="after refreshTime"),
        pytest.param((ChildPresent("a"),), "1ms", Requeue(1.0), id="at most once a second"),
        pytest.param((ChildPresent("a"),), "0s", Done(), id="never with refreshTime 0, C17"),
        pytest.param((ChildPresent("a"),), 0, Done(), id="nor with the number"),
        pytest.param((ChildPresent("a"),), "-5m", Done(), id="nor with less"),
        pytest.param((ChildPresent("a"),), "soon", Requeue(3600.0), id="an invalid duration counts as an hour"),
        pytest.param((ChildBlocked("a", TAKEN),), "90s", Requeue(90.0), id="what stands in the way is not polled"),
        pytest.param(
            (ChildBlocked("b", TAKEN), ChildFailed("a", "no")),
            "0s",
            Backoff("namespace a failed"),
            id="a failure is retried",
        ),
    ],
)
def test_next_look(results: tuple[ChildResult, ...], refresh_time: int | str | None, then: Result) -> None:
    spec: dict[str, Any] = {} if refresh_time is None else {"refreshTime": refresh_time}

    assert report(*results, **spec).result == then


BEFORE = {"externalSecretName": "old", "provisionedNamespaces": ["a"]}


def test_a_spec_that_cannot_be_read_leaves_everything_as_it_was() -> None:
    """C14."""
    came = Unreadable('spec.namespaceSelector: "Is" is no operator')

    said = report_of(CLUSTER_EXTERNAL_SECRETS, parent(BEFORE, refreshTime="1m"), came, START)

    assert said.result == Requeue(60.0)
    assert without_times(said.status) == {
        **BEFORE,
        "failedNamespaces": [{"namespace": "unknown", "reason": came.reason}],
        "conditions": [ready("Errored", f"one or more namespaces failed: {came.reason}", "False")],
    }


def test_a_cluster_push_secret_that_cannot_be_read_has_a_reason() -> None:
    document: dict[str, Any] = {"metadata": {"name": "all"}, "spec": {"pushSecretSpec": {}}}
    found = msgspec.convert(document, StoredClusterPushSecret)

    said = report_of(CLUSTER_PUSH_SECRETS, found, Unreadable("broken"), START)

    assert said.status.conditions[0].reason == "Errored"


def test_only_new_failures_are_reported() -> None:
    first = report(ChildBlocked("a", TAKEN))
    same = report(ChildBlocked("a", TAKEN), status=msgspec.to_builtins(first.status))
    healed = report(ChildPresent("a"), status=msgspec.to_builtins(first.status))

    assert first.events == (Event(EventType.WARNING, "Errored", f"one or more namespaces failed: a: {TAKEN}"),)
    assert same.events == ()
    assert same.status == first.status
    assert healed.events == ()


def test_an_event_names_the_first_few_of_many_failures() -> None:
    (events,) = report(*(ChildFailed(f"n{index}", "no") for index in range(5))).events

    assert events.message == "one or more namespaces failed: n0: no; n1: no; n2: no; and 2 more"


def test_a_long_reason_is_cut() -> None:
    said = report(ChildFailed("a", "x" * 5000))

    assert len(said.status.failed_namespaces[0].reason.encode()) == 512
