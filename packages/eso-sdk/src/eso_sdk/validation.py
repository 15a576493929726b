"""Validation: a problem of the configuration is an answer; being unable to tell is an error of the call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from eso_sdk.configuration import decoded
from eso_sdk.kinds import ServedKind
from eso_sdk.redaction import Redactor
from eso_sdk.results import warnings_of
from eso_sdk.tracebacks import FAILURES
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import ConditionReport, Context, Validation, ValidationState

VERDICTS: Final = frozenset(
    {
        ErrorReason.CONFIG_INVALID,
        ErrorReason.CONFIG_NOT_FOUND,
        ErrorReason.CREDENTIALS_NOT_FOUND,
        ErrorReason.CREDENTIALS_REJECTED,
        ErrorReason.PERMISSION_DENIED,
        ErrorReason.NAMESPACE_DENIED,
    }
)
"""Reasons that concern the configuration, and hold until it changes."""


def checked(served: ServedKind, context: Context, redactor: Redactor) -> Validation:
    """Validate the configuration alone, without session or backend: admission uses this."""
    try:
        warnings = warnings_of(served.backend.check_config(decoded(served, context)))
    except FAILURES as exc:  # sorted into answers and errors right here
        return _verdict(redactor.of_exception(exc), served)
    return _fit(Validation(ValidationState.READY, warnings=warnings), served, redactor)


async def examined(
    served: ServedKind, ask: Callable[[], Awaitable[Validation]], context: Context, redactor: Redactor
) -> Validation:
    """Validate the configuration alone, then ask the backend."""
    alone = checked(served, context, redactor)
    if alone.state is not ValidationState.READY:
        return alone
    try:
        validation = await ask()
    except FAILURES as exc:  # sorted into answers and errors right here
        return _verdict(redactor.of_exception(exc), served)
    return _fit(replace(validation, warnings=(*alone.warnings, *validation.warnings)), served, redactor)


def _verdict(error: ProviderError, served: ServedKind) -> Validation:
    if error.reason not in VERDICTS:
        raise error
    return Validation(ValidationState.INVALID, error=error, operations=served.operations)


def _fit(validation: Validation, served: ServedKind, redactor: Redactor) -> Validation:
    """Redact the texts and remove operations that the kind does not have."""
    narrowed = served.operations if validation.operations is None else validation.operations & served.operations
    return replace(
        validation,
        warnings=tuple(redactor.text(warning) for warning in validation.warnings),
        error=None if validation.error is None else redactor.error(validation.error),
        operations=narrowed,
        conditions=tuple(_condition(condition, redactor) for condition in validation.conditions),
    )


def _condition(condition: ConditionReport, redactor: Redactor) -> ConditionReport:
    return replace(condition, message=redactor.text(condition.message))
