"""Requests of one session: a connection with the token and the namespace of the store.

A 403 means that the token has expired, or that its policies do not allow the path; the server does not show which. So
the session requests one new token and tries once more. If there is no better token, a lookup of the token itself
separates the two cases; its result is cached for a minute.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import quote, urlencode

from yarl import URL

from eso_api.stores.vault import OpenBaoProvider, VaultProvider
from eso_api.values import SecretBytes
from eso_provider_vault.identities import TokenSource
from eso_provider_vault.replies import (
    Endpoint,
    Json,
    NotJsonError,
    Reply,
    accepts_token,
    compact,
    dead_token,
    denied,
    misconfigured,
    not_vault,
    parse,
    redirected,
    refusal,
    shown,
    text,
)
from eso_provider_vault.settings import Settings, settings_of
from eso_sdk.backend import Backend
from eso_sdk.errors import invalid_config
from eso_sdk.http import HttpClient, HttpRequest, HttpResponse, ca_bundle, tls_context, url_of
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.bounded import ExpiringDict
from kubebase.clock import Clock

# --- HTTP to one server: address, TLS, headers, namespaces and consistency of the configuration ----------------------
#
#     connection = connect(self, self.config)
#     reply = await connection.request("GET", "kv/data/app", token=token, namespace="team")
#
# It knows nothing of keys, logins or retries. A request that gets no response raises `ProviderError`; every response is
# a `Reply`.


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


# --- Requests of one session -----------------------------------------------------------------------------------------


LOOKUP_SELF: Final = "auth/token/lookup-self"
VERDICT_SECONDS: Final = 60.0

Observe = Callable[[str], AbstractContextManager[None]]


class _CountedError(Exception):
    """Leaves the count of a call with a refusal, so that metrics show it as an error. A missing key is not one."""

    def __init__(self, reply: Reply) -> None:
        super().__init__()
        self.reply = reply


class Api:
    """The requests of a store's operations to their server."""

    def __init__(self, connection: Connection, tokens: TokenSource, *, observe: Observe, clock: Clock) -> None:
        self.connection = connection
        self.settings = connection.settings
        self.clock = clock
        self._tokens = tokens
        self._observe = observe
        self._dead_until = 0.0
        self._alive_until = 0.0

    async def send(
        self,
        method: str,
        path: str,
        *,
        call: str,
        query: Query | None = None,
        body: Mapping[str, Json] | None = None,
    ) -> Reply:
        """Send one request with the session's token; `call` is its name in metrics. Any response is returned."""
        token = await self._tokens.token()
        reply = await self._send(method, path, token=token, call=call, query=query, body=body)
        if reply.status == 403 and (fresh := await self._tokens.renewed(token)) is not None:
            reply = await self._send(method, path, token=fresh, call=call, query=query, body=body)
        return reply

    async def probe(self, method: str, path: str, *, call: str, query: Query | None = None) -> Reply:
        """Test whether something is possible. A 403 of the policies is a result, not a reason to log in again."""
        reply = await self._send(method, path, token=await self._tokens.token(), call=call, query=query)
        if reply.status == 403 and accepts_token(reply) is not True:
            return await self.send(method, path, call=call, query=query)
        return reply

    async def renew(self) -> None:
        """Replace the token after a refusal that did not come through `send`."""
        await self._tokens.renewed(await self._tokens.token())

    async def _send(
        self,
        method: str,
        path: str,
        *,
        token: SecretBytes | None,
        call: str,
        query: Query | None = None,
        body: Mapping[str, Json] | None = None,
    ) -> Reply:
        try:
            with self._observe(call):
                reply = await self.connection.request(
                    method, path, token=token, namespace=self.settings.namespace, query=query, body=body
                )
                _count_refusal(reply)
        except _CountedError as counted:
            return counted.reply
        return reply

    def endpoint(self, path: str) -> Endpoint:
        return self.connection.endpoint(path, self.settings.namespace)

    async def refused(self, reply: Reply, path: str) -> ProviderError:
        """Return the error of a response that is neither a success nor "no such key"."""
        endpoint = self.endpoint(path)
        if reply.status != 403:
            return refusal(reply, endpoint)
        good = accepts_token(reply)
        if good is None:
            good = await self.token_is_good()
        return denied(endpoint) if good else dead_token(endpoint)

    async def token_is_good(self) -> bool:
        """Tell whether the server accepts the token at all; by looking the token up."""
        now = self.clock.monotonic()
        if now < self._alive_until or now < self._dead_until:
            return now < self._alive_until
        good = accepts_token(await self.lookup_self()) is True
        if good:
            self._alive_until = now + VERDICT_SECONDS
        else:
            self._dead_until = now + VERDICT_SECONDS
        return good

    async def lookup_self(self) -> Reply:
        """Ask the server about the token, in the namespace it was made in."""
        token = await self._tokens.token()
        with self._observe("LookupSelf"):
            return await self.connection.request(
                "GET", LOOKUP_SELF, token=token, namespace=self.settings.auth_namespace
            )

    async def token(self) -> SecretBytes | None:
        return await self._tokens.token()

    async def close(self) -> None:
        await self._tokens.close()
        await self.connection.close()


