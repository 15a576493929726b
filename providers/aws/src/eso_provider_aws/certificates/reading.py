"""Reading certificates: leaf, chain and private key as one text of PEM.

    GetCertificate -> fingerprint -> exported before: done
                                  -> DescribeCertificate: may it be exported? -> ExportCertificate -> decrypt

| property | value |
|---|---|
| none | leaf, chain, key |
| `tls.crt` | leaf, chain |
| `tls.key` | key |
"""

from __future__ import annotations

import asyncio
import re
import secrets
import string
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakValueDictionary

from eso_api.values import SecretBytes
from eso_provider_aws.api import Api
from eso_provider_aws.certificates.pem import CERTIFICATE, KEY, Exported, NotPemError, certificates_in, exported
from eso_provider_aws.certificates.pem import fingerprint as fingerprint_of
from eso_provider_aws.runtime import Runtime
from eso_sdk.batches import side_by_side
from eso_sdk.errors import backend_error, invalid_request, property_not_found
from eso_sdk.provider import Value
from eso_wire.errors import ErrorReason, ProviderError, RetryClass
from eso_wire.values import RemoteRef, ValueMetadata
from kubebase.bounded import BoundedDict

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
