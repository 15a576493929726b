"""One vault, as one identity: Microsoft's clients with shared connections, and the pause that the vault requests.

Stores with the same vault and identity share it.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from typing import Any, Final, TypeVar

import msgspec
from azure.core.exceptions import AzureError, HttpResponseError
from azure.keyvault.certificates import KeyVaultCertificate
from azure.keyvault.certificates.aio import CertificateClient
from azure.keyvault.keys import JsonWebKey, KeyVaultKey
from azure.keyvault.keys.aio import KeyClient
from azure.keyvault.secrets import KeyVaultSecret
from azure.keyvault.secrets.aio import SecretClient

from eso_provider_azure.identities import BoundIdentity, KitTransport
from eso_sdk.errors import backend_error, invalid_request, rejected, timed_out, unavailable, with_status
from eso_sdk.http import HttpClient, retry_after
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import ValueMetadata
from kubebase.clock import Clock
from kubebase.deadline import Deadline

# --- Remote keys: `NAME`, `secret/NAME`, `key/NAME` or `cert/NAME` ---------------------------------------------------


_NAME: Final = re.compile(r"[0-9A-Za-z-]{1,127}")


class Kind(StrEnum):
    """The kinds of objects in a vault; the text is their prefix in remote keys."""

    SECRET = "secret"  # noqa: S105 - a prefix, not a credential
    KEY = "key"
    CERTIFICATE = "cert"

    @property
    def label(self) -> str:
        """Return the kind's name in messages."""
        return "certificate" if self is Kind.CERTIFICATE else self.value


@dataclass(frozen=True, slots=True)
class Name:
    """One object of a vault."""

    kind: Kind
    name: str

    @classmethod
    def parse(cls, key: str) -> Name:
        """Read a remote key. Segments after the second one have always been ignored."""
        first, slash, rest = key.partition("/")
        if not slash:
            return cls(Kind.SECRET, _checked(key, key))
        if first not in tuple(Kind):
            raise invalid_request(f'"{key}" begins with "{first}/"; the kinds of objects are secret/, key/ and cert/')
        return cls(Kind(first), _checked(rest.partition("/")[0], key))


def _checked(name: str, key: str) -> str:
    if not _NAME.fullmatch(name):
        raise invalid_request(f'"{key}" is not a name in Key Vault: use up to 127 letters, digits and dashes')
    return name


# --- The mapping of Key Vault's responses to `ProviderError` ---------------------------------------------------------
#
# | response | reason |
# |---|---|
# | 404 SecretNotFound, KeyNotFound, CertificateNotFound | SECRET_NOT_FOUND; with a version, VERSION_NOT_FOUND |
# | 403 with an inner code about a disabled or expired object | BACKEND_ERROR: access is granted, the value is not |
# | 403 ForbiddenByRbac, ForbiddenByPolicy, AccessDenied | PERMISSION_DENIED; names the role to grant |
# | 403 ForbiddenByFirewall, ForbiddenByConnection | PERMISSION_DENIED; names the network rules |
# | 401 | CREDENTIALS_REJECTED |
# | 429 | RATE_LIMITED, with Retry-After |
# | 409 ObjectIsDeletedButRecoverable, ObjectIsBeingDeleted, ObjectIsBeingRecovered | `DeletedError` |
# | any other 409 | `ConflictError`: the deleted object shows whether that is the reason |
# | 413, and 400 about the length of a value | PAYLOAD_TOO_LARGE |
# | 5xx | BACKEND_UNAVAILABLE |
#
# The text of a response is never quoted, because it repeats parts of the request. It only helps to distinguish cases.


_ABSENT: Final = re.compile(r"(Secret|Key|Certificate)NotFound")
_DELETED: Final = re.compile(r"ObjectIs(DeletedButRecoverable|BeingDeleted|BeingRecovered)")
_PLAIN: Final = re.compile(r"[A-Za-z]\w{0,63}")
_DISABLED: Final = re.compile(r"Disabled$")
_EXPIRED: Final = re.compile(r"(Expired|NotYetValid)$")
_NETWORK: Final = frozenset({"ForbiddenByFirewall", "ForbiddenByConnection"})
_LONG: Final = re.compile(r"(value|secret|size).{0,80}(too long|too large|maximum|exceed|length)", re.IGNORECASE)

_READS: Final = {
    Kind.SECRET: "Key Vault Secrets User",
    Kind.KEY: "Key Vault Crypto User",
    Kind.CERTIFICATE: "Key Vault Certificate User",
}
_WRITES: Final = {
    Kind.SECRET: "Key Vault Secrets Officer",
    Kind.KEY: "Key Vault Crypto Officer",
    Kind.CERTIFICATE: "Key Vault Certificates Officer",
}


