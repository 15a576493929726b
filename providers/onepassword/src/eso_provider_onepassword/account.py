"""A service account: one authenticated client of the vendor's SDK for all stores with the same token.

The SDK is a closed library that encrypts end to end. It is loaded at the first call, in a thread. Its errors are texts;
they only decide the reason and are never quoted.

The SDK dials the host that the token names, so the address rule of the process cannot apply. A host that is not
1Password's is refused before the SDK gets the token: the token's author could choose any address inside the network.

| text of the SDK | reason |
|---|---|
| rate limit exceeded | RATE_LIMITED; calls pause, longer each time |
| anything about the token, or the authentication | CREDENTIALS_REJECTED; repeated for a minute without a call |
| not the right permissions | PERMISSION_DENIED |
| item couldn't be found | SECRET_NOT_FOUND |
| item is not up to date, conflict | PRECONDITION_FAILED |
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from threading import Thread
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

import msgspec

from eso_api.stores.onepassword import OnePasswordIntegration
from eso_api.values import SecretBytes
from eso_sdk.errors import invalid_config, timed_out
from eso_sdk.logins import REFUSED, Refusals, digest
from eso_sdk.processwide import shared_table
from eso_sdk.rest import Throttle
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.clock import Clock
from kubebase.deadline import Deadline

SLOTS: Final = 4
SECONDS: Final = 30.0


class Threads:
    """The threads of one account, so that a hanging one does not hold up others."""

    def __init__(self, clock: Clock, subject: str, *, places: int = SLOTS, seconds: float = SECONDS) -> None:
        self._clock = clock
        self._subject = subject
        self._places = asyncio.Semaphore(places)
        self._seconds = seconds

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run an async function in the event loop of another thread; raise BACKEND_TIMEOUT after the deadline."""
        try:
            async with Deadline(self._clock, self._seconds):
                await self._places.acquire()
                return await self._started(work)
        except TimeoutError:
            raise timed_out(f"{self._subject} did not respond within {self._seconds:g} s") from None

    def _started(self, work: Callable[[], Awaitable[T]]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        async def bounded() -> T:
            async with asyncio.timeout(self._seconds):
                return await work()

        def finish(set_outcome: Callable[[Any], None], outcome: Any) -> None:
            self._places.release()
            if not future.done():  # the caller may have given up
                set_outcome(outcome)

        def body() -> None:
            try:
                outcome: Any = asyncio.run(bounded())
                set_outcome: Callable[[Any], None] = future.set_result
            except BaseException as failed:  # noqa: BLE001 - handed to the caller
                outcome, set_outcome = failed, future.set_exception
            if not loop.is_closed():
                loop.call_soon_threadsafe(finish, set_outcome, outcome)

        Thread(target=body, name=self._subject, daemon=True).start()
        return future


SUBJECT: Final = "1Password"
TOKEN: Final = "/auth/serviceAccountSecretRef"  # noqa: S105 - a pointer
_PREFIX: Final = "ops_"
_HOST: Final = re.compile(r"(https://)?([a-z0-9-]+\.)*1password\.(com|ca|eu)/?", re.ASCII | re.IGNORECASE)
"""Hosts of 1Password, to which service accounts belong. Names below its own domains resolve to its own servers."""
_REJECTED: Final = (
    "1Password does not accept the service account token; check that it is complete, not revoked and not expired"
)

T = TypeVar("T")
Observe = Callable[[str], AbstractContextManager[None]]
"""Counts one call to the backend."""

_REASONS: Final = (
    ("rate limit", ErrorReason.RATE_LIMITED, "1Password limits the calls of the service account; retried later"),
    (
        "service account token|authentication error|not authenticated|bad credentials|session expired",
        ErrorReason.CREDENTIALS_REJECTED,
        _REJECTED,
    ),
    (
        "right permissions",
        ErrorReason.PERMISSION_DENIED,
        "1Password denies {call}; grant the service account this right for the vault",
    ),
    ("timeout", ErrorReason.BACKEND_TIMEOUT, "1Password did not respond to {call} in time"),
    (
        "not up to date|conflict",
        ErrorReason.PRECONDITION_FAILED,
        "{call}: the item was changed by another writer; tried again later",
    ),
    ("item couldn't be found|no item matched", ErrorReason.SECRET_NOT_FOUND, "{call}: the item does not exist"),
    (
        "environment couldn't be found",
        ErrorReason.CONFIG_INVALID,
        "/environment: the service account has no access to an environment of this id; check both",
    ),
)
"""Parts of the SDK's texts, in small letters; the first row that fits counts."""


class Account:
    """The client of one service account."""

    def __init__(self, token: SecretBytes, integration: OnePasswordIntegration, clock: Clock) -> None:
        self._token = token
        self._integration = integration
        self._clock = clock
        self._proof = proof_of(token, integration)
        self._threads = Threads(clock, SUBJECT)
        self._refusals = shared_table("onepassword.refusals", clock, Refusals)
        self._throttle = Throttle(clock, SUBJECT)
        self._authenticating = asyncio.Lock()
        self._client: Any = None

    def __repr__(self) -> str:
        return "<Account>"

    async def call(self, name: str, work: Callable[[Any], Awaitable[T]], observe: Observe) -> T:
        """Call the SDK: `work` gets the authenticated client, and runs in a thread."""
        client = await self._authenticated(observe)
        try:
            return await self._counted(name, lambda: work(client), observe)
        except ProviderError as failed:
            if failed.reason is not ErrorReason.CREDENTIALS_REJECTED:
                raise
            self._drop(client)
        # Only the session may have expired. If the token was revoked, this authentication fails.
        again = await self._authenticated(observe)
        try:
            return await self._counted(name, lambda: work(again), observe)
        except ProviderError as failed:
            self._refused(failed)
            raise

    def _drop(self, client: Any) -> None:
        if self._client is client:
            self._client = None

    def _refused(self, failed: ProviderError) -> None:
        """Repeat the error for a minute without a call, if the token is to blame: failures count as calls, too."""
        if failed.reason is ErrorReason.CREDENTIALS_REJECTED:
            self._client = None
            self._refusals.add(self._proof, failed, REFUSED, self._clock.monotonic())

    async def _authenticated(self, observe: Observe) -> Any:
        async with self._authenticating:
            if self._client is None:
                self._refusals.check(self._proof, self._clock.monotonic())
                try:
                    self._client = await self._counted("Authenticate", self._authenticate, observe)
                except ProviderError as failed:
                    self._refused(failed)
                    raise
                self._refusals.forget(self._proof)
            return self._client

    async def _authenticate(self) -> Any:
        try:
            from onepassword.client import Client
        except ImportError:
            raise ProviderError(
                ErrorReason.CONFIG_INVALID,
                "this installation of the provider lacks the 1Password SDK; install eso-provider-onepassword[sdk]",
            ) from None
        token = checked_token(self._token)
        return await Client.authenticate(token, self._integration.name, self._integration.version)

    async def _counted(self, name: str, work: Callable[[], Awaitable[T]], observe: Observe) -> T:
        async with self._throttle.slot():
            with observe(name):
                try:
                    return await self._threads.run(work)
                except ProviderError:
                    raise
                except Exception as failed:  # noqa: BLE001 - the SDK raises `Exception`
                    raise error_of(failed, name) from None


def account_of(token: SecretBytes, integration: OnePasswordIntegration, clock: Clock) -> Account:
    """Return the account of a token; it is shared by all stores that have it open."""
    accounts = shared_table("onepassword.accounts", clock, WeakValueDictionary[bytes, Account])
    key = proof_of(token, integration)
    found = accounts.get(key)
    if found is None:
        accounts[key] = found = Account(token, integration, clock)
    return found


def proof_of(token: SecretBytes, integration: OnePasswordIntegration) -> bytes:
    return digest(token.reveal(), integration.name, integration.version)


def checked_token(token: SecretBytes) -> str:
    """Return the token in its plainest form, or raise an error if it names a host that is not 1Password's.

    The SDK gets the form that was checked, so that it cannot read another host in the original.
    """
    text = token.reveal().decode("ascii", "replace").strip()
    try:
        parts = msgspec.json.decode(base64.b64decode(_padded(text.removeprefix(_PREFIX)), b"-_", validate=True))
        address = parts["signInAddress"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ProviderError(ErrorReason.CREDENTIALS_REJECTED, _REJECTED) from None
    if not isinstance(address, str) or _HOST.fullmatch(address) is None:
        raise invalid_config(
            TOKEN,
            "holds a token with a sign-in address outside 1password.com, 1password.ca and 1password.eu; use a token of"
            " a service account of 1Password",
        )
    return _PREFIX + base64.urlsafe_b64encode(msgspec.json.encode(parts)).decode().rstrip("=")


def _padded(text: str) -> str:
    return text + "=" * (-len(text) % 4)


def error_of(failed: Exception, call: str) -> ProviderError:
    """Return the error for an exception of the SDK. Its text may repeat parts of the request."""
    text = str(failed).lower()
    for parts, reason, message in _REASONS:
        if any(part in text for part in parts.split("|")):
            return ProviderError(reason, message.format(call=call))
    return ProviderError(ErrorReason.BACKEND_ERROR, f"1Password refuses {call}; check vault, key and rights")
