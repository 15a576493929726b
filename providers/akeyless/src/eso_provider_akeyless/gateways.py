"""Addresses of the API: Akeyless itself, or a gateway.

| address | the API is at |
|---|---|
| absent | https://api.akeyless.io |
| a host of akeyless.io, port 8081, a path that ends with /v2 | the address itself |
| any other | the address and /v2; if a login finds no API there, the address itself |
"""

from __future__ import annotations

from typing import Final

from yarl import URL

from eso_sdk.errors import invalid_config

DEFAULT_URL: Final = "https://api.akeyless.io"
FIELD: Final = "/akeylessGWApiURL"
_OWN_DOMAIN: Final = "akeyless.io"
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
    return host == _OWN_DOMAIN or host.endswith(f".{_OWN_DOMAIN}")


def prefixes(url: URL) -> tuple[str, ...]:
    """Return the prefixes of paths below an address, in the order in which a login tries them."""
    if is_own(url) or url.explicit_port == _V2_PORT or url.path.rstrip("/").endswith("/v2"):
        return ("",)
    return ("v2/", "")