class ConflictError(ProviderError):
    """A write conflicts with something. Not every vault reports that it is a deleted object."""


class DeletedError(ConflictError):
    """The name belongs to an object that was deleted and can be recovered, or is between both states."""


@dataclass(frozen=True, slots=True)
class CallSubject:
    """The subject of a call, for its error."""

    operation: str
    vault: str
    kind: Kind
    name: str = ""
    version: str = ""

    def __str__(self) -> str:
        if not self.name:
            return f"vault {self.vault}"
        version = f', version "{self.version}"' if self.version else ""
        return f'{self.kind.label} "{self.name}"{version} in vault {self.vault}'

    @property
    def grant(self) -> str:
        """Return what to grant for this call, under both models of permissions."""
        reads = self.operation.startswith("Get") and "Deleted" not in self.operation
        role = _READS[self.kind] if reads else _WRITES[self.kind]
        action = re.sub(r"(Secrets?|Keys?|Certificates?|Deleted)", "", self.operation).lower() or "get"
        if not self.name:
            action = "list"
        return f'grant the role "{role}", or {action} on {self.kind.label}s in the access policy of the vault'


def refusal(failed: Exception, subject: CallSubject) -> ProviderError:
    """Return the error of a call that the vault refused. 429 is the caller's business."""
    if not isinstance(failed, HttpResponseError) or failed.response is None:
        text = f"{subject}: {subject.operation} got a response that is not from Key Vault"
        return backend_error(f"{text} ({type(failed).__name__}); check vaultUrl and proxies on the way")
    status = int(failed.status_code or 0)
    return with_status(_of_status(status, failed, subject), status)


def _of_status(status: int, failed: HttpResponseError, subject: CallSubject) -> ProviderError:
    code, inner, message = _codes(failed)
    text = f"{subject}: {subject.operation}"
    if status == 404 and _ABSENT.fullmatch(code):
        return _absent(code, subject)
    if status == 403:
        return _forbidden(inner or code, message, subject)
    if status == 401:
        return rejected(
            f"vault {subject.vault} does not accept the token; check the tenant of the vault", backend_code=code
        )
    if status == 409 and (_DELETED.fullmatch(inner) or _DELETED.fullmatch(code)):
        return DeletedError(ErrorReason.ALREADY_EXISTS, f"{subject} is deleted and holds its name", backend_code=inner)
    if status == 409:
        problem = f"{text} was refused with status 409 ({code or 'no code'}): something else is changing it; try again"
        return ConflictError(ErrorReason.BACKEND_ERROR, problem, backend_code=code or "409")
    if status == 413 or (status == 400 and _LONG.search(message)):
        problem = (
            f"{text} exceeds a limit of Key Vault (a secret has at most 25,000 characters); make the value smaller"
        )
        return ProviderError(ErrorReason.PAYLOAD_TOO_LARGE, problem, backend_code=code)
    if status >= 500:
        return unavailable(f"{text} got HTTP {status}", backend_code=code or str(status))
    if status == 400 and code:
        return ProviderError(ErrorReason.INVALID_REQUEST, f"{text} was refused ({code})", backend_code=code)
    if not code:
        return backend_error(f"{text} got HTTP {status} without a code of Key Vault; check proxies on the way")
    return backend_error(f"{text} was refused ({code})", backend_code=code)


def _codes(failed: HttpResponseError) -> tuple[str, str, str]:
    """Return code, inner code and message of a response; empty if it is not from Key Vault."""
    response: Any = failed.response
    try:
        body: Any = response.json()
    except (ValueError, AzureError):
        return "", "", ""
    match body:
        case {"error": {"code": str(code), "innererror": {"code": str(inner)}} as error}:
            return _plain(code), _plain(inner), str(error.get("message", ""))
        case {"error": {"code": str(code)} as error}:
            return _plain(code), "", str(error.get("message", ""))
        case _:
            return "", "", ""


def _plain(code: str) -> str:
    return code if _PLAIN.fullmatch(code) else ""


def _absent(code: str, subject: CallSubject) -> ProviderError:
    if subject.version:
        return ProviderError(ErrorReason.VERSION_NOT_FOUND, f"{subject} does not exist", backend_code=code)
    return ProviderError(ErrorReason.SECRET_NOT_FOUND, f"{subject} does not exist", backend_code=code)


