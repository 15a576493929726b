"""HTTP to one server: address, TLS, headers, namespaces and consistency of the configuration.

    connection = connect(self, self.config)
    reply = await connection.request("GET", "kv/data/app", token=token, namespace="team")

It knows nothing of keys, logins or retries. A request that gets no response raises `ProviderError`; every response is
a `Reply`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote, urlencode

from yarl import URL

from eso_api.stores.vault import OpenBaoProvider, VaultProvider
from eso_api.values import SecretBytes
from eso_provider_vault.documents import Json, NotJsonError, compact, parse
from eso_provider_vault.errors import redirected
from eso_provider_vault.replies import Endpoint, Reply, shown
from eso_provider_vault.settings import Settings, settings_of
from eso_sdk.backend import Backend
from eso_sdk.errors import invalid_config
from eso_sdk.http import HttpClient, HttpRequest, HttpResponse, ca_bundle, tls_context, url_of
from eso_wire.errors import ErrorReason, ProviderError

MAX_RESPONSE: Final = 32 * 1024 * 1024
"""A listing of 10,000 keys with their metadata is about 15 MB."""
REQUEST_SECONDS: Final = 30.0

_READS: Final = frozenset({"GET", "LIST", "SCAN"})
_TEMPORARY_REDIRECT: Final = 307
_TOKEN: Final = "X-Vault-Token"  # noqa: S105 - a header's name
_NAMESPACE: Final = "X-Vault-Namespace"
_INDEX: Final = "X-Vault-Index"
_RESERVED: Final = frozenset({"x-vault-token", "x-vault-request", "host", "content-length", "transfer-encoding"})

Query = Mapping[str, str] | Mapping[str, list[str]]


class Connection:
    """Requests to one server, of one configuration."""

    def __init__(self, http: HttpClient, settings: Settings) -> None:
        self._http = http
        self.settings = settings
        self._index = ""

    async def request(
        self,
        method: str,
        path: str,
        *,
        token: SecretBytes | None,
        namespace: str,
        query: Query | None = None,
        body: Mapping[str, Json] | None = None,
    ) -> Reply:
        """Send one request to `/v1/PATH`; the path is unescaped."""
        headers = self.headers(token, namespace)
        content = b""
        if body is not None:
            headers["Content-Type"] = "application/json"
            content = compact(dict(body))
        if self._index and self.settings.read_your_writes:
            headers[_INDEX] = self._index
        response = await self._send(HttpRequest(method, url_of(self.url(path, query)), headers, content))
        if method not in _READS:
            self._index = newer(self._index, response.headers.get(_INDEX, ""))
        return _reply(response.status, {name.lower(): value for name, value in response.headers.items()}, response.body)

    async def _send(self, request: HttpRequest) -> HttpResponse:
        """Send a request. A standby node names the active one (307): that is followed once, as Vault's clients do."""
        response = await self._http.send(request)
        if response.status != _TEMPORARY_REDIRECT:
            return response
        target = _target(request.url, response.headers.get("Location", ""))
        standby = shown(self.settings.server)
        if target is None:
            raise redirected(f"{standby} redirects to an address that is not followed with a token")
        try:
            response = await self._http.send(replace(request, url=target))
        except ProviderError as failed:
            if failed.reason is not ErrorReason.CONFIG_INVALID:
                raise
            raise redirected(f"{standby} redirects to {target.origin()}, which stores may not reach") from None
        if response.status == _TEMPORARY_REDIRECT:
            raise redirected(f"{standby} redirects to {target.origin()}, which redirects again")
        return response

    def url(self, path: str, query: Query | None = None) -> str:
        tail = f"?{urlencode(query, doseq=True)}" if query else ""
        return f"{self.settings.server}/v1/{quote(path, safe='/')}{tail}"

    def headers(self, token: SecretBytes | None, namespace: str) -> dict[str, str]:
        """Return the headers of every request: those of the spec, and Vault's own."""
        headers = dict(self.settings.headers)
        headers["X-Vault-Request"] = "true"
        if namespace:
            headers[_NAMESPACE] = namespace
        if token is not None:
            headers[_TOKEN] = header_text(token)
        if self.settings.forward_inconsistent:
            headers["X-Vault-Inconsistent"] = "forward-active-node"
        return headers

    def endpoint(self, path: str, namespace: str) -> Endpoint:
        """Return the name of a request for messages."""
        return Endpoint(self.settings.server, path, namespace, self.settings.has_auth)

    @property
    def http(self) -> HttpClient:
        """Return the HTTP client, for websockets."""
        return self._http

    async def close(self) -> None:
        await self._http.close()


