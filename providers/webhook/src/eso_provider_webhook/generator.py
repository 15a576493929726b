"""Webhook: what an HTTP endpoint answers.

    spec -> templates over Secrets -> one request (`httpcall.py`) -> members of the JSON answer (`jsonanswer.py`)

Which Secrets a webhook may see is decided by the operator, which reads them. Nothing of a request or an answer is ever
said in an error: not the address, not a header, not a value.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
import ssl
from collections.abc import Mapping
from functools import cache
from typing import Final

import msgspec
from yarl import URL

from eso_api import durations
from eso_api.generators.webhook import WEBHOOK as V1_WEBHOOK
from eso_api.generators.webhook import WebhookSpec
from eso_api.v2.generator import GENERATOR_CATEGORIES
from eso_api.v2.owned import GENERATOR_CONFIG_GROUP, OwnedStatus, namespaced_config
from eso_provider_webhook import jsonanswer
from eso_provider_webhook.httpcall import HttpRequest, fetched, url_of
from eso_provider_webhook.ntlm import Login
from eso_render import Renderer, RenderError
from eso_sdk.errors import invalid_config, timed_out
from eso_sdk.provider import Generator, generator_kind
from eso_wire.values import GenerateRequest
from kuberun.deadline import Deadline
from kuberun.meta import Object

DEFAULT_TIMEOUT: Final = 30.0
"""Seconds. Without a bound of its own a request would take all the time the caller has."""
MAX_HEADERS: Final = 64
"""Each is a template, and each template may take its time."""

# What a client writes itself: as in Go, these headers have no effect.
_OWN_HEADERS: Final = frozenset({"host", "content-length", "transfer-encoding", "trailer"})
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
_PEM: Final = b"-----BEGIN"
_TO_STANDARD: Final = bytes.maketrans(b"-_", b"+/")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")

Secrets = Mapping[str, Mapping[str, bytes]]
"""What templates see: the keys of Secrets, by the name that the configuration gives each Secret."""


class Webhook(Object, kw_only=True):
    """What an HTTP endpoint answers, for v2 generators."""

    spec: WebhookSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


WEBHOOK = namespaced_config(Webhook, GENERATOR_CONFIG_GROUP, "webhooks", GENERATOR_CATEGORIES)


@generator_kind(objects=(WEBHOOK,), bridged=(V1_WEBHOOK,))
class WebhookGenerator(Generator[WebhookSpec]):
    """The members of the JSON object that the endpoint answers."""

    @classmethod
    def check_config(cls, config: WebhookSpec) -> tuple[str, ...]:
        if not config.url:
            raise invalid_config("/url", "must not be empty")
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
        _timeout(config)
        _bundle(config)
        _path(config)
        return ()

    async def generate(self, request: GenerateRequest) -> Mapping[str, bytes]:
        del request
        # A template may run for a while, and others want answers meanwhile.
        asked = await asyncio.to_thread(rendered, self.config, self._secrets())
        tls, login = self._tls(), self._login()
        timeout = _timeout(self.config)
        try:
            with self.observe("HTTPRequest"):
                async with Deadline(self.clock, timeout):
                    answer = await fetched(asked, tls=tls, login=login, clock=self.clock)
        except TimeoutError:
            raise timed_out(f"the endpoint did not answer within {timeout:g} s") from None
        return jsonanswer.members(answer, _path(self.config))

    def _secrets(self) -> Secrets:
        return {
            secret.name: {key: value.reveal() for key, value in self.whole_secret(secret.secret_ref).items()}
            for secret in self.config.secrets
        }

    def _tls(self) -> ssl.SSLContext | None:
        """None stands for the CAs of the system; a bundle is trusted instead of them, not besides."""
        where, bundle = "/caBundle", _bundle(self.config)
        if not bundle and self.config.ca_provider is not None:
            where, bundle = "/caProvider", self.ca(self.config.ca_provider)
        if not bundle:
            return None
        try:
            return ssl.create_default_context(cadata=bundle.decode("ascii"))
        except (ssl.SSLError, ValueError):
            raise invalid_config(where, "holds no certificates in PEM") from None

    def _login(self) -> Login | None:
        if self.config.auth is None or self.config.auth.ntlm is None:
            return None
        ntlm = self.config.auth.ntlm
        return Login(
            self.secret(ntlm.username_secret).reveal().decode("utf-8", "replace"),
            self.secret(ntlm.password_secret).reveal().decode("utf-8", "replace"),
        )


def rendered(config: WebhookSpec, secrets: Secrets) -> HttpRequest:
    """The request that a configuration and Secrets make."""
    headers = {name: _header(name, template, secrets) for name, template in config.headers.items()}
    return HttpRequest(
        method=config.method or "GET",
        url=_url(_filled("/url", config.url, secrets)),
        headers={name: value for name, value in headers.items() if name.lower() not in _OWN_HEADERS},
        body=_filled("/body", config.body, secrets) if config.body else b"",
    )


@cache
def _renderer() -> Renderer:
    return Renderer()


def _filled(path: str, template: str, secrets: Secrets) -> bytes:
    try:
        return _renderer().render_groups(template, secrets, name=path.removeprefix("/"))
    except RenderError as exc:
        raise invalid_config(path, str(exc)) from None


def _header(name: str, template: str, secrets: Secrets) -> str:
    try:
        value = _filled(f"/headers/{name}", template, secrets).decode()
    except UnicodeDecodeError:
        raise invalid_config(f"/headers/{name}", "is no text once it is filled in") from None
    if not _HEADER_VALUE.fullmatch(value):
        raise invalid_config(
            f"/headers/{name}", "has line breaks once it is filled in; does a value of a Secret end with one?"
        )
    return value


def _url(text: bytes) -> URL:
    try:
        spelled = text.decode()
        url = url_of(spelled)
        valid = url.scheme in ("http", "https") and bool(url.host) and not _CONTROL.search(spelled)
    except ValueError:
        valid = False
    if not valid:
        raise invalid_config("/url", "is no http or https URL once it is filled in")
    return url


def _timeout(config: WebhookSpec) -> float:
    try:
        seconds = durations.parse(config.timeout) / durations.SECOND if config.timeout else 0.0
    except durations.DurationError:
        raise invalid_config("/timeout", "must be a duration such as 10s") from None
    return seconds if seconds > 0 else DEFAULT_TIMEOUT


def _bundle(config: WebhookSpec) -> bytes:
    """Certificates in PEM. Some people encode them once more than the field itself does."""
    try:
        bundle = base64.b64decode("".join(config.ca_bundle.split()), validate=True)
    except (binascii.Error, ValueError):
        raise invalid_config("/caBundle", "is no base64") from None
    if _PEM in bundle:
        return bundle
    try:
        return base64.b64decode(b"".join(bundle.split()).translate(_TO_STANDARD), validate=True)
    except (binascii.Error, ValueError):
        return bundle


def _path(config: WebhookSpec) -> jsonanswer.Path:
    try:
        return jsonanswer.parsed(config.result.json_path)
    except jsonanswer.PathError as exc:
        raise invalid_config("/result/jsonPath", str(exc)) from None
