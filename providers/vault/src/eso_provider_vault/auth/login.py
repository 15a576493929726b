"""Logins over a session's connection: what `identities.py` calls to obtain, renew and revoke tokens."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any, Final

from eso_api.stores.vault import OpenBaoAuth, OpenBaoProvider, VaultAuth, VaultProvider
from eso_api.values import SecretBytes
from eso_provider_vault.api import Connection, connect
from eso_provider_vault.auth.methods import (
    Body,
    Method,
    app_role,
    cert,
    digest,
    gcp,
    iam,
    jwt_method,
    kubernetes,
    ldap,
    user_pass,
)
from eso_provider_vault.identities import Grant, Login, NoToken, SharedToken, TokenSource, shared_identities
from eso_provider_vault.replies import Json, Number, Reply, at, integer, refusal, sealed_or_down, shown, text
from eso_provider_vault.settings import settings_of
from eso_sdk.backend import Backend
from eso_sdk.errors import invalid_config, rejected
from eso_sdk.logins import Pauses
from eso_wire.errors import ProviderError
from kubebase.redaction import Redactor

LOOKUP_SELF: Final = "auth/token/lookup-self"
RENEW_SELF: Final = "auth/token/renew-self"
REVOKE_SELF: Final = "auth/token/revoke-self"
MAX_CHARACTERS: Final = 200

_NOT_SECRET: Final = frozenset({"role", "name"})
"""Members of a login's body that the spec contains and that the server's reason may name."""

Observe = Callable[[str], AbstractContextManager[None]]


class TokenCalls:
    """Calls about a token of any origin. Requests go to the namespace of the login."""

    def __init__(self, connection: Connection, observe: Observe) -> None:
        self._connection = connection
        self._observe = observe
        self._namespace = connection.settings.auth_namespace

    async def renew(self, token: SecretBytes, increment: float) -> Grant:
        body: Mapping[str, Json] = {"increment": Number(str(math.ceil(increment)))}
        reply = await self._send("RenewSelf", "POST", RENEW_SELF, token, body)
        if not reply.ok:
            raise refusal(reply, self._connection.endpoint(RENEW_SELF, self._namespace))
        return Grant(token, *_life(reply))

    async def lookup_self(self, token: SecretBytes) -> Reply:
        return await self._send("LookupSelf", "GET", LOOKUP_SELF, token)

    async def examine(self, token: SecretBytes) -> Grant:
        """Look up how long a token lives. Its policies may forbid that: then it is used as long as it works."""
        reply = await self.lookup_self(token)
        if not reply.ok:
            if down := sealed_or_down(reply, self._connection.endpoint(LOOKUP_SELF, self._namespace), ""):
                raise down
            return Grant(token)
        left = integer(reply.json, "data", "ttl") or 0
        if left <= 0:
            return Grant(token)
        life = max(left, integer(reply.json, "data", "creation_ttl") or 0)
        return Grant(token, float(life), at(reply.json, "data", "renewable") is True, left=float(left))

    async def is_valid(self, token: SecretBytes) -> bool:
        reply = await self.lookup_self(token)
        if reply.ok or reply.status == 403:
            return reply.ok
        raise refusal(reply, self._connection.endpoint(LOOKUP_SELF, self._namespace))

    async def revoke(self, token: SecretBytes) -> None:
        await self._send("RevokeSelf", "POST", REVOKE_SELF, token)

    async def _send(
        self, call: str, method: str, path: str, token: SecretBytes | None, body: Mapping[str, Json] | None = None
    ) -> Reply:
        with self._observe(call):
            return await self._connection.request(method, path, token=token, namespace=self._namespace, body=body)


class MethodLogin(TokenCalls):
    """Log in with one of the methods."""

    owns_tokens = True

    def __init__(self, method: Method, connection: Connection, observe: Observe) -> None:
        super().__init__(connection, observe)
        self._method = method

    @property
    def proof(self) -> bytes:
        return self._method.proof

    @property
    def pauses(self) -> Pauses:
        return self._method.pauses

    async def log_in(self) -> Grant:
        body = await self._method.body()
        reply = await self._send("Login", "POST", self._method.path, None, dict(body))
        if not reply.ok:
            raise self._refused(reply, body)
        token = text(reply.json, "auth", "client_token")
        if not token:
            raise rejected(
                f"{self._described()} gave no token; logins that need a second factor are not possible",
                backend_code=f"HTTP {reply.status}",
            )
        kind = text(reply.json, "auth", "token_type")
        return Grant(SecretBytes(token.encode()), *_life(reply), revocable=kind != "batch")

    def _refused(self, reply: Reply, sent: Body) -> ProviderError:
        """Name the login, the field that configures it and the server's reason."""
        endpoint = self._connection.endpoint(self._method.path, self._namespace)
        code = f"HTTP {reply.status}"
        if down := sealed_or_down(reply, endpoint, code):
            return down
        if reply.status in (400, 401, 403) and reply.is_json:
            return rejected(
                f"{self._described()} was refused ({code}{own_message(reply, sent)}); {self._method.advice}; check that"
                f" this auth method is enabled at auth/{self._method.mount}",
                backend_code=code,
            )
        if reply.status == 404 and reply.mentions("namespace not found"):
            return invalid_config(
                "/auth/namespace", f'namespace "{self._namespace}" does not exist on {shown(endpoint.server)}'
            )
        if reply.status == 404 and reply.is_json:
            return invalid_config(
                self._method.field,
                f"no auth method of this type is enabled at auth/{self._method.mount}; correct the path",
            )
        return refusal(reply, endpoint)

    def _described(self) -> str:
        method = self._method
        who = f" of {method.label}" if method.label else ""
        return f"the login{who} with {method.name} at {self._connection.endpoint(method.path, self._namespace)}"


