"""Responses with an ETag, cached so that the endpoint may return 304 instead of sending an unchanged value again.

A response belongs to the whole request, headers and body included: another caller's request never finds it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Final

from eso_sdk.http import HttpRequest, HttpResponse

MAX_ENTRIES: Final = 64
MAX_BYTES: Final = 256 * 1024
"""Size limit of all responses that one opened store caches. A process has up to 256 opened stores."""
MAX_ETAG: Final = 256

_KEY: Final = secrets.token_bytes(32)
"""Keys the fingerprints, which cover credentials, so that guesses cannot be tested against them."""


@dataclass(frozen=True, slots=True)
class CachedResponse:
    """An earlier response and its ETag."""

    etag: str
    body: bytes = field(repr=False)


class ETagCache:
    """The cached responses of one opened store. Bounded by number and bytes; the oldest one is evicted first."""

    def __init__(self, *, entries: int = MAX_ENTRIES, size: int = MAX_BYTES) -> None:
        self._entries = entries
        self._size = size
        self._held = 0
        self._cached: OrderedDict[bytes, CachedResponse] = OrderedDict()

    def find(self, request: HttpRequest) -> CachedResponse | None:
        """Return the earlier response to a request that may be sent conditionally."""
        if request.method != "GET" or any(name.lower() == "if-none-match" for name in request.headers):
            return None
        return self._cached.get(fingerprint(request))

    def store(self, request: HttpRequest, response: HttpResponse) -> None:
        """Store a response if it has an ETag and there is room for it."""
        key, etag = fingerprint(request), response.headers.get("ETag", "")
        self._drop(key)
        usable = 0 < len(etag) <= MAX_ETAG and etag.isascii() and etag.isprintable()
        if request.method != "GET" or not usable or len(response.body) > self._size // 4:
            return
        self._cached[key] = CachedResponse(etag, response.body)
        self._held += len(response.body)
        while len(self._cached) > self._entries or self._held > self._size:
            self._drop(next(iter(self._cached)))

    def _drop(self, key: bytes) -> None:
        if (cached := self._cached.pop(key, None)) is not None:
            self._held -= len(cached.body)


def conditional(request: HttpRequest, cached: CachedResponse) -> HttpRequest:
    """Request the value only if it differs from the cached one."""
    return replace(request, headers={**request.headers, "If-None-Match": cached.etag})


def fingerprint(request: HttpRequest, *more: str) -> bytes:
    """Return a digest of the request and of all other inputs of the value. Stable within this process only."""
    digest = hmac.new(_KEY, digestmod=hashlib.sha256)
    headers = (part for pair in sorted(request.headers.items()) for part in pair)
    for part in (request.method, str(request.url), *headers, *more):
        digest.update(len(part).to_bytes(8, "big") + part.encode("utf-8", "surrogateescape"))
    digest.update(request.body)
    return digest.digest()
