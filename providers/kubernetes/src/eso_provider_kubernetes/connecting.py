"""From a configuration and its credentials to a connection with an API server.

serviceAccount, token, cert  with `server`: address, caBundle or caProvider
authRef                      a whole kubeconfig, which must not name programs or files of this machine
"""

from __future__ import annotations

from typing import Final, Protocol
from urllib.parse import urlsplit

from eso_api.references import CaProvider, SecretKeySelector, ServiceAccountSelector
from eso_api.stores.kubernetes import KubernetesAuth, KubernetesConnection, KubernetesServer
from eso_api.values import SecretBytes
from eso_sdk.errors import invalid_config
from eso_sdk.http import ca_bundle, tls_context
from eso_wire.values import Token
from kubebase.clock import Clock
from kuberun import kubeconfig
from kuberun.connection import ClientCertificate, Connection, Credential, Tls
from kuberun.credentials import ReadCredentials, bearer
from kuberun.errors import ConfigError
from kuberun.tls import client_context

_PEM: Final = b"-----BEGIN"
_MAX_KUBECONFIG: Final = 1 << 20
_NO_AUTHORITY: Final = "neither /server/caBundle nor /server/caProvider is set: only public authorities are trusted"


class Resolved(Protocol):
    """The values that the operator sent for the references of a configuration."""

    def secret(self, reference: SecretKeySelector) -> SecretBytes: ...

    def token(self, reference: ServiceAccountSelector) -> Token: ...

    def ca(self, reference: CaProvider) -> bytes: ...


def check_connection(config: KubernetesConnection) -> tuple[str, ...]:
    """Check the configuration without a call: return warnings, or raise `invalid_config`."""
    if config.auth is None and config.auth_ref is None:
        raise invalid_config("/auth", "set auth or authRef: the store needs credentials for the API server")
    if config.auth is not None and config.auth_ref is not None:
        raise invalid_config("/authRef", "remove auth or authRef: only one of them can be used")
    if config.auth is None:
        return ()
    given = [each for each in (config.auth.cert, config.auth.token, config.auth.service_account) if each is not None]
    if len(given) != 1:
        raise invalid_config("/auth", "set exactly one of cert, token and serviceAccount")
    server = config.server or KubernetesServer()
    _address(server)
    return () if server.ca_bundle or server.ca_provider else (_NO_AUTHORITY,)


def check_namespaces_named(config: KubernetesConnection) -> None:
    """Refuse references of a cluster-scoped store that leave the namespace to its users."""
    auth = config.auth or KubernetesAuth()
    named: dict[str, SecretKeySelector] = {}
    if auth.token is not None:
        named["/auth/token/bearerToken"] = auth.token.bearer_token
    if auth.cert is not None:
        named["/auth/cert/clientCert"] = auth.cert.client_cert
        named["/auth/cert/clientKey"] = auth.cert.client_key
    for pointer, reference in named.items():
        if not reference.namespace:
            raise invalid_config(f"{pointer}/namespace", "must be set in a cluster-scoped store")


async def connect(config: KubernetesConnection, resolved: Resolved, clock: Clock) -> Connection:
    """Return the connection of a checked configuration."""
    try:
        made = _from_kubeconfig(config, resolved, clock) or _from_fields(config, resolved, clock)
        # Made once here so that a certificate in a wrong form is reported as such, not as an unreachable server.
        if made.server.startswith("https:"):
            client_context(made.tls, (await made.credentials.current()).certificate, made.origin)
    except ConfigError as problem:
        raise invalid_config("/authRef" if config.auth_ref else "/auth", str(problem)) from None
    return made


def _from_kubeconfig(config: KubernetesConnection, resolved: Resolved, clock: Clock) -> Connection | None:
    if config.auth_ref is None:
        return None
    text = resolved.secret(config.auth_ref).reveal()
    if len(text) > _MAX_KUBECONFIG:
        raise ConfigError("the kubeconfig is larger than 1 MiB; is it the right key of the Secret?")
    return kubeconfig.connection(kubeconfig.parse_self_contained(text, "of /authRef"), "", clock)


def _from_fields(config: KubernetesConnection, resolved: Resolved, clock: Clock) -> Connection:
    server = config.server or KubernetesServer()
    # Asked for again each minute: the session outlives the token of a service account, and gets newer ones.
    credentials = ReadCredentials(lambda: _credential(config.auth or KubernetesAuth(), resolved), clock)
    return Connection(_address(server), credentials, Tls(_authorities(server, resolved)), origin="the store")


def _authorities(server: KubernetesServer, resolved: Resolved) -> bytes | None:
    if server.ca_bundle:
        pointer, bundle = "/server/caBundle", ca_bundle(server.ca_bundle, "/server/caBundle")
    elif server.ca_provider is not None:
        pointer, bundle = "/server/caProvider", resolved.ca(server.ca_provider)
        if _PEM not in bundle:
            bundle = ca_bundle(bundle.decode(errors="replace"), pointer)
    else:
        return None
    tls_context(bundle, field_path=pointer)  # raises if it holds no certificates
    return bundle


def _credential(auth: KubernetesAuth, resolved: Resolved) -> Credential:
    if auth.service_account is not None:
        token = resolved.token(auth.service_account).token
        return Credential(bearer(token.reveal().decode(errors="replace"), "/auth/serviceAccount"))
    if auth.token is not None:
        token = resolved.secret(auth.token.bearer_token)
        return Credential(bearer(token.reveal().decode(errors="replace"), "/auth/token/bearerToken"))
    if auth.cert is not None:
        certificate = resolved.secret(auth.cert.client_cert).reveal()
        return Credential(certificate=ClientCertificate(certificate, resolved.secret(auth.cert.client_key).reveal()))
    raise ConfigError("set one of cert, token and serviceAccount")


def _address(server: KubernetesServer) -> str:
    """Return the server's URL; without a scheme it is https, as for `kubernetes.default`."""
    url = server.url if "://" in server.url else f"https://{server.url}"
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable:
        raise invalid_config("/server/url", "must be an address like https://10.0.0.1:6443 or a host name")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise invalid_config("/server/url", "must be a plain address; credentials belong into /auth")
    return url.rstrip("/")
