"""Writing objects: everything that is pushed to one secret becomes one new version, or none when nothing changed.

| present object | what a push does |
|---|---|
| nothing | creates it with our tag `managed-by` |
| ours | writes a version if value or settings differ |
| ours, deleted but recoverable | recovers it, then writes; its former value does not count. A bare 409 is looked up |
| without our tag, also if deleted | nothing: OWNERSHIP_CONFLICT |
| disabled | nothing: the error reports that it is disabled |

Key Vault compares no versions. Writes of one session to one object wait for each other; between processes the last
writer wins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

import msgspec
from azure.core.rest import HttpRequest
from azure.keyvault.certificates import CertificateContentType, CertificatePolicy, WellKnownIssuerNames
from azure.keyvault.keys import JsonWebKey
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from eso_provider_azure.reading import DOTS, Reader
from eso_provider_azure.vault import (
    MARK,
    OWNER,
    Api,
    ConflictError,
    DeletedError,
    Kind,
    Name,
    Stored,
    Vault,
    json_web_key,
)
from eso_sdk.errors import invalid_request
from eso_sdk.provider import Pushed
from eso_sdk.push import Draft, MetadataSpec, decode_metadata, payload_of, removed, text_of
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import DeleteItem, PushItem, PushOutcome
from kubebase.deadline import Deadline

# --- `metadata` of a PushSecret entry: expiry, content type and tags of the pushed object ----------------------------


class PushMetadata(MetadataSpec, frozen=True, kw_only=True):
    """The metadata of an entry."""

    expiration_date: str = ""
    """When the secret expires, as RFC 3339 has it."""
    content_type: str = ""
    tags: dict[str, str] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one push to one object."""

    expires: datetime | None = None
    content_type: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)

    def fit(self, present: Stored) -> bool:
        """Return whether an object has these settings already. A content type counts only if the metadata names it."""
        return (
            self.expires == present.expires
            and self.content_type in ("", present.content_type)
            and all(present.tags.get(name) == value for name, value in self.tags.items())
        )


def settings_of(item: PushItem) -> Settings:
    """Decode the metadata of one pushed entry."""
    key = item.remote.key
    metadata = decode_metadata(item.provider_metadata, PushMetadata, key)
    if MARK in metadata.tags:
        raise invalid_request(f'metadata of "{key}" sets the tag {MARK}, which is set by External Secrets; remove it')
    return Settings(_moment(metadata.expiration_date, key), metadata.content_type, metadata.tags)


def merged(settings: Iterable[Settings]) -> Settings:
    """Return the settings of several entries for one object; later ones win."""
    found = Settings()
    for each in settings:
        found = Settings(
            each.expires or found.expires, each.content_type or found.content_type, {**found.tags, **each.tags}
        )
    return found


def _moment(text: str, key: str) -> datetime | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise invalid_request(
            f'expirationDate of "{key}" is not an RFC 3339 time; write one such as 2030-12-31T20:30:00Z'
        )
    return moment.astimezone(UTC).replace(microsecond=0)  # Key Vault stores seconds


# ---------------------------------------------------------------------------------------------------------------------
# Pushed keys: PEM (PKCS#8, PKCS#1 or SEC1), or the bytes of a symmetric key. They are imported as JSON Web Keys.


_CURVES: Final = {"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521", "secp256k1": "P-256K"}
_PUBLIC: Final = ("n", "e", "crv", "x", "y")


@dataclass(frozen=True, slots=True)
class PreparedKey:
    """A key that is ready to be imported."""

    key: JsonWebKey = field(repr=False)

    def equals(self, present: bytes) -> bool:
        """Return whether the vault has this key: its public parts are equal. A symmetric key has none."""
        ours, theirs = _public(json_web_key(self.key)), _public(present)
        return bool(ours) and ours == theirs

    async def write(self, vault: Vault, name: str, tags: Mapping[str, str], settings: Settings) -> str:
        """Import the key; return its version."""
        made = await vault.keys.import_key(name, self.key, enabled=True, tags=dict(tags), expires_on=settings.expires)
        return made.properties.version or ""


