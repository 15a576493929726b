"""The calls of one session to Secret Manager: its token, its limits, its deadline, and mapped errors.

response = await api.call("AccessSecretVersion", {"name": api.version("db", "latest")}, key="db")
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

from google.api_core.exceptions import GoogleAPICallError
from grpc import aio

from eso_provider_gcp.endpoints import secret_manager
from eso_provider_gcp.errors import CallSubject, refusal
from eso_provider_gcp.identities import Access, Identity, Runtime
from eso_sdk.errors import invalid_request, timed_out
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.deadline import Deadline

CALL_SECONDS: Final = 25.0

Observe = Callable[[str], AbstractContextManager[None]]

_SECRET_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,255}")
_VERSION: Final = re.compile(r"[A-Za-z0-9_-]{1,63}")
_WORD_START: Final = re.compile(r"(?<!^)(?=[A-Z])")


class Api:
    """Secret Manager of one project and location, as one identity."""

    def __init__(self, runtime: Runtime, identity: Identity, project: str, location: str, *, observe: Observe) -> None:
        target = secret_manager(location)
        self.runtime = runtime
        self.clock = runtime.clock
        self.project = project
        self.location = location
        self._identity = identity
        self._client = identity.client(target)
        self._throttle = runtime.throttle(identity, project, target)
        self.observe = observe

    @property
    def parent(self) -> str:
        """Return the resource that holds the secrets. A regional store reads the secrets of its location only."""
        return f"projects/{self.project}" + (f"/locations/{self.location}" if self.location else "")

    def secret(self, key: str) -> str:
        """Return the resource name of a secret."""
        if not _SECRET_ID.fullmatch(key):
            raise invalid_request(
                f'"{key}" is not an id of a secret of Google; ids have letters, digits, dashes and underscores'
            )
        return f"{self.parent}/secrets/{key}"

    def version(self, key: str, version: str) -> str:
        """Return the resource name of a version: a number, an alias, or `latest`."""
        if not _VERSION.fullmatch(version):
            raise invalid_request(f'"{version}" is not a version of a secret; write a number, an alias or latest')
        return f"{self.secret(key)}/versions/{version}"

    def subject(self, operation: str, key: str = "", version: str = "") -> CallSubject:
        """Return the subject of an error of this call."""
        return CallSubject(operation, self.project, self.location, key, version)

    async def call(self, operation: str, request: Mapping[str, Any], *, key: str = "", version: str = "") -> Any:
        """Make one call. `key` and `version` name its object in errors.

        A token may be revoked before it expires: if Google rejects it, the call is repeated once with a new one.
        """
        subject = self.subject(operation, key, version)
        access = await self._identity.access()
        try:
            return await self._once(subject, request, access)
        except ProviderError as failed:
            if failed.reason is not ErrorReason.CREDENTIALS_REJECTED:
                raise
            self._identity.discard(access)
        return await self._once(subject, request, await self._identity.access())

    async def pages(
        self, operation: str, request: Mapping[str, Any], members: str, *, key: str = ""
    ) -> AsyncIterator[list[Any]]:
        """Make calls until the service has no further page; yield the members of each."""
        token = ""
        while True:
            page = await self.call(operation, {**request, "page_token": token}, key=key)
            yield list(getattr(page, members))
            token = page.next_page_token
            if not token:
                return

    async def _once(self, subject: CallSubject, request: Mapping[str, Any], access: Access) -> Any:
        method = getattr(self._client, _WORD_START.sub("_", subject.operation).lower())
        metadata = [("authorization", f"Bearer {access.token}")]
        if access.quota_project:
            metadata.append(("x-goog-user-project", access.quota_project))
        async with self._throttle.slot():
            try:
                with self.observe(subject.operation):
                    async with Deadline(self.clock, CALL_SECONDS):
                        # The operator retries.
                        return await method(request=dict(request), metadata=metadata, retry=None, timeout=CALL_SECONDS)
            except TimeoutError:
                raise timed_out(f"{subject}: {subject.operation} got no response in time") from None
            except (GoogleAPICallError, aio.AioRpcError) as failed:
                raise refusal(failed, subject) from None
