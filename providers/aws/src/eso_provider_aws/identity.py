"""The identities that sign calls, shared by all stores with the same credentials.

    Keys          keys of a Secret
    Own           the identity of the provider process
    WebIdentity   a role, by the token of a service account
    AssumedRole   a role, by another identity

`Own`, `WebIdentity` and `AssumedRole` hold keys that expire (`Renewed`). They are obtained at first use and renewed
ahead of time, once for however many calls need them:

|                         | a call                                            |
|-------------------------|---------------------------------------------------|
| keys are fresh          | uses them                                         |
| they expire soon        | uses them; new ones are obtained in the background |
| no keys, or expired     | waits for the one login in progress               |
| the last login failed   | gets its error again until a pause is over        |
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NoReturn, TypeVar
from weakref import WeakSet, WeakValueDictionary

from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import ClientError

from eso_api.references import SecretKeySelector
from eso_api.stores.aws import AwsAuth, AwsConnection, AwsJwt, AwsSecretRef
from eso_api.values import SecretBytes
from eso_provider_aws.clients import STS, Clients, OwnSession, signed_by
from eso_provider_aws.errors import FAILURES, CallSubject, no_identity, refusal
from eso_sdk.backend import Backend
from eso_sdk.errors import credentials_not_found, invalid_config
from eso_sdk.logins import REFUSALS, Pauses, Refusals
from eso_sdk.processwide import shared_table
from eso_sdk.rest import Throttle
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Token
from kubebase.bounded import BoundedDict
from kubebase.clock import Clock
from kubebase.deadline import Deadline

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


SESSION_NAME: Final = "external-secrets-provider-aws"
LOGIN_SECONDS: Final = 20.0
DISCARD_PAUSE: Final = 60.0
"""Keys that AWS rejects are replaced at most this often."""
RENEW_AHEAD: Final = 300.0
"""Seconds before expiry at which keys are renewed; short-lived keys are renewed in the last quarter of their lifetime.
"""
OWN_SECONDS: Final = 60.0
"""Seconds between checks whether the SDK has renewed the keys of the process."""
SHORTEST_LIFE: Final = 60.0

_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Role:
    """A role to assume, with the parameters of the call."""

    arn: str
    external_id: str = ""
    tags: tuple[tuple[str, str], ...] = ()
    transitive: tuple[str, ...] = ()

    def parameters(self) -> dict[str, Any]:
        parameters: dict[str, Any] = {"RoleArn": self.arn, "RoleSessionName": SESSION_NAME}
        if self.external_id:
            parameters["ExternalId"] = self.external_id
        if self.tags:
            parameters["Tags"] = [{"Key": key, "Value": value} for key, value in self.tags]
        if self.transitive:
            parameters["TransitiveTagKeys"] = list(self.transitive)
        return parameters


@dataclass(frozen=True, slots=True, repr=False)
class Held:
    """Keys and their expiry; both times are on the monotonic scale."""

    frozen: ReadOnlyCredentials
    renew_at: float
    ends_at: float


class AccountToken:
    """The source of a service account token. The session that owns it keeps it alive."""

    def __init__(self, read: Callable[[], Token]) -> None:
        self.read = read


class Renewed(Identity):
    """An identity whose keys expire."""

    def __init__(self, key: Hashable, clock: Clock, attempts: Attempts) -> None:
        super().__init__(key)
        self._clock = clock
        self._attempts = attempts
        self._held: Held | None = None
        self._flight: asyncio.Task[Held] | None = None
        self._discarded = float("-inf")

    async def get_frozen_credentials(self) -> ReadOnlyCredentials:
        held, now = self._held, self._clock.monotonic()
        if held is None or held.ends_at <= now:
            # The flight is shared: a caller that gives up must not take it away from the others.
            held = await asyncio.shield(self._flight or self._start())
        elif held.renew_at <= now and self._flight is None:
            self._start()
        return held.frozen

    def discard(self, rejected: ReadOnlyCredentials) -> bool:
        super().discard(rejected)
        if self._held is None or self._held.frozen != rejected:
            return True  # another call already replaced the keys
        now = self._clock.monotonic()
        if now - self._discarded < DISCARD_PAUSE:
            return False
        self._discarded, self._held = now, None
        return True

    def _start(self) -> asyncio.Task[Held]:
        self._flight = asyncio.get_running_loop().create_task(self._log_in())
        self._flight.add_done_callback(self._land)
        return self._flight

    def _land(self, flight: asyncio.Task[Held]) -> None:
        self._flight = None
        if not flight.cancelled():
            flight.exception()  # callers that wait have it; a renewal ahead of time has none

    async def _log_in(self) -> Held:
        with self._attempts.one(self.proof()):
            self._held = held = await self._obtain()
        return held

    async def _obtain(self) -> Held:
        raise NotImplementedError


class Own(Renewed):
    """The provider process."""

    def __init__(self, clock: Clock, attempts: Attempts) -> None:
        super().__init__(("own",), clock, attempts)
        self._session: OwnSession | None = None
        """Created by the first login: with keys in every store there is none, and a session is expensive."""

    def discard(self, rejected: ReadOnlyCredentials) -> bool:
        others = super().discard(rejected)
        if self._held is None:
            self._session = None  # the former session would return the same keys
        return others

    async def _obtain(self) -> Held:
        self._session = session = self._session or OwnSession()
        try:
            async with Deadline(self._clock, LOGIN_SECONDS):
                found = await session.get_credentials()
                frozen: ReadOnlyCredentials | None = await found.get_frozen_credentials() if found else None
        except ClientError as refused:
            raise refusal(
                refused, CallSubject(STS, "AssumeRoleWithWebIdentity", "the region of the provider")
            ) from None
        # Metadata services, files and processes fail with their own errors; their text is not shown to users.
        except (*FAILURES, KeyError, RuntimeError) as failed:
            raise no_identity(type(failed).__name__) from None
        if frozen is None:
            raise no_identity()
        now = self._clock.monotonic()
        return Held(frozen, now + OWN_SECONDS, now + 5 * OWN_SECONDS)


class Temporary(Renewed):
    """Temporary keys that STS issues."""

    def __init__(self, identities: Identities, key: Hashable, region: str) -> None:
        super().__init__(key, identities.clock, identities.attempts)
        self._identities = identities
        self._region = region

    def is_proven(self, region: str, now: float) -> bool:
        """Return whether the keys come from STS, which need no verification, or AWS accepted former ones recently."""
        return self._held is not None or super().is_proven(region, now)

    async def _obtain(self) -> Held:
        keys = (await self._granted())["Credentials"]
        now = self._clock.monotonic()
        life = max((keys["Expiration"] - self._clock.now()).total_seconds(), SHORTEST_LIFE)
        frozen = ReadOnlyCredentials(keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"])
        return Held(frozen, now + life - min(RENEW_AHEAD, life / 4), now + life - min(SHORTEST_LIFE, life / 10))

    async def _granted(self) -> dict[str, Any]:
        raise NotImplementedError


class AssumedRole(Temporary):
    """A role, assumed by another identity."""

    def __init__(self, identities: Identities, source: Identity, role: Role, region: str) -> None:
        super().__init__(identities, ("role", source.key, role, region), region)
        self._source = source
        self._role = role

    async def _granted(self) -> dict[str, Any]:
        about = f'role "{self._role.arn}"'

        async def assume(frozen: ReadOnlyCredentials) -> dict[str, Any]:
            with signed_by(frozen):
                return await self._identities.call_sts("AssumeRole", about, self._region, **self._role.parameters())

        return await with_keys_of(self._source, assume)


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
        return await self._identities.call_sts(
            "AssumeRoleWithWebIdentity",
            f'role "{self._role.arn}"',
            self._region,
            **self._role.parameters(),
            WebIdentityToken=self._newest().reveal().decode(),
        )

    def proof(self) -> bytes:
        return hashlib.sha256(super().proof() + self._newest().reveal()).digest()

    def _newest(self) -> SecretBytes:
        tokens = [source.read() for source in self._sources]
        if not tokens:
            raise ProviderError(ErrorReason.CREDENTIALS_NOT_FOUND, "no token of the service account was sent")
        return max(tokens, key=lambda token: token.expires_at or _LONG_AGO).token


class Identities:
    """The identities of one process, and how they log in."""

    def __init__(self, clients: Clients, clock: Clock) -> None:
        self.clock = clock
        self.attempts = Attempts(clock)
        self.own = Own(clock, self.attempts)
        self._clients = clients
        self._known = Known()

    def written(self, key_id: str, secret: SecretBytes, token: SecretBytes | None) -> Identity:
        return self._known.written(Keys(key_id, secret, token))

    def assumed(self, source: Identity, role: Role, region: str) -> Identity:
        return self._known.renewed(AssumedRole(self, source, role, region))

    def web(self, account: Hashable, role_arn: str, region: str, token: AccountToken) -> Identity:
        found = self._known.renewed(WebIdentity(self, account, role_arn, region))
        found.add(token)
        return found

    async def call_sts(self, operation: str, about: str, region: str, **parameters: Any) -> dict[str, Any]:
        """Request keys, signed with the keys that the task names if the call is signed at all."""
        subject = CallSubject(STS, operation, region, about)
        client = await self._clients.join(STS, region)
        try:
            method = client.assume_role if operation == "AssumeRole" else client.assume_role_with_web_identity
            async with Deadline(self.clock, LOGIN_SECONDS):
                response: dict[str, Any] = await method(**parameters)
        except FAILURES as failed:
            raise refusal(failed, subject) from None
        finally:
            await self._clients.leave(STS, region)
        return response


# --- State shared by all sessions of a provider process: clients, identities and throttles ---------------------------


class Runtime:
    """The state of one process."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.clients = Clients()
        self.identities = Identities(self.clients, clock)
        self._throttles: WeakValueDictionary[Hashable, Throttle] = WeakValueDictionary()

    def throttle(self, identity: Hashable, service: str, region: str) -> Throttle:
        """Return the rate limiter of an identity at a service."""
        key = (identity, service, region)
        found = self._throttles.get(key)
        if found is None:
            self._throttles[key] = found = Throttle(self.clock, f"{service} in {region}")
        return found


