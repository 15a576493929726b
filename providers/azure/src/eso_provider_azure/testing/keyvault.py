"""The REST interface of a vault (api-version 7.x, `learn.microsoft.com/rest/api/keyvault`)."""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
from cryptography.x509.oid import NameOID

from eso_provider_azure.testing.entra import Call, Entra, Grant, Reply
from kubebase.testing.signer import SINCE, UNTIL

# --- The content of a vault: versions of secrets, keys and certificates, and those that were deleted -----------------


COLLECTIONS: Final = ("secrets", "keys", "certificates")
RECOVERABLE: Final = "Recoverable+Purgeable"
RETENTION: Final = 90 * 86400


@dataclass(slots=True)
class Version:
    """One version of an object. `body` is what its kind adds: value, key or cer."""

    body: dict[str, Any] = field(repr=False)
    tags: dict[str, str]
    attributes: dict[str, Any]
    id: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass(slots=True)
class Contents:
    """All objects of one vault."""

    host: str
    now: Callable[[], int]
    live: dict[str, dict[str, list[Version]]] = field(default_factory=lambda: {name: {} for name in COLLECTIONS})
    deleted: dict[str, dict[str, list[Version]]] = field(default_factory=lambda: {name: {} for name in COLLECTIONS})
    recovering: dict[str, int] = field(default_factory=dict)
    """Names whose recovery is announced as unfinished so many times more."""

    def add(self, collection: str, name: str, body: dict[str, Any], sent: dict[str, Any]) -> Version:
        """Add a version, as the service does after an import or a set."""
        requested = dict(sent.get("attributes") or {})
        times = {"created": self.now(), "updated": self.now()}
        attributes = {"enabled": True, "recoveryLevel": RECOVERABLE, "recoverableDays": 90, **requested, **times}
        version = Version(body, dict(sent.get("tags") or {}), attributes)
        self.live[collection].setdefault(name, []).append(version)
        return version

    def put(self, name: str, value: str, **sent: Any) -> str:
        """Set a secret, for a test; return its version."""
        content_type = sent.pop("content_type", None)
        body = {"value": value} | ({"contentType": content_type} if content_type else {})
        return self.add("secrets", name, body, sent).id

    def value(self, name: str) -> str:
        """Return the current value of a secret."""
        found: str = self.current("secrets", name).body["value"]
        return found

    def current(self, collection: str, name: str) -> Version:
        return self.live[collection][name][-1]

    def find(self, collection: str, name: str, version: str) -> Version | None:
        versions = self.live[collection].get(name, [])
        if not version:
            return versions[-1] if versions else None
        return next((each for each in versions if each.id == version), None)

    def delete(self, collection: str, name: str) -> None:
        self.deleted[collection][name] = self.live[collection].pop(name)

    def recover(self, collection: str, name: str) -> None:
        self.live[collection][name] = self.deleted[collection].pop(name)

    def address(self, collection: str, name: str, version: str = "") -> str:
        return f"https://{self.host}/{collection}/{name}" + (f"/{version}" if version else "")

    def bundle(self, collection: str, name: str, version: Version) -> dict[str, Any]:
        """Return a whole version, as a GET has it."""
        address = self.address(collection, name, version.id)
        common: dict[str, Any] = {"attributes": version.attributes, "tags": version.tags}
        if collection == "keys":
            return common | {"key": {"kid": address, **version.body["key"]}}
        return common | {"id": address, **version.body}

    def item(self, collection: str, name: str, version: Version) -> dict[str, Any]:
        """Return a version without its value, as a list has it."""
        kind = {"contentType": version.body["contentType"]} if "contentType" in version.body else {}
        member = "kid" if collection == "keys" else "id"
        return {member: self.address(collection, name), "attributes": version.attributes, "tags": version.tags, **kind}

    def epitaph(self, collection: str, name: str) -> dict[str, Any]:
        """Return a deleted object, which has no value."""
        version = self.deleted[collection][name][-1]
        bundle = self.bundle(collection, name, version)
        bundle.pop("value", None)
        when = self.now()
        return bundle | {
            "recoveryId": f"https://{self.host}/deleted{collection}/{name}",
            "deletedDate": when,
            "scheduledPurgeDate": when + RETENTION,
        }