def _forbidden(code: str, message: str, subject: CallSubject) -> ProviderError:
    if _DISABLED.search(code) or "is not allowed on a disabled" in message:
        return backend_error(f"{subject} is disabled; enable it, or choose another version", backend_code=code)
    if _EXPIRED.search(code) or "is not allowed on an expired" in message:
        return backend_error(f"{subject} has expired or is not valid yet; renew it", backend_code=code)
    if code in _NETWORK:
        text = (
            f"{subject}: {subject.operation} is denied by the network rules of the vault; allow the provider's address"
        )
        return ProviderError(ErrorReason.PERMISSION_DENIED, text, backend_code=code)
    if not code:
        return backend_error(f"{subject}: {subject.operation} got HTTP 403 without a code of Key Vault; check proxies")
    text = f"{subject}: {subject.operation} is denied; {subject.grant}"
    return ProviderError(ErrorReason.PERMISSION_DENIED, text, backend_code=code)


# ---------------------------------------------------------------------------------------------------------------------
# Objects of a vault in one form: a secret, a key or a certificate with its value, version, tags and times.


MARK: Final = "managed-by"
OWNER: Final = "external-secrets"

_TIMES: Final = {
    "attribute.expires": "expires_on",
    "attribute.created": "created_on",
    "attribute.updated": "updated_on",
    "attribute.notBefore": "not_before",
}
_NUMBERS: Final = ("n", "e", "d", "dp", "dq", "qi", "p", "q", "k", "x", "y")


@dataclass(frozen=True, slots=True)
class Stored:
    """One version of an object."""

    value: bytes = field(repr=False)
    version: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    times: Mapping[str, datetime] = field(default_factory=dict)
    """By their name in metadata: `attribute.expires` and so on."""
    content_type: str = ""

    def is_of(self, owner: str) -> bool:
        """Return whether External Secrets created it."""
        return self.tags.get(MARK) == owner

    @property
    def expires(self) -> datetime | None:
        return self.times.get("attribute.expires")

    @property
    def attributes(self) -> dict[str, str]:
        """Return the times as texts."""
        return {name: _rfc3339(moment) for name, moment in self.times.items()}

    @property
    def metadata(self) -> ValueMetadata:
        return ValueMetadata(
            provider_version=self.version, updated_at=self.times.get("attribute.updated"), expires_at=self.expires
        )


def secret(received: KeyVaultSecret) -> Stored:
    return _stored((received.value or "").encode(), received.properties, received.properties.content_type or "")


def certificate(received: KeyVaultCertificate) -> Stored:
    return _stored(bytes(received.cer or b""), received.properties)


def key(received: KeyVaultKey) -> Stored:
    return _stored(json_web_key(received.key), received.properties)


def tags_of(properties: Any) -> dict[str, str]:
    return dict(properties.tags or {})


def json_web_key(received: JsonWebKey) -> bytes:
    """Return a key as JSON, as the service sends it."""
    members: dict[str, Any] = {"kid": getattr(received, "kid", None), "kty": _text(getattr(received, "kty", None))}
    members["key_ops"] = [_text(operation) for operation in getattr(received, "key_ops", None) or ()] or None
    members["crv"] = _text(getattr(received, "crv", None))
    for name in _NUMBERS:
        number = getattr(received, name, None)
        members[name] = base64.urlsafe_b64encode(number).rstrip(b"=").decode() if number else None
    return msgspec.json.encode({name: member for name, member in members.items() if member is not None})


def _stored(value: bytes, properties: Any, content_type: str = "") -> Stored:
    times = {name: getattr(properties, member, None) for name, member in _TIMES.items()}
    return Stored(
        value,
        properties.version or "",
        tags_of(properties),
        {name: moment for name, moment in times.items() if moment is not None},
        content_type,
    )


def _text(value: Any) -> str | None:
    """Return the text of an enumeration's member, or the text itself."""
    return None if value is None else str(getattr(value, "value", value))


