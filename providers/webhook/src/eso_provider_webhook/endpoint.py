"""The endpoint of one opened configuration: a client with TLS and NTLM, and the Secrets that templates see."""

from __future__ import annotations

import re
import ssl
from dataclasses import replace
from functools import partial
from typing import Any, Final

from yarl import URL

from eso_api.stores.webhook import WebhookCall
from eso_provider_webhook import ntlm
from eso_provider_webhook.filling import Secrets
from eso_provider_webhook.templates import is_template, url_in
from eso_sdk.backend import Backend
from eso_sdk.errors import invalid_config
from eso_sdk.http import HttpRequest, HttpResponse, Login, Send, ca_bundle, tls_context
from kubebase import durations
from kubebase.clock import Clock

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
    answer = await send(_authorized(request, f"{scheme} {ntlm.NEGOTIATE}"))
    challenge = ntlm.challenge_of(answer.headers.getall("WWW-Authenticate", []), scheme)
    if challenge is None:
        return answer
    return await send(_authorized(request, f"{scheme} {ntlm.authenticate(login, challenge, clock.now())}"))


def _authorized(request: HttpRequest, value: str) -> HttpRequest:
    others = {name: text for name, text in request.headers.items() if name.lower() != "authorization"}
    return replace(request, headers={**others, "Authorization": value})
