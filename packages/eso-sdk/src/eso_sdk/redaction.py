"""Redacts the secrets of a request in all texts that leave the provider: errors, conditions, warnings.

Authors write messages, and backends repeat parts of requests. So every text of a response is searched for the
credentials and values of its request (`kubebase.redaction`). An exception that is not a `ProviderError` shows its type
and the author's line, never its text; its traceback is logged.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import PurePath
from types import TracebackType
from typing import Final

import msgspec
import structlog

from eso_api.values import SecretBytes
from eso_wire.bounds import MAX_MESSAGE_CHARS
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Context, Credential, SecretMap
from kubebase.redaction import PartlyPublic, Redactor, texts_in

# --- The origin of an exception for log lines and error messages, without its text -----------------------------------
#
#     seat(exc, packages)  ->  "KeyError at provider.py:41", the author's own line if there is one
#     traceback_of(exc)    ->  every frame with its line of source, and the types of the exceptions
#
# The text of an exception may quote anything that author code holds: a credential, the spec, a value from the backend.
# A list of known secrets cannot cover the last one. So the text is omitted, and source lines are shown instead.


FAILURES: Final = (Exception, SystemExit)
"""What author code may raise. A library that calls `sys.exit` fails its call, not the process and its other calls."""
MAX_TRACEBACK: Final = 8 * 1024
_MAX_FRAMES: Final = 20
_MAX_LINKS: Final = 4


def seat(exc: BaseException, packages: frozenset[str] = frozenset()) -> str:
    """Name the type and location of an exception: the innermost line of these packages, else the innermost line."""
    frames = list(_frames(exc))
    if not frames:
        return type(exc).__name__
    own = [frame for frame in frames if frame.tb_frame.f_globals.get("__name__", "").partition(".")[0] in packages]
    last = (own or frames)[-1]
    return f"{type(exc).__name__} at {PurePath(last.tb_frame.f_code.co_filename).name}:{last.tb_lineno}"


def traceback_of(exc: BaseException) -> str:
    """List frames and types of an exception and its causes, the cause first. Long lists lose their beginning."""
    parts: list[str] = []
    for link in reversed(list(_links(exc))):
        frames = traceback.extract_tb(link.__traceback__, limit=-_MAX_FRAMES)
        parts += [*traceback.format_list(frames), f"{type(link).__name__}\n"]
    return "".join(parts)[-MAX_TRACEBACK:]


def _frames(exc: BaseException) -> Iterator[TracebackType]:
    trace = exc.__traceback__
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _links(exc: BaseException) -> Iterator[BaseException]:
    """Yield the exception, then its cause, and so on, up to a limit."""
    link: BaseException | None = exc
    for _ in range(_MAX_LINKS):
        if link is None:
            return
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


# --- Redacts the secrets of a request in all texts that leave the provider -------------------------------------------


_BACKEND_CODE_CHARS = 128

_log = structlog.get_logger("eso_sdk.author")


class CallRedactor(Redactor):
    """Redacts the secrets of one request in texts.

    `names` are the keys of the request: short values may be part of them. `packages` are those of the author: an
    unexpected exception is reported at their innermost line.
    """

    def __init__(
        self,
        secrets: Iterable[SecretBytes | PartlyPublic],
        names: Iterable[str] = (),
        packages: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__((_revealed(secret) for secret in secrets), names)
        self._packages = packages
        self._logged: set[str] = set()

    def text(self, text: str) -> str:
        """Return the text without any of the secrets, shortened to the maximum length of a message."""
        return super().text(text)[:MAX_MESSAGE_CHARS]

    def error(self, error: ProviderError) -> ProviderError:
        """Return the same error with all secrets masked."""
        return ProviderError(
            error.reason,
            self.text(error.message),
            retry=error.retry,
            retry_after=error.retry_after,
            backend_code=self.text(error.backend_code)[:_BACKEND_CODE_CHARS],
            subject=error.subject,
        )

    def of_exception(self, exc: BaseException) -> ProviderError:
        """Convert any exception of author code to a masked error. Exceptions that the author did not map are logged."""
        match exc:
            case ProviderError():
                return self.error(exc)
            case BaseExceptionGroup(exceptions=(first, *_)):
                return self.of_exception(first)
        location = seat(exc, self._packages)
        self._log_once(exc, location)
        match exc:
            case TimeoutError():
                return ProviderError(ErrorReason.BACKEND_TIMEOUT, "the backend did not answer in time")
            case ConnectionError():
                return ProviderError(ErrorReason.BACKEND_UNAVAILABLE, f"the backend was not reached: {location}")
            case _:
                return ProviderError(ErrorReason.INTERNAL, f"the provider failed: {location}")

    def _log_once(self, exc: BaseException, location: str) -> None:
        """Log an exception once for each place in a call: a batch may fail hundreds of times for one reason."""
        if location not in self._logged:
            self._logged.add(location)
            _log.error("unexpected exception; raise an error of eso_sdk", error=location, traceback=traceback_of(exc))

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Convert every exception of the block to a masked `ProviderError`. Cancellation passes unchanged."""
        try:
            yield
        except FAILURES as exc:  # this is where every failure of author code gets its one form
            raise self.of_exception(exc) from None


def secrets_of(
    context: Context,
    payloads: Iterable[SecretBytes | SecretMap] = (),
    resolved: Iterable[Credential] = (),
) -> Iterator[SecretBytes | PartlyPublic]:
    """Yield every secret of a request.

    These are its credentials, the values to write, and those that their metadata refers to. The project of a JSON
    credential stays in messages if the spec contains it too (`PartlyPublic`).
    """
    public = _texts_of_spec(context)
    for credential in context.config.credentials:
        yield from (PartlyPublic(secret.reveal(), public) for secret in credential.secrets())
    for credential in resolved:
        yield from credential.secrets()
    for payload in payloads:
        if isinstance(payload, SecretBytes):
            yield payload
        else:
            yield from payload.values()


def _revealed(secret: SecretBytes | PartlyPublic) -> bytes:
    return secret if isinstance(secret, PartlyPublic) else secret.reveal()


def _texts_of_spec(context: Context) -> frozenset[str]:
    spec = context.config.spec_json
    if spec is None:
        return frozenset()
    try:
        return frozenset(texts_in(msgspec.json.decode(spec.reveal())))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return frozenset()
