"""The identities that sign calls, shared by all stores with the same credentials.

    Keys          keys of a Secret
    Own           the identity of the provider process
    WebIdentity   a role, by the token of a service account
    AssumedRole   a role, by another identity

`Own`, `WebIdentity` and `AssumedRole` hold keys that expire (`renewed.py`).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn, TypeVar
from weakref import WeakValueDictionary

from botocore.credentials import ReadOnlyCredentials

from eso_api.values import SecretBytes
from eso_sdk.refusals import REFUSALS, Pauses, Refusals
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.bounded import BoundedDict
from kubebase.clock import Clock

MAX_IDENTITIES: Final = 1024
PROVEN_SECONDS: Final = 600.0
"""The time for which keys that AWS accepted are not verified again."""

_REFUSED: Final = Pauses()
_FAILED: Final = Pauses(first=1.0, longest=30.0)

T = TypeVar("T")
Shared = TypeVar("Shared", bound="Identity")


class Identity:
    """Base of all identities."""

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.proving = asyncio.Lock()
        self._proven_until: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("identities hold keys and are not serialised")

    async def get_frozen_credentials(self) -> ReadOnlyCredentials:
        """Return the keys to sign with."""
        raise NotImplementedError

    def discard(self, rejected: ReadOnlyCredentials) -> bool:
        """Drop keys that AWS rejected; return whether new ones can be obtained."""
        del rejected
        self._proven_until.clear()
        return False

    def proof(self) -> bytes:
        """Return the key under which a failed login is remembered."""
        return hashlib.sha256(repr(self.key).encode()).digest()

    def is_proven(self, region: str, now: float) -> bool:
        """Return whether AWS accepted these keys recently."""
        return now < self._proven_until.get(region, float("-inf"))

    def prove(self, region: str, now: float) -> None:
        self._proven_until[region] = now + PROVEN_SECONDS


class Keys(Identity):
    """Static access keys from a Secret."""

    def __init__(self, key_id: str, secret: SecretBytes, token: SecretBytes | None) -> None:
        digest = hashlib.sha256()
        for part in (key_id.encode(), secret.reveal(), token.reveal() if token else b""):
            digest.update(hashlib.sha256(part).digest())
        super().__init__(("keys", digest.digest()))
        self._frozen = ReadOnlyCredentials(key_id, secret.reveal().decode(), token.reveal().decode() if token else None)

    async def get_frozen_credentials(self) -> ReadOnlyCredentials:
        return self._frozen


class Attempts:
    """Logins of one process. While the pause after a failed one lasts, its error is raised again without a call."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refusals = Refusals()

    @contextmanager
    def one(self, proof: bytes) -> Iterator[None]:
        """Make one login attempt with this proof inside the block; a failure is remembered with a pause."""
        self._refusals.check(proof, self._clock.monotonic())
        try:
            yield
        except ProviderError as failed:
            pauses = _REFUSED if failed.reason in REFUSALS else _FAILED
            self._refusals.add(proof, failed, pauses, self._clock.monotonic())
            raise
        self._refusals.forget(proof)


class Known:
    """The identities of one process, in a bounded cache that evicts the least recently used one."""

    def __init__(self) -> None:
        self._renewed: BoundedDict[Hashable, Any] = BoundedDict(MAX_IDENTITIES)
        self._written: WeakValueDictionary[Hashable, Keys] = WeakValueDictionary()

    def written(self, made: Keys) -> Keys:
        """Share keys between the sessions that use them, and keep them no longer than that."""
        return self._written.setdefault(made.key, made)

    def renewed(self, made: Shared) -> Shared:
        """Share an identity and keep it, so that later sessions need no new login."""
        known = self._renewed.get(made.key)
        found = known if isinstance(known, type(made)) else made
        self._renewed[made.key] = found
        return found


async def with_keys_of(identity: Identity, work: Callable[[ReadOnlyCredentials], Awaitable[T]]) -> T:
    """Run work that is signed with the keys of an identity.

    Keys may be revoked before they expire: if AWS rejects them, the work is retried once with new keys.
    """
    frozen = await identity.get_frozen_credentials()
    try:
        return await work(frozen)
    except ProviderError as failed:
        if failed.reason is not ErrorReason.CREDENTIALS_REJECTED or not identity.discard(frozen):
            raise
    return await work(await identity.get_frozen_credentials())
