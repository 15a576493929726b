"""The results of author code, and their checks: a value with its metadata, an existence check, a push.

Authors may not run a type checker, so each type is checked here. An error names the method and the type,
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


# --- conversion of responses
# -----------------------------------------------------------------------------------------------


def secret(raw: object, method: str) -> SecretBytes:
    """Wrap bytes so that they cannot be printed."""
    if isinstance(raw, SecretBytes):
        return raw
    if not isinstance(raw, (bytes, bytearray, memoryview)):
        raise unfit(method, raw, "bytes")
    return SecretBytes(raw)


def secrets(result: object, method: str) -> dict[str, SecretBytes]:
    """Wrap named values so that they cannot be printed."""
    if not isinstance(result, Mapping):
        raise unfit(method, result, "a mapping of names to bytes")
    if strange := [name for name in result if not isinstance(name, str)]:
        raise unfit(method, strange[0], "str as the name of a value")
    return {name: secret(raw, method) for name, raw in result.items()}


def value(result: object, method: str = "get") -> Value:
    """Convert every accepted form of response to a `Value`."""
    if isinstance(result, Value):
        return replace(result, raw=secret(result.raw, method))
    return Value(secret(result, method))


def results_of(returned: object, count: int, method: str = "get_many") -> Sequence[Any]:
    """Check the result of `get_many`, `push_many` or `delete_many`: one entry for each item."""
    one, many = ("reference", "references") if method == "get_many" else ("item", "items")
    if not isinstance(returned, Sequence) or isinstance(returned, (str, bytes)):
        raise unfit(method, returned, f"a list with one result for each {one}, in their order")
    if len(returned) != count:
        raise ProviderError(
            ErrorReason.INTERNAL,
            f"{method} returned {len(returned)} results for {count} {many}; return one for each, in their order",
        )
    return returned


def check_of(result: object) -> Check:
    if not isinstance(result, Check):
        raise unfit("check", result, "Check")
    return result


def push_of(result: object) -> Pushed:
    outcome, version = (result.outcome, result.version) if isinstance(result, Pushed) else (result, "")
    if not isinstance(outcome, PushOutcome):
        raise unfit("push", outcome, "PushOutcome or Pushed")
    return Pushed(outcome, version)


def existed_of(result: object) -> bool:
    """Return whether a deletion found something; None counts as False."""
    if result is not None and not isinstance(result, bool):
        raise unfit("delete", result, "bool")
    return bool(result)


def found_of(result: object) -> Found:
    if not isinstance(result, Found):
        raise unfit("find", result, "Found")
    if not isinstance(result.key, str):
        raise unfit("find", result.key, "str as the key of Found")
    return replace(result, value=secret(result.value, "find"))


def stream_of(result: AsyncIterator[T], method: str) -> AsyncIterator[T]:
    """Check that a method yields. A method that returns instead gives a coroutine."""
    if not hasattr(result, "__aiter__"):
        if close := getattr(result, "close", None):
            close()
        raise unfit(method, result, 'an async generator: use "yield"')
    return result


def generated_of(result: object) -> Generated:
    if isinstance(result, Generated):
        return replace(result, data=secrets(result.data, "generate"))
    return Generated(secrets(result, "generate"))


def validation_of(result: object) -> Validation:
    if not isinstance(result, Validation):
        raise unfit("validate", result, "Validation")
    return result


def warnings_of(result: object) -> tuple[str, ...]:
    if not isinstance(result, Sequence) or isinstance(result, str):
        raise unfit("check_config", result, "a tuple of warnings")
    return tuple(result)


def unfit(method: str, result: object, expected: str) -> ProviderError:
    """Return the error for a response of the wrong type."""
    return ProviderError(
        ErrorReason.INTERNAL,
        f"the provider failed: {method} returned {type(result).__name__}; it must return {expected}",
    )