# --- Certificates with keys, in the forms that users push ------------------------------------------------------------


def self_signed(name: str) -> tuple[x509.Certificate, rsa.RSAPrivateKey]:
    """Return a certificate with an RSA key, as Entra ID and Key Vault want it."""
    key = rsa.generate_private_key(65537, 2048)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(SINCE).not_valid_after(UNTIL)
    return builder.sign(key, hashes.SHA256()), key


def pkcs12_of(name: str) -> bytes:
    """Return a certificate and its key as PKCS#12 without a password."""
    certificate, key = self_signed(name)
    return pkcs12.serialize_key_and_certificates(name.encode(), key, certificate, None, NoEncryption())


def pem_of(name: str, form: PrivateFormat = PrivateFormat.PKCS8) -> bytes:
    """Return a certificate and its key as PEM."""
    certificate, key = self_signed(name)
    return certificate.public_bytes(Encoding.PEM) + key.private_bytes(Encoding.PEM, form, NoEncryption())


def leaf_of(raw: bytes) -> bytes:
    """Return the DER of the certificate in PKCS#12 or PEM."""
    if b"-----BEGIN" in raw:
        return x509.load_pem_x509_certificate(raw).public_bytes(Encoding.DER)
    found = pkcs12.load_pkcs12(raw, None).cert
    if found is None:
        raise ValueError("no certificate")
    return found.certificate.public_bytes(Encoding.DER)


# --- The REST interface of a vault (api-version 7.x, `learn.microsoft.com/rest/api/keyvault`) ------------------------


PAGE: Final = 25
MAX_SECRET: Final = 25_000
RETRY_AFTER: Final = 7

_NAME: Final = re.compile(r"[0-9A-Za-z-]{1,127}")
_TITLES: Final = {"secrets": "Secret", "keys": "Key", "certificates": "Certificate"}


class RefusedError(Exception):
    """A response with an error."""

    def __init__(self, status: int, code: str, message: str = "", inner: str = "", **headers: str) -> None:
        super().__init__(code)
        error: dict[str, Any] = {"code": code, "message": message or code}
        if inner:
            error["innererror"] = {"code": inner}
        self.reply = Reply(status, {"error": error}, {name.replace("_", "-"): text for name, text in headers.items()})


