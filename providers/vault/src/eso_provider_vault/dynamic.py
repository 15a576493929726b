"""VaultDynamicSecret: the values in the response of any Vault path, and their lease or token.

    path, method, parameters -> response -> members of `data`, `auth` or the whole -> values
                                       -> lease id or token accessor -> state, for the clean-up
                                       -> lease and token TTL -> expires_at

Vault revokes a lease with the token that requested it. So the token is extended to outlive the lease (`LeaseTokens`),
and `expires_at` is the expiry of the lease, or that of the token if Vault does not extend it. The provider need not
run until then.

A response can get lost between provider and operator. The operator then repeats the call, or cleans up after it, and
has only the idempotency key. So recent states are remembered by that key (`Generations`); they hold no secret.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from eso_api.generators.vault import VAULT_DYNAMIC_SECRET as V1_VAULT_DYNAMIC_SECRET
from eso_api.generators.vault import VaultDynamicSecretSpec
from eso_api.values import SecretBytes
from eso_provider_vault.api import Api, connect
from eso_provider_vault.auth.login import check_auth, open_tokens
from eso_provider_vault.identities import Held, SharedToken, TokenSource
from eso_provider_vault.kinds import DYNAMIC_SECRET
from eso_provider_vault.replies import Json, Members, Number, Reply, at, integer, members, refusal, text, text_of
from eso_provider_vault.settings import settings_of
from eso_sdk.errors import backend_error, invalid_config, invalid_request
from eso_sdk.processwide import Generations, generations_of
from eso_sdk.provider import Generator, generator_kind
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Generated, GenerateRequest, ValueMetadata


class LeaseState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The data needed to revoke the result of a call. It contains no secret: the operator stores it in the cluster."""

    lease_id: str = ""
    accessor: str = ""
    namespace: str = ""


class LeaseTokens:
    """A `TokenSource` that protects the token it gave out from revocation."""

    def __init__(self, tokens: TokenSource) -> None:
        self._tokens = tokens
        self._held: Held | None = None

    async def token(self) -> SecretBytes | None:
        if not isinstance(self._tokens, SharedToken):
            return await self._tokens.token()
        return self._pin(await self._tokens.identity.held())

    async def renewed(self, rejected: SecretBytes | None) -> SecretBytes | None:
        if not isinstance(self._tokens, SharedToken) or rejected is None:
            return await self._tokens.renewed(rejected)
        held = await self._tokens.identity.replaced(rejected)
        return None if held is None else self._pin(held)

    async def cover(self, seconds: float) -> float:
        """Let the token live as long as a lease; return for how many seconds it lives. Infinite without a token."""
        if self._held is None or not isinstance(self._tokens, SharedToken):
            return math.inf
        return await self._tokens.identity.extend(self._held, seconds)

    def release(self) -> None:
        """Release the token: from now on it counts as leased only until the end that `cover` returned."""
        if self._held is not None:
            self._held.pins -= 1
            self._held = None

    async def close(self) -> None:
        self.release()

    def _pin(self, held: Held) -> SecretBytes:
        self.release()
        held.pins += 1
        self._held = held
        return held.token


REVOKE_LEASE: Final = "sys/leases/revoke"
RENEW_LEASE: Final = "sys/leases/renew"
REVOKE_ACCESSOR: Final = "auth/token/revoke-accessor"
_LONGEST: Final = timedelta(days=3650)


@dataclass(frozen=True, slots=True)
class _Made:
    """The lease or token that one response created."""

    state: LeaseState | None
    seconds: float
    """Seconds until it expires; infinite if it never does."""
    ends_with_token: bool


