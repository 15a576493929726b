"""The changes in messages of a queue, and the watches that they concern."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eso_provider_aws.changes.events import Change, NotAnEventError, Topics, change_in, parameter_names, secret_names
from eso_provider_aws.changes.watcher import LOG_ENTRIES, MAX_PENDING, Queue
from eso_provider_aws.testing.sessions import REGION, by_sns, key, parameter_event, secret_arn, secret_event
from eso_wire.values import WatchItem

ARN = secret_arn("app/db")
SERVICE_EVENT = "AWS Service Event via CloudTrail"


def topics(*items: WatchItem, service: str = "secretsmanager", prefix: str = "") -> Topics:
    naming = secret_names if service == "secretsmanager" else parameter_names
    return Topics(items, service=service, region=REGION, prefix=prefix, naming=naming)


def change(body: str) -> Change:
    found = change_in(body)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("body", "deleted"),
    [
        pytest.param(secret_event("PutSecretValue", "app/db"), False, id="a value put by name"),
        pytest.param(secret_event("PutSecretValue", ARN), False, id="a value put by ARN"),
        pytest.param(secret_event("PutSecretValue", ARN[:-7]), False, id="a value put by an ARN without its end"),
        pytest.param(secret_event("UpdateSecret", "app/db"), False, id="an update"),
        pytest.param(secret_event("UpdateSecretVersionStage", "app/db"), False, id="a stage that moved"),
        pytest.param(secret_event("RestoreSecret", "app/db"), False, id="a deletion taken back"),
        pytest.param(secret_event("TagResource", "app/db"), False, id="tags"),
        pytest.param(secret_event("DeleteSecret", "app/db"), True, id="a deletion"),
        pytest.param(
            secret_event("CreateSecret", "", requestParameters={"name": "app/db"}), False, id="a secret created"
        ),
        pytest.param(
            secret_event("UpdateSecret", "", requestParameters=None, responseElements={"aRN": ARN}),
            False,
            id="an ARN in the answer, spelled as CloudTrail does at times",
        ),
        pytest.param(
            secret_event(
                "RotationSucceeded",
                "",
                kind=SERVICE_EVENT,
                requestParameters=None,
                additionalEventData={"SecretId": ARN},
            ),
            False,
            id="a rotation",
        ),
        pytest.param(by_sns(secret_event("PutSecretValue", "app/db")), False, id="through SNS"),
    ],
)
def test_an_event_that_changes_a_secret_reaches_its_watch(body: str, *, deleted: bool) -> None:
    found = change(body)

    assert found.deleted is deleted
    assert topics(key("app/db")).concerned(found) == ("app/db",)
    assert topics(key(ARN)).concerned(found) == (ARN,)
    assert topics(key("db"), prefix="app/").concerned(found) == ("db",)
    assert topics(WatchItem("names", name_regexp="^app/")).concerned(found) == ("names",)
    assert topics(WatchItem("tags", tags={"team": "blue"})).concerned(found) == ("tags",)
    assert topics(key("app/other"), key("db"), WatchItem("names", name_regexp="^other")).concerned(found) == ()
    assert topics(key("app/db"), service="ssm").concerned(found) == ()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(secret_event("GetSecretValue", "app/db"), id="a read"),
        pytest.param(secret_event("RotateSecret", "app/db"), id="a rotation that begins"),
        pytest.param(secret_event("RotationFailed", "app/db", kind=SERVICE_EVENT), id="a rotation that failed"),
        pytest.param(secret_event("PutSecretValue", "app/db", errorCode="AccessDenied"), id="a call that was refused"),
        pytest.param(secret_event("PutSecretValue", "", requestParameters=[1]), id="no secret at all"),
        pytest.param(json.dumps({"source": "aws.ec2", "detail-type": "state", "detail": {}}), id="another service"),
        pytest.param(json.dumps({"source": "aws.ssm", "detail-type": 7, "detail": {}}), id="a type that is none"),
    ],
)
def test_an_event_that_changes_nothing_is_not_announced(body: str) -> None:
    assert change_in(body) is None


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("", id="nothing"),
        pytest.param("no JSON", id="text"),
        pytest.param("[]", id="a list"),
        pytest.param("{}", id="an empty object"),
        pytest.param("[" * 100_000, id="a deep one"),
        pytest.param(json.dumps({"source": "aws.ssm", "detail": []}), id="no details"),
        pytest.param(json.dumps({"Type": "Notification", "Message": "hello"}), id="an unrelated SNS message"),
    ],
)
def test_a_message_that_is_not_an_event_is_refused(body: str) -> None:
    with pytest.raises(NotAnEventError):
        change_in(body)


@pytest.mark.parametrize(
    ("operation", "deleted"),
    [("Create", False), ("Update", False), ("Delete", True), ("LabelParameterVersion", False)],
)
def test_an_event_that_changes_a_parameter_reaches_its_watch(operation: str, *, deleted: bool) -> None:
    found = change(parameter_event(operation, "/app/db"))
    arn = f"arn:aws:ssm:{REGION}:123456789012:parameter/app/db"

    assert found.deleted is deleted
    assert topics(key("/app/db"), key(arn), key("/app"), service="ssm").concerned(found) == ("/app/db", arn)
    assert topics(key("/app/db")).concerned(found) == ()


def test_an_expired_parameter_is_gone() -> None:
    detail: dict[str, Any] = {"parameter-name": "/app/db", "policy-type": "Expiration"}
    event = {"source": "aws.ssm", "detail-type": "Parameter Store Policy Action", "region": REGION, "detail": detail}

    assert change(json.dumps(event)).deleted
    detail["policy-type"] = "ExpirationNotification"
    assert change_in(json.dumps(event)) is None


def test_a_pending_version_causes_no_event_for_watches_of_the_current_version() -> None:
    request = {"secretId": "app/db", "versionStages": ["AWSPENDING"]}
    pending = change(secret_event("PutSecretValue", "", requestParameters=request))
    present = change(secret_event("PutSecretValue", "", requestParameters=request | {"versionStages": ["AWSCURRENT"]}))
    watched = topics(key("app/db"), WatchItem("next", key("app/db", version="AWSPENDING").ref), WatchItem("all"))

    assert watched.concerned(pending) == ("next",)
    assert watched.concerned(present) == ("app/db", "next", "all")


def test_a_secret_of_another_region_is_another_secret() -> None:
    event = json.loads(secret_event("PutSecretValue", "app/db")) | {"region": "us-east-1"}

    assert topics(key("app/db")).concerned(change(json.dumps(event))) == ()


def test_a_pattern_that_is_none_does_not_keep_others_from_events() -> None:
    watched = topics(WatchItem("broken", name_regexp="("), key("app/db"))

    assert watched.concerned(change(secret_event("UpdateSecret", "app/db"))) == ("app/db",)


# --- the memory of a queue -------------------------------------------------------------------------------------------


def message(number: int, body: str = "") -> dict[str, str]:
    body = body or secret_event("PutSecretValue", "app/db")
    return {"MessageId": f"id-{number}", "ReceiptHandle": f"handle-{number}", "Body": body}


def test_messages_that_are_never_acknowledged_do_not_pile_up() -> None:
    queue, listener = Queue(), object()
    with queue.listening(listener, topics(key("app/db"))):
        first = message(0)
        kept = queue.take([first, *(message(number) for number in range(1, MAX_PENDING + 1))], 0.0)
        again = queue.take([first], 0.0)

    assert kept == again == []
    assert queue.position == MAX_PENDING + 2
    assert len(queue.acknowledge(listener, queue.position)) == MAX_PENDING


def test_a_watch_that_is_too_far_behind_gets_no_partial_replay() -> None:
    queue = Queue()
    with queue.listening(object(), topics(key("app/db"))):
        queue.take((message(number) for number in range(LOG_ENTRIES + 1)), 0.0)

    assert queue.since(0) is None
    assert queue.since(queue.position + 1) is None
    assert len(queue.since(1) or ()) == LOG_ENTRIES
    assert queue.since(queue.position) == []


def test_messages_announced_only_to_a_closed_store_are_delivered_again_to_others() -> None:
    queue, gone, other = Queue(), object(), object()
    with queue.listening(gone, topics(key("app/db"))):
        queue.take([message(1)], 0.0)
    queue.leave(gone)

    with queue.listening(other, topics(key("app/db"))):
        assert queue.take([message(1)], 0.0) == []
    assert queue.acknowledge(other, queue.position) == ["handle-1"]


def test_a_copy_of_an_event_is_deleted_and_not_announced() -> None:
    queue, body = Queue(), secret_event("PutSecretValue", "app/db")
    with queue.listening(object(), topics(key("app/db"))):
        assert queue.take([message(1, body), message(2, body)], 0.0) == ["handle-2"]

    assert queue.position == 1
