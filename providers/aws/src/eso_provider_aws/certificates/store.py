"""An opened store of Certificate Manager."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from eso_provider_aws.api import Api
from eso_provider_aws.certificates.reading import CertificateReader, exports_of
from eso_provider_aws.certificates.writing import CertificateWriter
from eso_provider_aws.endpoints import CERTIFICATE_MANAGER, STS, TAGGING
from eso_provider_aws.kinds import CertificateManagerConfig
from eso_provider_aws.runtime import runtime_of
from eso_provider_aws.store import AwsStore
from eso_sdk.provider import Check, Pushed, Value, pushes, reads
from eso_wire.errors import ProviderError
from eso_wire.values import DeleteItem, Operation, PushItem, RemoteRef, SourceSecret

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