@generator_kind(objects=(DYNAMIC_SECRET,), bridged=(V1_VAULT_DYNAMIC_SECRET,))
class VaultDynamicSecretGenerator(Generator[VaultDynamicSecretSpec]):
    """Members of the response of one path."""

    @classmethod
    def check_config(cls, config: VaultDynamicSecretSpec) -> tuple[str, ...]:
        _path(config)
        method = config.method.upper() or "GET"
        if config.parameters is not None and not isinstance(config.parameters, dict):
            raise invalid_config("/parameters", "must be an object: it is the body of the request")
        with _below("/provider"):
            settings_of(config.provider)
            warnings = check_auth(config.provider)
        if config.parameters and method in ("GET", "LIST", "DELETE"):
            warnings = (*warnings, f"parameters are ignored with method {method}; set method: POST, or getParameters")
        return warnings

    async def open(self) -> None:
        with _below("/provider"):
            self._connection = self.close_later(connect(self, self.config.provider))
            self._tokens = self.close_later(open_tokens(self, self.config.provider, self._connection))
        self._generations: Generations[LeaseState] = generations_of("VaultDynamicSecret", self.clock)

    async def generate(self, request: GenerateRequest) -> Generated:
        if (former := self._generations.of(request.idempotency_key)) is not None:
            await self._revoke(former)  # the response was lost, so its values were never used
        tokens = LeaseTokens(self._tokens)
        try:
            reply = await self._request(self._api(tokens))
            return await self._completed(reply, tokens, request.idempotency_key)
        finally:
            tokens.release()

    async def _completed(self, reply: Reply, tokens: LeaseTokens, key: str) -> Generated:
        """Build the result of a generation; if that fails, revoke the lease or token."""
        made = _made(reply, self._connection.settings.namespace)
        if made.state is not None:
            self._generations.add(key, made.state)
        try:
            seconds = made.seconds
            if made.ends_with_token and math.isfinite(seconds):
                seconds = min(seconds, await tokens.cover(seconds))
            state = None if made.state is None else SecretBytes(msgspec.json.encode(made.state))
            metadata = ValueMetadata(expires_at=self._expires_at(reply, seconds))
            return Generated(self._values(reply), state, metadata)
        except BaseException:
            if made.state is not None:
                with suppress(ProviderError):
                    await self._revoke(made.state)
            raise

    async def cleanup(self, state: SecretBytes) -> bool:
        try:
            made = msgspec.json.decode(state.reveal(), type=LeaseState)
        except msgspec.DecodeError:
            raise invalid_request("the state is not one of a VaultDynamicSecret") from None
        await self._revoke(made)
        return True

    async def cleanup_lost(self, idempotency_key: str) -> bool | None:
        """Revoke the lease or token of a call whose response was lost, if this process still remembers the call."""
        made = self._generations.of(idempotency_key)
        if made is None:
            return await super().cleanup_lost(idempotency_key)
        await self._revoke(made)
        self._generations.forget(idempotency_key)
        return True

    # --- requests ----------------------------------------------------------------------------------------------------

    def _api(self, tokens: LeaseTokens) -> Api:
        return Api(self._connection, tokens, observe=self.observe, clock=self.clock)

    async def _request(self, api: Api) -> Reply:
        config, path = self.config, _path(self.config)
        match config.method.upper() or "GET":
            case "GET":
                reply = await api.send("GET", path, call="ReadDynamicSecret", query=config.get_parameters or None)
            case "LIST" | "DELETE" as method:
                reply = await api.send(method, path, call=f"{method.capitalize()}DynamicSecret")
            case _:
                body = members(_json(config.parameters))
                reply = await api.send("POST", path, call="WriteDynamicSecret", body=body)
        if reply.ok:
            return reply
        if reply.status == 404 and reply.errors == ():
            return Reply(404, None, reply.headers)  # Vault reports a missing value in this way
        raise await api.refused(reply, path) if reply.status == 403 else self._refused(reply, path)

    def _refused(self, reply: Reply, path: str) -> ProviderError:
        endpoint = self._connection.endpoint(path, self._connection.settings.namespace)
        if reply.status in (400, 404, 405) and reply.is_json:
            return backend_error(
                f"{endpoint} was refused (HTTP {reply.status}); check path, method and parameters, and that the"
                " engine and its role exist",
                backend_code=f"HTTP {reply.status}",
            )
        return refusal(reply, endpoint)

    def _values(self, reply: Reply) -> dict[str, SecretBytes]:
        config = self.config
        match config.result_type or "Data":
            case "Auth":
                found: Members = members(at(reply.json, "auth"))
            case "Raw":
                found = members(reply.json)
            case _:
                found = reply.data
        if not found and not config.allow_empty_response:
            endpoint = self._connection.endpoint(_path(config), self._connection.settings.namespace)
            raise backend_error(
                f"{endpoint} sent no {config.result_type or 'Data'}; correct path or resultType, or set"
                " allowEmptyResponse: true"
            )
        return {name: SecretBytes(text_of(value)) for name, value in found.items()}

    def _expires_at(self, reply: Reply, seconds: float) -> datetime | None:
        if math.isfinite(seconds):
            return self.clock.now() + min(timedelta(seconds=max(seconds, 0.0)), _LONGEST)
        expiration = integer(reply.json, "data", "expiration")
        if expiration is not None and text(reply.json, "data", "certificate"):
            return datetime.fromtimestamp(min(expiration, 2**33), UTC)
        return None

    # --- clean-up ----------------------------------------------------------------------------------------------------

    async def _revoke(self, made: LeaseState) -> None:
        """Revoke a lease or a token. The call is idempotent."""
        if made.accessor:
            await self._undo(REVOKE_ACCESSOR, {"accessor": made.accessor}, made.namespace)
            return
        try:
            await self._undo(REVOKE_LEASE, {"lease_id": made.lease_id, "sync": True}, made.namespace)
        except ProviderError as error:
            # Vault's default policy permits renewals only. Renewing a lease for one second also ends it.
            if error.reason is not ErrorReason.PERMISSION_DENIED or not await self._shorten(made):
                raise

    async def _undo(self, path: str, body: Mapping[str, Json], namespace: str) -> None:
        reply = await self._send(path, body, namespace)
        if reply.ok or (
            reply.status in (400, 404) and (reply.mentions("not found") or reply.mentions("invalid lease"))
        ):
            return
        endpoint = self._connection.endpoint(path, namespace)
        if reply.status == 403:
            raise ProviderError(
                ErrorReason.PERMISSION_DENIED,
                f"no policy of the token allows {endpoint}; grant update on it, so that leases end when they are no"
                " longer used",
                backend_code="HTTP 403",
            )
        raise refusal(reply, endpoint)

    async def _shorten(self, made: LeaseState) -> bool:
        body: Mapping[str, Json] = {"lease_id": made.lease_id, "increment": Number("1")}
        return (await self._send(RENEW_LEASE, body, made.namespace)).ok

    async def _send(self, path: str, body: Mapping[str, Json], namespace: str) -> Reply:
        token = await self._tokens.token()
        for _ in range(2):
            with self.observe("RevokeLease"):
                reply = await self._connection.request("POST", path, token=token, namespace=namespace, body=body)
            if reply.status != 403 or (token := await self._tokens.renewed(token)) is None:
                break
        return reply


