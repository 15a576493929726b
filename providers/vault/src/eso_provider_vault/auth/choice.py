"""Choose the login of a configuration, and share its token with every session of the same identity.

If several methods are configured, the first of this order is used: token, appRole, kubernetes, ldap, userPass, jwt,
cert, iam, gcp.
"""

from __future__ import annotations

from typing import Any, Final

from eso_api.stores.vault import OpenBaoAuth, OpenBaoProvider, VaultAuth, VaultProvider
from eso_api.values import SecretBytes
from eso_provider_vault.auth.accounts import jwt, kubernetes
from eso_provider_vault.auth.aws import iam
from eso_provider_vault.auth.credentials import app_role, cert, ldap, user_pass
from eso_provider_vault.auth.gcp import gcp
from eso_provider_vault.auth.login import MethodLogin, StaticLogin
from eso_provider_vault.auth.method import Method, digest
from eso_provider_vault.connection import Connection, connect
from eso_provider_vault.identities import Login, NoToken, SharedToken, TokenSource, shared_identities
from eso_provider_vault.settings import settings_of
from eso_sdk.backend import Backend
from eso_sdk.errors import invalid_config
from eso_wire.errors import ProviderError

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
            return jwt(auth.jwt, backend)
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