class StaticLogin(TokenCalls):
    """Use a token of a Secret. It is looked up once, so that it is renewed before it expires, if it can be."""

    owns_tokens = False
    pauses = Pauses()

    def __init__(self, token: SecretBytes, connection: Connection, observe: Observe) -> None:
        super().__init__(connection, observe)
        self._token = token
        self.proof = digest(token)

    async def log_in(self) -> Grant:
        return Grant(self._token, examined=False)


def own_message(reply: Reply, sent: Body) -> str:
    """Return the server's reason for a refused login, for a message; empty if it gave none.

    It may repeat the request, so everything that was sent is masked, except for the role.
    """
    redactor = Redactor(form for name, value in sent.items() if name not in _NOT_SECRET for form in _forms(value))
    text = redactor.text("; ".join(reply.errors or ()))
    message = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    closed_up = "".join(char for char in text if char.isprintable())
    if (masked := redactor.text(closed_up)) != closed_up:  # a control character inside a value hid it
        message = masked
    return f': "{message[:MAX_CHARACTERS]}"' if message else ""


def _forms(value: str) -> Iterator[bytes]:
    """Yield a value as it was sent, and what it contains if it is base64: a signed request to AWS is."""
    yield value.encode()
    with suppress(binascii.Error, ValueError):
        yield base64.b64decode(value, validate=True)


def _life(reply: Reply) -> tuple[float, bool]:
    seconds = integer(reply.json, "auth", "lease_duration") or 0
    return (float(seconds) if seconds > 0 else math.inf), at(reply.json, "auth", "renewable") is True


# --- Choose the login of a configuration, and share its token with every session of the same identity ----------------
#
# If several methods are configured, the first of this order is used: token, appRole, kubernetes, ldap, userPass, jwt,
# cert, iam, gcp.


Config = VaultProvider | OpenBaoProvider
Opened = Backend[Any]

_ORDER: Final = (
    ("token_secret_ref", "tokenSecretRef"),
    ("app_role", "appRole"),
    ("kubernetes", "kubernetes"),
    ("ldap", "ldap"),
    ("user_pass", "userPass"),
    ("jwt", "jwt"),
    ("cert", "cert"),
    ("iam", "iam"),
    ("gcp", "gcp"),
)


