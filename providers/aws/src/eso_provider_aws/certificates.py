"""AWS Certificate Manager.

A read calls GetCertificate each time, which is free, and the paid ExportCertificate only when the certificate differs
from the cached export. Keys are ARNs; `prefix` is not added to them. A whole `kubernetes.io/tls` Secret that is pushed
becomes one imported certificate, found again by its tags, and imported again under its ARN when it differs. `prefix` is
part of the remote key of a push. Maps and finds are not supported. A pushed certificate cannot be read back:
Certificate Manager does not export imported certificates.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
import string
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Final
from weakref import WeakKeyDictionary, WeakValueDictionary

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from eso_api.values import SecretBytes
from eso_provider_aws.api import MARK, Api, decoded, foreign, listed, owner_of, tags_of
from eso_provider_aws.clients import CERTIFICATE_MANAGER, STS, TAGGING
from eso_provider_aws.identity import Runtime, runtime_of
from eso_provider_aws.kinds import CertificateManagerConfig
from eso_provider_aws.store import AwsStore
from eso_sdk.errors import backend_error, invalid_request, property_not_found
from eso_sdk.operations import side_by_side
from eso_sdk.provider import Check, Pushed, Value, pushes, reads
from eso_sdk.push import MetadataSpec
from eso_wire.errors import ErrorReason, ProviderError, RetryClass
from eso_wire.values import DeleteItem, Operation, PushItem, PushOutcome, RemoteRef, SourceSecret, ValueMetadata
from kubebase.bounded import BoundedDict

# --- Certificates and keys in PEM: parsing, comparison, decryption and encoding. Makes no calls ----------------------

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"

_UNFIT: Final = (ValueError, TypeError, UnsupportedAlgorithm)
"""The errors of the library; their messages may quote the input."""


class NotPemError(Exception):
    """The input is not the expected PEM. The message shows nothing of the content."""


# --- responses of Certificate Manager --------------------------------------------------------------------------------


def certificates_in(response: Mapping[str, Any]) -> list[x509.Certificate]:
    """Return leaf and chain of a response of GetCertificate or ExportCertificate."""
    try:
        return x509.load_pem_x509_certificates("\n".join(_parts(response)).encode())
    except _UNFIT:
        raise NotPemError from None


def fingerprint_of(certificates: Sequence[x509.Certificate]) -> str:
    """Return the fingerprint of leaf and chain."""
    digest = hashlib.sha256()
    for certificate in certificates:
        digest.update(certificate.fingerprint(hashes.SHA256()))
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Exported:
    """A certificate with its chain and its private key."""

    fingerprint: str
    certificates: str
    """Leaf and chain."""
    key: SecretBytes = field(repr=False)
    """Ends with a newline, as all texts that are made here."""

    @property
    def whole(self) -> SecretBytes:
        return SecretBytes(self.certificates.encode() + self.key.reveal())


def exported(response: Mapping[str, Any], passphrase: bytes) -> Exported:
    """Return the content of a response of ExportCertificate, with its key decrypted."""
    certificates = certificates_in(response)
    encrypted = str(response.get("PrivateKey", "")).encode()
    try:
        key = load_pem_private_key(encrypted, passphrase if b" ENCRYPTED PRIVATE KEY-" in encrypted else None)
        plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    except _UNFIT:
        raise NotPemError from None
    text = "".join(f"{part}\n" for part in _parts(response))
    return Exported(fingerprint_of(certificates), text, SecretBytes(plain.rstrip(b"\r\n") + b"\n"))


def _parts(response: Mapping[str, Any]) -> list[str]:
    found = [str(response.get(name) or "").rstrip("\r\n") for name in ("Certificate", "CertificateChain")]
    return [part for part in found if part]


# --- pushed certificates ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bundle:
    """A certificate to import."""

    leaf: x509.Certificate
    chain: tuple[x509.Certificate, ...]
    key: SecretBytes = field(repr=False)

    @property
    def fingerprint(self) -> str:
        return fingerprint_of((self.leaf, *self.chain))

    def parameters(self) -> dict[str, bytes]:
        """Return the parameters of ImportCertificate."""
        parameters = {"Certificate": self.leaf.public_bytes(Encoding.PEM), "PrivateKey": self.key.reveal()}
        if self.chain:
            parameters["CertificateChain"] = b"".join(each.public_bytes(Encoding.PEM) for each in self.chain)
        return parameters

    def equals(self, certificates: Sequence[x509.Certificate]) -> bool:
        """Return whether this is what Certificate Manager has. It repeats a leaf that was imported without a chain."""
        chain = tuple(certificates[1:])
        return certificates[0] == self.leaf and (chain == self.chain or (not self.chain and chain == (self.leaf,)))


def bundle_of(item: PushItem, now: datetime) -> Bundle:
    """Return the certificate of a push.

    Raise a precise error for input that Certificate Manager would reject with a vague one.
    """
    where = f'the Secret pushed to "{item.remote.key}"'
    if item.secret_key or isinstance(item.payload, SecretBytes):
        raise invalid_request(
            f'"{item.remote.key}": a certificate is pushed as a whole kubernetes.io/tls Secret; remove secretKey'
        )
    leaf, *chain = _certificates(item.payload.get(CERTIFICATE), where)
    key = item.payload.get(KEY)
    if not key:
        raise invalid_request(f"{where} has no {KEY}; push a kubernetes.io/tls Secret")
    _check_key(leaf, key, where)
    if not leaf.not_valid_before_utc <= now < leaf.not_valid_after_utc:
        message = (
            f"the certificate of {where} has expired or is not valid yet; Certificate Manager takes valid ones only"
        )
        raise ProviderError(ErrorReason.INVALID_REQUEST, message, retry=RetryClass.BACKOFF)
    return Bundle(leaf, tuple(chain), key)


def _certificates(raw: SecretBytes | None, where: str) -> list[x509.Certificate]:
    if not raw:
        raise invalid_request(f"{where} has no {CERTIFICATE}; push a kubernetes.io/tls Secret")
    try:
        return x509.load_pem_x509_certificates(raw.reveal())
    except _UNFIT:
        raise invalid_request(f"{CERTIFICATE} of {where} is not a certificate in PEM") from None


def _check_key(leaf: x509.Certificate, key: SecretBytes, where: str) -> None:
    try:
        private = load_pem_private_key(key.reveal(), None)
        fits = private.public_key() == leaf.public_key()
    except _UNFIT:
        raise invalid_request(f"{KEY} of {where} is not a private key in PEM without a passphrase") from None
    if not fits:
        raise invalid_request(f"{KEY} of {where} does not belong to the first certificate of {CERTIFICATE}")


# --- Reading certificates: leaf, chain and private key as one text of PEM --------------------------------------------
#
#     GetCertificate -> fingerprint -> exported before: done
#                                   -> DescribeCertificate: may it be exported? -> ExportCertificate -> decrypt
#
# | property | value |
# |---|---|
# | none | leaf, chain, key |
# | `tls.crt` | leaf, chain |
# | `tls.key` | key |


MAX_EXPORTS: Final = 256


class Exports:
    """The exports of one process, in a bounded cache that evicts the least recently used one."""

    def __init__(self) -> None:
        self._cached: BoundedDict[Hashable, Exported] = BoundedDict(MAX_EXPORTS)
        self._locks: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()

    def find(self, key: Hashable, fingerprint: str) -> Exported | None:
        cached = self._cached.use(key)
        return cached if cached is not None and cached.fingerprint == fingerprint else None

    def put(self, key: Hashable, made: Exported) -> None:
        self._cached[key] = made

    def lock_of(self, key: Hashable) -> asyncio.Lock:
        """Return the lock to hold during an export, so that parallel reads pay once."""
        return self._locks.setdefault(key, asyncio.Lock())


_EXPORTS: Final[WeakKeyDictionary[Runtime, Exports]] = WeakKeyDictionary()


def exports_of(runtime: Runtime) -> Exports:
    """Return the exports of the process with this runtime."""
    return _EXPORTS.setdefault(runtime, Exports())


PASSPHRASE_CHARS: Final = 32

_ALPHABET: Final = string.ascii_letters + string.digits
_ARN: Final = re.compile(r"arn:[^:\s]+:acm:(?P<region>[^:\s]+):(?P<account>\d+):certificate/\S+")


class CertificateReader:
    """Reads the certificates of one session."""

    def __init__(
        self, api: Api, exports: Exports, gate: asyncio.Semaphore, account: Callable[[], Awaitable[str]]
    ) -> None:
        self._api = api
        self._exports = exports
        self._gate = gate
        self._account = account

    async def read(self, refs: Sequence[RemoteRef]) -> list[Value | ProviderError]:
        """Return one value or error for each reference, in order. References to one certificate share one read."""
        arns = tuple(dict.fromkeys(ref.key for ref in refs if not ref.version))

        async def read_one(arn: str) -> Exported | ProviderError:
            try:
                return await self._certificate(arn)
            except ProviderError as failed:
                return failed

        def late(_arn: str, error: ProviderError) -> ProviderError:
            return error

        results = await side_by_side(arns, read_one, late=late, gate=self._gate, clock=self._api.clock)
        found = dict(zip(arns, results, strict=True))
        return [_unversioned(ref) if ref.version else _value(found[ref.key], ref) for ref in refs]

    async def _certificate(self, arn: str) -> Exported:
        self._check_arn(arn)
        fingerprint = await self._current(arn)
        key = (self._api.identity.key, self._api.region, arn)
        if (cached := self._exports.find(key, fingerprint)) is not None:
            return cached
        async with self._exports.lock_of(key):
            if (cached := self._exports.find(key, fingerprint)) is None:
                await self._check_export(arn)
                cached = await self._export(arn)
                self._exports.put(key, cached)
        return cached

    def _check_arn(self, arn: str) -> None:
        """Raise if the key is not the ARN of a certificate in the store's region, which must not count as missing."""
        found, region = _ARN.fullmatch(arn), self._api.region
        if found is None:
            example = f"arn:aws:acm:{region}:123456789012:certificate/ID"
            raise invalid_request(f'"{arn}" is not the ARN of a certificate; write one such as {example}')
        if found["region"] != region:
            raise invalid_request(
                f'certificate "{arn}" is in {found["region"]}, the store is for {region}; use a store for its region'
            )

    async def _current(self, arn: str) -> str:
        """Return the current fingerprint of the certificate."""
        try:
            response = await self._api.call("GetCertificate", about=_about(arn), CertificateArn=arn)
        except ProviderError as failed:
            if failed.backend_code == "RequestInProgressException":
                raise self._pending(arn) from None
            if failed.reason is ErrorReason.SECRET_NOT_FOUND:
                await self._check_account(arn)
            raise
        try:
            certificates = certificates_in(response)
        except NotPemError:
            raise self._unfit(arn, "GetCertificate") from None
        if certificates[0].not_valid_after_utc <= self._api.clock.now():
            raise backend_error(f"{self._named(arn)} has expired; renew it, or name another one")
        return fingerprint_of(certificates)

    async def _check_account(self, arn: str) -> None:
        """Raise if the ARN belongs to another account: Certificate Manager would report it as missing."""
        found = _ARN.fullmatch(arn)
        theirs, ours = found["account"] if found else "", await self._account()
        if theirs != ours:
            raise invalid_request(
                f'certificate "{arn}" belongs to account {theirs}, the store signs in to account {ours}; set role to a'
                " role of that account"
            )

    async def _check_export(self, arn: str) -> None:
        """Raise with the reason if a certificate cannot be exported; the service only reports it as not valid."""
        response = await self._api.call("DescribeCertificate", about=_about(arn), CertificateArn=arn)
        detail: dict[str, Any] = response.get("Certificate", {})
        status, kind = detail.get("Status", ""), detail.get("Type", "")
        if status == "PENDING_VALIDATION":
            raise self._pending(arn)
        if status != "ISSUED":
            raise backend_error(f"{self._named(arn)} cannot be exported: its status is {status}; replace it")
        if kind == "PRIVATE" or detail.get("Options", {}).get("Export") == "ENABLED":
            return
        reason = (
            "it was imported, and Certificate Manager does not export imported certificates; read it from its origin"
            if kind == "IMPORTED"
            else "it was requested without export, which cannot be changed; request one with export enabled"
        )
        message = f"{self._named(arn)} cannot be exported: {reason}"
        raise ProviderError(ErrorReason.INVALID_REQUEST, message, retry=RetryClass.BACKOFF)

    async def _export(self, arn: str) -> Exported:
        passphrase = "".join(secrets.choice(_ALPHABET) for _ in range(PASSPHRASE_CHARS)).encode()
        response = await self._api.call(
            "ExportCertificate", about=_about(arn), CertificateArn=arn, Passphrase=passphrase
        )
        try:
            return await asyncio.to_thread(exported, response, passphrase)  # key derivation is slow on purpose
        except NotPemError:
            raise self._unfit(arn, "ExportCertificate") from None

    # --- errors ------------------------------------------------------------------------------------------------------

    def _named(self, arn: str) -> str:
        return str(self._api.subject("", _about(arn)))

    def _pending(self, arn: str) -> ProviderError:
        return backend_error(f"{self._named(arn)} is not issued yet; complete the validation of its domains")

    def _unfit(self, arn: str, operation: str) -> ProviderError:
        return backend_error(f"{self._named(arn)}: {operation} returned something that is not a certificate")


