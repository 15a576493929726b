"""Grafana: a token of a service account, which is created if it does not exist.

| value | meaning |
|---|---|
| `login` | login of the service account |
| `token` | the new token |

The token is named after the generation. If the response to a generation is lost, the repetition finds the token by this
name and replaces it; so does the clean-up. The service account stays: other tokens may belong to it.
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any, Final

import msgspec
from yarl import URL

from eso_api.generators.tokens import GRAFANA as V1_GRAFANA
from eso_api.generators.tokens import GrafanaAuth, GrafanaSpec
from eso_api.values import SecretBytes
from eso_provider_tokens.kinds import GRAFANA
from eso_sdk.errors import invalid_config, invalid_request
from eso_sdk.logins import FixedHeaders, basic, bearer
from eso_sdk.provider import Generator, generator_kind
from eso_sdk.rest import Rest, RestRequest, RestSettings, segments
from eso_wire.values import Generated, GenerateRequest, ValueMetadata

_ACCOUNTS: Final = "api/serviceaccounts"
_PAGE: Final = 1000
_TAKEN: Final = (400, 409)
"""Statuses with which Grafana refuses a second token of one name."""


class _Account(msgspec.Struct):
    id: int
    name: str
    login: str


class _Accounts(msgspec.Struct, rename="camel"):
    service_accounts: list[_Account]


class _Token(msgspec.Struct):
    id: int
    name: str = ""
    key: str = ""


class _Held(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    login: str = ""
    token_id: int = msgspec.field(name="tokenID")


class GrafanaState(msgspec.Struct, frozen=True, kw_only=True):
    """The data needed to delete a token; written as the operator in Go does."""

    service_account: _Held = msgspec.field(name="serviceAccount")


@generator_kind(objects=(GRAFANA,), bridged=(V1_GRAFANA,))
class GrafanaGenerator(Generator[GrafanaSpec]):
    """Tokens of one service account."""

    API_NAME = "Grafana"

    @classmethod
    def check_config(cls, config: GrafanaSpec) -> tuple[str, ...]:
        if config.auth.token is None and config.auth.basic is None:
            raise invalid_config("/auth", "needs token or basic")
        if not config.service_account.name:
            raise invalid_config("/serviceAccount/name", "must not be empty")
        return ()

    async def open(self) -> None:
        settings = RestSettings(f"Grafana {self.config.url}", URL(self.config.url))
        self._rest = self.close_later(Rest(self, settings, FixedHeaders(self._headers(self.config.auth))))

    async def generate(self, request: GenerateRequest) -> Generated:
        account = await self._found_account() or await self._new_account()
        token = await self._new_token(account, request.idempotency_key or uuid.uuid4().hex)
        state = GrafanaState(service_account=_Held(id=account.id, login=account.login, token_id=token.id))
        data = {"login": SecretBytes(account.login.encode()), "token": SecretBytes(token.key.encode())}
        seconds = self.config.service_account.seconds_to_live
        expires = None if seconds is None else self.clock.now() + timedelta(seconds=seconds)
        return Generated(data, SecretBytes(msgspec.json.encode(state)), ValueMetadata(expires_at=expires))

    async def cleanup(self, state: SecretBytes) -> bool:
        try:
            held = msgspec.json.decode(state.reveal(), type=GrafanaState).service_account
        except msgspec.DecodeError:
            raise invalid_request("the state is not one of a Grafana generator") from None
        return await self._delete(held.id, held.token_id)

    async def cleanup_lost(self, idempotency_key: str) -> bool:
        """Delete the token of a generation whose response was lost; its name is the key of the generation."""
        account = await self._found_account()
        return account is not None and await self._delete_named(account, idempotency_key)

    # --- requests ----------------------------------------------------------------------------------------------------

    def _headers(self, auth: GrafanaAuth) -> dict[str, str]:
        if auth.token is not None:
            return bearer(self.secret(auth.token), "/auth/token")
        if auth.basic is None:
            raise invalid_config("/auth", "needs token or basic")
        return basic(SecretBytes(auth.basic.username.encode()), self.secret(auth.basic.password))

    async def _found_account(self) -> _Account | None:
        name = self.config.service_account.name
        query = {"query": name, "perpage": str(_PAGE)}
        response = await self._rest.get(f"{_ACCOUNTS}/search", call="SearchServiceAccounts", query=query)
        return next((one for one in response.read(_Accounts).service_accounts if one.name == name), None)

    async def _new_account(self) -> _Account:
        account = self.config.service_account
        body = {"name": account.name, "role": account.role}
        return (await self._rest.post(_ACCOUNTS, body, call="CreateServiceAccount")).read(_Account)

    async def _new_token(self, account: _Account, name: str) -> _Token:
        """Create a token; a token of this name is the result of a call whose response was lost, and is replaced."""
        response = await self._rest.send(self._creation(account, name, _TAKEN))
        if response.status in _TAKEN:
            await self._delete_named(account, name)
            response = await self._rest.send(self._creation(account, name))
        return response.read(_Token)

    def _creation(self, account: _Account, name: str, allowed: tuple[int, ...] = ()) -> RestRequest:
        body: dict[str, Any] = {"name": name}
        if self.config.service_account.seconds_to_live is not None:
            body["secondsToLive"] = self.config.service_account.seconds_to_live
        return RestRequest("POST", self._tokens(account.id), "CreateToken", json=body, allowed=allowed)

    async def _delete_named(self, account: _Account, name: str) -> bool:
        listed = (await self._rest.get(self._tokens(account.id), call="ListTokens")).read(list[_Token])
        found = [token for token in listed if token.name == name]
        return any([await self._delete(account.id, token.id) for token in found])

    async def _delete(self, account: int, token: int) -> bool:
        path = f"{self._tokens(account)}/{segments(str(token))}"
        response = await self._rest.delete(path, call="DeleteToken", allowed=(404,))
        return response.status != 404

    def _tokens(self, account: int) -> str:
        return f"{_ACCOUNTS}/{segments(str(account))}/tokens"