def _count_refusal(reply: Reply) -> None:
    if reply.status >= 400 and reply.status != 404:
        raise _CountedError(reply)


# --- The lookup of mounted engines: it confirms that a key is missing, and checks a store's path ---------------------
#
# A server responds to a version 2 path on a version 1 engine exactly as for a missing key. Deletion policies act on
# missing keys, so the provider reads the type of the engine: `sys/internal/ui/mounts/PATH`, which every token with any
# right below the mount may read.


CONFIRMED_SECONDS: Final = 60.0
MAX_CONFIRMED: Final = 128

_KV_TYPES: Final = frozenset({"kv", "generic", "cubbyhole"})


@dataclass(frozen=True, slots=True)
class Engine:
    """One mounted engine, as the server describes it."""

    path: str
    type: str
    version: str

    @property
    def is_kv(self) -> bool:
        return self.type in _KV_TYPES


class Mounts:
    """Asks which engine serves a path, and remembers for a minute that it was the right one."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._confirmed: ExpiringDict[str, None] = ExpiringDict(MAX_CONFIRMED, api.clock)

    async def confirm(self, path: str) -> None:
        """Raise unless a key/value engine of the store's version serves this path."""
        if any(path.startswith(f"{mount}/") for mount in self._confirmed):
            return
        engine = await self.engine(path)
        self.check(engine)
        if differs := self.version_difference(engine):
            raise misconfigured(differs)
        self._confirmed.put(engine.path, None, CONFIRMED_SECONDS)

    async def engine(self, path: str) -> Engine:
        """Ask which engine serves a path."""
        return self.described(await self.fetch(path), path)

    def described(self, reply: Reply, path: str) -> Engine:
        """Read the response of `fetch`."""
        if not reply.ok:
            raise self._unknown(reply, path)
        if not text(reply.data, "type"):
            raise not_vault(self._api.endpoint(path), reply.status)
        return Engine(
            text(reply.data, "path").strip("/"),
            text(reply.data, "type"),
            text(reply.data, "options", "version") or "1",
        )

    async def fetch(self, path: str) -> Reply:
        return await self._api.send("GET", f"sys/internal/ui/mounts/{path}", call="ReadMounts")

    def check(self, engine: Engine) -> None:
        """Raise if this is not a key/value engine at the store's path. `version_difference` judges its version."""
        settings = self._api.settings
        server = shown(settings.server)
        if not engine.is_kv:
            raise misconfigured(f'"{engine.path}" on {server} is an engine of type {engine.type}, not kv; correct path')
        # A version 1 path is only joined with the key, so it may reach into the engine.
        inside = settings.mount.startswith(f"{engine.path}/") and "v1" in (settings.version, f"v{engine.version}")
        if settings.mount and engine.path != settings.mount and not inside:
            raise misconfigured(
                f'path is "{settings.mount}", but the engine is mounted at "{engine.path}" on {server}; correct path'
            )

    def version_difference(self, engine: Engine) -> str:
        """Return what is wrong with the store's `version`; empty if it is that of the engine."""
        settings = self._api.settings
        actual = f"v{engine.version}"
        if actual == settings.version:
            return ""
        reads = '"KEY"' if settings.version == "v1" else '"data/KEY"'
        return (
            f'the engine "{engine.path}" on {shown(settings.server)} has version {actual}, but the store has'
            f" {settings.version}, so a key is read at {reads} of the engine; set version: {actual}"
        )

    def _unknown(self, reply: Reply, path: str) -> ProviderError:
        endpoint = self._api.endpoint(path)
        if reply.status != 403:
            return refusal(reply, endpoint)
        return ProviderError(
            ErrorReason.PERMISSION_DENIED,
            f"the server does not show which engine serves {endpoint}: nothing is mounted there, or no policy of"
            " the token allows anything below it; correct path, or grant access",
            backend_code="HTTP 403",
        )
