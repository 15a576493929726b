"""The common part of both kinds of store: one connection to an API server per session, and its errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from eso_api.references import SecretKeySelector
from eso_api.stores.kubernetes import KubernetesAuth, KubernetesConnection, KubernetesServer
from eso_sdk.addresses import ForbiddenAddressError
from eso_sdk.errors import (
    already_exists,
    backend_error,
    invalid_config,
    invalid_request,
    not_found,
    rejected,
    throttled,
    timed_out,
    unavailable,
    version_differs,
    with_status,
)
from eso_sdk.http import ca_bundle, forbidden_address, tls_context
from eso_sdk.provider import Store
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Validation, ValidationState
from kubebase.clock import Clock
from kubebase.meta import JsonObject, Resource, raw
from kuberun import config as kubeconfig
from kuberun import errors as kube
from kuberun.client import Client
from kuberun.connection import ClientCertificate, Connection, Credential, ReadCredentials, Tls, bearer
from kuberun.errors import ApiError, ConfigError, Unauthorized, Unreachable
from kuberun.transport import AiohttpTransport, TransportLimits, client_context

# --- Names of objects that are valid in the path of a request --------------------------------------------------------


_LONGEST: Final = 253


def checked_name(name: str) -> str:
    """Return the name if it is valid, else raise."""
    if not name or len(name) > _LONGEST or name in {".", ".."} or any(char in "/%" or char < "!" for char in name):
        shown = name if len(name) <= _LONGEST and name.isprintable() else "…"
        form = 'names consist of lower-case letters, digits, "-" and "."'
        raise invalid_request(f'"{shown}" cannot be the name of an object; {form}')
    return name


# --- Turn errors of an API server into errors of the provider protocol -----------------------------------------------
#
# A message names the verb, the resource and the namespace of the request that failed. It never repeats the server's own
# words, because some of them quote the request.


@dataclass(frozen=True, slots=True)
class Request:
    """One request to the API server, as a message names it."""

    verb: str
    resource: Resource
    namespace: str = ""
    name: str = ""

    @property
    def place(self) -> str:
        if not self.resource.namespaced:
            return ""
        return f' in namespace "{self.namespace}"' if self.namespace else " in all namespaces"

    def __str__(self) -> str:
        named = f' "{self.name}"' if self.name else ""
        return f"{self.verb} {self.resource}{named}{self.place}"


def provider_error(error: kube.ApiError, request: Request) -> ProviderError:
    """Return the protocol's error for an answer of the API server."""
    return with_status(_by_kind(error, request), error.code or 0)


def _by_kind(error: kube.ApiError, request: Request) -> ProviderError:
    code = str(error.code or "")
    match error:
        case kube.Unauthorized():
            what = "the API server does not accept the credentials of the store; check that they belong to this cluster"
            return rejected(f"{what} and have not expired", backend_code=code)
        case kube.Forbidden():
            return forbidden(request, code)
        case kube.NotFound() if _is_absent(error, request):
            return not_found(request.name)
        case kube.NotFound():
            return _missing_around(request, code)
        case kube.AlreadyExists():
            return already_exists(request.name)
        case kube.Conflict():
            return version_differs(request.name)
        case kube.Throttled():
            return throttled(error.retry_after or 0.0, backend_code=code, subject="the API server")
        case kube.TooLarge():
            what = f"the API server refuses to {request}: the object is too large"
            return ProviderError(ErrorReason.PAYLOAD_TOO_LARGE, what, backend_code=code)
        case kube.Invalid() | kube.BadRequest():
            return _refused(error, request)
        case kube.ServerTimeout():
            return timed_out(f"the API server took too long to {request}; it is retried")
        case kube.Unreachable():
            return unavailable(f"the API server is not reachable: {error.message}")
        case kube.ServerError() | kube.Gone():
            return unavailable(f"the API server failed to {request} (HTTP {code})", backend_code=code)
        case _:
            what = (
                f"the API server answered the request to {request} with something unexpected (HTTP {code or 'error'})"
            )
            return backend_error(f"{what}; check the address of the server", backend_code=code)


