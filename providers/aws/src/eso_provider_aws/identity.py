"""Whom calls are made as, shared by all stores that are the same to AWS.

    Keys          keys of a Secret
    Own           the identity of the provider process
    WebIdentity   a role, by the token of a service account
    AssumedRole   a role, by another identity

Temporary keys are obtained at first use and replaced before they expire: once, however many calls need them (that is
botocore's work). A login that AWS refused is not tried again before a pause is over.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeVar
from weakref import WeakSet

from aiobotocore.credentials import AioCredentials, AioDeferredRefreshableCredentials
from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import BotoCoreError, ClientError

from eso_api.values import SecretBytes
from eso_provider_aws.clients import Clients, signed_by
from eso_provider_aws.endpoints import STS
from eso_provider_aws.errors import Asked, refusal
from eso_sdk.refusals import REFUSALS, Pauses, Refusals
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Token
from kuberun.clock import Clock
from kuberun.deadline import Deadline

SESSION_NAME: Final = "external-secrets-provider-aws"
LOGIN_SECONDS: Final = 20.0
DISCARD_PAUSE: Final = 60.0
"""Temporary keys that AWS rejects are replaced at most this often."""
MAX_IDENTITIES: Final = 1024

_PAUSES: Final = Pauses(first=5.0, longest=300.0)
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)

Shared = TypeVar("Shared", bound="Identity")


@dataclass(frozen=True, slots=True)
class Role:
    """A role to assume, and what to say when doing so."""

    arn: str
    external_id: str = ""
    tags: tuple[tuple[str, str], ...] = ()
    transitive: tuple[str, ...] = ()

    def parameters(self) -> dict[str, Any]:
        wanted: dict[str, Any] = {"RoleArn": self.arn, "RoleSessionName": SESSION_NAME}
        if self.external_id:
            wanted["ExternalId"] = self.external_id
        if self.tags:
            wanted["Tags"] = [{"Key": key, "Value": value} for key, value in self.tags]
        if self.transitive:
            wanted["TransitiveTagKeys"] = list(self.transitive)
        return wanted


class AccountToken:
    """Where the token of a service account is read. The session that owns it keeps it alive."""

    def __init__(self, read: Callable[[], Token]) -> None:
        self.read = read


class Identity:
    """Base of all identities."""

    def __init__(self, key: Hashable) -> None:
        self.key = key

    async def get_frozen_credentials(self) -> ReadOnlyCredentials:
        """The keys to sign with."""
        raise NotImplementedError

    def discard(self) -> bool:
        """Let go of keys that AWS rejects; tells whether others can be had."""
        return False

    @property
    def is_proven(self) -> bool:
        """Whether having keys means that AWS knows us: it does for keys that AWS has just handed out."""
        return False


class Keys(Identity):
    """Keys that somebody wrote down."""

    def __init__(self, key_id: str, secret: SecretBytes, token: SecretBytes | None) -> None:
        digest = hashlib.sha256()
        for part in (key_id.encode(), secret.reveal(), token.reveal() if token else b""):
            digest.update(hashlib.sha256(part).digest())
        super().__init__(("keys", digest.digest()))
        self._frozen = ReadOnlyCredentials(key_id, secret.reveal().decode(), token.reveal().decode() if token else None)

    async def get_frozen_credentials(self) -> ReadOnlyCredentials:
        return self._frozen


class Own(Identity):
    """The provider process."""

    def __init__(self, clients: Clients) -> None:
        super().__init__(("own",))
        self._clients = clients

    async def get_frozen_credentials(self) -> ReadOnlyCredentials:
        asked = Asked(STS, "GetCallerIdentity", "this process")
        try:
            found: AioCredentials | None = await self._clients.own_credentials()
            if found is not None:
                frozen: ReadOnlyCredentials = await found.get_frozen_credentials()
                return frozen
        except (ClientError, BotoCoreError, OSError) as failed:
            raise refusal(failed, asked) from None
        raise ProviderError(
            ErrorReason.CREDENTIALS_NOT_FOUND,
            "the provider process has no AWS identity: no keys in its environment, no web identity, Pod Identity or"
            " instance role; give it one, or set auth",
        )


class Temporary(Identity):
    """Keys that STS hands out for an hour or so."""

    def __init__(self, identities: Identities, key: Hashable, region: str) -> None:
        super().__init__(key)
        self._identities = identities
        self._region = region
        self._discarded = float("-inf")
        self._credentials = self._fresh()

    @property
    def is_proven(self) -> bool:
        return True

    async def get_frozen_credentials(self) -> ReadOnlyCredentials:
        frozen: ReadOnlyCredentials = await self._credentials.get_frozen_credentials()
        return frozen

    def discard(self) -> bool:
        now = self._identities.clock.monotonic()
        if now - self._discarded < DISCARD_PAUSE:
            return False
        self._discarded = now
        self._credentials = self._fresh()
        return True

    def _fresh(self) -> AioDeferredRefreshableCredentials:
        clock = self._identities.clock
        return AioDeferredRefreshableCredentials(refresh_using=self._logged_in, method="sts", time_fetcher=clock.now)

    async def _logged_in(self) -> dict[str, Any]:
        """Ask STS for keys, unless it has just refused them."""
        refusals, now = self._identities.refusals, self._identities.clock.monotonic
        digest = self._proof()
        refusals.check(digest, now())
        try:
            granted = await self._granted()
        except ProviderError as refused:
            if refused.reason in REFUSALS:
                refusals.add(digest, refused, _PAUSES, now())
            raise
        refusals.forget(digest)
        keys = granted["Credentials"]
        return {
            "access_key": keys["AccessKeyId"],
            "secret_key": keys["SecretAccessKey"],
            "token": keys["SessionToken"],
            "expiry_time": keys["Expiration"].isoformat(),
        }

    def _proof(self) -> bytes:
        """What a refusal is remembered by."""
        return hashlib.sha256(repr(self.key).encode()).digest()

    async def _granted(self) -> dict[str, Any]:
        raise NotImplementedError


class AssumedRole(Temporary):
    """A role, assumed by another identity."""

    def __init__(self, identities: Identities, source: Identity, role: Role, region: str) -> None:
        super().__init__(identities, ("role", source.key, role, region), region)
        self._source = source
        self._role = role

    async def _granted(self) -> dict[str, Any]:
        await self._source.get_frozen_credentials()
        about = f'role "{self._role.arn}"'
        with signed_by(self._source):
            return await self._identities.ask_sts("AssumeRole", about, self._region, **self._role.parameters())


class WebIdentity(Temporary):
    """A role, by the token of a service account."""

    def __init__(self, identities: Identities, account: Hashable, role_arn: str, region: str) -> None:
        super().__init__(identities, ("web", account, role_arn, region), region)
        self._role = Role(role_arn)
        self._sources: WeakSet[AccountToken] = WeakSet()

    def add(self, source: AccountToken) -> None:
        """Take tokens from one more session. Those of sessions that are in use are renewed with every call."""
        self._sources.add(source)

    async def _granted(self) -> dict[str, Any]:
        return await self._identities.ask_sts(
            "AssumeRoleWithWebIdentity",
            f'role "{self._role.arn}"',
            self._region,
            **self._role.parameters(),
            WebIdentityToken=self._newest().reveal().decode(),
        )

    def _proof(self) -> bytes:
        return hashlib.sha256(super()._proof() + self._newest().reveal()).digest()

    def _newest(self) -> SecretBytes:
        tokens = [source.read() for source in self._sources]
        if not tokens:
            raise ProviderError(ErrorReason.CREDENTIALS_NOT_FOUND, "no token of the service account was sent")
        return max(tokens, key=lambda token: token.expires_at or _LONG_AGO).token


class Identities:
    """The identities of one process. Bounded: the one used longest ago is forgotten first."""

    def __init__(self, clients: Clients, clock: Clock) -> None:
        self.clock = clock
        self.refusals = Refusals()
        self._clients = clients
        self._known: OrderedDict[Hashable, Identity] = OrderedDict()
        self.own = Own(clients)

    def assumed(self, source: Identity, role: Role, region: str) -> Identity:
        return self._shared(AssumedRole(self, source, role, region))

    def web(self, account: Hashable, role_arn: str, region: str, token: AccountToken) -> Identity:
        found = self._shared(WebIdentity(self, account, role_arn, region))
        found.add(token)
        return found

    async def ask_sts(self, operation: str, about: str, region: str, **parameters: Any) -> dict[str, Any]:
        """Ask for keys, signed by the identity of the task where the call is signed at all."""
        asked = Asked(STS, operation, region, about)
        client = await self._clients.join(STS, region)
        try:
            method = client.assume_role if operation == "AssumeRole" else client.assume_role_with_web_identity
            async with Deadline(self.clock, LOGIN_SECONDS):
                answer: dict[str, Any] = await method(**parameters)
        except (ClientError, BotoCoreError, TimeoutError, OSError, ValueError) as failed:
            raise refusal(failed, asked) from None
        finally:
            await self._clients.leave(STS, region)
        return answer

    def _shared(self, made: Shared) -> Shared:
        known = self._known.get(made.key)
        found = known if isinstance(known, type(made)) else made
        self._known[made.key] = found
        self._known.move_to_end(made.key)
        while len(self._known) > MAX_IDENTITIES:
            self._known.popitem(last=False)
        return found
