"""Redacts values and credentials in texts of providers, which end up in conditions, events and logs.

A provider may repeat parts of the request or of the values it read. All secrets of one call, in either direction, are
redacted in every text that it returns (`kubebase.redaction`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from eso_api.values import SecretBytes
from eso_operator.providers.errors import restated
from eso_wire.bounds import MAX_MESSAGE_CHARS
from eso_wire.errors import ProviderError
from eso_wire.values import (
    ConditionReport,
    Config,
    GetResult,
    PushBatch,
    SecretMap,
    Validation,
)
from kubebase.redaction import PartlyPublic, Redactor, texts_in
from kuberun.redaction import bounded

VALUE_MEMBERS = frozenset({"value", "valueMap"})
"""Fields of a configuration that contain values, as in that of the fake provider."""


class ResponseRedactor(Redactor):
    """Redacts the secrets of one call. `names` are the keys that it requested: short values may be part of them."""

    def text(self, text: str) -> str:
        return bounded(super().text(text), MAX_MESSAGE_CHARS)

    def error(self, error: ProviderError) -> ProviderError:
        return restated(error, message=self.text(error.message), backend_code=self.text(error.backend_code))

    def validation(self, validation: Validation) -> Validation:
        return replace(
            validation,
            error=None if validation.error is None else self.error(validation.error),
            warnings=tuple(self.text(warning) for warning in validation.warnings),
            conditions=tuple(self.condition(condition) for condition in validation.conditions),
        )

    def condition(self, condition: ConditionReport) -> ConditionReport:
        return replace(condition, message=self.text(condition.message), reason=self.text(condition.reason))


def secrets_of_config(config: Config) -> Iterator[bytes]:
    """Yield credentials, and values that the spec itself contains.

    The project of a JSON credential stays in messages if the spec contains it too (`PartlyPublic`).
    """
    spec: Any = None
    if config.spec_json is not None:
        with suppress(ValueError, RecursionError):
            spec = json.loads(config.spec_json.reveal())
    values = list(_values_of_spec(spec))
    public = frozenset(texts_in(spec)) - {value.decode() for value in values}
    for credential in config.credentials:
        yield from (PartlyPublic(secret.reveal(), public) for secret in credential.secrets())
    yield from values


def secrets_of_push(batch: PushBatch) -> Iterator[bytes]:
    for item in batch.items:
        yield from secrets_of_value(item.payload)
        for credential in item.resolved:
            yield from (secret.reveal() for secret in credential.secrets())


def secrets_of_results(results: Iterable[GetResult]) -> Iterator[bytes]:
    for result in results:
        if isinstance(result.outcome, SecretBytes | Mapping):
            yield from secrets_of_value(result.outcome)


def secrets_of_value(value: SecretBytes | SecretMap) -> Iterator[bytes]:
    if isinstance(value, SecretBytes):
        yield value.reveal()
    else:
        yield from (each.reveal() for each in value.values())


def _values_of_spec(document: Any) -> Iterator[bytes]:
    match document:
        case dict():
            for name, member in document.items():
                yield from _encoded_texts(member) if name in VALUE_MEMBERS else _values_of_spec(member)
        case list():
            for member in document:
                yield from _values_of_spec(member)


def _encoded_texts(document: Any) -> Iterator[bytes]:
    return (text.encode(errors="ignore") for text in texts_in(document))
