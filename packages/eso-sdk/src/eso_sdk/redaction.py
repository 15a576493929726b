"""Keeps what a request carried out of the words that leave: errors, conditions, warnings.

Authors write messages, and backends echo what they were sent. So every text of an answer is searched for the
credentials and values of its request, also in the spellings in which such things usually come back. And an exception
that no author meant for users shows its type and place only, never its words.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec

from eso_api.values import SecretBytes
from eso_wire.bounds import MAX_MESSAGE_CHARS
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.masking import SENSIBLE, without_short
from eso_wire.values import Context, Credential, SecretMap, Token

_MASK = "…"
_SHORTEST = 4  # shorter strings occur in any sentence; replacing them would only destroy it
_PREFIX = 16  # a longer secret is known by its first characters: echoes are often cut off
_HEAD = 12 * 1024  # how much of a secret is looked at: what is longer than any text cannot stand in it as a whole
_LONGEST_DOCUMENT = 64 * 1024
_LONGEST_TEXT = 8 * MAX_MESSAGE_CHARS
_BACKEND_CODE_CHARS = 128


class Redactor:
    """Masks the secrets of one request in texts. `names` are its keys: short values may be part of them."""

    __slots__ = ("_forms", "_names", "_secrets")

    def __init__(self, secrets: Iterable[SecretBytes], names: Iterable[str] = ()) -> None:
        self._secrets = tuple(secrets)
        self._names = tuple(names)
        self._forms: tuple[str, ...] | None = None

    def text(self, text: str) -> str:
        """The text without any of the secrets, and not longer than a message may be."""
        spellings = self._spellings()
        cut = text[:_LONGEST_TEXT]
        for form in (form for form in spellings if len(form) >= SENSIBLE):
            cut = _masked(cut, form)
        cut = without_short(cut, [form for form in spellings if len(form) < SENSIBLE], self._names, _MASK)
        if len(text) > _LONGEST_TEXT and spellings:
            # The end may be the begin of a secret, too short to be known.
            cut = cut[:-_PREFIX]
        return cut[:MAX_MESSAGE_CHARS]

    def error(self, error: ProviderError) -> ProviderError:
        """The same error, fit to leave."""
        return ProviderError(
            error.reason,
            self.text(error.message),
            retry=error.retry,
            retry_after=error.retry_after,
            backend_code=self.text(error.backend_code)[:_BACKEND_CODE_CHARS],
            subject=error.subject,
        )

    def of_exception(self, exc: BaseException) -> ProviderError:
        """Whatever author code raised, as an error fit to leave."""
        match exc:
            case ProviderError():
                return self.error(exc)
            case BaseExceptionGroup(exceptions=(first, *_)):
                return self.of_exception(first)
            case TimeoutError():
                return ProviderError(ErrorReason.BACKEND_TIMEOUT, "the backend did not answer in time")
            case ConnectionError():
                return ProviderError(ErrorReason.BACKEND_UNAVAILABLE, f"the backend was not reached: {seat(exc)}")
            case _:
                return ProviderError(ErrorReason.INTERNAL, f"the provider failed: {seat(exc)}")

    @contextmanager
    def guard(self) -> Iterator[None]:
        """What leaves this block as an exception is a `ProviderError` fit to leave. Cancellation passes."""
        try:
            yield
        except Exception as exc:  # noqa: BLE001 - this is where every failure of author code gets its one form
            raise self.of_exception(exc) from None

    def _spellings(self) -> tuple[str, ...]:
        """Made when the first error asks for them: most requests have none. Longest first, as one may hold another."""
        if self._forms is None:
            found = {form for secret in self._secrets for form in _forms(secret.reveal())}
            self._forms = tuple(sorted((form for form in found if len(form) >= _SHORTEST), key=len, reverse=True))
        return self._forms


def secrets_of(
    context: Context,
    payloads: Iterable[SecretBytes | SecretMap] = (),
    resolved: Iterable[Credential] = (),
) -> Iterator[SecretBytes]:
    """Every secret a request carried: its credentials, the values to write, and what their metadata refers to."""
    for credential in (*context.config.credentials, *resolved):
        yield from _of_credential(credential)
    for payload in payloads:
        if isinstance(payload, SecretBytes):
            yield payload
        else:
            yield from payload.values()


def seat(exc: BaseException) -> str:
    """Type and place of an exception, for logs and messages: `KeyError at notes.py:41`."""
    trace = exc.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(exc).__name__
    return f"{type(exc).__name__} at {PurePath(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"


def _of_credential(credential: Credential) -> Iterator[SecretBytes]:
    match credential.value:
        case SecretBytes() as one:
            yield one
        case Token(token=token):
            yield token
        case Mapping() as whole:
            yield from whole.values()


def _masked(text: str, form: str) -> str:
    """The text without that secret, also where only its first part is repeated."""
    if len(form) <= _PREFIX:
        return text.replace(form, _MASK)
    parts: list[str] = []
    at = 0
    while (found := text.find(form[:_PREFIX], at)) >= 0:
        end = found + _PREFIX
        while end < len(text) and end - found < len(form) and text[end] == form[end - found]:
            end += 1
        parts += [text[at:found], _MASK]
        at = end
    return "".join((*parts, text[at:]))


def _forms(raw: bytes) -> Iterator[str]:
    head = raw[:_HEAD]
    text = head.decode(errors="replace").strip()
    if not text:
        return
    yield from _spelled(text)
    yield base64.b64encode(head).decode().rstrip("=")
    yield base64.urlsafe_b64encode(head).decode().rstrip("=")
    yield head.hex()
    # A key file or a JSON document is rarely echoed as a whole.
    for line in text.splitlines():
        yield from _spelled(line.strip())
    for leaf in _leaves(raw):
        yield from _spelled(leaf)


def _spelled(text: str) -> Iterator[str]:
    yield text
    yield quote(text, safe="")
    yield quote_plus(text)
    yield json.dumps(text)[1:-1]
    yield repr(text)[1:-1]


def _leaves(raw: bytes) -> Iterator[str]:
    if raw[:1] not in (b"{", b"[") or len(raw) > _LONGEST_DOCUMENT:
        return
    try:
        document = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return
    pending: list[Any] = [document]
    while pending:
        match pending.pop():
            case str() as text:
                yield text
            case dict() as members:
                pending.extend(members.values())
            case list() as entries:
                pending.extend(entries)
            case _:
                continue