@dataclass(slots=True)
class KeyVault:
    """One vault with its rules of access."""

    contents: Contents
    entra: Entra
    tenant: str
    denied: set[str] = field(default_factory=set)
    """Permissions that are not granted, such as `secrets/set`."""
    denial: str = "ForbiddenByRbac"
    quota: int = -1
    """Calls until the vault responds with 429; negative for no limit."""
    conflict_codes: bool = True
    """Whether a conflict has an inner code that shows its reason."""
    busy: set[str] = field(default_factory=set)
    """Names whose writes conflict with something else than a deleted object."""
    retry_after: str = str(RETRY_AFTER)
    """The header of a 429, which not every one has."""

    @property
    def resource(self) -> str:
        return f"https://{self.contents.host.partition('.')[2].partition(':')[0]}"

    def respond(self, call: Call) -> Reply:
        try:
            return self._respond(call)
        except RefusedError as refused:
            return refused.reply

    def _respond(self, call: Call) -> Reply:
        self._authorize(call)
        if self.quota == 0:
            named = {"Retry_After": self.retry_after} if self.retry_after else {}
            raise RefusedError(429, "Throttled", "too many requests", **named)
        self.quota -= 1 if self.quota > 0 else 0
        if not call.query.get("api-version", "").startswith(("7.", "20")):
            raise RefusedError(400, "BadParameter", "api-version is missing or unsupported")
        first, *rest = [part for part in call.path.split("/") if part]
        collection = first.removeprefix("deleted")
        if collection not in COLLECTIONS or any(not _NAME.fullmatch(part) for part in rest[:1]):
            raise RefusedError(400, "BadParameter", f"The request URI contains an invalid name: {call.path}")
        if first != collection:
            bundle = self._deleted(call, collection, rest)
            return Reply(200, bundle) if bundle else Reply(204, b"")
        return Reply(200, self._live(call, collection, rest))

    # --- access ------------------------------------------------------------------------------------------------------

    def _authorize(self, call: Call) -> Grant:
        scheme, _, token = call.headers.get("Authorization", "").partition(" ")
        grant = self.entra.grants.get(token) if scheme == "Bearer" else None
        if grant is None or grant.resource.rstrip("/") != self.resource or grant.tenant not in ("", self.tenant):
            challenge = f'Bearer authorization="{self.entra.url}/{self.tenant}", resource="{self.resource}"'
            raise RefusedError(401, "Unauthorized", "AKV10000: no token", WWW_Authenticate=challenge)
        return grant

    def _permit(self, permission: str) -> None:
        if permission not in self.denied:
            return
        # Real messages name the caller too.
        caller = "appid=a;oid=o;iss=https://sts.windows.net/t/"
        raise RefusedError(403, "Forbidden", f"{caller} may not do {permission} ({self.denial})", self.denial)

    # --- live objects ------------------------------------------------------------------------------------------------

    def _live(self, call: Call, collection: str, rest: list[str]) -> dict[str, Any]:
        match call.method, rest:
            case "GET", []:
                return self._list(call, collection)
            case "GET", [name, "versions"]:
                self._permit(f"{collection}/list")
                versions = self.contents.live[collection].get(name, [])
                return {"value": [self.contents.item(collection, name, each) for each in versions], "nextLink": None}
            case "GET", [name, *version]:
                return self._get(collection, name, "".join(version))
            case ("PUT", [name]) | ("POST", [name, "import"]):
                return self._put(call, collection, name)
            case "PATCH", [name, *version]:
                return self._patch(call, collection, name, "".join(version))
            case "DELETE", [name]:
                return self._delete(collection, name)
            case _:
                raise RefusedError(405, "MethodNotAllowed")

    def _list(self, call: Call, collection: str) -> dict[str, Any]:
        self._permit(f"{collection}/list")
        names = sorted(self.contents.live[collection])
        start = int(call.query.get("$skiptoken", "0"))
        shown = names[start : start + PAGE]
        found = [self.contents.item(collection, name, self.contents.current(collection, name)) for name in shown]
        after = start + PAGE
        query = urlencode({"api-version": call.query["api-version"], "$skiptoken": after})
        link = f"https://{self.contents.host}:443/{collection}?{query}" if after < len(names) else None
        return {"value": found, "nextLink": link}

    def _get(self, collection: str, name: str, version: str) -> dict[str, Any]:
        self._permit(f"{collection}/get")
        found, title = self.contents.find(collection, name, version), _TITLES[collection]
        if found is None:
            message = f"{title} {name} is not in this vault; it may have been deleted"
            raise RefusedError(404, f"{title}NotFound", message)
        if not found.attributes["enabled"] and collection != "certificates":
            message = f"Operation get is not allowed on a disabled {title.lower()}."
            raise RefusedError(403, "Forbidden", message, f"{title}Disabled")
        return self.contents.bundle(collection, name, found)

    def _put(self, call: Call, collection: str, name: str) -> dict[str, Any]:
        self._permit(f"{collection}/{'set' if collection == 'secrets' else 'import'}")
        if name in self.busy:
            raise self._conflict(f"{_TITLES[collection]} {name} is busy", "")
        if name in self.contents.deleted[collection]:
            message = f"{_TITLES[collection]} {name} is deleted but recoverable"
            raise self._conflict(message, "ObjectIsDeletedButRecoverable")
        if self.contents.recovering.get(name, 0):
            self.contents.recovering[name] -= 1
            raise self._conflict(f"{_TITLES[collection]} {name} is being recovered", "ObjectIsBeingRecovered")
        sent = call.json()
        version = self.contents.add(collection, name, _body(collection, sent), sent)
        return self.contents.bundle(collection, name, version)

    def _conflict(self, message: str, inner: str) -> RefusedError:
        return RefusedError(409, "Conflict", message, inner if self.conflict_codes else "")

    def _patch(self, call: Call, collection: str, name: str, version: str) -> dict[str, Any]:
        self._permit(f"{collection}/set")
        found = self.contents.find(collection, name, version)
        if found is None:
            raise RefusedError(404, f"{_TITLES[collection]}NotFound")
        sent = call.json()
        found.attributes.update(sent.get("attributes") or {}, updated=self.contents.now())
        found.tags = sent.get("tags", found.tags)
        return self.contents.bundle(collection, name, found)

    def _delete(self, collection: str, name: str) -> dict[str, Any]:
        self._permit(f"{collection}/delete")
        if name not in self.contents.live[collection]:
            raise RefusedError(404, f"{_TITLES[collection]}NotFound")
        self.contents.delete(collection, name)
        return self.contents.epitaph(collection, name)

    # --- deleted objects ---------------------------------------------------------------------------------------------

    def _deleted(self, call: Call, collection: str, rest: list[str]) -> dict[str, Any]:
        graves = self.contents.deleted[collection]
        if not rest:
            self._permit(f"{collection}/list")
            return {"value": [self.contents.epitaph(collection, name) for name in sorted(graves)], "nextLink": None}
        if rest[0] not in graves:
            raise RefusedError(404, f"{_TITLES[collection]}NotFound")
        match call.method, rest:
            case "GET", [name]:
                self._permit(f"{collection}/get")
                return self.contents.epitaph(collection, name)
            case "POST", [name, "recover"]:
                self._permit(f"{collection}/recover")
                self.contents.recover(collection, name)
                bundle = self.contents.bundle(collection, name, self.contents.current(collection, name))
                return {member: part for member, part in bundle.items() if member != "value"}
            case "DELETE", [name]:
                self._permit(f"{collection}/purge")
                del graves[name]
                return {}
            case _:
                raise RefusedError(405, "MethodNotAllowed")