def _is_absent(error: kube.NotFound, request: Request) -> bool:
    """Return whether the API itself reports that this object does not exist.

    Deletion policies act on it, so the 404 of a proxy or of a missing namespace must not count.
    """
    return bool(request.name) and error.details.kind == request.resource.plural and error.details.name == request.name


def _missing_around(request: Request, code: str) -> ProviderError:
    if request.verb == "create":
        what = f"cannot {request}: the namespace does not exist; create it or correct remoteNamespace"
        return invalid_request(what)
    what = f"the server does not know {request.resource}; check that its address is that of a Kubernetes API server"
    return backend_error(f"{what} and that the kind is installed there", backend_code=code)


def forbidden(request: Request, code: str = "") -> ProviderError:
    """Return the error for a missing verb, with the right to grant."""
    kind = "ClusterRole" if not request.namespace else "Role"
    what = f"the credentials of the store are not allowed to {request}"
    hint = f'grant the verb "{request.verb}" on "{request.resource.plural}" with a {kind}{request.place}'
    return ProviderError(ErrorReason.PERMISSION_DENIED, f"{what}; {hint}", backend_code=code)


def _refused(error: kube.ApiError, request: Request) -> ProviderError:
    """Name the fields that the server rejects, never their content."""
    fields = ", ".join(sorted({cause.field for cause in error.causes if cause.field}))
    where = f"; rejected fields: {fields}" if fields else ""
    return invalid_request(f"the API server refuses to {request} as invalid{where}")


# --- From a configuration and its credentials to a connection with an API server -------------------------------------
#
# serviceAccount, token, cert  with `server`: address, caBundle or caProvider
# authRef                      a whole kubeconfig, which must not name programs or files of this machine


_PEM: Final = b"-----BEGIN"
_MAX_KUBECONFIG: Final = 1 << 20
_NO_AUTHORITY: Final = "neither /server/caBundle nor /server/caProvider is set: only public authorities are trusted"


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


async def connect(config: KubernetesConnection, resolved: Store[Any], clock: Clock) -> Connection:
    """Return the connection of a checked configuration."""
    try:
        made = _from_kubeconfig(config, resolved, clock) or _from_fields(config, resolved, clock)
        # Made once here so that a certificate in a wrong form is reported as such, not as an unreachable server.
        if made.server.startswith("https:"):
            client_context(made.tls, (await made.credentials.current()).certificate, made.origin)
    except ConfigError as problem:
        raise invalid_config("/authRef" if config.auth_ref else "/auth", str(problem)) from None
    return made


def _from_kubeconfig(config: KubernetesConnection, resolved: Store[Any], clock: Clock) -> Connection | None:
    if config.auth_ref is None:
        return None
    text = resolved.secret(config.auth_ref).reveal()
    if len(text) > _MAX_KUBECONFIG:
        raise ConfigError("the kubeconfig is larger than 1 MiB; is it the right key of the Secret?")
    return kubeconfig.connection(kubeconfig.parse_self_contained(text, "of /authRef"), "", clock)


def _from_fields(config: KubernetesConnection, resolved: Store[Any], clock: Clock) -> Connection:
    server = config.server or KubernetesServer()
    # Asked for again each minute: the session outlives the token of a service account, and gets newer ones.
    credentials = ReadCredentials(lambda: _credential(config.auth or KubernetesAuth(), resolved), clock)
    return Connection(_address(server), credentials, Tls(_authorities(server, resolved)), origin="the store")


def _authorities(server: KubernetesServer, resolved: Store[Any]) -> bytes | None:
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


def _credential(auth: KubernetesAuth, resolved: Store[Any]) -> Credential:
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


# --- The common part of both kinds of store --------------------------------------------------------------------------


K = TypeVar("K", bound=KubernetesConnection)