def check_auth(config: Config) -> tuple[str, ...]:
    """Check `auth` alone: return warnings, or raise `invalid_config`."""
    if config.auth is None:
        return ()
    chosen = _configured(config.auth)
    if not chosen:
        methods = ", ".join(name for member, name in _ORDER if hasattr(config.auth, member))
        raise invalid_config("/auth", f"needs one of {methods}; remove auth if an agent before the server logs in")
    if len(chosen) > 1:
        return (f"auth configures {', '.join(chosen)}; only {chosen[0]} is used",)
    return ()


def open_tokens(backend: Opened, config: Config, connection: Connection) -> TokenSource:
    """Return the tokens of a session. The identity logs in when the first token is needed."""
    if config.auth is None:
        return NoToken()
    check_auth(config)
    if config.auth.token_secret_ref is not None:
        token = SecretBytes(backend.secret(config.auth.token_secret_ref).reveal().rstrip(b"\r\n"))
        login: Login = StaticLogin(token, connection, backend.observe)
        return _shared(backend, config, login, "token", login.proof)
    method = _method(backend, config, config.auth)
    own = _own_connection(backend, config, method)
    login = MethodLogin(method, own or connection, backend.observe)
    return _shared(backend, config, login, method.name, method.mount, method.proof, *method.who, closes=own)


def _configured(auth: VaultAuth | OpenBaoAuth) -> list[str]:
    return [name for member, name in _ORDER if getattr(auth, member, None) is not None]


def _method(backend: Opened, config: Config, auth: VaultAuth | OpenBaoAuth) -> Method:
    if auth.app_role is not None:
        return app_role(auth.app_role, backend)
    if isinstance(auth, VaultAuth):
        if auth.kubernetes is not None:
            return kubernetes(auth.kubernetes, backend, server=config.server)
        if auth.ldap is not None:
            return ldap(auth.ldap, backend)
    if auth.user_pass is not None:
        return user_pass(auth.user_pass, backend)
    if isinstance(auth, VaultAuth):
        if auth.jwt is not None:
            return jwt_method(auth.jwt, backend)
        if auth.cert is not None:
            return cert(auth.cert, backend)
        if auth.iam is not None:
            return iam(auth.iam, backend, server=config.server)
        if auth.gcp is not None:
            return gcp(auth.gcp, backend, server=config.server.rstrip("/"))
    raise invalid_config("/auth", "names no login method")


def _own_connection(backend: Opened, config: Config, method: Method) -> Connection | None:
    """Return a connection that shows the certificate of the login, if the method has one. Renewals need it too."""
    if method.certificate is None:
        return None
    pair = method.certificate
    try:
        return connect(backend, config, certificate=pair.certificate.reveal(), key=pair.key.reveal())
    except ProviderError as error:
        if error.message.startswith("/tls"):
            raise invalid_config(
                "/auth/cert", "clientCert and secretRef are not a certificate and its key in PEM"
            ) from None
        raise


def _shared(
    backend: Opened, config: Config, login: Login, *who: str | bytes, closes: Connection | None = None
) -> SharedToken:
    settings = login_settings(backend, config)
    return shared_identities(backend.clock).join(digest(*settings, *who), login, closes)


def login_settings(backend: Opened, config: Config) -> tuple[str | bytes, ...]:
    """Return everything but the credentials that decides whom a login reaches: server, namespace, headers, TLS."""
    settings = settings_of(config)
    headers = [part for name in sorted(settings.headers) for part in (name, settings.headers[name])]
    bundle: str | bytes = config.ca_bundle
    if not bundle and config.ca_provider is not None:
        bundle = backend.ca(config.ca_provider)
    tls = config.tls if isinstance(config, VaultProvider) else None
    references = () if tls is None else (tls.cert_secret_ref, tls.key_secret_ref)
    shown = [b"" if reference is None else backend.secret(reference) for reference in references]
    return (settings.server, settings.auth_namespace, bundle, digest(*shown), digest(*headers))