def connect(
    backend: Backend[Any], config: VaultProvider | OpenBaoProvider, *, certificate: bytes = b"", key: bytes = b""
) -> Connection:
    """Return the connection of a store or generator. `certificate` and `key` replace those of `tls`."""
    settings = settings_of(config)
    if refused := sorted(name for name in settings.headers if name.lower() in _RESERVED):
        raise invalid_config("/headers", f"{refused[0]} is set by the provider; remove it")
    if isinstance(config, VaultProvider) and not certificate:
        certificate, key = _client_certificate(backend, config)
    bundle = _bundle(backend, config)
    tls = tls_context(bundle, certificate=certificate, key=key) if bundle or certificate else None
    http = backend.http_client(
        f"server {shown(settings.server)}",
        field="/server",
        tls=tls,
        max_response=MAX_RESPONSE,
        seconds=REQUEST_SECONDS,
    )
    return Connection(http, settings)


def header_text(token: SecretBytes) -> str:
    """Return a token for use in a header; raise for blanks or line breaks inside, which no Vault token has."""
    text = token.reveal().decode("ascii", "replace")
    if not text or not text.isprintable() or " " in text or "\ufffd" in text:
        raise invalid_config("/auth", "the token is empty, or has characters that no token has; check the Secret")
    return text


def newer(known: str, received: str) -> str:
    """Return the later of two `X-Vault-Index` values; responses of parallel writes may arrive in any order."""
    if not received or not known:
        return received or known
    old, new = _positions(known), _positions(received)
    return known if old is not None and new is not None and old[0] == new[0] and old[1:] > new[1:] else received


def _positions(index: str) -> tuple[str, int, int] | None:
    """Return the cluster, local and replicated position of an index: `v1:CLUSTER:LOCAL:REPLICATED:...` in base64."""
    try:
        parts = base64.b64decode(index, validate=True).decode().split(":")
        return parts[1], int(parts[2]), int(parts[3])
    except (ValueError, IndexError):
        return None


def _target(requested: URL, location: str) -> URL | None:
    """Return the URL that a redirect names; None if it is not usable, or would send the token without encryption."""
    try:
        target = requested.join(url_of(location))
        usable = bool(location and target.host) and target.scheme in (requested.scheme, "https")
    except ValueError:
        return None
    return target if usable else None


def _client_certificate(backend: Backend[Any], config: VaultProvider) -> tuple[bytes, bytes]:
    tls = config.tls
    if tls is None or (tls.cert_secret_ref is None and tls.key_secret_ref is None):
        return b"", b""
    if tls.cert_secret_ref is None or tls.key_secret_ref is None:
        raise invalid_config("/tls", "needs both certSecretRef and keySecretRef, or neither")
    return backend.secret(tls.cert_secret_ref).reveal(), backend.secret(tls.key_secret_ref).reveal()


def _bundle(backend: Backend[Any], config: VaultProvider | OpenBaoProvider) -> bytes:
    if config.ca_bundle:
        return ca_bundle(config.ca_bundle)
    if config.ca_provider is not None:
        return backend.ca(config.ca_provider)
    return b""


def _reply(status: int, headers: Mapping[str, str], body: bytes) -> Reply:
    if not body.strip():
        return Reply(status, None, headers)
    try:
        document = parse(body)
    except NotJsonError:
        return Reply(status, None, headers, is_json=False)
    return Reply(status, document, headers, is_json=isinstance(document, dict))
