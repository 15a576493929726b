"""The story of `eso why`: which step is to blame, what is said about it, and when it is tried again."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from eso_api.externalsecret import ExternalSecret
from eso_api.pushsecret import PushSecret
from eso_cli.evidence import Evidence, Look, Recorded, Sight, Source
from eso_cli.routes import Route
from eso_cli.story import Mark, Step, Story, story_of
from eso_operator.externalsecret.refresh import current_version
from eso_operator.targets.marks import HASH_ANNOTATION
from kuberun.clock import rfc3339
from kuberun.meta import Condition, ObjectKey, ObjectMeta, OwnerReference
from kuberun.testing.clock import START as NOW

SOON = rfc3339(NOW + timedelta(minutes=4))
LATELY = rfc3339(NOW - timedelta(minutes=3))
OUTCOME = {"path": "spec.data[0]", "reason": "SecretNotFound", "remoteKey": "db/pw", "store": "SecretStore vault"}


def ready(status: str = "True", reason: str = "SecretSynced", message: str = "") -> Condition:
    return Condition(type="Ready", status=status, reason=reason, message=message)


def failed(message: str) -> dict[str, Any]:
    condition = {"type": "Ready", "status": "False", "reason": "SecretSyncedError", "message": message}
    return {"conditions": [condition], "nextAttemptTime": SOON}


def external_secret(status: dict[str, Any] | None = None, **spec: Any) -> ExternalSecret:
    entry = {"secretKey": "pw", "remoteRef": {"key": "db/pw"}}
    document = {
        "metadata": {"name": "db", "namespace": "app", "uid": "mine", "generation": 1},
        "spec": {"secretStoreRef": {"name": "vault"}, "data": [entry], **spec},
        "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "SecretSynced"}]},
    }
    made = msgspec.convert(document, ExternalSecret)
    good = {**document["status"], "refreshTime": LATELY, "syncedResourceVersion": current_version(made)}
    return msgspec.convert({**document, "status": status if status is not None else good}, ExternalSecret)


def push_secret(status: dict[str, Any]) -> PushSecret:
    match = {"secretKey": "pw", "remoteRef": {"remoteKey": "db/pw"}}
    spec = {
        "secretStoreRefs": [{"name": "vault"}],
        "selector": {"secret": {"name": "db"}},
        "data": [{"match": match}],
    }
    document = {"metadata": {"name": "db", "namespace": "app"}, "spec": spec, "status": status}
    return msgspec.convert(document, PushSecret)


def seen(kind: str, name: str, *conditions: Condition) -> Sight:
    return Sight(kind, ObjectKey("app", name), conditions=conditions)


def absent(kind: str, name: str) -> Sight:
    return Sight(kind, ObjectKey("app", name), Look.ABSENT, "does not exist")


OWN = OwnerReference(api_version="v1", kind="ExternalSecret", name="db", uid="mine", controller=True)
FOREIGN = OwnerReference(api_version="v1", kind="Widget", name="boss", uid="theirs", controller=True)
PROVIDER = seen("ClusterProviderClass", "vault", ready(reason="Connected"))
STORE = Source(seen("SecretStore", "vault", ready(reason="Valid")), True, Route("spec.provider.vault"), (PROVIDER,))
TARGET = replace(seen("Secret", "db"), metadata=ObjectMeta(annotations={HASH_ANNOTATION: "h"}, owner_references=[OWN]))
NO_STORE = absent("SecretStore", "vault")
NO_TARGET = absent("Secret", "db")
WELL = Evidence(external_secret(), (STORE,), (), (TARGET,))
TEMPLATE = {"target": {"template": {"templateFrom": [{"configMap": {"name": "t", "items": [{"key": "k"}]}}]}}}


def flat(story: Story) -> list[Step]:
    return [story.head, *(each for step in story.steps for each in (step, *step.below))]


def test_a_chain_without_trouble_is_good_at_every_step() -> None:
    story = story_of(WELL, NOW)

    assert story.healthy
    assert [(step.name, step.mark) for step in flat(story)] == [
        ("object", Mark.GOOD),
        ("store", Mark.GOOD),
        ("provider", Mark.GOOD),
        ("entry", Mark.GOOD),
        ("target", Mark.GOOD),
    ]
    assert story.head.notes == (f"last refresh: {LATELY} (3 min ago)",)


BROKEN_PROVIDER = replace(PROVIDER, conditions=(ready("False", "ConnectionRefused", "nobody listens"),))
BROKEN_STORE = replace(STORE.sight, conditions=(ready("False", "InvalidProviderConfig", "no token"),))


@pytest.mark.parametrize(
    ("evidence", "cause"),
    [
        pytest.param(
            replace(WELL, subject=external_secret(failed("could not get…")), sources=(replace(STORE, sight=NO_STORE),)),
            "SecretStore vault: does not exist",
            id="a store that is not there",
        ),
        pytest.param(
            replace(
                WELL,
                subject=external_secret({**failed("x"), "outcomes": [OUTCOME]}),
                sources=(replace(STORE, sight=BROKEN_STORE),),
            ),
            "SecretStore vault: InvalidProviderConfig: no token",
            id="a store that is not valid comes before what could not be read from it",
        ),
        pytest.param(
            replace(
                WELL,
                subject=external_secret(failed("x")),
                sources=(replace(STORE, sight=BROKEN_STORE, providers=(BROKEN_PROVIDER,)),),
            ),
            "provider ClusterProviderClass vault: ConnectionRefused: nobody listens",
            id="a provider that does not answer comes before its store",
        ),
        pytest.param(
            replace(WELL, subject=external_secret({**failed("x"), "outcomes": [OUTCOME]}), secrets=(NO_TARGET,)),
            "spec.data[0] (key db/pw) at SecretStore vault: SecretNotFound",
            id="an entry that the backend does not have comes before the Secret that is missing for it",
        ),
        pytest.param(
            replace(WELL, subject=external_secret(failed("could not get secret data from provider: x"))),
            "entries: could not get secret data from provider: x",
            id="entries, of which none is named",
        ),
        pytest.param(
            replace(WELL, subject=external_secret(failed("could not update secret: template at key a: x"), **TEMPLATE)),
            "template: could not update secret: template at key a: x",
            id="a template that does not render",
        ),
        pytest.param(
            replace(
                WELL,
                subject=external_secret(failed("could not update secret: no template"), **TEMPLATE),
                templates=(absent("ConfigMap", "t"),),
            ),
            "ConfigMap t: does not exist",
            id="a ConfigMap with templates that is not there",
        ),
        pytest.param(
            replace(WELL, subject=external_secret(failed("could not update secret: forbidden"))),
            "Secret db: could not update secret: forbidden",
            id="a Secret that cannot be written",
        ),
        pytest.param(
            replace(WELL, subject=external_secret(failed("invalid ExternalSecret: spec: x"))),
            "ExternalSecret app/db: SecretSyncedError: invalid ExternalSecret: spec: x",
            id="what belongs to no step stays with the object",
        ),
        pytest.param(
            replace(
                WELL,
                subject=external_secret(failed("target is owned by another ExternalSecret: other")),
                secrets=(replace(TARGET, metadata=ObjectMeta(owner_references=[FOREIGN])),),
            ),
            "Secret db: target is owned by another ExternalSecret: other",
            id="a Secret of somebody else",
        ),
    ],
)
def test_the_first_step_that_is_broken_is_the_cause_and_says_when_it_is_tried_again(
    evidence: Evidence, cause: str
) -> None:
    story = story_of(evidence, NOW)

    assert story.cause is not None
    assert story.cause.what == cause
    assert story.cause.notes[-1] == f"next attempt: {SOON} (in 4 min)"
    assert story.next_attempt_time == SOON
    assert sum("next attempt" in note for step in flat(story) for note in step.notes) == 1


@pytest.mark.parametrize(
    ("evidence", "cause"),
    [
        pytest.param(replace(WELL, subject=external_secret({})), "does an operator run", id="nobody looked at it"),
        pytest.param(replace(WELL, secrets=(NO_TARGET,)), "Secret db: does not exist", id="a Secret that vanished"),
        pytest.param(
            replace(WELL, subject=external_secret(target={"creationPolicy": "Merge"}), secrets=(NO_TARGET,)),
            "Merge waits for somebody to create it",
            id="a Secret that somebody else must create",
        ),
        pytest.param(
            replace(WELL, secrets=(replace(TARGET, metadata=ObjectMeta(owner_references=[FOREIGN])),)),
            "it belongs to Widget boss",
            id="a Secret that somebody else owns",
        ),
        pytest.param(absent("ExternalSecret", "db"), "ExternalSecret app/db: does not exist", id="no such object"),
    ],
)
def test_trouble_that_no_condition_tells_of_is_told(evidence: Evidence | Sight, cause: str) -> None:
    story = story_of(evidence, NOW)

    assert story.cause is not None
    assert cause in story.cause.what
    assert not any("next attempt" in note for step in flat(story) for note in step.notes)


@pytest.mark.parametrize(
    "evidence",
    [
        pytest.param(
            replace(WELL, sources=(replace(STORE, providers=(PROVIDER, BROKEN_PROVIDER)),)),
            id="one of several providers, of which one works",
        ),
        pytest.param(replace(WELL, sources=(replace(STORE, providers=()),)), id="a provider that no class declares"),
        pytest.param(
            replace(WELL, sources=(replace(STORE, sight=Sight("S", ObjectKey("", "s"), Look.HIDDEN, "hidden")),)),
            id="a store that may not be read",
        ),
        pytest.param(
            replace(WELL, secrets=(Sight("Secret", ObjectKey("app", "db"), Look.HIDDEN, "hidden"),)),
            id="a Secret that may not be read",
        ),
        pytest.param(
            replace(WELL, sources=(replace(STORE, sight=replace(STORE.sight, conditions=())),)),
            id="a store that was not validated yet",
        ),
    ],
)
def test_what_is_not_known_is_no_trouble(evidence: Evidence) -> None:
    story = story_of(evidence, NOW)

    assert story.healthy
    assert Mark.OPEN in {step.mark for step in flat(story)}


@pytest.mark.parametrize(
    ("subject", "secrets"),
    [
        pytest.param(external_secret(target={"creationPolicy": "None"}), (NO_TARGET,), id="creationPolicy None"),
        pytest.param(
            external_secret({"conditions": [{"type": "Ready", "status": "True", "reason": "SecretDeleted"}]}),
            (NO_TARGET,),
            id="deletionPolicy Delete",
        ),
    ],
)
def test_a_secret_that_should_not_be_there_is_not_missed(subject: ExternalSecret, secrets: tuple[Sight, ...]) -> None:
    assert story_of(replace(WELL, subject=subject, secrets=secrets), NOW).healthy


def test_a_refresh_that_is_overdue_is_noted() -> None:
    subject = external_secret(refreshInterval="1h")

    story = story_of(replace(WELL, subject=subject), NOW + timedelta(hours=2))

    assert any("overdue" in note for note in story.head.notes)


def test_a_spec_that_changed_since_the_last_refresh_is_noted() -> None:
    subject = external_secret()
    subject.metadata.generation = 2

    assert "changed since then" in story_of(replace(WELL, subject=subject), NOW).head.notes


def test_many_failed_entries_are_told_in_part() -> None:
    outcomes = [{**OUTCOME, "path": f"spec.data[{index}]"} for index in range(30)]

    story = story_of(replace(WELL, subject=external_secret({**failed("x"), "outcomes": outcomes})), NOW)

    entries = [step.what for step in story.steps if step.name == "entry"]
    assert len(entries) == 11
    assert entries[-1] == "and 20 more in status.outcomes"


PUSHED = {"SecretStore/vault": {"db/pw": {"match": {"secretKey": "pw", "remoteRef": {"remoteKey": "db/pw"}}}}}
SYNCED = [{"type": "Ready", "status": "True", "reason": "Synced"}]


@pytest.mark.parametrize(
    ("status", "source", "said"),
    [
        pytest.param(
            {"conditions": SYNCED, "syncedPushSecrets": PUSHED},
            seen("Secret", "db"),
            "entries: 1 in SecretStore/vault pushed",
            id="everything is pushed",
        ),
        pytest.param(
            failed("could not get source secret: x"), absent("Secret", "db"), "Secret db: does not", id="no source"
        ),
        pytest.param(
            {**failed("could not set secret: x"), "outcomes": [OUTCOME]},
            seen("Secret", "db"),
            "spec.data[0] (key db/pw) at SecretStore vault: SecretNotFound",
            id="an entry that was refused",
        ),
    ],
)
def test_a_push_is_told_from_its_secret_to_its_stores(status: dict[str, Any], source: Sight, said: str) -> None:
    story = story_of(Evidence(push_secret(status), (STORE,), (), (source,)), NOW)

    assert [step.name for step in story.steps] == ["source", "store", "entry"]
    told = story.cause or story.steps[-1]
    assert told.what.startswith(said)
    assert story.healthy == (status["conditions"] is SYNCED)
    assert story.next_attempt_time == ("" if story.healthy else SOON)


def test_events_are_passed_on() -> None:
    event = Recorded(type="Warning", reason="UpdateFailed", message="x")

    assert story_of(replace(WELL, events=(event,)), NOW).events == (event,)
