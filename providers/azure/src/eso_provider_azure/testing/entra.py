"""Entra ID and the instance metadata of a node: they issue tokens, for a secret, a certificate or another token."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl

import jwt
import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from kubebase.clock import SystemClock

# --- Requests and responses of the test server -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Call:
    """One request, as a test reads it."""

    host: str
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(default=b"", repr=False)

    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode(self.body)
        return found

    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode()))


@dataclass(frozen=True, slots=True)
class Reply:
    """One response. `body` is JSON, unless it is bytes."""

    status: int
    body: Any = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)

    def raw(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else msgspec.json.encode(self.body)


# --- Entra ID and the instance metadata of a node --------------------------------------------------------------------


JWT_BEARER: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
AUDIENCE: Final = "api://AzureADTokenExchange"


@dataclass(frozen=True, slots=True)
class Grant:
    """What a token is good for. Tokens of instance metadata have no tenant here."""

    tenant: str
    client: str
    resource: str


@dataclass(slots=True)
class Application:
    """A registered application and its credentials."""

    secret: str = field(default="", repr=False)
    certificate: x509.Certificate | None = None
    subjects: set[str] = field(default_factory=set)
    """Service accounts that it trusts: `system:serviceaccount:NAMESPACE:NAME`."""


@dataclass(slots=True)
class Entra:
    """One cloud's authority."""

    url: str = "https://login.microsoftonline.com"
    applications: dict[tuple[str, str], Application] = field(default_factory=dict)
    """By tenant and client id."""
    identities: set[str] = field(default_factory=set)
    """Managed identities of the node; the empty one is its own."""
    grants: dict[str, Grant] = field(default_factory=dict)
    lifetime: int = 3599
    failing: Reply | None = None

    def respond(self, call: Call) -> Reply:
        """Respond to a request for a token."""
        if self.failing is not None:
            return self.failing
        tenant, *rest = [part for part in call.path.split("/") if part]
        form = call.form()
        if rest != ["oauth2", "v2.0", "token"] or form.get("grant_type") != "client_credentials":
            return Reply(404, b"<html>not found</html>")
        if not any(known == tenant for known, _ in self.applications):
            return _refused(400, "invalid_request", "AADSTS90002: Tenant not found", form)
        application = self.applications.get((tenant, form.get("client_id", "")))
        if application is None:
            return _refused(400, "unauthorized_client", "AADSTS700016: Application was not found", form)
        if (problem := self._problem(application, form)) is not None:
            return problem
        resource = form["scope"].removesuffix("/.default")
        token = self.issue(Grant(tenant, form["client_id"], resource))
        life = self.lifetime
        return Reply(200, {"token_type": "Bearer", "expires_in": life, "ext_expires_in": life, "access_token": token})

    def metadata(self, call: Call) -> Reply:
        """Respond to a request to the instance metadata."""
        query = call.query
        if call.headers.get("Metadata") != "true" or query.get("api-version") != "2018-02-01":
            return Reply(
                400, {"error": "invalid_request", "error_description": "Required metadata header not specified"}
            )
        identity = query.get("client_id") or query.get("msi_res_id") or ""
        if identity not in self.identities:
            return Reply(400, {"error": "invalid_request", "error_description": "Identity not found"})
        token = self.issue(Grant("", identity, query["resource"]))
        end = int(SystemClock().now().timestamp()) + self.lifetime
        body = {"access_token": token, "expires_in": str(self.lifetime), "expires_on": str(end), "token_type": "Bearer"}
        return Reply(200, body | {"resource": query["resource"], "not_before": "0", "client_id": identity})

    def issue(self, grant: Grant) -> str:
        token = f"entra-{secrets.token_hex(16)}"
        self.grants[token] = grant
        return token

    def _problem(self, application: Application, form: dict[str, str]) -> Reply | None:
        """Return why an application gets no token; None if it gets one."""
        if "client_secret" in form:
            if application.secret and form["client_secret"] == application.secret:
                return None
            return _refused(401, "invalid_client", "AADSTS7000215: Invalid client secret provided", form)
        assertion = form.get("client_assertion", "")
        if form.get("client_assertion_type") != JWT_BEARER or not assertion:
            return _refused(401, "invalid_client", "AADSTS7000216: client_assertion is required", form)
        if application.certificate is not None:
            return self._by_certificate(application.certificate, assertion, form)
        claims = jwt.decode(assertion, options={"verify_signature": False})
        audiences = claims.get("aud", [])
        if AUDIENCE not in ([audiences] if isinstance(audiences, str) else audiences):
            return _refused(400, "invalid_request", "AADSTS700212: No matching federated identity record", form)
        if claims.get("sub") not in application.subjects:
            return _refused(400, "invalid_request", "AADSTS700213: No matching federated identity record", form)
        return None

    def _by_certificate(self, certificate: x509.Certificate, assertion: str, form: dict[str, str]) -> Reply | None:
        """Verify an assertion that the application signed."""
        prints = {
            name: base64.urlsafe_b64encode(certificate.fingerprint(algorithm)).decode().rstrip("=")
            for name, algorithm in (("x5t", hashes.SHA1()), ("x5t#S256", hashes.SHA256()))  # noqa: S303 - the protocol's
        }
        key: Any = certificate.public_key()
        try:
            header, claims = _verified(assertion, key)
        except InvalidSignature:
            return _refused(401, "invalid_client", "AADSTS700027: The certificate was not found", form)
        known = any(str(header.get(name, "")).rstrip("=") == text for name, text in prints.items())
        if not known or claims["iss"] != form["client_id"] or not claims["aud"].startswith(self.url):
            return _refused(401, "invalid_client", "AADSTS700027: The certificate was not found", form)
        return None