def prepared_key(raw: bytes, key: str) -> PreparedKey:
    """Read a key; errors name the remote key."""
    if b"-----BEGIN" not in raw:
        return PreparedKey(JsonWebKey(kty="oct", k=raw, key_ops=["encrypt", "decrypt", "wrapKey", "unwrapKey"]))
    try:
        private: Any = load_pem_private_key(raw, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise invalid_request(f'the value for "{key}" is not a private key in PEM without a password') from None
    match private:
        case rsa.RSAPrivateKey():
            return PreparedKey(_rsa(private))
        case ec.EllipticCurvePrivateKey() if private.curve.name in _CURVES:
            return PreparedKey(_elliptic(private))
        case _:
            raise invalid_request(f'the key for "{key}" has a type that Key Vault does not store; use RSA or EC')


def _rsa(private: rsa.RSAPrivateKey) -> JsonWebKey:
    numbers = private.private_numbers()
    public = numbers.public_numbers
    return JsonWebKey(
        kty="RSA",
        n=_bytes(public.n),
        e=_bytes(public.e),
        d=_bytes(numbers.d),
        dp=_bytes(numbers.dmp1),
        dq=_bytes(numbers.dmq1),
        qi=_bytes(numbers.iqmp),
        p=_bytes(numbers.p),
        q=_bytes(numbers.q),
    )


def _elliptic(private: ec.EllipticCurvePrivateKey) -> JsonWebKey:
    numbers, size = private.private_numbers(), (private.curve.key_size + 7) // 8
    public = numbers.public_numbers
    x, y, d = (number.to_bytes(size, "big") for number in (public.x, public.y, numbers.private_value))
    return JsonWebKey(kty="EC", crv=_CURVES[private.curve.name], x=x, y=y, d=d)


def _bytes(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def _public(json: bytes) -> dict[str, Any]:
    members = msgspec.json.decode(json)
    return {name: members[name] for name in _PUBLIC if name in members}


# ---------------------------------------------------------------------------------------------------------------------
# Pushed certificates: PKCS#12 without a password, PEM with its key, or DER. They are imported if the leaf differs.


_PEM = b"-----BEGIN"


@dataclass(frozen=True, slots=True)
class PreparedCertificate:
    """A certificate that is ready to be imported."""

    leaf: bytes
    """In DER."""
    content: bytes = field(repr=False)
    is_pem: bool = False

    def equals(self, present: bytes) -> bool:
        """Return whether the vault has this certificate."""
        return self.leaf == present

    async def write(self, vault: Vault, name: str, tags: Mapping[str, str], settings: Settings) -> str:
        """Import the certificate, whose expiry is its own; return its version."""
        del settings
        kind = CertificateContentType.pem if self.is_pem else CertificateContentType.pkcs12
        policy = CertificatePolicy(issuer_name=WellKnownIssuerNames.unknown, content_type=kind)
        made = await vault.certificates.import_certificate(
            name, self.content, enabled=True, tags=dict(tags), policy=policy
        )
        version = made.properties.version if made.properties is not None else ""
        return version or ""


def prepared_certificate(raw: bytes, key: str) -> PreparedCertificate:
    """Read a certificate; errors name the remote key."""
    try:
        return _of_pem(raw) if _PEM in raw else _of_binary(raw)
    except (ValueError, TypeError, UnsupportedAlgorithm, IndexError):
        raise invalid_request(
            f'the value for "{key}" is not a certificate: write PKCS#12 without a password, PEM with a private key, or'
            " DER"
        ) from None


def _of_pem(raw: bytes) -> PreparedCertificate:
    """Return certificate and key in the one form of PEM that Key Vault reads: the key as PKCS#8."""
    chain = x509.load_pem_x509_certificates(raw)
    key = load_pem_private_key(_key_block(raw), None)
    parts = [key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())]
    parts += [each.public_bytes(Encoding.PEM) for each in chain]
    return PreparedCertificate(chain[0].public_bytes(Encoding.DER), b"".join(parts), is_pem=True)


def _key_block(raw: bytes) -> bytes:
    """Return the private key of a PEM file that also holds certificates."""
    blocks = raw.split(_PEM)[1:]
    return _PEM + next((block for block in blocks if b"PRIVATE KEY-----" in block.partition(b"\n")[0]), b"")


def _of_binary(raw: bytes) -> PreparedCertificate:
    try:
        return PreparedCertificate(x509.load_der_x509_certificate(raw).public_bytes(Encoding.DER), raw)
    except ValueError:
        bundle = pkcs12.load_pkcs12(raw, None)
    if bundle.cert is None:
        raise ValueError("no certificate")
    return PreparedCertificate(bundle.cert.certificate.public_bytes(Encoding.DER), raw)


# --- Writing objects -------------------------------------------------------------------------------------------------


RECOVER_SECONDS: Final = 20.0
"""Seconds for a recovery; Key Vault mostly needs a few."""
RECOVER_PAUSE: Final = 1.0

_COLLECTIONS: Final = {Kind.SECRET: "secrets", Kind.KEY: "keys", Kind.CERTIFICATE: "certificates"}
_TITLES: Final = {Kind.SECRET: "Secret", Kind.KEY: "Key", Kind.CERTIFICATE: "Certificate"}

T = TypeVar("T")


class Writer:
    """Writes the objects of one session."""

    def __init__(self, api: Api, reader: Reader) -> None:
        self._api = api
        self._reader = reader
        self._locks: WeakValueDictionary[Name, asyncio.Lock] = WeakValueDictionary()

    async def push(self, items: Sequence[PushItem]) -> list[Pushed | ProviderError]:
        """Write all items of one key; return one outcome for each."""
        name = Name.parse(items[0].remote.key)
        async with self._locks.setdefault(name, asyncio.Lock()):
            if name.kind is Kind.SECRET:
                return await self._push_secret(name, items)
            return [await self._imported(name, item) for item in items]

    async def delete(self, items: Sequence[DeleteItem]) -> list[bool | ProviderError]:
        """Remove all items of one key; return for each whether it existed."""
        name = Name.parse(items[0].remote.key)
        async with self._locks.setdefault(name, asyncio.Lock()):
            present = await self._reader.current(name)
            if present is None:
                return [False] * len(items)
            self._check_ours(name, present, items[0].owner_token or OWNER)
            if name.kind is not Kind.SECRET or any(not item.remote.property for item in items):
                await self._delete(name)
                return [True] * len(items)
            return await self._remove_properties(name, present, items)

    # --- secrets -----------------------------------------------------------------------------------------------------

    async def _push_secret(self, name: Name, items: Sequence[PushItem]) -> list[Pushed | ProviderError]:
        owner = items[0].owner_token or OWNER
        present = await self._reader.current(name)
        if present is not None:
            self._check_ours(name, present, owner)
        draft = Draft(present.value if present else None, DOTS)
        settings_of_items: list[Settings] = []
        outcomes = [await _put(draft, item, settings_of_items) for item in items]
        if not settings_of_items or draft.value is None:
            return [outcome for outcome in outcomes if outcome is not None]
        settings = merged(settings_of_items)
        if present is not None and draft.value == present.value and settings.fit(present):
            done = Pushed(PushOutcome.UNCHANGED, present.version)
        else:
            version = await self._set(name, draft.value, present, settings, owner)
            done = Pushed(PushOutcome.CREATED if present is None else PushOutcome.UPDATED, version)
        return [done if outcome is None else outcome for outcome in outcomes]

    async def _set(self, name: Name, value: bytes, present: Stored | None, settings: Settings, owner: str) -> str:
        content_type = present.content_type if present else ""

        async def write() -> str:
            made = await self._api.call(
                self._api.subject("SetSecret", name),
                lambda: self._api.vault.secrets.set_secret(
                    name.name,
                    value.decode(),
                    enabled=True,
                    tags={**settings.tags, MARK: owner},
                    content_type=settings.content_type or content_type or None,
                    expires_on=settings.expires,
                ),
            )
            return made.properties.version or ""

        return await self._recovered(name, owner, write)

    async def _remove_properties(
        self, name: Name, present: Stored, items: Sequence[DeleteItem]
    ) -> list[bool | ProviderError]:
        draft = Draft(present.value, DOTS)
        outcomes = [await removed(draft, item) for item in items]
        if not any(outcome is True for outcome in outcomes):
            return outcomes
        if draft.value is None:
            await self._delete(name)
        else:
            tags = {tag: value for tag, value in present.tags.items() if tag != MARK}
            settings = Settings(present.expires, present.content_type, tags)
            await self._set(name, draft.value, present, settings, present.tags[MARK])
        return outcomes

    # --- keys and certificates ---------------------------------------------------------------------------------------

    async def _imported(self, name: Name, item: PushItem) -> Pushed | ProviderError:
        try:
            return await self._import(name, item, item.owner_token or OWNER)
        except ProviderError as refused:
            return refused

    async def _import(self, name: Name, item: PushItem, owner: str) -> Pushed:
        raw, settings = payload_of(item), settings_of(item)
        if item.remote.property:
            raise invalid_request(f'"{item.remote.key}" is a {name.kind.label} and has no properties; remove property')
        present = await self._reader.current(name)
        if present is not None:
            self._check_ours(name, present, owner)
        tags = {**settings.tags, MARK: owner}
        prepare = prepared_key if name.kind is Kind.KEY else prepared_certificate
        prepared = prepare(raw, item.remote.key)
        if present is not None and prepared.equals(present.value):
            return Pushed(PushOutcome.UNCHANGED, present.version)
        subject = self._api.subject(f"Import{_TITLES[name.kind]}", name)

        async def write() -> str:
            return await self._api.call(subject, lambda: prepared.write(self._api.vault, name.name, tags, settings))

        version = await self._recovered(name, owner, write)
        return Pushed(PushOutcome.CREATED if present is None else PushOutcome.UPDATED, version)

    # --- all of them -------------------------------------------------------------------------------------------------

    async def _delete(self, name: Name) -> None:
        """Delete an object. The method of the library would wait until the deletion is complete."""
        await self._send(f"Delete{_TITLES[name.kind]}", name, "DELETE", f"{_COLLECTIONS[name.kind]}/{name.name}")

    async def _recovered(self, name: Name, owner: str, write: Callable[[], Awaitable[T]]) -> T:
        """Write; if the name belongs to a deleted object of ours, recover that first."""
        try:
            return await write()
        except ConflictError as conflict:
            last = conflict
        await self._recover(name, owner, last)
        try:
            async with Deadline(self._api.clock, RECOVER_SECONDS):
                while True:
                    await self._api.clock.sleep(RECOVER_PAUSE)
                    try:
                        return await write()
                    except ConflictError as still:
                        last = still
        except TimeoutError:
            message = f"{self._api.subject('Recover', name)} is still being recovered; pushed again later"
            raise ProviderError(ErrorReason.BACKEND_TIMEOUT, message, backend_code=last.backend_code) from None

    async def _recover(self, name: Name, owner: str, conflict: ConflictError) -> None:
        """Recover the deleted object that a write conflicts with. Raise the conflict if there is none."""
        path, title = f"deleted{_COLLECTIONS[name.kind]}/{name.name}", _TITLES[name.kind]
        try:
            response = await self._send(f"GetDeleted{title}", name, "GET", path)
        except ProviderError as failed:
            if failed.reason is not ErrorReason.SECRET_NOT_FOUND:
                raise
            if not isinstance(conflict, DeletedError):
                raise conflict from None
            return  # it is between both states
        tags = response.get("tags") or {} if isinstance(response, dict) else {}
        if tags.get(MARK) != owner:
            message = (
                f"{self._api.subject('Recover', name)} is deleted and was not created by External Secrets: it has no"
                f" tag {MARK}: {owner}; purge or recover it, or choose another remoteKey"
            )
            raise ProviderError(ErrorReason.OWNERSHIP_CONFLICT, message)
        await self._send(f"RecoverDeleted{title}", name, "POST", f"{path}/recover")

    async def _send(self, operation: str, name: Name, method: str, path: str) -> Any:
        """Make a call that the library has only together with waiting. Any of its clients can send it."""

        async def send() -> Any:
            response = await self._api.vault.secrets.send_request(HttpRequest(method, path))
            response.raise_for_status()
            return msgspec.json.decode(await response.read())

        return await self._api.call(self._api.subject(operation, name), send)

    def _check_ours(self, name: Name, present: Stored, owner: str) -> None:
        if not present.is_of(owner):
            raise ProviderError(
                ErrorReason.OWNERSHIP_CONFLICT,
                f"{self._api.subject('Get', name)} exists and was not created by External Secrets: it has no"
                f" tag {MARK}: {owner}; choose another remoteKey, or add that tag to hand it over",
            )


async def _put(draft: Draft, item: PushItem, settings_of_items: list[Settings]) -> ProviderError | None:
    """Put one item into the draft; return its error if that is impossible."""
    try:
        settings = settings_of(item)
        text = text_of(payload_of(item), item.remote.key, item.remote.property)
        await draft.put(item.remote.key, item.remote.property, text.encode())
    except ProviderError as refused:
        return refused
    settings_of_items.append(settings)
    return None
