"""What failed at Bitwarden, from the text of its SDK: the companion server passes that text on, with status 400.

The text may quote the request, so only a status and a few fixed terms are searched, and nothing of it is repeated.
"""

from __future__ import annotations

import re
from typing import Final

from eso_sdk.errors import backend_error, error_for_status
from eso_sdk.http import HttpResponse
from eso_wire.errors import ProviderError

MISSING: Final = 404
UNCLEAR: Final = 400

_REJECTED: Final = 401
_UNREACHED: Final = 503
_WRAPPED: Final = frozenset({400, 500})
"""Statuses of the companion server that come with a text of the SDK."""
_STATUS: Final = re.compile(r"\[(\d{3})[ \]]")
_NO_RESPONSE: Final = ("error sending request", "dns error", "timed out", "onnection", "builder error")
_LOGIN: Final = ("failed to login", "ccess token", "invalid_client", "decryption key", "not authenticated")


def meaning(text: str, *, login: bool = False) -> int:
    """Return the status that a text of the SDK means."""
    found = _STATUS.search(text)
    status = int(found[1]) if found else 0
    if status == 429 or status >= 500:
        return status
    if not status and any(term in text for term in _NO_RESPONSE):
        return _UNREACHED
    if login or status == _REJECTED or any(term in text for term in _LOGIN):
        return _REJECTED
    return status or UNCLEAR


def status_of(response: HttpResponse) -> int:
    """Return the status of Bitwarden behind a response of the companion server."""
    if response.status not in _WRAPPED:
        return response.status
    return meaning(response.body.decode("utf-8", "replace"))


def failure_of(text: str, subject: str, *, login: bool = False) -> ProviderError:
    """Return the error for a text of the SDK."""
    status = meaning(text, login=login)
    return error_for_status(status, subject) or backend_error(f"{subject} responds with HTTP {status}")