def _value(result: Exported | ProviderError, ref: RemoteRef) -> Value | ProviderError:
    if isinstance(result, ProviderError):
        return result
    parts = {"": result.whole, CERTIFICATE: SecretBytes(result.certificates.encode()), KEY: result.key}
    raw = parts.get(ref.property)
    if raw is None:
        return property_not_found(ref.key, ref.property, known=filter(None, parts))
    return Value(raw, ValueMetadata(provider_version=result.fingerprint))


def _unversioned(ref: RemoteRef) -> ProviderError:
    return invalid_request(f'certificate "{ref.key}" has no versions to choose from; remove version')


def _about(arn: str) -> str:
    return f'certificate "{arn}"'


# ---------------------------------------------------------------------------------------------------------------------
# Writing certificates: each remote key is one imported certificate, which keeps its ARN when it is replaced.
#
#     find it by its tag -> may we write it? -> equal: only tags -> import, under its ARN if there is one -> tags
#
# Users of a certificate (load balancers, distributions) name its ARN, so an ARN is never given up for a new one.


REMOTE_KEY: Final = "external-secrets-remote-key"
"""Tag with the remote key of a certificate, by which it is found again."""


class CertificateMetadata(MetadataSpec, frozen=True, kw_only=True):
    """The tags of a certificate."""

    tags: dict[str, str] | None = None
    """All tags besides ours; other tags are removed. If absent, other tags stay unchanged."""


