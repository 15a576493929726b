"""Requests to one GitHub: the address of its API, its version, and how it tells its limits."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from yarl import URL

from eso_sdk.errors import invalid_config
from eso_sdk.http import MAX_RETRY_AFTER, HttpResponse, retry_after
from eso_sdk.rest import RestSettings

API: Final = "https://api.github.com"

_WEB: Final = ("", "https://github.com")
_ENTERPRISE: Final = "/api/v3"
_HEADERS: Final = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
_PAUSE: Final = 60.0
"""Seconds to wait after a limit without a time, as GitHub asks for."""


def store_base(url: str) -> URL:
    """Return the address of the API for `url` of a store, which names the web site or the API.

    An enterprise server has its API below `/api/v3`; a host `api.…` or `….api.…` is an API already.
    """
    text = url.rstrip("/")
    if text in _WEB:
        return URL(API)
    base = _parsed(text)
    host = base.host or ""
    if text.endswith(_ENTERPRISE) or host.startswith("api.") or ".api." in host:
        return base
    return _parsed(text + _ENTERPRISE)


def generator_base(url: str) -> URL:
    """Return the address of the API for `url` of a generator, which names the API itself."""
    return _parsed(url.rstrip("/") or API)


def settings_of(base: URL) -> RestSettings:
    return RestSettings(f"GitHub {base.origin()}", base, headers=_HEADERS, limits=limited)


def limited(answer: HttpResponse, now: datetime) -> float | None:
    """Return the seconds to wait if a limit is reached: GitHub answers 403 or 429, with one of two headers or none."""
    if answer.status not in (403, 429):
        return None
    if seconds := retry_after(answer.headers, now):
        return seconds
    reset = answer.headers.get("X-RateLimit-Reset", "")
    if answer.headers.get("X-RateLimit-Remaining") == "0" and reset.isdecimal():
        until = datetime.fromtimestamp(min(int(reset), 2**33), UTC)
        return min(max((until - now).total_seconds(), 1.0), MAX_RETRY_AFTER)
    return _PAUSE if answer.status == 429 or b"secondary rate limit" in answer.body else None


def _parsed(text: str) -> URL:
    try:
        base = URL(text)
    except ValueError:
        base = URL()
    if base.scheme not in ("http", "https") or not base.host:
        raise invalid_config("/url", "must be a URL such as https://github.example.com")
    if base.user is not None or base.password is not None:
        raise invalid_config("/url", "must not contain a user or a password")
    return base
