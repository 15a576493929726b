"""The templates of a webhook (url, headers, body, jsonPath) and their values.

    .remoteRef.NAME     the reference of the call; in url percent-encoded as in a query
    .SECRET.KEY         the keys of each Secret, under the name that the configuration gives the Secret

An unknown name is an error, which names the field. Errors never show the output of a template.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from urllib.parse import quote_plus

from yarl import URL

from eso_api.stores.webhook import WebhookCall
from eso_provider_webhook.filling import Piece, Secrets, fill
from eso_provider_webhook.offloop import computed
from eso_sdk.errors import invalid_config
from eso_sdk.http import HttpRequest, url_of

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
