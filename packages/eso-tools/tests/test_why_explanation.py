"""The explanation of `eso why`: the failed step, its message, and the time of the next attempt."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from eso_api.externalsecret import EXTERNAL_SECRET, ExternalSecret
from eso_api.pushsecret import PUSH_SECRET, PushSecret
from eso_operator.controllers.refresh import current_version
from eso_operator.stores.resolve import Stage
from eso_operator.stores.resolved import Reason
from eso_operator.targets.metadata import HASH_ANNOTATION
from eso_tools.objects import ObjectSummary, ReadState, RecordedEvent
from eso_tools.why.explanation import Explanation, Finding, Mark, explanation_of
from eso_tools.why.inputs import Inputs, Source
from eso_tools.why.path import ENDPOINT, ProviderPath
from kubebase.clock import rfc3339
from kubebase.meta import Condition, ObjectKey, ObjectMeta, OwnerReference
from kubebase.testing.clock import START as NOW

SOON = rfc3339(NOW + timedelta(minutes=4))
LATELY = rfc3339(NOW - timedelta(minutes=3))
OUTCOME = {"path": "spec.data[0]", "reason": "SecretNotFound", "remoteKey": "db/pw", "store": "SecretStore vault"}


def ready(status: str = "True", reason: str = "SecretSynced", message: str = "") -> Condition:
    return Condition(type="Ready", status=status, reason=reason, message=message)


def failed(message: str, step: str = "") -> dict[str, Any]:
    condition = {"type": "Ready", "status": "False", "reason": "SecretSyncedError", "message": message}
    outcomes = [{"path": "spec", "reason": "ApiServer", "step": step, "message": message}] if step else []
    return {"conditions": [condition], "outcomes": outcomes, "nextAttemptTime": SOON}


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


def seen(kind: str, name: str, *conditions: Condition) -> ObjectSummary:
    return ObjectSummary(kind, ObjectKey("app", name), conditions=conditions)


def absent(kind: str, name: str) -> ObjectSummary:
    return ObjectSummary(kind, ObjectKey("app", name), ReadState.ABSENT, "does not exist")


OWN = OwnerReference(api_version="v1", kind="ExternalSecret", name="db", uid="mine", controller=True)
FOREIGN = OwnerReference(api_version="v1", kind="Widget", name="boss", uid="theirs", controller=True)
PROVIDER = seen("ClusterProviderClass", "vault", ready(reason="Connected"))
STORE = Source(seen("SecretStore", "vault", ready(reason="Valid")), ProviderPath(provider=PROVIDER))
TARGET = replace(seen("Secret", "db"), metadata=ObjectMeta(annotations={HASH_ANNOTATION: "h"}, owner_references=[OWN]))
NO_STORE = Source(
    ObjectSummary("SecretStore", ObjectKey("app", "vault"), ReadState.ABSENT, "there is no SecretStore vault"),
    ProviderPath((Stage("object", "there is no SecretStore vault", Reason.NOT_FOUND),)),
)
NO_TARGET = absent("Secret", "db")
TEMPLATE = {"target": {"template": {"templateFrom": [{"configMap": {"name": "t", "items": [{"key": "k"}]}}]}}}


GOOD = external_secret()


def well(subject: ExternalSecret | PushSecret = GOOD, **fields: Any) -> Inputs:
    """Return inputs with healthy objects around the subject, except `fields`."""
    kind = EXTERNAL_SECRET if isinstance(subject, ExternalSecret) else PUSH_SECRET
    summary = ObjectSummary(kind.name, subject.metadata.key, conditions=tuple(subject.status.conditions))
    return replace(Inputs(kind, summary, subject, (STORE,), (), (TARGET,)), **fields)


def not_found(reason: Reason) -> ProviderPath:
    return ProviderPath((Stage(ENDPOINT, "no installed provider handles it", reason),))


def flat(explanation: Explanation) -> list[Finding]:
    return [explanation.head, *(each for step in explanation.steps for each in step)]


@pytest.mark.parametrize(
    ("reason", "healthy"),
    [
        pytest.param("FeedsItself", False, id="a loop"),
        pytest.param("SharedPlace", True, id="a place that may be shared by intention"),
    ],
)
def test_a_conflict_is_the_cause_and_other_conditions_are_notes(reason: str, healthy: bool) -> None:
    told = Condition(type="Contended", status="True", reason=reason, message="PushSecret back pushes it")
    status = {"conditions": [msgspec.to_builtins(each) for each in (ready(), told)], "refreshTime": LATELY}

    explanation = explanation_of(well(external_secret(status)), NOW)

    assert explanation.healthy is healthy
    cause = "" if explanation.cause is None else f"{explanation.cause.state}: {explanation.cause.message}"
    assert cause == ("" if healthy else "Contended: PushSecret back pushes it")
    assert ("Contended: PushSecret back pushes it" in explanation.head.notes) is healthy


def test_a_chain_without_trouble_is_good_at_every_step() -> None:
    explanation = explanation_of(well(), NOW)

    assert explanation.healthy
    assert [(step.name, step.mark) for step in flat(explanation)] == [
        ("object", Mark.GOOD),
        ("provider", Mark.GOOD),
        ("store", Mark.GOOD),
        ("entry", Mark.GOOD),
        ("target", Mark.GOOD),
    ]
    recorded = "a refresh that changes nothing is recorded there every 5 min"
    assert explanation.head.notes == (f"last refresh in the status: {LATELY} (3 min ago); {recorded}",)


BROKEN_PROVIDER = replace(PROVIDER, conditions=(ready("False", "ConnectionRefused", "connection refused"),))
BROKEN_STORE = replace(STORE.summary, conditions=(ready("False", "InvalidProviderConfig", "no token"),))


@pytest.mark.parametrize(
    ("inputs", "cause"),
    [
        pytest.param(
            well(external_secret(failed("could not get…")), sources=(NO_STORE,)),
            "SecretStore vault: StoreNotFound: there is no SecretStore vault",
            id="a store that is not there",
        ),
        pytest.param(
            well(
                external_secret({**failed("x"), "outcomes": [OUTCOME]}),
                sources=(replace(STORE, summary=BROKEN_STORE),),
            ),
            "SecretStore vault: InvalidProviderConfig: no token",
            id="a store that is not valid comes before what could not be read from it",
        ),
        pytest.param(
            well(
                external_secret(failed("x")),
                sources=(Source(BROKEN_STORE, ProviderPath(provider=BROKEN_PROVIDER)),),
            ),
            "provider ClusterProviderClass vault: ConnectionRefused: connection refused",
            id="a provider that does not answer comes before its store",
        ),
        pytest.param(
            well(
                external_secret(failed("x")),
                sources=(Source(BROKEN_STORE, not_found(Reason.NOT_INSTALLED)),),
            ),
            "provider: ProviderNotInstalled: no installed provider handles it",
            id="a provider that is not installed comes before the store that is not ready without it",
        ),
        pytest.param(
            well(
                external_secret({**failed("x"), "outcomes": [OUTCOME]}),
                sources=(
                    replace(STORE, path=ProviderPath((Stage("namespace", "not for app", Reason.NAMESPACE_DENIED),))),
                ),
            ),
            "SecretStore vault: NamespaceDenied: not for app",
            id="a store that does not allow the namespace",
        ),
        pytest.param(
            well(external_secret({**failed("x"), "outcomes": [OUTCOME]}), objects=(NO_TARGET,)),
            "spec.data[0] (key db/pw) at SecretStore vault: SecretNotFound",
            id="an entry that the backend does not have comes before the Secret that is missing for it",
        ),
        pytest.param(
            well(external_secret(failed("x", "Fetch"))),
            "spec: ApiServer: x",
            id="entries, of which none is named",
        ),
        pytest.param(
            well(
                external_secret(failed("could not update secret: template at key a: x", "Render"), **TEMPLATE),
            ),
            "template: cannot be rendered: could not update secret: template at key a: x",
            id="a template that does not render",
        ),
        pytest.param(
            well(
                external_secret(failed("could not update secret: no template", "Render"), **TEMPLATE),
                templates=(absent("ConfigMap", "t"),),
            ),
            "ConfigMap t: does not exist",
            id="a ConfigMap with templates that is not there",
        ),
        pytest.param(
            well(external_secret(failed("could not update secret: forbidden", "Write"))),
            "Secret db: ApiServer: could not update secret: forbidden",
            id="a Secret that cannot be written",
        ),
        pytest.param(
            well(external_secret(failed("invalid ExternalSecret: spec: x", "Validate"))),
            "ExternalSecret app/db: SecretSyncedError: invalid ExternalSecret: spec: x",
            id="what belongs to no step stays with the object",
        ),
        pytest.param(
            well(
                external_secret(failed("target is owned by another ExternalSecret: other", "Write")),
                objects=(replace(TARGET, metadata=ObjectMeta(owner_references=[FOREIGN])),),
            ),
            "Secret db: ApiServer: target is owned by another ExternalSecret: other",
            id="a Secret of another ExternalSecret",
        ),
    ],
)
def test_the_first_step_that_is_broken_is_the_cause_and_says_when_it_is_tried_again(inputs: Inputs, cause: str) -> None:
    explanation = explanation_of(inputs, NOW)

    assert explanation.cause is not None
    assert explanation.cause.what == cause
    assert explanation.cause.notes[-1] == f"next attempt: {SOON} (in 4 min)"
    assert explanation.next_attempt_time == SOON
    assert sum("next attempt" in note for step in flat(explanation) for note in step.notes) == 1


@pytest.mark.parametrize(
    ("inputs", "cause"),
    [
        pytest.param(well(external_secret({})), "does an operator run", id="no operator reconciled it"),
        pytest.param(well(objects=(NO_TARGET,)), "Secret db: does not exist", id="a Secret that vanished"),
        pytest.param(
            well(external_secret(target={"creationPolicy": "Merge"}), objects=(NO_TARGET,)),
            "Merge does not create it",
            id="a Secret that another client must create",
        ),
        pytest.param(
            well(objects=(replace(TARGET, metadata=ObjectMeta(owner_references=[FOREIGN])),)),
            "it belongs to Widget boss",
            id="a Secret that another object owns",
        ),
        pytest.param(absent("ExternalSecret", "db"), "ExternalSecret app/db: does not exist", id="no such object"),
    ],
)
def test_a_problem_without_a_condition_is_shown(inputs: Inputs | ObjectSummary, cause: str) -> None:
    explanation = explanation_of(inputs, NOW)

    assert explanation.cause is not None
    assert cause in explanation.cause.what
    assert not any("next attempt" in note for step in flat(explanation) for note in step.notes)


@pytest.mark.parametrize(
    "inputs",
    [
        pytest.param(
            well(sources=(replace(STORE, path=not_found(Reason.NOT_INSTALLED)),)),
            id="a provider that only other flags of the operator explain",
        ),
        pytest.param(
            well(sources=(replace(STORE, path=ProviderPath(unreadable="you may not list classes")),)),
            id="classes that are hidden",
        ),
        pytest.param(
            well(
                sources=(
                    replace(STORE, summary=ObjectSummary("S", ObjectKey("", "s"), ReadState.UNREADABLE, "hidden")),
                )
            ),
            id="a store that may not be read",
        ),
        pytest.param(
            well(objects=(ObjectSummary("Secret", ObjectKey("app", "db"), ReadState.UNREADABLE, "hidden"),)),
            id="a Secret that may not be read",
        ),
        pytest.param(
            well(sources=(replace(STORE, summary=replace(STORE.summary, conditions=())),)),
            id="a store that was not validated yet",
        ),
    ],
)
def test_an_unknown_fact_does_not_count_as_a_problem(inputs: Inputs) -> None:
    explanation = explanation_of(inputs, NOW)

    assert explanation.healthy
    assert Mark.OPEN in {step.mark for step in flat(explanation)}


@pytest.mark.parametrize(
    ("subject", "objects"),
    [
        pytest.param(external_secret(target={"creationPolicy": "None"}), (NO_TARGET,), id="creationPolicy None"),
        pytest.param(
            external_secret({"conditions": [{"type": "Ready", "status": "True", "reason": "SecretDeleted"}]}),
            (NO_TARGET,),
            id="deletionPolicy Delete",
        ),
    ],
)
def test_a_secret_that_should_not_be_there_is_not_missed(
    subject: ExternalSecret, objects: tuple[ObjectSummary, ...]
) -> None:
    assert explanation_of(well(subject, objects=objects), NOW).healthy


def test_a_refresh_that_is_overdue_is_noted() -> None:
    subject = external_secret(refreshInterval="1h")

    explanation = explanation_of(well(subject), NOW + timedelta(hours=2))

    assert any("overdue" in note for note in explanation.head.notes)


def test_a_spec_that_changed_since_the_last_refresh_is_noted() -> None:
    subject = external_secret()
    subject.metadata.generation = 2

    assert "changed since then" in explanation_of(well(subject), NOW).head.notes


def test_only_the_first_of_many_failed_entries_are_shown() -> None:
    outcomes = [{**OUTCOME, "path": f"spec.data[{index}]"} for index in range(30)]

    explanation = explanation_of(well(external_secret({**failed("x"), "outcomes": outcomes})), NOW)

    entries = [step.what for step in explanation.steps if step.name == "entry"]
    assert len(entries) == 11
    assert entries[-1] == "and 20 more: in status.outcomes"


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
            failed("could not get source secret: x", "ReadSource"),
            absent("Secret", "db"),
            "Secret db: does not",
            id="no source",
        ),
        pytest.param(
            {**failed("could not set secret: x"), "outcomes": [OUTCOME]},
            seen("Secret", "db"),
            "spec.data[0] (key db/pw) at SecretStore vault: SecretNotFound",
            id="an entry that was refused",
        ),
    ],
)
def test_a_push_is_told_from_its_secret_to_its_stores(status: dict[str, Any], source: ObjectSummary, said: str) -> None:
    explanation = explanation_of(well(push_secret(status), objects=(source,)), NOW)

    assert [step.name for step in explanation.steps] == ["source", "store", "entry"]
    told = explanation.cause or explanation.steps[-1]
    assert told.what.startswith(said)
    assert explanation.healthy == (status["conditions"] is SYNCED)
    assert explanation.next_attempt_time == ("" if explanation.healthy else SOON)


def test_events_are_passed_on() -> None:
    event = RecordedEvent(type="Warning", reason="UpdateFailed", message="x")

    assert explanation_of(well(events=(event,)), NOW).events == (event,)


def test_a_template_whose_config_map_vanished_cannot_be_rendered_next_time() -> None:
    explanation = explanation_of(well(external_secret(**TEMPLATE), templates=(absent("ConfigMap", "t"),)), NOW)

    assert [finding.what for finding in flat(explanation) if finding.mark is Mark.BAD] == [
        "ConfigMap t: does not exist",
        "template: cannot be rendered",
    ]


SENTENCE = "the backend refuses the token of the store"


def test_a_sentence_is_shown_once_at_its_cause() -> None:
    store = replace(STORE.summary, conditions=(ready("False", "InvalidProviderConfig", SENTENCE),))
    outcomes = [
        {**OUTCOME, "path": f"spec.data[{index}]", "reason": "StoreNotReady", "message": f"not ready: {SENTENCE}"}
        for index in range(2)
    ]
    events = (RecordedEvent(message=f"spec.data[0]: {SENTENCE}"), RecordedEvent(message="another sentence"))
    subject = external_secret({**failed(f"could not get secret data from provider: {SENTENCE}"), "outcomes": outcomes})

    explanation = explanation_of(well(subject, sources=(replace(STORE, summary=store),), events=events), NOW)

    told = [finding.what for finding in flat(explanation)] + [event.message for event in explanation.events]
    assert [text for text in told if SENTENCE in text] == [f"SecretStore vault: InvalidProviderConfig: {SENTENCE}"]
    assert "spec.data[1] (key db/pw) at SecretStore vault: StoreNotReady" in told
    assert explanation.events == events[1:]


def test_a_status_of_an_earlier_release_without_steps_is_told_at_its_entries() -> None:
    explanation = explanation_of(well(external_secret({**failed("x"), "outcomes": [OUTCOME]})), NOW)

    assert explanation.cause is not None
    assert (explanation.cause.name, explanation.head.what) == ("entry", "ExternalSecret app/db: SecretSyncedError")