def metadata_of(item: PushItem) -> CertificateMetadata:
    """Decode the metadata of one push."""
    metadata = decoded(item.provider_metadata, CertificateMetadata, item.remote.key)
    if REMOTE_KEY in (metadata.tags or ()):
        raise invalid_request(
            f'metadata of "{item.remote.key}" sets the tag {REMOTE_KEY}, which is set by External Secrets; remove it'
        )
    return metadata


RESOURCE_TYPE: Final = "acm:certificate"
MAX_IMPORTED: Final = 512
MAX_TAG_CHARS: Final = 256

_TAG_CHARS: Final = frozenset(" _.:/=+-@")
_OF_AWS: Final = "aws:"


@dataclass(frozen=True, slots=True)
class TaggedCertificate:
    """A certificate that has the remote key as its tag."""

    arn: str
    tags: Mapping[str, str]


class CertificateWriter:
    """Writes the certificates of one session."""

    def __init__(self, api: Api, tagging: Callable[[], Awaitable[Api]], prefix: str) -> None:
        self._api = api
        self._tagging = tagging
        self._prefix = prefix
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._imported: BoundedDict[str, str] = BoundedDict(MAX_IMPORTED)

    async def push(self, item: PushItem) -> Pushed:
        """Import the certificate of a whole Secret, unless the same one exists."""
        key, metadata, owner = self._remote_key(item.remote), metadata_of(item), owner_of((item,))
        bundle = await asyncio.to_thread(bundle_of, item, self._api.clock.now())  # checking a key takes a while
        async with self._lock_of(key):
            existing = self._ours(await self._find(key), key, owner)
            tags = (metadata.tags or {}) | {MARK: owner, REMOTE_KEY: key}
            if existing is None:
                await self._create(bundle, key, tags)
                return Pushed(PushOutcome.CREATED, bundle.fingerprint)
            outcome = await self._update(existing, bundle, tags, metadata)
            return Pushed(outcome, bundle.fingerprint)

    async def delete(self, item: DeleteItem) -> bool:
        """Delete the certificate of a remote key; return whether there was one."""
        key = self._remote_key(item.remote)
        async with self._lock_of(key):
            existing = self._ours(await self._find(key), key, owner_of((item,)))
            if existing is None:
                return False
            try:
                await self._call("DeleteCertificate", existing.arn)
            except ProviderError as failed:
                if failed.backend_code != "ResourceInUseException":
                    raise
                message = (
                    f"{self._named(existing.arn)} is in use; remove it from the load balancers and others that use it"
                )
                raise backend_error(message, backend_code=failed.backend_code) from None
            self._imported.pop(key, None)
            return True

    async def exists(self, ref: RemoteRef) -> bool:
        """Return whether a certificate with this remote key exists, whoever created it."""
        return bool(await self._find(self._remote_key(ref)))

    # --- one write ---------------------------------------------------------------------------------------------------

    async def _create(self, bundle: Bundle, key: str, tags: Mapping[str, str]) -> None:
        about = f'remote key "{key}"'
        made = await self._api.call("ImportCertificate", about=about, **bundle.parameters(), Tags=listed(tags))
        # Tags are searchable only some time after this.
        self._imported[key] = made["CertificateArn"]

    async def _update(
        self, existing: TaggedCertificate, bundle: Bundle, tags: Mapping[str, str], metadata: CertificateMetadata
    ) -> PushOutcome:
        differs = not await self._has(existing.arn, bundle)
        surplus: dict[str, str] = {}
        if metadata.tags is not None:
            surplus = {name: value for name, value in existing.tags.items() if name not in tags}
            surplus = {name: value for name, value in surplus.items() if not name.startswith(_OF_AWS)}
        missing = {name: value for name, value in tags.items() if existing.tags.get(name) != value}
        if differs:
            await self._call("ImportCertificate", existing.arn, **bundle.parameters())
            missing = dict(tags)  # the mark must survive, also where an import drops tags
        if surplus:
            await self._call("RemoveTagsFromCertificate", existing.arn, Tags=listed(surplus))
        if missing:
            await self._call("AddTagsToCertificate", existing.arn, Tags=listed(missing))
        return PushOutcome.UPDATED if differs or surplus or missing else PushOutcome.UNCHANGED

    async def _has(self, arn: str, bundle: Bundle) -> bool:
        try:
            return bundle.equals(certificates_in(await self._call("GetCertificate", arn)))
        except NotPemError:
            return False  # nothing to compare with

    # --- existing certificates ---------------------------------------------------------------------------------------

    async def _find(self, key: str) -> list[TaggedCertificate]:
        """Return the certificates that have the remote key as their tag, smallest ARN first.

        The tag search lags behind imports and deletions. So each result is confirmed with Certificate Manager, and the
        imports that this object made are checked as well.
        """
        arns = {self._imported[key]} if key in self._imported else set()
        tagging = await self._tagging()
        filters = {
            "ResourceTypeFilters": [RESOURCE_TYPE],
            "TagFilters": [{"Key": REMOTE_KEY, "Values": [key]}],
        }
        about = f'certificates with remote key "{key}"'
        async for page in tagging.pages("GetResources", about=about, by="PaginationToken", **filters):
            arns.update(found["ResourceARN"] for found in page.get("ResourceTagMappingList", ()))
        confirmed = [
            TaggedCertificate(arn, tags) for arn in sorted(arns) if (tags := await self._tags(arn)) is not None
        ]
        return [existing for existing in confirmed if existing.tags.get(REMOTE_KEY) == key]

    async def _tags(self, arn: str) -> dict[str, str] | None:
        try:
            return tags_of((await self._call("ListTagsForCertificate", arn)).get("Tags", ()))
        except ProviderError as failed:
            if failed.reason is ErrorReason.SECRET_NOT_FOUND:
                return None
            raise

    def _ours(self, existing: list[TaggedCertificate], key: str, owner: str) -> TaggedCertificate | None:
        """Return the certificate to write; raise if all certificates with this remote key belong to other owners."""
        ours = next((each for each in existing if each.tags.get(MARK) == owner), None)
        if ours is None and existing:
            raise foreign(f'{self._named(existing[0].arn)} with the remote key "{key}"')
        return ours

    # --- helpers -----------------------------------------------------------------------------------------------------

    def _lock_of(self, key: str) -> asyncio.Lock:
        """Serialise the writes of one store to one remote key. Two imports at once would make two certificates."""
        return self._locks.setdefault(key, asyncio.Lock())

    def _remote_key(self, ref: RemoteRef) -> str:
        if ref.property:
            raise invalid_request(f'"{ref.key}": a certificate has no properties to write; remove property')
        key = f"{self._prefix}{ref.key}"
        if len(key) > MAX_TAG_CHARS or not all(char.isalnum() or char in _TAG_CHARS for char in key):
            raise invalid_request(
                f'"{key}" cannot be the remote key of a certificate: it becomes a tag, which has at most'
                f" {MAX_TAG_CHARS} letters, digits and {''.join(sorted(_TAG_CHARS)).strip()}"
            )
        return key

    async def _call(self, operation: str, arn: str, **parameters: Any) -> dict[str, Any]:
        return await self._api.call(operation, about=f'certificate "{arn}"', CertificateArn=arn, **parameters)

    def _named(self, arn: str) -> str:
        return f'certificate "{arn}" in {self._api.region}'


