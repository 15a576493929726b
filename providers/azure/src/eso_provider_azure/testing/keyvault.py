"""The REST interface of a vault (api-version 7.x, `learn.microsoft.com/rest/api/keyvault`)."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, pkcs12

from eso_provider_azure.testing.entra import Entra, Grant
from eso_provider_azure.testing.messages import Call, Reply
from eso_provider_azure.testing.objects import COLLECTIONS, Contents

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
