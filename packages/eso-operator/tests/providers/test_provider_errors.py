"""R117: every reason of a provider has one effect, and an error that is raised again stays the same."""

from __future__ import annotations

import pytest

from eso_operator.certificates.problems import CertificateError, Problem, ProblemName
from eso_operator.providers.errors import (
    DEFAULT_MESSAGES,
    EFFECTS,
    NoResponseError,
    StoreHealth,
    cause_of,
    effect_of,
    incompatible,
    is_infrastructure,
    is_retryable,
    restated,
)
from eso_operator.providers.reachability import Address, address_of
from eso_wire.errors import NOT_FOUND_REASONS, ErrorReason, ProviderError, RetryClass, Subject
from eso_wire.status import TransportError
from eso_wire.values import Handshake
from eso_wire.versions import SUPPORTED, ProtocolVersion

CONDITION_REASONS = {
    "SecretSyncedError",
    "InvalidProviderConfig",
    "AuthenticationFailed",
    "AccessDenied",
    "NamespaceDenied",
    "SecretAlreadyExists",
    "Conflict",
    "NotImplemented",
    "ProviderIncompatible",
    "InvalidSpec",
}


@pytest.mark.parametrize("reason", list(ErrorReason))
def test_every_reason_has_an_effect_with_a_known_condition(reason: ErrorReason) -> None:
    assert effect_of(ProviderError(reason, "x")).reason in CONDITION_REASONS


@pytest.mark.parametrize("reason", sorted(NOT_FOUND_REASONS))
def test_a_missing_value_does_not_affect_the_store(reason: ErrorReason) -> None:
    assert EFFECTS[reason].store_health is StoreHealth.UNAFFECTED


@pytest.mark.parametrize(
    ("health", "reasons"),
    [
        pytest.param(
            StoreHealth.NOT_READY,
            {"CONFIG_NOT_FOUND", "CONFIG_INVALID", "CREDENTIALS_NOT_FOUND", "CREDENTIALS_REJECTED"},
            id="stores that cannot work",
        ),
        pytest.param(StoreHealth.THROTTLED, {"RATE_LIMITED"}, id="stores that have to wait"),
        pytest.param(
            StoreHealth.UNREACHABLE, {"BACKEND_UNAVAILABLE", "BACKEND_TIMEOUT"}, id="what counts for the gate"
        ),
        pytest.param(
            StoreHealth.INCOMPATIBLE, {"UNSUPPORTED_KIND", "PROTOCOL_INCOMPATIBLE"}, id="classes that do not fit"
        ),
    ],
)
def test_store_health(health: StoreHealth, reasons: set[str]) -> None:
    assert {reason.value for reason, effect in EFFECTS.items() if effect.store_health is health} == reasons


@pytest.mark.parametrize("reason", list(ErrorReason))
def test_only_the_back_off_class_is_repeated_within_a_call(reason: ErrorReason) -> None:
    error = ProviderError(reason, "x", retry=RetryClass.AFTER_CHANGE)

    assert not is_retryable(error)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(
            ProviderError(
                ErrorReason.RATE_LIMITED,
                "slow down",
                retry=RetryClass.AFTER_CHANGE,
                retry_after=3.0,
                backend_code="429",
                subject=Subject(name="x"),
            ),
            id="answered",
        ),
        pytest.param(TransportError("refused"), id="not reached"),
        pytest.param(NoResponseError("silent"), id="silent"),
        pytest.param(CertificateError(Problem(ProblemName.UNKNOWN_CA, "whose?")), id="no certificates"),
    ],
)
def test_an_error_said_again_is_equal_and_another_object(error: ProviderError) -> None:
    again = restated(error)

    assert again == error
    assert again is not error
    assert cause_of(again) == cause_of(error)
    assert is_infrastructure(again) == is_infrastructure(error)


@pytest.mark.parametrize("reason", list(ErrorReason))
@pytest.mark.parametrize("said", ["", " \n"], ids=["nothing", "blanks"])
def test_an_error_without_words_gets_some(reason: ErrorReason, said: str) -> None:
    error = restated(ProviderError(reason, said, backend_code="E1"))

    assert error.message == f"{DEFAULT_MESSAGES[reason]}; the provider says no more"
    assert (error.reason, error.backend_code, str(error)) == (reason, "E1", error.message)


def test_the_error_of_an_incompatible_provider_names_both_version_ranges() -> None:
    handshake = Handshake(None, (ProtocolVersion(3, 0), ProtocolVersion(3, 1)), "aws", "9.0", "i", ())

    error = incompatible("aws", handshake, SUPPORTED)

    assert error.reason is ErrorReason.PROTOCOL_INCOMPATIBLE
    assert "3.0, 3.1" in error.message
    assert "2.1, 2.2" in error.message
    assert "upgrade the older" in error.message


@pytest.mark.parametrize("selected", [None, ProtocolVersion(2, 9)], ids=["none", "one that was not offered"])
def test_a_provider_without_a_common_version_is_not_called_outdated(selected: ProtocolVersion | None) -> None:
    handshake = Handshake(selected, SUPPORTED, "aws", "9.0", "i", ())

    error = incompatible("aws", handshake, SUPPORTED)

    assert "it selected none that both speak; this is a defect of the provider" in error.message
    assert "upgrade" not in error.message


@pytest.mark.parametrize(
    ("target", "address"),
    [
        ("dns:///provider.eso.svc:8080", Address("provider.eso.svc", 8080)),
        ("dns://10.0.0.10/provider.eso.svc:8080", Address("provider.eso.svc", 8080)),
        ("provider.eso.svc:8080", Address("provider.eso.svc", 8080)),
        ("ipv4:127.0.0.1:1,127.0.0.1:2", Address("127.0.0.1", 1)),
        ("ipv6:[::1]:8080", Address("::1", 8080)),
        ("unix:///run/provider.sock", None),
        ("nonsense", None),
    ],
)
def test_the_address_in_a_target(target: str, address: Address | None) -> None:
    assert address_of(target) == address
