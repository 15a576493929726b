"""Keeps values and credentials out of what providers say: their messages end up in conditions, events and logs.

A provider may repeat what it was sent or what it read. Everything secret that one call carried, in either direction, is
looked for in every text that comes back, also in base64, in hexadecimal, in an address and cut short; of a value that
is JSON, each text in it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any
from urllib.parse import quote, quote_plus

from eso_api.values import SecretBytes
from eso_operator.providers.errors import restated
from eso_wire.bounds import MAX_MESSAGE_CHARS
from eso_wire.errors import ProviderError
from eso_wire.masking import SENSIBLE, without_short
from eso_wire.values import (
    ConditionReport,
    Config,
    Credential,
    GetResult,
    PushBatch,
    SecretMap,
    Token,
    Validation,
)
from kuberun.redaction import bounded

_MASK = "…"
_SHORTEST = 4  # shorter values occur in any sentence; masking them would only destroy it
_PREFIX = 12  # so much of a value's beginning is enough to recognise it, also where it was cut off
_MEMBERS = 1000  # of one value that is JSON; whoever has more names none of them in an error
_VALUE_MEMBERS = frozenset({"value", "valueMap"})
"""Where a configuration itself holds values, as that of the fake provider does."""


class Veil:
    """Masks the secrets of one call. `names` are the keys that it asked for: short values may be part of them."""

    def __init__(self, secrets: Iterable[bytes], names: Sequence[str] = ()) -> None:
        spellings: set[str] = set()
        for secret in secrets:
            spellings.update(_spellings(secret))
        ordered = sorted(spellings, key=len, reverse=True)
        self._long = [spelling for spelling in ordered if len(spelling) >= SENSIBLE]
        self._short = ordered[len(self._long) :]
        self._names = names

    def text(self, text: str) -> str:
        for spelling in self._long:
            text = _without(text, spelling)
        text = without_short(text, self._short, self._names, _MASK)
        return bounded(text, MAX_MESSAGE_CHARS)

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
    for credential in config.credentials:
        yield from _secrets_of_credential(credential)
    if config.spec_json is not None:
        with suppress(ValueError, RecursionError):
            yield from _values_of_spec(json.loads(config.spec_json.reveal()))


def secrets_of_push(batch: PushBatch) -> Iterator[bytes]:
    for item in batch.items:
        yield from secrets_of_value(item.payload)
        for credential in item.resolved:
            yield from _secrets_of_credential(credential)


def secrets_of_results(results: Iterable[GetResult]) -> Iterator[bytes]:
    for result in results:
        if isinstance(result.outcome, SecretBytes | Mapping):
            yield from secrets_of_value(result.outcome)


def secrets_of_value(value: SecretBytes | SecretMap) -> Iterator[bytes]:
    if isinstance(value, SecretBytes):
        yield value.reveal()
    else:
        yield from (each.reveal() for each in value.values())


def _secrets_of_credential(credential: Credential) -> Iterator[bytes]:
    match credential.value:
        case Token(token=token):
            yield token.reveal()
        case SecretBytes() | Mapping() as value:
            yield from secrets_of_value(value)


def _values_of_spec(document: Any) -> Iterator[bytes]:
    match document:
        case dict():
            for name, member in document.items():
                yield from _texts(member) if name in _VALUE_MEMBERS else _values_of_spec(member)
        case list():
            for member in document:
                yield from _values_of_spec(member)


def _texts(document: Any) -> Iterator[bytes]:
    match document:
        case str():
            yield document.encode(errors="ignore")
        case dict():
            for member in document.values():
                yield from _texts(member)
        case list():
            for member in document:
                yield from _texts(member)


def _spellings(secret: bytes) -> Iterator[str]:
    """How a value may stand in a text. Long ones are known by their beginning, so the rest need not be prepared."""
    head = secret[: 4 * MAX_MESSAGE_CHARS]
    text = head.decode(errors="replace")
    candidates = [text, text.strip(), *text.splitlines(), *_members(secret), json.dumps(text)[1:-1]]
    candidates += [base64.b64encode(head).decode(), base64.urlsafe_b64encode(head).decode().rstrip("=")]
    candidates += [head.hex(), quote(head, safe=""), quote_plus(head)]
    yield from (each for each in candidates if len(each) >= _SHORTEST)


def _members(secret: bytes) -> Iterator[str]:
    """The texts of a value that is JSON: what is read or refused is often one of them."""
    if secret[:1] in (b"{", b"["):
        with suppress(ValueError, RecursionError):
            yield from (member.decode() for member in islice(_texts(json.loads(secret)), _MEMBERS))


def _without(text: str, spelling: str) -> str:
    text = text.replace(spelling, _MASK)
    head = spelling[:_PREFIX]
    if len(spelling) <= _PREFIX:
        return text
    while (start := text.find(head)) >= 0:
        end = start + _PREFIX
        while end < len(text) and end - start < len(spelling) and text[end] == spelling[end - start]:
            end += 1
        text = text[:start] + _MASK + text[end:]
    return text
