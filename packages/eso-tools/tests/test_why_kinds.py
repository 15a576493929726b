"""The explanations of stores, generators, their states, provider classes and fan-outs."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from eso_api.crd import CustomKind
from eso_api.externalsecret import CLUSTER_EXTERNAL_SECRET, EXTERNAL_SECRET
from eso_api.generators.generatorstate import GENERATOR_STATE
from eso_api.generators.local import PASSWORD
from eso_api.secretstore import SECRET_STORE
from eso_api.v2.providerclass import PROVIDER_CLASS
from eso_operator.stores.resolve import Stage
from eso_operator.stores.resolved import Reason
from eso_tools.objects import ObjectSummary, ReadState, RecordedEvent
from eso_tools.why.explanation import Explanation, Mark, explanation_of
from eso_tools.why.inputs import Inputs, Source
from eso_tools.why.path import ENDPOINT, HANDSHAKE, ProviderPath
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
) -> Inputs:
    document = {"metadata": {"name": "x", "namespace": "app"}, "spec": spec, "status": status or {}}
    subject = msgspec.convert(document, kind.type)
    return replace(Inputs(kind, ObjectSummary(kind.name, KEY, conditions=conditions), subject), **fields)


CONNECTED = ProviderPath(provider=ObjectSummary("ProviderClass", KEY, conditions=(ready("True", "Connected"),)))
DOWN = ProviderPath(
    provider=ObjectSummary("ProviderClass", KEY, conditions=(ready("False", "Refused", "connection refused"),))
)
NONE = ProviderPath((Stage(ENDPOINT, "install it", Reason.NOT_INSTALLED),))
UNCONNECTED = replace(CONNECTED, stages=(Stage(HANDSHAKE, "no handshake yet", Reason.NOT_CONNECTED),))
STARTING = ready("Unknown", "ValidationUnknown", "ProviderStarting: provider x is starting")
VALID, BROKEN = ready("True", "Valid"), ready("False", "InvalidProviderConfig", "no token at all")


def store(*conditions: Condition, path: ProviderPath = CONNECTED) -> Inputs:
    source = Source(ObjectSummary("SecretStore", KEY, conditions=conditions), path)
    return about(SECRET_STORE, FAKE, *conditions, sources=(source,))


def generator(path: ProviderPath) -> Inputs:
    return about(PASSWORD, {"length": 8}, sources=(Source(ObjectSummary("Password", KEY), path),))


def provider_class(condition: Condition, read_state: ReadState = ReadState.FOUND) -> Inputs:
    service = ObjectSummary("Service", KEY, read_state, "" if read_state is ReadState.FOUND else "does not exist")
    return about(PROVIDER_CLASS, {"address": "grpc://p.app.svc:8080"}, condition, objects=(service,))


@pytest.mark.parametrize(
    ("inputs", "cause"),
    [
        pytest.param(store(VALID), None, id="a valid store"),
        pytest.param(store(BROKEN), "SecretStore app/x: InvalidProviderConfig: no token at all", id="a broken store"),
        pytest.param(
            store(BROKEN, path=DOWN), "provider ProviderClass x: Refused: connection refused", id="a provider"
        ),
        pytest.param(store(path=NONE), "provider: ProviderNotInstalled: install it", id="a provider that is missing"),
        pytest.param(store(), "does an operator run", id="a store that no operator looked at"),
        pytest.param(store(VALID, path=NONE), None, id="a valid store whose provider only flags explain"),
        pytest.param(generator(CONNECTED), None, id="a generator"),
        pytest.param(generator(NONE), "provider: ProviderNotInstalled: install it", id="a generator without provider"),
        pytest.param(generator(DOWN), "provider ProviderClass x: Refused", id="a generator whose provider is down"),
        pytest.param(provider_class(ready("True", "Connected")), None, id="a class"),
        pytest.param(provider_class(ready("False", "Refused")), "ProviderClass app/x: Refused", id="a broken class"),
        pytest.param(
            provider_class(ready("False", "DNSFailure"), ReadState.ABSENT), "Service x: does not exist", id="no Service"
        ),
        pytest.param(
            replace(store(VALID), subject=Malformed(ObjectMeta(), "spec.provider: expected object")),
            "SecretStore app/x: it does not fit its type: spec.provider: expected object",
            id="an object that does not fit its type",
        ),
    ],
)
def test_the_cause(inputs: Inputs, cause: str | None) -> None:
    explanation = explanation_of(inputs, NOW)

    assert (explanation.cause is None) == (cause is None)
    assert explanation.cause is None or (cause or "") in explanation.cause.what


@pytest.mark.parametrize("conditions", [(VALID,), (BROKEN,), ()])
def test_a_provider_is_never_connected_and_not_connected_at_once(conditions: tuple[Condition, ...]) -> None:
    """The class may still have the address of a former process."""
    explanation = explanation_of(store(*conditions, path=UNCONNECTED), NOW)

    said = [finding.state for step in explanation.steps for finding in step if finding.name == "provider"]
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
    explanation = explanation_of(store(condition), NOW)

    assert explanation.head.mark is mark
    assert explanation.cause is None


def test_entries_that_wait_for_a_provider_are_not_failures() -> None:
    waits = ready("Unknown", "SecretSyncedError", "waiting: ProviderStarting: provider x is starting")
    outcome = {"path": "spec.data[0]", "reason": "ProviderStarting", "message": "provider x is starting"}
    status = {"conditions": [msgspec.to_builtins(waits)], "outcomes": [outcome]}

    explanation = explanation_of(about(EXTERNAL_SECRET, ENTRIES, waits, status=status), NOW)

    assert explanation.cause is None
    assert explanation.head.mark is Mark.OPEN


# --- states of generators ---------------------------------------------------------------------------------------------


def state(path: ProviderPath, *events: RecordedEvent, deleted: bool = False) -> Inputs:
    inputs = about(GENERATOR_STATE, {"resource": {}, "state": {}}, sources=(Source(ObjectSummary("Maker", KEY), path),))
    if deleted:
        inputs.subject.metadata.deletion_timestamp = LATELY
    return replace(inputs, events=events)


FAILED = RecordedEvent(
    type="Warning", reason="CleanupFailed", message="What Maker x made is not cleaned up yet: refused"
)


@pytest.mark.parametrize(
    ("inputs", "cause"),
    [
        pytest.param(state(CONNECTED), None, id="kept"),
        pytest.param(state(DOWN), None, id="a provider that is not needed yet"),
        pytest.param(state(DOWN, FAILED, deleted=True), "provider ProviderClass x: Refused", id="no provider"),
        pytest.param(state(CONNECTED, FAILED, deleted=True), "GeneratorState app/x: CleanupFailed: What", id="refused"),
        pytest.param(state(CONNECTED, FAILED), None, id="an event of the past"),
    ],
)
def test_a_state_needs_its_generator_for_the_clean_up_only(inputs: Inputs, cause: str | None) -> None:
    explanation = explanation_of(inputs, NOW)

    assert (explanation.cause is None) == (cause is None)
    assert explanation.cause is None or explanation.cause.what.startswith(cause or "")


# --- fan-out ----------------------------------------------------------------------------------------------------------

SENTENCE = "the provider does not answer at all"
FAILING = ready("False", "SecretSyncedError", f"could not get secret data from provider: {SENTENCE}")
CHILD = about(
    EXTERNAL_SECRET,
    ENTRIES,
    FAILING,
    status={"conditions": [msgspec.to_builtins(FAILING)]},
    sources=(Source(ObjectSummary("SecretStore", KEY, conditions=(ready("False", "Refused", SENTENCE),)), CONNECTED),),
)
WELL = ObjectSummary("ExternalSecret", ObjectKey("b", "x"), conditions=(ready("True", "SecretSynced"),))


def parent(*children: Inputs | ObjectSummary, failed: tuple[dict[str, str], ...] = ()) -> Explanation:
    condition = ready("True", "ChildrenNotReady", f"1 ExternalSecret is not ready: app: {SENTENCE}")
    inputs = about(
        CLUSTER_EXTERNAL_SECRET,
        {"externalSecretSpec": ENTRIES},
        condition,
        status={"failedNamespaces": list(failed)},
        children=children,
    )
    return explanation_of(inputs, NOW)


def test_a_fan_out_is_as_well_as_its_children() -> None:
    explanation = parent(
        CHILD, WELL, ObjectSummary("ExternalSecret", ObjectKey("c", "x"), ReadState.UNREADABLE, "hidden")
    )

    assert explanation.cause is not None
    assert explanation.cause.what == f"SecretStore x: Refused: {SENTENCE}"
    assert [(finding.what, finding.mark) for step in explanation.steps for finding in step][1:] == [
        ("ExternalSecret app/x: SecretSyncedError", Mark.BAD),
        ("ExternalSecret c/x: hidden", Mark.OPEN),
        ("ExternalSecrets: 1 ready", Mark.GOOD),
    ]
    assert explanation.head.what == "ClusterExternalSecret app/x: ChildrenNotReady"


def test_a_namespace_that_failed_is_the_cause() -> None:
    explanation = parent(WELL, failed=({"namespace": "blue", "reason": "external secret already exists in namespace"},))

    assert explanation.cause is not None
    assert explanation.cause.what == "namespace blue: failed: external secret already exists in namespace"
