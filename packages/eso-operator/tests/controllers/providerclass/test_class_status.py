"""From a provider's answer to the status of its class; and the class that a Service stands for."""

from datetime import UTC, datetime
from typing import Any

import pytest

from eso_api.v2.providerclass import ProviderClassSpec, ProviderClassStatus, ServedKind
from eso_operator.controllers.providerclass.services import class_of
from eso_operator.controllers.providerclass.status import CheckResult, Connected, NotConnected, report_of
from eso_operator.stores.resolved import ResolverSettings, ServiceKey
from eso_testkit.operator.clusters import SETTINGS, provider_service, serving
from eso_wire.values import KindId
from kubebase.testing.clock import START
from kuberun.controller import Backoff, Requeue
from kuberun.status import find_condition

NOTES = KindId("notes.example.com", "v1", "Notes")
NOTES_SERVED = ServedKind(group=NOTES.group, version=NOTES.version, kind=NOTES.kind)
SPEC = ProviderClassSpec(address="grpc://notes.eso.svc:8080")


def reported(result: CheckResult, spec: ProviderClassSpec = SPEC, before: ProviderClassStatus | None = None) -> Any:
    return report_of(spec, before or ProviderClassStatus(), result, now=START, interval=300.0)


@pytest.mark.parametrize(
    ("spec", "result", "status", "reason", "words"),
    [
        pytest.param(SPEC, Connected(serving(NOTES)), "True", "Connected", "test 1.0.0", id="it answers"),
        pytest.param(
            ProviderClassSpec(address=SPEC.address, serves=[NOTES_SERVED]),
            Connected(serving(NOTES)),
            "True",
            "Connected",
            "",
            id="it confirms what is declared of it",
        ),
        pytest.param(
            ProviderClassSpec(address=SPEC.address, serves=[NOTES_SERVED]),
            Connected(serving()),
            "False",
            "UnsupportedKind",
            "Notes.v1.notes.example.com",
            id="it does not serve what is declared of it",
        ),
        pytest.param(
            SPEC,
            NotConnected("ProviderIncompatible", "speaks 9.0, this operator speaks 2.1, 2.2"),
            "False",
            "ProviderIncompatible",
            "2.1, 2.2",
            id="no common protocol, R141",
        ),
        pytest.param(SPEC, NotConnected("UnknownCA", "x"), "False", "UnknownCA", "x", id="the cause is the reason"),
    ],
)
def test_ready_says_whether_the_provider_answers(
    spec: ProviderClassSpec, result: CheckResult, status: str, reason: str, words: str
) -> None:
    report = reported(result, spec)

    ready = find_condition(report.status.conditions, "Ready")
    assert ready is not None
    assert (ready.status, ready.reason) == (status, reason)
    assert words in ready.message
    assert isinstance(report.result, Requeue if status == "True" else Backoff)


def test_the_status_shows_what_the_provider_said() -> None:
    ends = datetime(2031, 1, 1, tzinfo=UTC)

    status = reported(Connected(serving(NOTES), certificate_ends=ends, endpoints=3)).status

    assert (status.protocol, status.provider_version, status.endpoints) == ("2.2", "1.0.0", 3)
    assert status.certificate.not_after == "2031-01-01T00:00:00Z"
    (kind,) = status.kinds
    assert (kind.group, kind.version, kind.kind) == tuple(NOTES)
    assert kind.operations == sorted(kind.operations)


def test_the_reported_kinds_stay_while_the_provider_is_unreachable() -> None:
    known = reported(Connected(serving(NOTES))).status

    away = reported(NotConnected("Refused", "x"), before=known)

    assert away.status.kinds == known.kinds
    assert [events.reason for events in away.events] == ["Refused"]


def test_a_provider_that_starts_says_what_it_waits_for_without_an_event() -> None:
    known = reported(Connected(serving(NOTES))).status

    waits = reported(NotConnected("CertificatesNotIssued", "no certificate yet", starts_within=40.0), before=known)
    then = reported(NotConnected("Refused", "nothing listens", starts_within=30.0), before=waits.status)
    failed = reported(NotConnected("Refused", "nothing listens"), before=then.status)

    said = [find_condition(report.status.conditions, "Ready") for report in (waits, then, failed)]
    assert [(each.status, each.reason, each.message) for each in said if each is not None] == [
        ("Unknown", "ProviderStarting", "CertificatesNotIssued: no certificate yet"),
        ("Unknown", "ProviderStarting", "Refused: nothing listens"),
        ("False", "Refused", "nothing listens"),
    ]
    assert (waits.events, then.events) == ((), ())
    assert isinstance(waits.result, Requeue)
    assert waits.result.delay == 40.0
    assert [events.reason for events in failed.events] == ["Refused"]


def test_the_same_answer_again_changes_nothing_and_tells_nothing() -> None:
    first = reported(Connected(serving(NOTES)))

    again = reported(Connected(serving(NOTES)), before=first.status)

    assert again.status == first.status
    assert again.events == ()


@pytest.mark.parametrize(
    ("service", "settings", "expected"),
    [
        pytest.param(
            provider_service("notes", "team"), SETTINGS, {"address": "grpc://notes.team.svc:8080"}, id="a Service"
        ),
        pytest.param(
            provider_service("notes", "team", kinds="Notes.v1.notes.example.com", v1_keys="b, a"),
            SETTINGS,
            {
                "address": "grpc://notes.team.svc:8080",
                "serves": [{"group": "notes.example.com", "version": "v1", "kind": "Notes"}],
                "v1ProviderKeys": ["a", "b"],
            },
            id="what its annotations declare",
        ),
        pytest.param(
            provider_service("notes", "team"),
            ResolverSettings("eso", trusted={ServiceKey("team", "notes"): "127.0.0.1:4000"}),
            {"address": "grpc://notes.team.svc:8080"},
            id="where it is dialled is not what it is called",
        ),
        pytest.param(
            provider_service("notes", "team", spec={"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]}),
            SETTINGS,
            None,
            id="no port to choose",
        ),
        pytest.param(
            provider_service("notes", "team", spec={"type": "ExternalName"}), SETTINGS, None, id="another host"
        ),
    ],
)
def test_the_class_of_a_service(service: Any, settings: ResolverSettings, expected: Any) -> None:
    found = class_of(service, settings)

    assert (found and found["spec"]) == expected
    if found is not None:
        (owner,) = found["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("Service", "notes", True)
