"""One HTTP request and its answer: bounded, with redirects to the same place only, and failures as error reasons.

| what happens | reason |
|---|---|
| 401, 403 | credentials rejected |
| 429 | rate limited, with Retry-After |
| 5xx, no connection, untrusted certificate | unavailable |
| every other status but 2xx, too much, too many redirects | backend error |

A 404 is no "not found": of that word deletion policies make a deletion, and of a whole call nobody may say it.

Messages are written here and name only what was configured: a library's words may hold addresses and headers.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

import aiohttp
from multidict import CIMultiDictProxy
from yarl import URL

from eso_provider_webhook import ntlm
from eso_sdk.errors import backend_error, rejected, throttled, unavailable
from kuberun.clock import Clock

MAX_ANSWER: Final = 4 * 1024 * 1024
MAX_REDIRECTS: Final = 5
MAX_RETRY_AFTER: Final = 3600.0

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_KEEPING_METHOD: Final = frozenset({307, 308})
_PLAIN_URL: Final = re.compile(r"[!-~]+")
_NO_LIMIT: Final = aiohttp.ClientTimeout(total=None, sock_connect=None)  # the caller has a deadline of its own


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What is sent. Everything but the method may hold credentials."""

    method: str
    url: URL = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: CIMultiDictProxy[str] = field(repr=False)
    body: bytes = field(repr=False)


def url_of(text: str) -> URL:
    """What is spelled as a URL stays as it is spelled: somebody may have signed it. ValueError if it is none."""
    return URL(text, encoded=_PLAIN_URL.fullmatch(text) is not None)


async def fetched(request: HttpRequest, *, tls: ssl.SSLContext | None, login: ntlm.Login | None, clock: Clock) -> bytes:
    """The body of a successful answer. No deadline of its own."""
    with _own_words():
        # One connection: NTLM logs in a connection, not a request.
        connector = aiohttp.TCPConnector(ssl=tls or True, limit=1)
        async with aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("Content-Type",),
            headers={"User-Agent": "eso-provider-webhook"},
            timeout=_NO_LIMIT,
            trust_env=True,
        ) as session:
            return await _followed(session, request, login, clock)


async def _followed(
    session: aiohttp.ClientSession, request: HttpRequest, login: ntlm.Login | None, clock: Clock
) -> bytes:
    for _ in range(MAX_REDIRECTS + 1):
        answer = await _sent(session, request)
        if login is not None and answer.status == HTTPStatus.UNAUTHORIZED:
            answer = await _logged_in(session, request, login, refusal=answer, now=clock.now())
        location = answer.headers.get("Location", "")
        if answer.status not in _REDIRECTS or not location:
            _check_status(answer, clock)
            return answer.body
        request = _redirected(request, answer.status, location)
    raise backend_error(f"the endpoint redirects more than {MAX_REDIRECTS} times")


async def _sent(session: aiohttp.ClientSession, request: HttpRequest) -> _Answer:
    async with session.request(
        request.method, request.url, headers=request.headers, data=request.body or None, allow_redirects=False
    ) as response:
        body = bytearray()
        async for chunk in response.content.iter_chunked(64 * 1024):
            body += chunk
            if len(body) > MAX_ANSWER:
                raise backend_error(f"the answer of the endpoint is larger than {MAX_ANSWER} bytes")
        return _Answer(response.status, response.headers, bytes(body))


async def _logged_in(
    session: aiohttp.ClientSession, request: HttpRequest, login: ntlm.Login, *, refusal: _Answer, now: datetime
) -> _Answer:
    """The answer after an NTLM login; the refusal itself if the endpoint knows no NTLM."""
    scheme = ntlm.scheme_of(refusal.headers.getall("WWW-Authenticate", []))
    if scheme is None:
        return refusal
    answer = await _sent(session, _authorized(request, f"{scheme} {ntlm.NEGOTIATE}"))
    challenge = ntlm.challenge_of(answer.headers.getall("WWW-Authenticate", []), scheme)
    if challenge is None:
        return answer
    return await _sent(session, _authorized(request, f"{scheme} {ntlm.authenticate(login, challenge, now)}"))


def _authorized(request: HttpRequest, value: str) -> HttpRequest:
    others = {name: text for name, text in request.headers.items() if name.lower() != "authorization"}
    return replace(request, headers={**others, "Authorization": value})


def _redirected(request: HttpRequest, status: int, location: str) -> HttpRequest:
    """The next request. Credentials may be anywhere in it, so it never goes to another host."""
    try:
        target = request.url.join(url_of(location))
        same = target.origin() == request.url.origin()
        upgraded = (request.url.scheme, target.scheme) == ("http", "https") and target.host == request.url.host
    except ValueError:
        same = upgraded = False
    if not (same or upgraded):
        raise backend_error("the endpoint redirects to another host, which is not followed; set url to that place")
    if status in _KEEPING_METHOD or request.method in ("GET", "HEAD"):
        return replace(request, url=target)
    return replace(request, url=target, method="GET", body=b"")


def _check_status(answer: _Answer, clock: Clock) -> None:
    code = str(answer.status)
    match answer.status:
        case status if 200 <= status < 300:
            return
        case 401 | 403:
            raise rejected(f"the endpoint does not accept the credentials: status {code}", backend_code=code)
        case 404:
            raise backend_error("the endpoint says that there is nothing at url: status 404", backend_code=code)
        case 429:
            raise throttled(_retry_after(answer.headers.get("Retry-After", ""), clock.now()), backend_code=code)
        case status if status >= 500:
            raise unavailable(f"the endpoint answers with status {code}", backend_code=code)
        case _:
            raise backend_error(f"the endpoint answers with status {code}", backend_code=code)


def _retry_after(text: str, now: datetime) -> float:
    """Seconds; 0 when nothing useful was said."""
    try:
        seconds = float(text) if text.isdecimal() else (_date(text) - now).total_seconds()
    except (ValueError, OverflowError):
        return 0.0
    return min(max(seconds, 0.0), MAX_RETRY_AFTER)


def _date(text: str) -> datetime:
    found = parsedate_to_datetime(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


@contextmanager
def _own_words() -> Iterator[None]:
    try:
        yield
    except (aiohttp.ClientConnectorCertificateError, ssl.SSLCertVerificationError):
        raise unavailable(
            "the certificate of the endpoint is not trusted, or is for another host; check caBundle and caProvider"
        ) from None
    except aiohttp.ClientConnectorDNSError:
        raise unavailable("the host of the endpoint has no address; check url") from None
    except (aiohttp.ClientSSLError, ssl.SSLError):
        raise unavailable("no TLS connection to the endpoint is possible") from None
    except aiohttp.ClientConnectorError:
        raise unavailable("the endpoint cannot be reached; check url, and that it runs") from None
    except (aiohttp.ClientError, OSError):
        raise unavailable("the connection to the endpoint broke, or it does not speak HTTP") from None
