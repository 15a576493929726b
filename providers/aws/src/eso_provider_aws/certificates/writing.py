"""Writing certificates: each remote key is one imported certificate, which keeps its ARN when it is replaced.

    find it by its tag -> may we write it? -> equal: only tags -> import, under its ARN if there is one -> tags

Users of a certificate (load balancers, distributions) name its ARN, so an ARN is never given up for a new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakValueDictionary

from eso_provider_aws.api import Api
from eso_provider_aws.certificates.pem import Bundle, NotPemError, bundle_of, certificates_in
from eso_provider_aws.ownership import MARK, decoded, foreign, listed, owner_of, tags_of
from eso_sdk.errors import backend_error, invalid_request
from eso_sdk.provider import Pushed
from eso_sdk.pushmetadata import MetadataSpec
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import DeleteItem, PushItem, PushOutcome, RemoteRef
from kubebase.bounded import BoundedDict

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
