"""The stories of stores, generators, their states, provider classes and fan-outs."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from eso_api.clusterexternalsecret import CLUSTER_EXTERNAL_SECRET
from eso_api.crd import CustomKind
from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.generators.generatorstate import GENERATOR_STATE
from eso_api.generators.password import PASSWORD
from eso_api.secretstore import SECRET_STORE
from eso_api.v2.providerclass import PROVIDER_CLASS
from eso_operator.insight.evidence import Evidence, Source
from eso_operator.insight.facts import Mark, Recorded, Story
from eso_operator.insight.sights import Look, Sight
from eso_operator.insight.story import story_of
from eso_operator.insight.ways import ENDPOINT, HANDSHAKE, Way
from eso_operator.stores.resolve import Stage
from eso_operator.stores.resolved import Reason
from kubebase.clock import rfc3339
from kubebase.meta import Condition, Malformed, ObjectKey, ObjectMeta
from kubebase.testing.clock import START as NOW

KEY = ObjectKey("app", "x")
LATELY = rfc3339(NOW - timedelta(minutes=3))
FAKE: dict[str, Any] = {"provider": {"fake": {}}}
ENTRIES = {"secretStoreRef": {"name": "s"}, "data": [{"secretKey": "a", "remoteRef": {"key": "k"}}]}


def ready(status: str, reason: str, message: str = "") -> Condition:
    return Condition(type="Ready", status=status, reason=reason, message=message)


def about(
    kind: CustomKind[Any], spec: dict[str, Any], *conditions: Condition, status: Any = None, **fields: Any
) -> Evidence:
    document = {"metadata": {"name": "x", "namespace": "app"}, "spec": spec, "status": status or {}}
    subject = msgspec.convert(document, kind.type)
    return replace(Evidence(kind, Sight(kind.name, KEY, conditions=conditions), subject), **fields)


CONNECTED = Way(provider=Sight("ProviderClass", KEY, conditions=(ready("True", "Connected"),)))
DOWN = Way(provider=Sight("ProviderClass", KEY, conditions=(ready("False", "Refused", "connection refused"),)))
NONE = Way((Stage(ENDPOINT, "install it", Reason.NOT_INSTALLED),))
UNCONNECTED = replace(CONNECTED, stages=(Stage(HANDSHAKE, "no handshake yet", Reason.NOT_CONNECTED),))
STARTING = ready("Unknown", "ValidationUnknown", "ProviderStarting: provider x is starting")
VALID, BROKEN = ready("True", "Valid"), ready("False", "InvalidProviderConfig", "no token at all")


def store(*conditions: Condition, way: Way = CONNECTED) -> Evidence:
    source = Source(Sight("SecretStore", KEY, conditions=conditions), way)
    return about(SECRET_STORE, FAKE, *conditions, sources=(source,))


def generator(way: Way) -> Evidence:
    return about(PASSWORD, {"length": 8}, sources=(Source(Sight("Password", KEY), way),))


def provider_class(condition: Condition, look: Look = Look.FOUND) -> Evidence:
    service = Sight("Service", KEY, look, "" if look is Look.FOUND else "does not exist")
    return about(PROVIDER_CLASS, {"address": "grpc://p.app.svc:8080"}, condition, objects=(service,))


@pytest.mark.parametrize(
    ("evidence", "cause"),
    [
        pytest.param(store(VALID), None, id="a valid store"),
        pytest.param(store(BROKEN), "SecretStore app/x: InvalidProviderConfig: no token at all", id="a broken store"),
        pytest.param(store(BROKEN, way=DOWN), "provider ProviderClass x: Refused: connection refused", id="a provider"),
        pytest.param(store(way=NONE), "provider: ProviderNotInstalled: install it", id="a provider that is missing"),
        pytest.param(store(), "does an operator run", id="a store that no operator looked at"),
        pytest.param(store(VALID, way=NONE), None, id="a valid store whose provider only flags explain"),
        pytest.param(generator(CONNECTED), None, id="a generator"),
        pytest.param(generator(NONE), "provider: ProviderNotInstalled: install it", id="a generator without provider"),
        pytest.param(generator(DOWN), "provider ProviderClass x: Refused", id="a generator whose provider is down"),
        pytest.param(provider_class(ready("True", "Connected")), None, id="a class"),
        pytest.param(provider_class(ready("False", "Refused")), "ProviderClass app/x: Refused", id="a broken class"),
        pytest.param(
            provider_class(ready("False", "DNSFailure"), Look.ABSENT), "Service x: does not exist", id="no Service"
        ),
        pytest.param(
            replace(store(VALID), subject=Malformed(ObjectMeta(), "spec.provider: expected object")),
            "SecretStore app/x: it does not fit its type: spec.provider: expected object",
            id="an object that does not fit its type",
        ),
    ],
)
def test_the_cause(evidence: Evidence, cause: str | None) -> None:
    story = story_of(evidence, NOW)

    assert (story.cause is None) == (cause is None)
    assert story.cause is None or (cause or "") in story.cause.what


@pytest.mark.parametrize("conditions", [(VALID,), (BROKEN,), ()])
def test_a_provider_is_never_connected_and_not_connected_at_once(conditions: tuple[Condition, ...]) -> None:
    """The class may still have the address of a former process."""
    story = story_of(store(*conditions, way=UNCONNECTED), NOW)

    said = [fact.state for step in story.steps for fact in step if fact.name == "provider"]
    assert said == ["ProviderNotConnected"]


@pytest.mark.parametrize(
    ("condition", "mark"),
    [
        pytest.param(STARTING, Mark.OPEN, id="its provider starts"),
        pytest.param(ready("Unknown", "ReferentAuthUnverified"), Mark.GOOD, id="its users bring credentials"),
    ],
)
def test_a_store_in_an_unknown_state_is_good_only_if_its_users_bring_credentials(
    condition: Condition, mark: Mark
) -> None:
    story = story_of(store(condition), NOW)

    assert story.head.mark is mark
    assert story.cause is None


def test_entries_that_wait_for_a_provider_are_not_failures() -> None:
    waits = ready("Unknown", "SecretSyncedError", "waiting: ProviderStarting: provider x is starting")
    outcome = {"path": "spec.data[0]", "reason": "ProviderStarting", "message": "provider x is starting"}
    status = {"conditions": [msgspec.to_builtins(waits)], "outcomes": [outcome]}

    story = story_of(about(EXTERNAL_SECRET, ENTRIES, waits, status=status), NOW)

    assert story.cause is None
    assert story.head.mark is Mark.OPEN


# --- states of generators ---------------------------------------------------------------------------------------------


def state(way: Way, *events: Recorded, deleted: bool = False) -> Evidence:
    evidence = about(GENERATOR_STATE, {"resource": {}, "state": {}}, sources=(Source(Sight("Maker", KEY), way),))
    if deleted:
        evidence.subject.metadata.deletion_timestamp = LATELY
    return replace(evidence, events=events)


FAILED = Recorded(type="Warning", reason="CleanupFailed", message="What Maker x made is not cleaned up yet: refused")


@pytest.mark.parametrize(
    ("evidence", "cause"),
    [
        pytest.param(state(CONNECTED), None, id="kept"),
        pytest.param(state(DOWN), None, id="a provider that is not needed yet"),
        pytest.param(state(DOWN, FAILED, deleted=True), "provider ProviderClass x: Refused", id="no provider"),
        pytest.param(state(CONNECTED, FAILED, deleted=True), "GeneratorState app/x: CleanupFailed: What", id="refused"),
        pytest.param(state(CONNECTED, FAILED), None, id="an event of the past"),
    ],
)
def test_a_state_needs_its_generator_for_the_clean_up_only(evidence: Evidence, cause: str | None) -> None:
    story = story_of(evidence, NOW)

    assert (story.cause is None) == (cause is None)
    assert story.cause is None or story.cause.what.startswith(cause or "")


# --- fan-out ----------------------------------------------------------------------------------------------------------

SENTENCE = "the provider does not answer at all"
FAILING = ready("False", "SecretSyncedError", f"could not get secret data from provider: {SENTENCE}")
CHILD = about(
    EXTERNAL_SECRET,
    ENTRIES,
    FAILING,
    status={"conditions": [msgspec.to_builtins(FAILING)]},
    sources=(Source(Sight("SecretStore", KEY, conditions=(ready("False", "Refused", SENTENCE),)), CONNECTED),),
)
WELL = Sight("ExternalSecret", ObjectKey("b", "x"), conditions=(ready("True", "SecretSynced"),))


def parent(*children: Evidence | Sight, failed: tuple[dict[str, str], ...] = ()) -> Story:
    condition = ready("True", "ChildrenNotReady", f"1 ExternalSecret is not ready: app: {SENTENCE}")
    evidence = about(
        CLUSTER_EXTERNAL_SECRET,
        {"externalSecretSpec": ENTRIES},
        condition,
        status={"failedNamespaces": list(failed)},
        children=children,
    )
    return story_of(evidence, NOW)


def test_a_fan_out_is_as_well_as_its_children() -> None:
    story = parent(CHILD, WELL, Sight("ExternalSecret", ObjectKey("c", "x"), Look.HIDDEN, "hidden"))

    assert story.cause is not None
    assert story.cause.what == f"SecretStore x: Refused: {SENTENCE}"
    assert [(fact.what, fact.mark) for step in story.steps for fact in step][1:] == [
        ("ExternalSecret app/x: SecretSyncedError", Mark.BAD),
        ("ExternalSecret c/x: hidden", Mark.OPEN),
        ("ExternalSecrets: 1 ready", Mark.GOOD),
    ]
    assert story.head.what == "ClusterExternalSecret app/x: ChildrenNotReady"


def test_a_namespace_that_failed_is_the_cause() -> None:
    story = parent(WELL, failed=({"namespace": "blue", "reason": "external secret already exists in namespace"},))

    assert story.cause is not None
    assert story.cause.what == "namespace blue: failed: external secret already exists in namespace"
