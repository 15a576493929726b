"""The calls of one session to its vault: counted, with a deadline, and with mapped errors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, TypeVar

from azure.core.exceptions import AzureError, HttpResponseError

from eso_provider_azure.errors import CallSubject, refusal
from eso_provider_azure.names import Kind, Name
from eso_provider_azure.vault import Vault
from eso_sdk.errors import timed_out
from eso_sdk.http import retry_after
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.deadline import Deadline

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