LIMITS: Final = TransportLimits(connections=32, response_bytes=96 << 20)
_FIELD_MANAGER: Final = "external-secrets"
"""Who writes Secrets that are pushed, in their managedFields: as the operator in Go."""
PAGE_SIZE: Final = 50
"""Objects of one page. The largest object that an API server stores has about 1.5 MiB; a page of them must fit."""


class ClusterStore(Store[K]):
    """A store whose backend is an API server."""

    @classmethod
    def check_config(cls, config: K) -> tuple[str, ...]:
        return check_connection(config)

    async def open(self) -> None:
        self._forbidden: ForbiddenAddressError | None = None
        """Why the address of the server was refused, if it was."""
        if not self.holder.namespace:
            check_namespaces_named(self.config)
        connection = await connect(self.config, self, self.clock)
        transport = AiohttpTransport(connection, LIMITS, vet=self._vet)
        self.client = self.close_later(Client(transport, field_manager=_FIELD_MANAGER))

    @contextmanager
    def asking(self, call: str, request: Request) -> Iterator[None]:
        """Count one call to the API server, and translate its failure."""
        with self.observe(call):
            try:
                yield
            except ApiError as error:
                raise self.failure(error, request) from None

    def failure(self, error: ApiError, request: Request) -> ProviderError:
        """Return the protocol's error for a failed request."""
        if isinstance(error, Unreachable) and self._forbidden is not None:
            return forbidden_address("/authRef" if self.config.auth_ref else "/server/url", self._forbidden)
        return provider_error(error, request)

    def _vet(self, address: str) -> None:
        self._forbidden = None
        try:
            self.addresses.check(address)
        except ForbiddenAddressError as refused:
            self._forbidden = refused
            raise


AnyClusterStore = ClusterStore[Any]


# --- The check that the credentials of a store may read its objects --------------------------------------------------


_GROUP: Final = "authorization.k8s.io"
_RULES: Final = raw(Resource(_GROUP, "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", namespaced=False))
_ACCESS: Final = raw(Resource(_GROUP, "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False))
_VERB: Final = "get"


async def review_access(store: AnyClusterStore, resource: Resource, namespace: str) -> Validation:
    """Ask the API server for the rights of the credentials; the result is unknown if it does not answer."""
    wanted = Request(_VERB, resource, namespace)
    try:
        if namespace and await _allowed_by_rules(store, resource, namespace):
            return Validation(ValidationState.READY)
        if await _allowed_by_review(store, resource, namespace):
            return Validation(ValidationState.READY)
    except Unauthorized as error:
        raise store.failure(error, wanted) from None
    except ApiError as error:
        return Validation(ValidationState.UNKNOWN, error=store.failure(error, wanted))
    return Validation(ValidationState.INVALID, error=forbidden(wanted))


async def _allowed_by_rules(store: AnyClusterStore, resource: Resource, namespace: str) -> bool:
    with store.observe("CreateSelfSubjectRulesReview"):
        answer = await store.client.create(_RULES, {"spec": {"namespace": namespace}})
    rules = _mapping(answer, "status").get("resourceRules") or ()
    return any(_grants(rule, resource) for rule in rules)


async def _allowed_by_review(store: AnyClusterStore, resource: Resource, namespace: str) -> bool:
    asked = {"verb": _VERB, "group": resource.group, "resource": resource.plural, "namespace": namespace}
    with store.observe("CreateSelfSubjectAccessReview"):
        answer = await store.client.create(_ACCESS, {"spec": {"resourceAttributes": asked}})
    return _mapping(answer, "status").get("allowed") is True


def _grants(rule: JsonObject, resource: Resource) -> bool:
    """Return whether a rule grants the verb. A rule for single objects counts: the store may need only those."""
    wanted = (("verbs", _VERB), ("apiGroups", resource.group), ("resources", resource.plural))
    return all(_lists(rule.get(field), value) for field, value in wanted)


def _lists(values: Any, value: str) -> bool:
    return isinstance(values, list) and ("*" in values or value in values)


def _mapping(document: JsonObject, name: str) -> JsonObject:
    found = document.get(name)
    return found if isinstance(found, dict) else {}
