"""The endpoint of one opened configuration: a client with TLS and NTLM, and the Secrets that templates see."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, Final, TypeVar
from urllib.parse import quote_plus

from yarl import URL

from eso_api.stores.webhook import WebhookCall
from eso_provider_webhook import ntlm
from eso_provider_webhook.responses import Piece, Secrets, fill
from eso_render.errors import RenderError
from eso_render.rendering import Rendering
from eso_render.workers import Workers, WorkerSettings
from eso_sdk.backend import Backend
from eso_sdk.errors import invalid_config
from eso_sdk.http import HttpRequest, HttpResponse, Login, Send, ca_bundle, tls_context, url_of
from kubebase import durations
from kubebase.clock import Clock

# --- Templates and paths of users, computed so that no call holds up another (`eso_render.rendering`) ----------------


T = TypeVar("T")

_MEMORY: Final = 96 * 2**20
"""Memory of each worker: the chart gives a provider less than the operator."""


async def computed(work: Callable[..., T], namespace: str, *, field: str) -> T:
    """Return the result of `work`, a function of `responses.py`. If it takes too long, the error names `field`."""
    try:
        return await _rendering().run(work, namespace)
    except RenderError as problem:
        raise invalid_config(field, str(problem)) from None


@cache
def _rendering() -> Rendering:
    """Return the one rendering of the process, so that there is one set of worker processes."""
    return Rendering(Workers(WorkerSettings(memory=_MEMORY)))


# --- The templates of a webhook (url, headers, body, jsonPath) and their values --------------------------------------
#
#     .remoteRef.NAME     the reference of the call; in url percent-encoded as in a query
#     .SECRET.KEY         the keys of each Secret, under the name that the configuration gives the Secret
#
# An unknown name is an error, which names the field. Errors never show the output of a template.


REMOTE_REF: Final = "remoteRef"

# Headers that the HTTP client sets itself. As in Go, a configuration cannot set them.
_OWN_HEADERS: Final = frozenset({"host", "content-length", "transfer-encoding", "trailer"})
_HEADER_VALUE: Final = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_REMOTE_NAME: Final = re.compile(r"\.remoteRef\.(\w+)")


@dataclass(frozen=True, slots=True)
class Variables:
    """The values that the templates of one call see. A generator has no `.remoteRef`."""

    secrets: Secrets = field(repr=False)
    remote: Mapping[str, bytes] | None = field(default=None, repr=False)

    @property
    def plain(self) -> Secrets:
        return self.secrets if self.remote is None else {**self.secrets, REMOTE_REF: self.remote}

    @property
    def in_url(self) -> Secrets:
        """Return the values for the url, percent-encoded as in a query, so that no key can add a path or parameter."""
        if self.remote is None:
            return self.secrets
        encoded = {name: quote_plus(value, safe="").encode() for name, value in self.remote.items()}
        return {**self.secrets, REMOTE_REF: encoded}

    def in_body(self, template: str) -> Secrets:
        """Return the values for the body; names of `.remoteRef` that this call does not set are empty.

        A body for pushes names the value by its remote key. Reads send the same body without such a name.
        """
        if self.remote is None:
            return self.secrets
        unset = dict.fromkeys(_REMOTE_NAME.findall(template), b"")
        return {**self.secrets, REMOTE_REF: {**unset, **self.remote}}


async def request_of(
    config: WebhookCall, variables: Variables, namespace: str, *, method: str, body: bytes | None = None
) -> HttpRequest:
    """Fill in the templates of a configuration, for a namespace. `body` replaces the one of the configuration."""
    pieces = {f"/headers/{name}": Piece(template, variables.plain) for name, template in config.headers.items()}
    if body is None and config.body:
        pieces["/body"] = Piece(config.body, variables.in_body(config.body))
    pieces["/url"] = Piece(config.url, variables.in_url)
    filled = await computed(partial(fill, pieces), namespace, field="")
    headers = {name: _header(f"/headers/{name}", filled[f"/headers/{name}"]) for name in config.headers}
    return HttpRequest(
        method=method,
        url=url_in(filled["/url"]),
        headers={name: value for name, value in headers.items() if name.lower() not in _OWN_HEADERS},
        body=filled.get("/body", b"") if body is None else body,
    )


async def rendered(path: str, template: str, groups: Secrets, namespace: str) -> bytes:
    """Fill in one template; `path` is its field in the configuration."""
    return (await computed(partial(fill, {path: Piece(template, groups)}), namespace, field=path))[path]


def is_template(text: str) -> bool:
    return "{{" in text


def url_in(text: bytes) -> URL:
    """Read the url once it is filled in."""
    try:
        spelled = text.decode()
        url = url_of(spelled)
        valid = url.scheme in ("http", "https") and bool(url.host) and not _CONTROL.search(spelled)
    except ValueError:
        valid = False
    if not valid:
        raise invalid_config("/url", "is not an http or https URL once it is filled in")
    return url


def _header(path: str, filled: bytes) -> str:
    try:
        value = filled.decode()
    except UnicodeDecodeError:
        raise invalid_config(path, "is not UTF-8 text once it is filled in") from None
    if not _HEADER_VALUE.fullmatch(value):
        raise invalid_config(path, "has line breaks once it is filled in; does a value of a Secret end with one?")
    return value


# --- The endpoint of one opened configuration ------------------------------------------------------------------------


DEFAULT_TIMEOUT: Final = 30.0
"""Seconds. Without a bound of its own a request would take all the time the caller has."""
MAX_HEADERS: Final = 64
"""Each is a template, and each template may take its time."""
MAX_REDIRECTS: Final = 5
REACH_SECONDS: Final = 15.0
SUBJECT: Final = "the endpoint"

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def check_call(config: WebhookCall) -> None:
    """Refuse what no call could work with. Looks at the configuration alone."""
    if not config.url:
        raise invalid_config("/url", "must not be empty")
    if not is_template(config.url):
        url_in(config.url.encode())
    if config.method and not _TOKEN.fullmatch(config.method):
        raise invalid_config("/method", "must be the name of an HTTP method, such as GET")
    if len(config.headers) > MAX_HEADERS:
        raise invalid_config("/headers", f"at most {MAX_HEADERS} headers")
    for name in config.headers:
        if not _TOKEN.fullmatch(name):
            raise invalid_config("/headers", "has a name that no HTTP header can have")
    names = [secret.name for secret in config.secrets]
    if len(set(names)) != len(names):
        raise invalid_config("/secrets", "two Secrets have the same name in templates")
    timeout_of(config)
    ca_bundle(config.ca_bundle)


def timeout_of(config: WebhookCall) -> float:
    """Read how long a request may take, in seconds."""
    try:
        seconds = durations.parse(config.timeout) / durations.SECOND if config.timeout else 0.0
    except durations.DurationError:
        raise invalid_config("/timeout", "must be a duration such as 10s") from None
    return seconds if seconds > 0 else DEFAULT_TIMEOUT


class Endpoint:
    """Made in `open` of a store or generator, closed in its `close`."""

    def __init__(self, backend: Backend[Any], config: WebhookCall) -> None:
        self._backend = backend
        self._config = config
        self._settings: dict[str, Any] = {
            "field": "/url",
            "tls": self._tls(),
            "redirects": MAX_REDIRECTS,
            "seconds": timeout_of(config),
        }
        self._login = self._ntlm_login()
        self._shared = backend.http_client(SUBJECT, **self._settings)
        self.secrets: Secrets = {
            secret.name: {key: value.reveal() for key, value in backend.whole_secret(secret.secret_ref).items()}
            for secret in config.secrets
        }

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Return the answer whatever its status is; raise a `ProviderError` if there is none."""
        with self._backend.observe("HTTPRequest"):
            if self._login is None:
                return await self._shared.send(request)
            # NTLM logs in a connection, not a request: each request has a connection of its own.
            client = self._backend.http_client(SUBJECT, **self._settings, connections=1, login=self._login)
            try:
                return await client.send(request)
            finally:
                await client.close()

    async def reach(self, url: URL) -> None:
        """Raise a `ProviderError` unless the host of the endpoint accepts connections."""
        await self._shared.reach(url, seconds=min(REACH_SECONDS, timeout_of(self._config)))

    async def close(self) -> None:
        await self._shared.close()

    def _tls(self) -> ssl.SSLContext | None:
        """Return the TLS context; None for the CAs of the system. A bundle replaces them."""
        field_path, bundle = "/caBundle", ca_bundle(self._config.ca_bundle)
        if not bundle and self._config.ca_provider is not None:
            field_path, bundle = "/caProvider", self._backend.ca(self._config.ca_provider)
        return tls_context(bundle, field_path=field_path) if bundle else None

    def _ntlm_login(self) -> Login | None:
        if self._config.auth is None or self._config.auth.ntlm is None:
            return None
        wanted = self._config.auth.ntlm
        user, password = (
            self._backend.secret(reference).reveal().decode("utf-8", "replace")
            for reference in (wanted.username_secret, wanted.password_secret)
        )
        return partial(_logged_in, ntlm.Login(user, password), self._backend.clock)


async def _logged_in(
    login: ntlm.Login, clock: Clock, request: HttpRequest, refusal: HttpResponse, send: Send
) -> HttpResponse:
    """Return the answer after an NTLM login; the refusal itself if the endpoint does not offer NTLM."""
    scheme = ntlm.scheme_of(refusal.headers.getall("WWW-Authenticate", []))
    if scheme is None:
        return refusal
    response = await send(_authorized(request, f"{scheme} {ntlm.NEGOTIATE}"))
    challenge = ntlm.challenge_of(response.headers.getall("WWW-Authenticate", []), scheme)
    if challenge is None:
        return response
    return await send(_authorized(request, f"{scheme} {ntlm.authenticate(login, challenge, clock.now())}"))


def _authorized(request: HttpRequest, value: str) -> HttpRequest:
    others = {name: text for name, text in request.headers.items() if name.lower() != "authorization"}
    return replace(request, headers={**others, "Authorization": value})