def _body(collection: str, sent: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the vault stores of a request."""
    if collection == "secrets":
        value = sent.get("value")
        if not isinstance(value, str):
            raise RefusedError(400, "BadParameter", "Property value is missing")
        if len(value) > MAX_SECRET:
            raise RefusedError(400, "BadParameter", f"The secret value {value[:9]} exceeds the maximum length")
        return {"value": value} | ({"contentType": sent["contentType"]} if sent.get("contentType") else {})
    if collection == "keys":
        key = sent["key"]
        if key["kty"] not in ("RSA", "EC"):
            raise RefusedError(400, "BadParameter", "Property kty has an invalid value")
        return {"key": {name: key[name] for name in ("kty", "key_ops", "n", "e", "crv", "x", "y") if name in key}}
    return {"cer": base64.b64encode(_leaf(sent["value"], sent.get("policy") or {})).decode()}


def _leaf(value: str, policy: Mapping[str, Any]) -> bytes:
    """Return the certificate of an import, which needs a private key."""
    raw = base64.b64decode(value) if "-----BEGIN" not in value else value.encode()
    pem = policy.get("secret_props", {}).get("contentType") == "application/x-pem-file"
    if pem != (b"-----BEGIN" in raw) or (pem and b"-----BEGIN PRIVATE KEY-----" not in raw):
        raise RefusedError(400, "BadParameter", "Content does not fit the policy, or has no private key as PKCS#8")
    if pem:
        return x509.load_pem_x509_certificates(raw)[0].public_bytes(Encoding.DER)
    try:
        bundle = pkcs12.load_pkcs12(raw, None)
    except ValueError:
        raise RefusedError(400, "BadParameter", "The specified PKCS#12 X.509 certificate content is invalid") from None
    if bundle.cert is None:
        raise RefusedError(400, "BadParameter", "The certificate has no private key")
    return bundle.cert.certificate.public_bytes(Encoding.DER)
