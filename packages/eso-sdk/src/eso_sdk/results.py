"""The answers of author code, and their checks: a value with its metadata, an existence check, a push.

Authors may not run a type checker, so the type of each answer is checked here. An error names the method and the type,
never the content. Unchecked, a wrong type could become a wrong value: `bytes(7)` is seven zeros.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from eso_api.values import SecretBytes
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Found, Generated, PushOutcome, Validation, ValueMetadata

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Value:
    """One remote value and the backend's metadata about it.

    If the metadata contains a version, readers that already have that version do not receive the value again.
    """

    raw: SecretBytes
    metadata: ValueMetadata = field(default_factory=ValueMetadata)

    @classmethod
    def of(cls, raw: bytes | SecretBytes, *, version: str = "") -> Value:
        """Make a value whose only metadata is its version."""
        return cls(secret(raw, "Value.of"), ValueMetadata(provider_version=version))


@dataclass(frozen=True, slots=True)
class Check:
    """Whether a key exists, and its version."""

    exists: bool
    version: str = ""


@dataclass(frozen=True, slots=True)
class Pushed:
    """The outcome of a push, and the version it created."""

    outcome: PushOutcome
    version: str = ""


# --- conversion of answers
# -----------------------------------------------------------------------------------------------


def secret(raw: object, method: str) -> SecretBytes:
    """Wrap bytes so that they cannot be printed."""
    if isinstance(raw, SecretBytes):
        return raw
    if not isinstance(raw, (bytes, bytearray, memoryview)):
        raise unfit(method, raw, "bytes")
    return SecretBytes(raw)


def secrets(answer: object, method: str) -> dict[str, SecretBytes]:
    """Wrap named values so that they cannot be printed."""
    if not isinstance(answer, Mapping):
        raise unfit(method, answer, "a mapping of names to bytes")
    if strange := [name for name in answer if not isinstance(name, str)]:
        raise unfit(method, strange[0], "str as the name of a value")
    return {name: secret(raw, method) for name, raw in answer.items()}


def value(answer: object, method: str = "get") -> Value:
    """Convert every accepted form of answer to a `Value`."""
    if isinstance(answer, Value):
        return replace(answer, raw=secret(answer.raw, method))
    return Value(secret(answer, method))


def answers(given: object, count: int, method: str = "get_many") -> Sequence[Any]:
    """Check the answer of `get_many`, `push_many` or `delete_many`: one entry for each item."""
    one, many = ("reference", "references") if method == "get_many" else ("item", "items")
    if not isinstance(given, Sequence) or isinstance(given, (str, bytes)):
        raise unfit(method, given, f"a list with one answer for each {one}, in their order")
    if len(given) != count:
        raise ProviderError(
            ErrorReason.INTERNAL,
            f"{method} gave {len(given)} answers to {count} {many}; it must give one for each, in their order",
        )
    return given


def check_of(answer: object) -> Check:
    if not isinstance(answer, Check):
        raise unfit("check", answer, "Check")
    return answer


def push_of(answer: object) -> Pushed:
    outcome, version = (answer.outcome, answer.version) if isinstance(answer, Pushed) else (answer, "")
    if not isinstance(outcome, PushOutcome):
        raise unfit("push", outcome, "PushOutcome or Pushed")
    return Pushed(outcome, version)


def existed_of(answer: object) -> bool:
    """Return whether a deletion found something; None counts as False."""
    if answer is not None and not isinstance(answer, bool):
        raise unfit("delete", answer, "bool")
    return bool(answer)


def found_of(answer: object) -> Found:
    if not isinstance(answer, Found):
        raise unfit("find", answer, "Found")
    if not isinstance(answer.key, str):
        raise unfit("find", answer.key, "str as the key of Found")
    return replace(answer, value=secret(answer.value, "find"))


def stream_of(answer: AsyncIterator[T], method: str) -> AsyncIterator[T]:
    """Check that a method yields. A method that returns instead gives a coroutine."""
    if not hasattr(answer, "__aiter__"):
        if close := getattr(answer, "close", None):
            close()
        raise unfit(method, answer, 'an async generator: use "yield"')
    return answer


def generated_of(answer: object) -> Generated:
    if isinstance(answer, Generated):
        return replace(answer, data=secrets(answer.data, "generate"))
    return Generated(secrets(answer, "generate"))


def validation_of(answer: object) -> Validation:
    if not isinstance(answer, Validation):
        raise unfit("validate", answer, "Validation")
    return answer


def warnings_of(answer: object) -> tuple[str, ...]:
    if not isinstance(answer, Sequence) or isinstance(answer, str):
        raise unfit("check_config", answer, "a tuple of warnings")
    return tuple(answer)


def unfit(method: str, answer: object, wanted: str) -> ProviderError:
    """Return the error for an answer of the wrong type."""
    return ProviderError(
        ErrorReason.INTERNAL,
        f"the provider failed: {method} answered with {type(answer).__name__}; it must answer with {wanted}",
    )