def _rfc3339(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- One vault, as one identity --------------------------------------------------------------------------------------


SHORTEST_PAUSE: Final = 1.0
"""Seconds without calls after a 429 that names no time."""
LONGEST_PAUSE: Final = 32.0


class Vault:
    """Clients of one vault."""

    def __init__(self, url: str, credential: BoundIdentity, client: HttpClient, clock: Clock) -> None:
        self.url = url
        self.credential = credential
        self.clock = clock
        self.users = 0
        self.met = asyncio.Event()
        """Set once the vault was called: then the clients know its challenge."""
        self.meeting = asyncio.Lock()
        self._client = client
        self._until = float("-inf")
        self._limits = 0
        """Limits in a row."""

    @cached_property
    def secrets(self) -> SecretClient:
        return SecretClient(self.url, self.credential, **self._settings())

    @cached_property
    def keys(self) -> KeyClient:
        return KeyClient(self.url, self.credential, **self._settings())

    @cached_property
    def certificates(self) -> CertificateClient:
        return CertificateClient(self.url, self.credential, **self._settings())

    async def close(self) -> None:
        await self._client.close()

    def check_pause(self) -> None:
        """Fail at once while the vault limits calls: each further one would count against its quota."""
        left = self._until - self.clock.monotonic()
        if left > 0:
            raise self._limited(left)

    def pause(self, seconds: float) -> ProviderError:
        """Make no calls for this time; return the error of the call that met the limit.

        If the vault names no time, pauses double, as Microsoft recommends.
        """
        now = self.clock.monotonic()
        if now >= self._until:
            self._limits += 1
        doubled = min(SHORTEST_PAUSE * 2 ** (self._limits - 1), LONGEST_PAUSE)
        wait = max(seconds, SHORTEST_PAUSE) if seconds else doubled
        self._until = max(self._until, now + wait)
        return self._limited(wait)

    def served(self) -> None:
        """Record that the vault served a call."""
        self._limits = 0

    def _limited(self, left: float) -> ProviderError:
        message = f"vault {self.url} limits its calls (HTTP 429); retried later"
        return ProviderError(ErrorReason.RATE_LIMITED, message, retry_after=left, backend_code="429")

    def _settings(self) -> dict[str, Any]:
        return {
            "transport": KitTransport(self._client),
            "retry_total": 0,  # the operator retries
            "permit_redirects": False,
            # `clouds.check_vault` has compared the host, and the identity ignores the resource of the challenge.
            "verify_challenge_resource": False,
        }


# --- The calls of one session to its vault: counted, with a deadline, and with mapped errors -------------------------


CALL_SECONDS: Final = 25.0

_LISTS: Final = {Kind.SECRET: "GetSecrets", Kind.KEY: "GetKeys", Kind.CERTIFICATE: "GetCertificates"}

Observe = Callable[[str], AbstractContextManager[None]]
T = TypeVar("T")


class Api:
    """One vault, for one session."""

    def __init__(self, vault: Vault, observe: Observe) -> None:
        self.vault = vault
        self.clock = vault.clock
        self._observe = observe

    def subject(self, operation: str, name: Name, version: str = "") -> CallSubject:
        """Return the subject of an error of this call."""
        return CallSubject(operation, self.vault.url, name.kind, name.name, version)

    async def call(self, subject: CallSubject, work: Callable[[], Awaitable[T]]) -> T:
        """Make one call. Tokens may be revoked before they expire: a rejected one is replaced once."""
        self.vault.check_pause()
        # Obtain the token first: a failed login reports its own error and is not counted as a call.
        await self.vault.credential.token()
        try:
            return await self._introduced(subject, work)
        except ProviderError as failed:
            if failed.reason is not ErrorReason.CREDENTIALS_REJECTED or not self.vault.credential.discard():
                raise
        await self.vault.credential.token()
        return await self._once(subject, work)

    async def pages(self, subject: CallSubject, pages: Any) -> AsyncIterator[list[Any]]:
        """Yield the pages of a listing (`by_page()` of the library); each is one call."""

        async def one() -> list[Any]:
            return [item async for item in await anext(pages)]

        while True:
            yield await self.call(subject, one)
            if not pages.continuation_token:
                return

    async def _introduced(self, subject: CallSubject, work: Callable[[], Awaitable[T]]) -> T:
        """Let the first call get the vault's challenge alone: otherwise each call of a burst would be made twice."""
        if self.vault.met.is_set():
            return await self._once(subject, work)
        async with self.vault.meeting:
            if not self.vault.met.is_set():
                try:
                    return await self._once(subject, work)
                finally:
                    self.vault.met.set()
        return await self._once(subject, work)

    async def _once(self, subject: CallSubject, work: Callable[[], Awaitable[T]]) -> T:
        with self._errors(subject), self._observe(subject.operation):
            async with Deadline(self.clock, CALL_SECONDS):
                done = await work()
        self.vault.served()
        return done

    @contextmanager
    def _errors(self, subject: CallSubject) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            raise timed_out(f"vault {self.vault.url} did not respond to {subject.operation} in time") from None
        except HttpResponseError as failed:
            response: Any = failed.response
            if failed.status_code == 429 and response is not None:
                raise self.vault.pause(retry_after(response.headers, self.clock.now())) from None
            raise refusal(failed, subject) from None
        except (AzureError, ValueError, KeyError, TypeError) as failed:
            raise refusal(failed, subject) from None


def vault_itself(vault: Vault, kind: Kind) -> CallSubject:
    """Return the subject of a listing of all objects of a kind."""
    return CallSubject(_LISTS[kind], vault.url, kind)
