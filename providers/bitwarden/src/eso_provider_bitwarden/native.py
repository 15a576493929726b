"""Bitwarden without a companion server: its own SDK, a binary that blocks, in threads of this process.

The package `bitwarden-sdk` is optional (`pip install eso-provider-bitwarden[native]`) and loaded with the first store
that needs it. It connects by itself, over HTTPS only: the address rule of the process is applied before its login.
Stores with the same token and addresses share one login. The SDK renews it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from yarl import URL

from eso_api.stores.bitwardensecretsmanager import BitwardenProvider
from eso_api.values import SecretBytes
from eso_provider_bitwarden.failures import MISSING, failure_of, status_in
from eso_provider_bitwarden.warden import Draft, Entry, Listed
from eso_sdk.authorization import digest
from eso_sdk.backend import Backend
from eso_sdk.errors import invalid_config, not_found, timed_out, unsupported
from eso_sdk.logins import REFUSED
from eso_sdk.processwide import shared_table
from eso_sdk.refusals import REFUSALS, Refusals
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.clock import Clock
from kubebase.deadline import Deadline

SUBJECT: Final = "Bitwarden"
API: Final = "https://api.bitwarden.com"
IDENTITY: Final = "https://identity.bitwarden.com"
SECONDS: Final = 30.0
THREADS: Final = 8

T = TypeVar("T")

_POOL: Final = ThreadPoolExecutor(THREADS, thread_name_prefix="bitwarden")


def load() -> Any:
    """Return the SDK."""
    try:
        import bitwarden_sdk
    except ImportError:
        raise invalid_config(
            "/bitwardenServerSDKURL",
            "is needed: this provider was installed without Bitwarden's SDK; name a companion server, or install"
            " eso-provider-bitwarden[native]",
        ) from None
    return bitwarden_sdk


class Client:
    """One login, shared by all sessions with the same token and addresses."""

    def __init__(self, key: bytes, clock: Clock) -> None:
        self._key = key
        self._clock = clock
        self._lock = asyncio.Lock()
        self._client: Any = None
        self.users = 0

    async def run(self, connect: Callable[[], Any], work: Callable[[Any], T]) -> T:
        """Run blocking work with a client that is logged in."""
        refusals = shared_table("eso_provider_bitwarden.refusals", self._clock, Refusals)
        async with self._lock:
            if self._client is None:
                refusals.check(self._key, self._clock.monotonic())
                try:
                    self._client = await self._blocking(connect, login=True)
                except ProviderError as failed:
                    if failed.reason in REFUSALS:
                        refusals.add(self._key, failed, REFUSED, self._clock.monotonic())
                    raise
                refusals.forget(self._key)
        try:
            return await self._blocking(lambda: work(self._client))
        except ProviderError as failed:
            if failed.reason is ErrorReason.CREDENTIALS_REJECTED:
                self._client = None
                refusals.add(self._key, failed, REFUSED, self._clock.monotonic())
            raise

    async def _blocking(self, work: Callable[[], T], *, login: bool = False) -> T:
        """Run work in a thread. A thread cannot be stopped: after the deadline its result is dropped."""
        try:
            async with Deadline(self._clock, SECONDS):
                return await asyncio.get_running_loop().run_in_executor(_POOL, work)
        except TimeoutError:
            raise timed_out(f"{SUBJECT} did not answer within {SECONDS:g} s") from None
        except ProviderError:
            raise
        except Exception as failed:  # noqa: BLE001 - the SDK raises Exception itself, with texts that quote
            if status_in(str(failed)) == MISSING and not login:
                raise _MissingError from None
            raise failure_of(str(failed), SUBJECT, login=login) from None


class _MissingError(Exception):
    """Bitwarden itself answers 404."""


class Native:
    """Calls of one session."""

    def __init__(self, store: Backend[BitwardenProvider], token: SecretBytes) -> None:
        config = store.config
        self._config = config
        self._store = store
        self._token = token
        self._api = config.api_url.rstrip("/") or API
        self._identity = config.identity_url.rstrip("/") or IDENTITY
        for field, address in (("/apiURL", self._api), ("/identityURL", self._identity)):
            if URL(address).scheme != "https" or not URL(address).host:
                raise invalid_config(field, "must be an https URL; Bitwarden's SDK connects to nothing else")
        self._sdk = load()
        self._reached = False
        self._key = digest(self._api, self._identity, token.reveal())
        clients = shared_table("eso_provider_bitwarden.clients", store.clock, dict[bytes, Client])
        self._client = clients.setdefault(self._key, Client(self._key, store.clock))
        self._client.users += 1

    def __repr__(self) -> str:
        return "<Native>"

    async def listed(self) -> list[Listed]:
        told = await self._run("ListSecrets", lambda client: client.secrets().list(self._config.organization_id))
        return [
            Listed(str(each.id), each.key, [str(project) for project in each.project_ids]) for each in told.data.data
        ]

    async def get(self, identifier: str) -> Entry | None:
        try:
            told = await self._run("GetSecret", lambda client: client.secrets().get(identifier))
        except _MissingError:
            return None
        return _entry(told.data)

    async def get_all(self, identifiers: Sequence[str]) -> list[Entry]:
        if not identifiers:
            return []
        try:
            told = await self._run("GetSecretsByIds", lambda client: client.secrets().get_by_ids(list(identifiers)))
        except _MissingError:  # one of them is gone, and Bitwarden refuses all
            found = await asyncio.gather(*(self.get(each) for each in identifiers))
            return [entry for entry in found if entry is not None]
        return [_entry(each) for each in told.data.data]

    async def create(self, draft: Draft) -> None:
        organization, projects = self._config.organization_id, [self._config.project_id]
        await self._write(
            "CreateSecret",
            draft,
            lambda client: client.secrets().create(organization, draft.key, draft.value, draft.note, projects),
        )

    async def update(self, identifier: str, draft: Draft) -> None:
        organization, projects = self._config.organization_id, [self._config.project_id]
        await self._write(
            "UpdateSecret",
            draft,
            lambda client: client.secrets().update(
                organization, identifier, draft.key, draft.value, draft.note, projects
            ),
        )

    async def delete(self, identifier: str) -> None:
        try:
            told = await self._run("DeleteSecret", lambda client: client.secrets().delete([identifier]))
        except _MissingError:
            return
        for each in told.data.data:
            if each.error:
                raise failure_of(each.error, SUBJECT)

    async def close(self) -> None:
        self._client.users -= 1
        if not self._client.users:
            shared_table("eso_provider_bitwarden.clients", self._store.clock, dict[bytes, Client]).pop(self._key, None)

    async def _write(self, call: str, draft: Draft, work: Callable[[Any], Any]) -> None:
        try:
            await self._run(call, work)
        except _MissingError:
            raise not_found(draft.key) from None

    async def _run(self, call: str, work: Callable[[Any], T]) -> T:
        await self._reach()
        with self._store.observe(call):
            return await self._client.run(self._connected, work)

    async def _reach(self) -> None:
        """Apply the address rule of the process to the addresses of the spec."""
        if self._reached:
            return
        for field, address in (("/apiURL", self._api), ("/identityURL", self._identity)):
            http = self._store.http_client(f"{SUBJECT} {URL(address).host}", field=field)
            try:
                await http.reach(URL(address))
            finally:
                await http.close()
        self._reached = True

    def _connected(self) -> Any:
        """Return a client that is logged in. Runs in a thread."""
        try:
            token = self._token.reveal().decode("ascii").strip()
        except UnicodeDecodeError:
            raise invalid_config("/auth/secretRef/credentials", "names a value that is not an access token") from None
        settings = {
            "apiUrl": self._api,
            "identityUrl": self._identity,
            "deviceType": self._sdk.DeviceType.SDK,
            "userAgent": "external-secrets",
        }
        client = self._sdk.BitwardenClient(self._sdk.client_settings_from_dict(settings))
        client.auth().login_access_token(token)
        return client


def _entry(told: Any) -> Entry:
    if told is None:
        raise unsupported("Bitwarden's SDK answers without a secret")
    project = None if told.project_id is None else str(told.project_id)
    return Entry(str(told.id), told.key, told.value, told.note, str(told.organization_id), project)