def runtime_of(clock: Clock) -> Runtime:
    """Return the runtime that all sessions of the process share."""
    return shared_table("aws.runtime", clock, lambda: Runtime(clock))


# --- The identity of a configuration: the source of the first keys, and the roles to assume --------------------------
#
# | `auth` | first keys |
# |---|---|
# | `jwt` | a token of the service account, for the role that its annotation names |
# | `secretRef` | keys of a Secret |
# | neither | those of the provider process, for cluster-scoped objects unless the administrator allows more |


ROLE_ANNOTATION: Final = "eks.amazonaws.com/role-arn"


@dataclass(slots=True)
class Login:
    """An identity, and the objects that must live as long as its session."""

    identity: Identity
    token: AccountToken | None = None


def log_in(
    backend: Backend[Any],
    runtime: Runtime,
    region: str,
    auth: AwsAuth | None,
    roles: Sequence[Role],
    *,
    keys_first: bool = False,
) -> Login:
    """Return the identity of a configuration, without a call to AWS."""
    jwt = auth.jwt if auth else None
    keys = auth.secret_ref if auth else None
    if jwt is not None and not (keys_first and keys is not None):
        login = _by_token(backend, runtime, region, jwt)
    elif keys is not None:
        login = Login(_by_keys(backend, runtime, keys))
    else:
        backend.process_identity.use(
            "AWS identity", field="/auth", instead="set auth.secretRef or auth.jwt.serviceAccountRef"
        )
        login = Login(runtime.identities.own)
    for role in roles:
        login.identity = runtime.identities.assumed(login.identity, role, region)
    return login