def _made(reply: Reply, namespace: str) -> _Made:
    auth = at(reply.json, "auth")
    if lease := text(reply.json, "lease_id"):
        return _Made(LeaseState(lease_id=lease, namespace=namespace), _seconds(reply.json), ends_with_token=True)
    if not text(auth, "client_token"):
        return _Made(None, math.inf, ends_with_token=False)
    accessor = text(auth, "accessor")
    state = LeaseState(accessor=accessor, namespace=namespace) if accessor else None
    return _Made(state, _seconds(auth), ends_with_token=at(auth, "orphan") is not True)


def _seconds(document: Json) -> float:
    seconds = integer(document, "lease_duration") or 0
    return float(seconds) if seconds > 0 else math.inf


def _path(config: VaultDynamicSecretSpec) -> str:
    path = config.path.strip("/")
    if not path or any(segment in ("", ".", "..") for segment in path.split("/")) or not path.isprintable():
        raise invalid_config("/path", "must be the path of an engine, such as database/creds/ROLE")
    return path


def _json(value: Any) -> Json:
    """Bring parameters of the spec into the form that requests are made of."""
    match value:
        case bool() | str() | None:
            return value
        case int() | float():
            return Number(repr(value))
        case list():
            return [_json(entry) for entry in value]
        case dict():
            return {str(name): _json(entry) for name, entry in value.items()}
        case _:
            raise invalid_config("/parameters", "must be JSON")


@contextmanager
def _below(prefix: str) -> Iterator[None]:
    """Name fields of the provider block as they are named in the generator."""
    try:
        yield
    except ProviderError as error:
        if error.reason is ErrorReason.CONFIG_INVALID and error.message.startswith("/"):
            raise ProviderError(error.reason, f"{prefix}{error.message}", subject=error.subject) from None
        raise