# --- An opened store of Certificate Manager --------------------------------------------------------------------------


OFFERED: Final = frozenset(
    {
        Operation.GET,
        Operation.NOT_FOUND_SEMANTICS,
        Operation.EXISTS,
        Operation.PUSH,
        Operation.PUSH_WHOLE_SECRET,
        Operation.DELETE,
    }
)
"""No maps: a certificate is one text."""


class CertificatesStore(AwsStore[CertificateManagerConfig]):
    """Certificates of one region of one account."""

    SERVICE = CERTIFICATE_MANAGER
    API_NAME: ClassVar[str] = "AWS/CertificateManager"

    async def open(self) -> None:
        await super().open()
        self._others: dict[str, Api] = {}
        self.reader = CertificateReader(self.api, exports_of(runtime_of(self.clock)), self.gate, self._account)
        self.writer = CertificateWriter(self.api, self._tagging, self.config.prefix)

    @reads("not_found")
    async def get_many(self, refs: Sequence[RemoteRef]) -> Sequence[Value | ProviderError]:
        return await self.reader.read(refs)

    async def check(self, ref: RemoteRef) -> Check:
        """Return whether a push would find a certificate. The key is a remote key, as in pushes, and not an ARN."""
        return Check(exists=await self.writer.exists(ref))

    @pushes("whole_secret")
    async def push(self, item: PushItem, source: SourceSecret) -> Pushed:
        del source
        return await self.writer.push(item)

    async def delete(self, item: DeleteItem) -> bool:
        return await self.writer.delete(item)

    async def _account(self) -> str:
        """Return the account that calls are made in."""
        return str((await (await self._other(STS)).call("GetCallerIdentity"))["Account"])

    async def _tagging(self) -> Api:
        return await self._other(TAGGING)

    async def _other(self, service: str) -> Api:
        """Open another service at first use, because few stores need it."""
        if service not in self._others:
            self._others[service] = await self.api_of(service)
        return self._others[service]
