"""The action for a GeneratorState, and the limits after which it is abandoned, as tables."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from eso_api.generators.generatorstate import GeneratorState
from eso_operator.controllers.generatorstate.checks import (
    CleanUp,
    CleanupLimits,
    Decision,
    Delete,
    Hold,
    Ignore,
    Tried,
    Trouble,
    decide,
    is_over,
)
from eso_operator.controllers.refresh import RetryLimit
from eso_operator.generators.ledger import FINALIZER
from eso_operator.stores.resolved import Reason, ResolutionError
from eso_testkit.operator.clusters import caller
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.clock import rfc3339
from kubebase.meta import JsonObject

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LIMITS = CleanupLimits(hopeless=RetryLimit(2, 10.0), failing=RetryLimit(3, 100.0))
GONE = ResolutionError(Reason.NOT_FOUND, "gone", subject=caller())
DOWN = ResolutionError(Reason.NOT_CONNECTED, "down", subject=caller())
NOT_INSTALLED = ResolutionError(Reason.NOT_INSTALLED, "not installed", subject=caller())
REFUSED = ProviderError(ErrorReason.PERMISSION_DENIED, "no")
OFF = ResolutionError(Reason.FEATURE_DISABLED, "off", subject=caller())
CANNOT = ProviderError(ErrorReason.UNSUPPORTED_OPERATION, "cannot")


def at(seconds: float) -> str:
    return rfc3339(NOW + timedelta(seconds=seconds))


def state(deadline: str | None = None, **metadata: Any) -> GeneratorState:
    spec: JsonObject = {"resource": {}, "state": {}, "garbageCollectionDeadline": deadline}
    return msgspec.convert({"metadata": {"name": "s", "namespace": "n", **metadata}, "spec": spec}, GeneratorState)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        pytest.param(state(), Hold(), id="no deadline"),
        pytest.param(state("0000-01-01T00:00:00Z"), Hold(), id="no deadline that can be read"),
        pytest.param(state(at(90)), Hold(90.0), id="deadline ahead: an exact timer"),
        pytest.param(state(at(0)), Delete(), id="deadline now"),
        pytest.param(state(at(-5)), Delete(), id="deadline past"),
        pytest.param(state(deletionTimestamp=at(-7), finalizers=[FINALIZER]), CleanUp(7.0), id="being deleted"),
        pytest.param(
            state(at(90), deletionTimestamp=at(0), finalizers=[FINALIZER]), CleanUp(0.0), id="deleted before deadline"
        ),
        pytest.param(state(deletionTimestamp=at(-7), finalizers=["x/y"]), Ignore(), id="held by another writer"),
    ],
)
def test_the_deadline_and_the_deletion_decide(given: GeneratorState, wanted: Decision) -> None:
    assert decide(given, NOW) == wanted


@pytest.mark.parametrize(
    ("trouble", "tried", "over"),
    [
        pytest.param(GONE, Tried(2, 10.0), True, id="what is gone is waited for a short while"),
        pytest.param(GONE, Tried(1, 10.0), False, id="but not only once, whatever the time since deletion"),
        pytest.param(GONE, Tried(2, 9.0), False, id="and not only for a moment"),
        pytest.param(GONE, Tried(1, 0.0, True), True, id="unless its namespace is going too"),
        pytest.param(CANNOT, Tried(2, 10.0), True, id="what can never work"),
        pytest.param(DOWN, Tried(2, 10.0, True), False, id="a provider that is down may come back"),
        pytest.param(NOT_INSTALLED, Tried(99, 99.0), False, id="so may one that is not installed"),
        pytest.param(NOT_INSTALLED, Tried(3, 100.0), True, id="but nothing is waited for for ever"),
        pytest.param(OFF, Tried(99, 1e9), False, id="a kind that is turned off is waited for, R153"),
        pytest.param(OFF, Tried(2, 10.0, True), False, id="in a namespace that is going too"),
        pytest.param(OFF, Tried(3, 100.0, True), True, id="but not longer than for a provider that is down"),
        pytest.param(REFUSED, Tried(3, 100.0), True, id="nor anybody"),
    ],
)
def test_enough_is_enough(trouble: Trouble, tried: Tried, over: bool) -> None:
    assert is_over(trouble, tried, LIMITS) is over