def _verified(assertion: str, key: rsa.RSAPublicKey) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return header and claims of an assertion. Microsoft's library pads its parts, which other decoders refuse."""
    signed, _, signature = assertion.rpartition(".")
    header, claims = (msgspec.json.decode(_decoded(part)) for part in signed.split("."))
    salted = padding.PSS(padding.MGF1(hashes.SHA256()), hashes.SHA256.digest_size)
    pads = salted if header["alg"] == "PS256" else padding.PKCS1v15()
    key.verify(_decoded(signature), signed.encode(), pads, hashes.SHA256())
    return header, claims


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part.rstrip("=") + "==")


def _refused(status: int, error: str, description: str, form: dict[str, str]) -> Reply:
    """Return a refusal that repeats parts of the request, as real ones do."""
    proof = form.get("client_secret") or form.get("client_assertion") or ""
    body = f"{description} for app {form.get('client_id')} {proof}. Trace ID: 00000000"
    return Reply(status, {"error": error, "error_description": body, "error_codes": [], "timestamp": ""})


# --- A container registry that exchanges tokens of Entra ID (`azure/container-registry`, "AAD OAuth") ----------------


_KEY = "a key that only this registry has, 32 bytes"


@dataclass(slots=True)
class Registry:
    """One registry. `pullers` are the clients with a role on it."""

    host: str
    entra: Entra
    management: str = "https://management.core.windows.net/"
    pullers: set[str] = field(default_factory=set)
    life: int = 10_800

    def respond(self, call: Call) -> Reply:
        form = call.form()
        if call.method != "POST" or form.get("service") != self.host:
            return Reply(404, {"errors": [{"code": "NAME_UNKNOWN"}]})
        if call.path == "/oauth2/exchange" and form.get("grant_type") == "access_token":
            grant = self.entra.grants.get(form.get("access_token", ""))
            if grant is None or grant.resource != self.management or grant.client not in self.pullers:
                return _unauthorized(form.get("access_token", ""))
            return Reply(200, {"refresh_token": self._token("refresh", grant.client)})
        if call.path == "/oauth2/token" and form.get("grant_type") == "refresh_token":
            try:
                jwt.decode(form["refresh_token"], _KEY, ["HS256"])
            except jwt.PyJWTError:
                return _unauthorized(form["refresh_token"])
            return Reply(200, {"access_token": self._token("access", form["scope"])})
        return Reply(400, {"errors": [{"code": "UNSUPPORTED"}]})

    def _token(self, kind: str, subject: str) -> str:
        return jwt.encode(
            {"kind": kind, "sub": subject, "exp": int(SystemClock().now().timestamp()) + self.life}, _KEY, "HS256"
        )


def _unauthorized(token: str) -> Reply:
    return Reply(401, {"errors": [{"code": "UNAUTHORIZED", "message": f"not this token: {token}"}]})
