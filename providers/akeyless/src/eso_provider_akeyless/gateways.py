"""Addresses of the API: Akeyless itself, or a gateway.

| address | the API is at |
|---|---|
| absent | https://api.akeyless.io |
| a host of akeyless.io, port 8081, a path that ends with /v2 | the address itself |
| any other | the address and /v2; if a login finds no API there, the address itself |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from yarl import URL

from eso_sdk.errors import backend_error, invalid_config
from eso_sdk.http import HttpResponse

DEFAULT_URL: Final = "https://api.akeyless.io"
FIELD: Final = "/akeylessGWApiURL"
OWN_HOSTS: Final = ("akeyless.io", ".akeyless.io")
"""Hosts of Akeyless; an entry that begins with a dot means all hosts below it."""
UNKNOWN_PATH: Final = "unknown command"
"""Responses of the API to paths that it does not have."""
_V2_PORT: Final = 8081
"""Gateways serve the API without a prefix at this port."""


def api_url(text: str) -> URL:
    """Return the address of a store."""
    try:
        url = URL(text or DEFAULT_URL)
    except ValueError:
        url = URL()
    if url.scheme not in ("http", "https") or not url.host or url.query_string or url.user or url.fragment:
        raise invalid_config(FIELD, f"must be a URL such as {DEFAULT_URL} or https://gateway.example.com:8000/api/v2")
    return url


def is_own(url: URL) -> bool:
    """Return whether Akeyless itself serves an address."""
    host = url.host or ""
    return host == OWN_HOSTS[0] or host.endswith(OWN_HOSTS[1])


def prefixes(url: URL) -> tuple[str, ...]:
    """Return the prefixes of paths below an address, in the order in which a login tries them."""
    if is_own(url) or url.explicit_port == _V2_PORT or url.path.rstrip("/").endswith("/v2"):
        return ("",)
    return ("v2/", "")


class _Refusal(msgspec.Struct, frozen=True):
    error: str


def status_of(subject: str) -> Callable[[HttpResponse], int]:
    """Return the check that a 404 is Akeyless's own: one of a proxy must never be taken for a missing item."""

    def check(response: HttpResponse) -> int:
        if response.status == 404 and not _is_of_an_item(response.body):
            raise backend_error(
                f"{subject} responds with a status 404 that does not come from Akeyless's API; check {FIELD} and the"
                " proxies before it",
                backend_code="404",
            )
        return response.status

    return check


def _is_of_an_item(body: bytes) -> bool:
    try:
        return UNKNOWN_PATH not in msgspec.json.decode(body, type=_Refusal).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
