"""What is said about a fan-out, and when it is looked at again."""

from typing import Any

import msgspec
import pytest

from eso_operator.fanout.clusterexternalsecret import CLUSTER_EXTERNAL_SECRETS, StoredClusterExternalSecret
from eso_operator.fanout.clusterpushsecret import CLUSTER_PUSH_SECRETS, StoredClusterPushSecret
from eso_operator.fanout.outcome import Failed, Left, Reached, Refused, Report, Result, Spread, Unreadable, report_of
from eso_operator.sync.reporting import News
from kuberun.controller import After, Done, Outcome, Retry
from kuberun.events import EventType

TAKEN = "external secret already exists in namespace"


def parent(status: dict[str, Any] | None = None, **spec: Any) -> StoredClusterExternalSecret:
    document = {"metadata": {"name": "all"}, "spec": {"externalSecretSpec": {}, **spec}, "status": status or {}}
    return msgspec.convert(document, StoredClusterExternalSecret)


def report(*results: Result, status: dict[str, Any] | None = None, **spec: Any) -> Report:
    return report_of(CLUSTER_EXTERNAL_SECRETS, parent(status, **spec), Spread("db", results))


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        pytest.param((), {"conditions": [{"type": "Ready", "status": "True"}]}, id="nothing matches, C2"),
        pytest.param(
            (Reached("b"), Reached("a"), Left()),
            {"provisionedNamespaces": ["a", "b"], "conditions": [{"type": "Ready", "status": "True"}]},
            id="all have it: sorted, no message, no reason, no time, C1",
        ),
        pytest.param(
            (Failed("d", "denied"), Reached("b"), Refused("a", TAKEN)),
            {
                "provisionedNamespaces": ["b"],
                "failedNamespaces": [{"namespace": "a", "reason": TAKEN}, {"namespace": "d", "reason": "denied"}],
                "conditions": [{"type": "Ready", "status": "False", "message": "one or more namespaces failed"}],
            },
            id="some failed, the others are named too, C6",
        ),
        pytest.param(
            (Failed("a", "old one not deleted"), Reached("a")),
            {
                "provisionedNamespaces": ["a"],
                "failedNamespaces": [{"namespace": "a", "reason": "old one not deleted"}],
                "conditions": [{"type": "Ready", "status": "False", "message": "one or more namespaces failed"}],
            },
            id="a namespace has the new one, and still the old one",
        ),
        pytest.param(
            (Failed("a", "first"), Refused("a", "second")),
            {
                "failedNamespaces": [{"namespace": "a", "reason": "first"}],
                "conditions": [{"type": "Ready", "status": "False", "message": "one or more namespaces failed"}],
            },
            id="a namespace fails once",
        ),
    ],
)
def test_status(results: tuple[Result, ...], expected: dict[str, Any]) -> None:
    assert msgspec.to_builtins(report(*results).status) == {"externalSecretName": "db", **expected}


@pytest.mark.parametrize(
    ("results", "refresh_time", "then"),
    [
        pytest.param((Reached("a"),), None, After(3600.0), id="an hour unless it says otherwise"),
        pytest.param((Reached("a"),), "90s", After(90.0), id="after refreshTime"),
        pytest.param((Reached("a"),), "1ms", After(1.0), id="no more often than once a second"),
        pytest.param((Reached("a"),), "0s", Done(), id="never with refreshTime 0, C17"),
        pytest.param((Reached("a"),), 0, Done(), id="nor with the number"),
        pytest.param((Reached("a"),), "-5m", Done(), id="nor with less"),
        pytest.param((Reached("a"),), "soon", After(3600.0), id="what is no duration is an hour"),
        pytest.param((Refused("a", TAKEN),), "90s", After(90.0), id="what stands in the way is not polled"),
        pytest.param(
            (Refused("b", TAKEN), Failed("a", "no")), "0s", Retry("namespace a failed"), id="a failure is retried"
        ),
    ],
)
def test_next_look(results: tuple[Result, ...], refresh_time: int | str | None, then: Outcome) -> None:
    spec: dict[str, Any] = {} if refresh_time is None else {"refreshTime": refresh_time}

    assert report(*results, **spec).then == then


BEFORE = {"externalSecretName": "old", "provisionedNamespaces": ["a"]}


def test_a_spec_that_cannot_be_read_leaves_everything_as_it_was() -> None:
    """C14."""
    came = Unreadable('spec.namespaceSelector: "Is" is no operator')

    said = report_of(CLUSTER_EXTERNAL_SECRETS, parent(BEFORE, refreshTime="1m"), came)

    assert said.then == After(60.0)
    assert msgspec.to_builtins(said.status) == {
        **BEFORE,
        "failedNamespaces": [{"namespace": "unknown", "reason": came.reason}],
        "conditions": [{"type": "Ready", "status": "False", "message": "one or more namespaces failed"}],
    }


def test_a_cluster_push_secret_that_cannot_be_read_has_a_reason() -> None:
    document: dict[str, Any] = {"metadata": {"name": "all"}, "spec": {"pushSecretSpec": {}}}
    found = msgspec.convert(document, StoredClusterPushSecret)

    said = report_of(CLUSTER_PUSH_SECRETS, found, Unreadable("broken"))

    assert said.status.conditions[0].reason == "Errored"


def test_failures_are_told_when_they_are_news() -> None:
    first = report(Refused("a", TAKEN))
    same = report(Refused("a", TAKEN), status=msgspec.to_builtins(first.status))
    healed = report(Reached("a"), status=msgspec.to_builtins(first.status))

    assert first.news == (News(EventType.WARNING, "Errored", f"one or more namespaces failed: a: {TAKEN}"),)
    assert same.news == ()
    assert same.status == first.status
    assert healed.news == ()


def test_of_many_failures_an_event_names_a_few() -> None:
    (news,) = report(*(Failed(f"n{index}", "no") for index in range(5))).news

    assert news.message == "one or more namespaces failed: n0: no; n1: no; n2: no; and 2 more"


def test_a_long_reason_is_cut() -> None:
    said = report(Failed("a", "x" * 5000))

    assert len(said.status.failed_namespaces[0].reason.encode()) == 512
