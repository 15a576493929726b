"""What failed at Bitwarden, from the text of its SDK: the companion server passes that text on, with status 400.

The text may quote the request, so only its status and a few fixed words are looked for, and nothing of it is repeated.
"""

from __future__ import annotations

import re
from typing import Final

from eso_sdk.errors import backend_error, error_for_status, rejected, unavailable
from eso_wire.errors import ProviderError

MISSING: Final = 404

_STATUS: Final = re.compile(r"\[(\d{3})[ \]]")
_UNREACHED: Final = ("error sending request", "dns error", "timed out", "connection", "builder error")
_LOGIN: Final = ("login", "access token", "invalid_client", "decryption key", "not authenticated", "Identity")


def status_in(text: str) -> int:
    """Return the status that Bitwarden itself answered with; 0 if the text has none."""
    found = _STATUS.search(text)
    return int(found[1]) if found else 0


def failure_of(text: str, subject: str, *, login: bool = False) -> ProviderError:
    """Return the error for a text of the SDK."""
    status = status_in(text)
    login = login or any(word in text for word in _LOGIN)
    if status == 429 or status >= 500:
        return error_for_status(status, subject) or backend_error(f"{subject} answers with status {status}")
    if status == 0 and any(word in text for word in _UNREACHED):
        return unavailable(f"{subject} cannot reach Bitwarden; check apiURL and identityURL, and the network")
    if login or status == 401:
        return rejected(
            f"{subject} refuses the access token of /auth/secretRef/credentials; check that it is the whole token of a"
            " machine account that still exists, and identityURL",
            backend_code=str(status or ""),
        )
    if status and (known := error_for_status(status, subject)) is not None:
        return known
    return backend_error(f"{subject} answers with an error; check organizationID, projectID and the keys")