def roles_of(config: AwsConnection, tags: Sequence[tuple[str, str]]) -> list[Role]:
    """Return the roles that a store assumes, in order. Only the last one gets the external id and tags."""
    chain = [Role(arn) for arn in config.additional_roles]
    if config.role:
        chain.append(Role(config.role, config.external_id, tuple(tags), tuple(config.transitive_tag_keys)))
    return chain


def tags_of(config: AwsConnection, *, namespace: str, kind: str, name: str) -> list[tuple[str, str]]:
    """Return the session tags for `role`: those of the spec, or those of the policy instead."""
    if config.session_tags_policy not in ("Simple", "Custom"):
        return [(tag.key, tag.value) for tag in config.session_tags]
    tags = [("esoNamespace", namespace), ("esoStoreName", name), ("esoStoreKind", kind)]
    if config.session_tags_policy == "Custom":
        tags += [(key, value) for key, value in sorted(config.custom_session_tags.items()) if key and value]
    return tags


def _by_token(backend: Backend[Any], runtime: Runtime, region: str, jwt: AwsJwt) -> Login:
    reference = jwt.service_account_ref
    if reference is None:
        raise invalid_config("/auth/jwt/serviceAccountRef", "name the service account")
    token = backend.token(reference)
    if not token.name:
        raise credentials_not_found(
            f'the operator did not say which role service account "{reference.name}" may assume; upgrade the operator'
        )
    role = token.annotations.get(ROLE_ANNOTATION, "")
    if not role:
        raise credentials_not_found(
            f'service account "{token.namespace}/{token.name}" has no annotation {ROLE_ANNOTATION}; set it to the ARN'
            " of the role to assume"
        )
    source = AccountToken(lambda: backend.token(reference))
    account = (token.namespace, token.name, token.uid, token.audiences)
    return Login(runtime.identities.web(account, role, region, source), source)


def _by_keys(backend: Backend[Any], runtime: Runtime, keys: AwsSecretRef) -> Identity:
    key_id = _key(backend, keys.access_key_id_secret_ref, "/auth/secretRef/accessKeyIDSecretRef")
    secret = _key(backend, keys.secret_access_key_secret_ref, "/auth/secretRef/secretAccessKeySecretRef")
    token = keys.session_token_secret_ref
    session = _key(backend, token, "/auth/secretRef/sessionTokenSecretRef") if token is not None else None
    return runtime.identities.written(key_id.reveal().decode(), secret, session)


def _key(backend: Backend[Any], reference: SecretKeySelector | None, field: str) -> SecretBytes:
    if reference is None:
        raise invalid_config(field, "name the key of a Secret")
    found = backend.secret(reference).reveal().strip()  # editors and shells often append a newline
    if not found or not found.isascii():
        problem = "is empty" if not found else "has characters that no key of AWS has"
        raise credentials_not_found(f'{field}: key "{reference.key}" of Secret "{reference.name}" {problem}')
    return SecretBytes(found)
