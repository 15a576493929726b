"""The last two stages, gates (R80, R112, R123) and what the provider agreed to (R140, R141); the story of all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eso_api.references import StoreRef
from eso_operator.stores.resolve import STAGES, explain, resolve
from eso_operator.stores.resolved import Gate, Need, Reason, ResolutionError, ResolvedStore
from eso_testkit.operator.clusters import (
    ANYTHING,
    CORE,
    SETTINGS,
    EveryConnection,
    caller,
    cluster,
    obj,
    ready,
    serving,
)
from eso_wire.values import ConfigDelivery, Handshake, KindId, KindRole, Operation
from eso_wire.versions import ProtocolVersion
from kubebase.meta import JsonObject

STORES_V2 = "secretstore.external-secrets.io/v2alpha1"
CONFIGS = "provider.secretstore.external-secrets.io/v2alpha1"
FAKE = KindId("provider.secretstore.external-secrets.io", "v2alpha1", "Fake")
CONFIG = {"address": f"p.{CORE}.svc:1", "providerRef": {"kind": "Fake", "name": "config"}}
CONFIG_OBJECT = obj(CONFIGS, "Fake", "config", "team-a", spec={})
V1_REF = StoreRef(name="store")
V2_REF = StoreRef(api_version=STORES_V2, kind="SecretStore", name="store")
FAKES = serving(FAKE)


def v1(status: JsonObject) -> JsonObject:
    plugin = {"provider": {"plugin": CONFIG}}
    return obj("external-secrets.io/v1", "SecretStore", "store", "team-a", spec=plugin, status=status)


def v2(status: JsonObject, policy: str = "Enabled") -> JsonObject:
    spec = {"providerConfig": CONFIG, "gatingPolicy": policy}
    return obj(STORES_V2, "SecretStore", "store", "team-a", spec=spec, status=status)


def resolved(
    ref: StoreRef,
    document: JsonObject,
    *,
    need: Need = ANYTHING,
    handshake: Handshake | str = FAKES,
    flood: bool = True,
) -> ResolvedStore:
    view = cluster(document, CONFIG_OBJECT, handshakes=EveryConnection(handshake))
    return resolve(ref, caller(), need=need, view=view, settings=replace(SETTINGS, flood_gate=flood))


READY, BROKEN, UNKNOWN = ready(), ready("False", "InvalidProviderConfig", "bad region"), ready("Unknown")
NEVER: JsonObject = {}
READS, PUSHES, VALIDATES = Need(gate=Gate.FULL), Need(gate=Gate.POLICY), Need(gate=Gate.OFF)


@pytest.mark.parametrize(
    ("ref", "document", "need", "flood", "passes"),
    [
        pytest.param(V1_REF, v1(READY), READS, True, True, id="v1 ready"),
        pytest.param(V1_REF, v1(ready("True", "ValidationUnknown")), READS, True, True, id="v1 ValidationUnknown"),
        pytest.param(V1_REF, v1(BROKEN), READS, True, False, id="v1 broken"),
        pytest.param(V1_REF, v1(UNKNOWN), READS, True, False, id="v1 unknown"),
        pytest.param(V1_REF, v1(NEVER), READS, True, False, id="v1 without a condition"),
        pytest.param(V1_REF, v1(BROKEN), READS, False, True, id="v1 broken, flood gate off"),
        pytest.param(V1_REF, v1(BROKEN), PUSHES, True, True, id="v1 broken, a push is not gated"),
        pytest.param(V1_REF, v1(BROKEN), VALIDATES, True, True, id="v1 broken, its own validation"),
        pytest.param(V2_REF, v2(READY), READS, True, True, id="v2 ready"),
        pytest.param(V2_REF, v2(BROKEN), READS, True, False, id="v2 broken"),
        pytest.param(V2_REF, v2(BROKEN), READS, False, False, id="v2 broken, whatever the flood gate is"),
        pytest.param(V2_REF, v2(BROKEN), PUSHES, True, False, id="v2 broken, a push"),
        pytest.param(V2_REF, v2(BROKEN), VALIDATES, True, True, id="v2 broken, its own validation"),
        pytest.param(V2_REF, v2(UNKNOWN), READS, True, True, id="v2 unknown"),
        pytest.param(V2_REF, v2(NEVER), READS, True, True, id="v2 without a condition"),
        pytest.param(V2_REF, v2(BROKEN, "Disabled"), READS, True, True, id="v2 broken, gating disabled"),
    ],
)
def test_the_gate(ref: StoreRef, document: JsonObject, need: Need, flood: bool, passes: bool) -> None:
    try:
        resolved(ref, document, need=need, flood=flood)
        outcome: tuple[Reason, str] | None = None
    except ResolutionError as error:
        outcome = (error.reason, error.retry)

    assert outcome == (None if passes else (Reason.NOT_READY, "BACKOFF"))


@pytest.mark.parametrize(
    ("status", "waits"),
    [
        pytest.param(NEVER, True, id="it is not validated yet"),
        pytest.param(UNKNOWN, True, id="its provider starts"),
        pytest.param(BROKEN, False, id="it is broken"),
    ],
)
def test_a_caller_waits_for_a_store_that_may_become_ready_by_itself(status: JsonObject, waits: bool) -> None:
    with pytest.raises(ResolutionError) as raised:
        resolved(V1_REF, v1(status))

    assert (raised.value.waits > 0) is waits


def test_a_closed_gate_repeats_what_the_store_says() -> None:
    with pytest.raises(ResolutionError, match="InvalidProviderConfig: bad region"):
        resolved(V1_REF, v1(BROKEN))
    with pytest.raises(ResolutionError, match="has not been validated yet"):
        resolved(V1_REF, v1(NEVER))


# --- what the provider agreed to -------------------------------------------------------------------------------------


def changed(**fields: object) -> Handshake:
    return replace(FAKES, **fields)  # type: ignore[arg-type]  # fields of the handshake, checked by the dataclass


def only(*operations: Operation) -> Handshake:
    return changed(kinds=(replace(FAKES.kinds[0], operations=frozenset(operations)),))


@pytest.mark.parametrize(
    ("answer", "reason", "says"),
    [
        pytest.param("connection refused", Reason.NOT_CONNECTED, "connection refused", id="no handshake"),
        pytest.param(
            changed(selected=None, supported=(ProtocolVersion(3, 0),)),
            Reason.INCOMPATIBLE,
            "speaks protocol 3.0, this operator speaks 2.1, 2.2",
            id="no common protocol (R141)",
        ),
        pytest.param(serving(), Reason.UNSUPPORTED_KIND, "does not serve", id="another kind"),
        pytest.param(serving(FAKE, role=KindRole.GENERATOR), Reason.UNSUPPORTED_KIND, "as a store", id="another role"),
        pytest.param(only(Operation.GET), Reason.NOT_IMPLEMENTED, "cannot PUSH", id="an operation is missing"),
    ],
)
def test_an_operation_that_the_provider_does_not_offer_is_refused_with_its_reason(
    answer: Handshake | str, reason: Reason, says: str
) -> None:
    need = Need(frozenset({Operation.GET, Operation.PUSH}))

    with pytest.raises(ResolutionError, match=says) as raised:
        resolved(V2_REF, v2(READY), need=need, handshake=answer)

    assert raised.value.reason is reason


def test_a_handshake_that_is_missing_can_be_made() -> None:
    view = cluster(v2(READY), CONFIG_OBJECT)

    with pytest.raises(ResolutionError) as raised:
        resolve(V2_REF, caller(), need=ANYTHING, view=view, settings=SETTINGS)

    assert raised.value.reason is Reason.NOT_CONNECTED
    assert raised.value.connection is not None
    answered = cluster(v2(READY), CONFIG_OBJECT, handshakes={raised.value.connection.key: FAKES})
    assert resolve(V2_REF, caller(), need=ANYTHING, view=answered, settings=SETTINGS).handshake is FAKES


def test_a_provider_that_reads_its_configuration_itself_gets_no_spec() -> None:
    reader = changed(kinds=(replace(FAKES.kinds[0], deliveries=frozenset({ConfigDelivery.BY_REFERENCE})),))

    config = resolved(V2_REF, v2(READY), handshake=reader).config

    assert (config.delivery, config.spec, config.credentials) == (ConfigDelivery.BY_REFERENCE, None, ())
    inline = {"providerConfig": {"address": CONFIG["address"], "inline": {"kind": "Fake", "spec": {}}}}
    with pytest.raises(ResolutionError, match="reads configurations itself"):
        resolved(V2_REF, obj(STORES_V2, "SecretStore", "store", "team-a", spec=inline), handshake=reader)


# --- the story -------------------------------------------------------------------------------------------------------


def test_explain_tells_every_stage() -> None:
    view = cluster(v2(READY), CONFIG_OBJECT, handshakes=EveryConnection(FAKES))

    stages = explain(V2_REF, caller(), need=ANYTHING, view=view, settings=SETTINGS)

    assert tuple(stage.name for stage in stages) == STAGES
    assert all(stage.reason is None and stage.detail for stage in stages)


def test_explain_ends_with_the_stage_that_failed() -> None:
    view = cluster(v2(BROKEN), CONFIG_OBJECT, handshakes=EveryConnection(FAKES))

    last = explain(V2_REF, caller(), need=ANYTHING, view=view, settings=SETTINGS)[-1]

    assert (last.name, last.reason) == ("gate", Reason.NOT_READY)
    assert "bad region" in last.detail
