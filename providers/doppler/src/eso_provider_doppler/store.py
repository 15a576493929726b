"""An opened store: one config of Doppler. One download has every key of it.

| operation | request |
|---|---|
| get, check | one download of the config with its ETag, for any number of keys |
| find | one download, with the name transformer or the format of the store |
| push, delete | a download to compare, then one update if something changes |
| validate | the list of projects |
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from yarl import URL

from eso_api.stores.doppler import DopplerAuth, DopplerOidc, DopplerProvider
from eso_api.values import SecretBytes
from eso_provider_doppler.kinds import KINDS
from eso_sdk.backend import Backend
from eso_sdk.credentials import require_namespaces
from eso_sdk.errors import backend_error, invalid_config, not_found
from eso_sdk.extract import property_in
from eso_sdk.logins import (
    Authorization,
    FixedHeaders,
    Grant,
    Login,
    LoginHeaders,
    basic,
    digest,
    header_text,
    join_login,
)
from eso_sdk.matching import Matcher
from eso_sdk.provider import Check, Store, finds, pushes, reads, store_kind
from eso_sdk.push import Draft, payload_of, text_of
from eso_sdk.rest import Rest, RestRequest, RestResponse, RestSettings
from eso_wire.errors import ProviderError
from eso_wire.values import (
    DeleteItem,
    FindQuery,
    Found,
    PushItem,
    PushOutcome,
    PushPrecondition,
    RemoteRef,
    SourceSecret,
    Validation,
    ValidationState,
)

# ---------------------------------------------------------------------------------------------------------------------
# How a store authorizes its requests: a token of a Secret, or one that Doppler issues for a service account.


TOKEN_FIELD: Final = "/auth/secretRef/dopplerToken"  # noqa: S105 - a field's name


class _Issued(msgspec.Struct):
    """The response to a login."""

    token: str
    expires_at: datetime


def check_auth(auth: DopplerAuth) -> None:
    """Refuse credentials that no call could work with."""
    if (auth.secret_ref is None) == (auth.oidc_config is None):
        raise invalid_config("/auth", "needs exactly one of secretRef and oidcConfig")


def token_headers(token: SecretBytes) -> dict[str, str]:
    """Return the header for a token: Doppler takes it as the user of basic authorization."""
    header_text(token, TOKEN_FIELD)
    return basic(token, SecretBytes(b""))


class OidcLogin:
    """Exchanges tokens of a service account for tokens of Doppler."""

    def __init__(self, backend: Backend[Any], settings: RestSettings, oidc: DopplerOidc) -> None:
        self._backend = backend
        self._oidc = oidc
        self._rest = Rest(backend, settings)
        account = backend.token(oidc.service_account_ref)
        who = (account.namespace, account.name, account.uid, *account.audiences)
        self._proof = digest("doppler", str(settings.base), oidc.identity, *who)
        self._login: Login = join_login(self._proof, backend.clock, self._log_in)

    def authorization(self) -> Authorization:
        return LoginHeaders(self._login, self._proof, token_headers)

    async def close(self) -> None:
        self._login.leave(self._log_in)
        await self._rest.close()

    async def _log_in(self) -> Grant:
        token = self._backend.token(self._oidc.service_account_ref).token.reveal().decode()
        body = {"identity": self._oidc.identity, "token": token}
        issued = (await self._rest.post("v3/auth/oidc", body, call="OidcLogin")).read(_Issued)
        seconds = (issued.expires_at - self._backend.clock.now()).total_seconds()
        return Grant(SecretBytes(issued.token.encode()), seconds)


def fixed_authorization(token: SecretBytes) -> Authorization:
    return FixedHeaders(token_headers(token))


# --- An opened store -------------------------------------------------------------------------------------------------


DEFAULT_URL: Final = "https://api.doppler.com"
WHOLE_FILE: Final = "DOPPLER_SECRETS_FILE"
"""The one key of a find with `format`."""
_DOWNLOAD: Final = "v3/configs/config/secrets/download"
_UPDATE: Final = "v3/configs/config/secrets"


@store_kind(objects=KINDS, v1_key="doppler")
class DopplerStore(Store[DopplerProvider]):
    """A store of `spec.provider.doppler`, `Doppler` or `ClusterDoppler`."""

    @classmethod
    def check_config(cls, config: DopplerProvider) -> tuple[str, ...]:
        check_auth(config.auth)
        return ()

    async def open(self) -> None:
        auth = self.config.auth
        token = auth.secret_ref.doppler_token if auth.secret_ref is not None else None
        account = auth.oidc_config.service_account_ref if auth.oidc_config is not None else None
        require_namespaces(
            self.holder, {"/auth/secretRef/dopplerToken": token, "/auth/oidcConfig/serviceAccountRef": account}
        )
        settings = RestSettings("Doppler", _base(), field="DOPPLER_BASE_URL", etags=True)
        if token is not None:
            self._rest = self.close_later(Rest(self, settings, fixed_authorization(self.secret(token))))
        elif auth.oidc_config is not None:
            login = self.close_later(OidcLogin(self, settings, auth.oidc_config))
            self._rest = self.close_later(Rest(self, settings, login.authorization()))

    async def validate(self) -> Validation:
        await self._rest.get("v3/projects", call="ListProjects")
        return Validation(ValidationState.READY)

    # --- reading -----------------------------------------------------------------------------------------------------

    @reads("not_found")
    async def get_many(self, refs: Sequence[RemoteRef]) -> Sequence[bytes | ProviderError]:
        if all(self._rest.is_missing(self._missing(ref.key)) for ref in refs):
            return [not_found(ref.key) for ref in refs]
        held = await self._values()
        return [await self._value(held, ref) for ref in refs]

    async def check(self, ref: RemoteRef) -> Check:
        return Check(exists=ref.key in await self._values())

    @finds("name", "path")
    async def find(self, query: FindQuery) -> AsyncIterator[Found]:
        matcher = Matcher(query)
        for name, raw in (await self._spelled()).items():
            if await matcher.accepts(name):
                yield Found(name, SecretBytes(raw))

    # --- writing -----------------------------------------------------------------------------------------------------

    @pushes("whole_secret")
    async def push(self, item: PushItem, source: SourceSecret) -> PushOutcome:
        del source
        key, held = item.remote.key, (await self._values()).get(item.remote.key)
        draft = Draft(None if held is None else held.encode())
        if item.precondition is PushPrecondition.IF_ABSENT and await draft.has(item.remote.property):
            return PushOutcome.SKIPPED_EXISTS
        if not await draft.put(key, item.remote.property, payload_of(item)) or draft.value is None:
            return PushOutcome.UNCHANGED
        await self._update({"secrets": {key: text_of(draft.value, key)}})
        return PushOutcome.CREATED if held is None else PushOutcome.UPDATED

    async def delete(self, item: DeleteItem) -> bool:
        key, held = item.remote.key, (await self._values()).get(item.remote.key)
        draft = Draft(None if held is None else held.encode())
        if not await draft.remove(item.remote.property):
            return False
        if draft.value is None:
            await self._update({"change_requests": [{"name": key, "originalName": key, "shouldDelete": True}]})
        else:
            await self._update({"secrets": {key: text_of(draft.value, key)}})
        return True

    # --- inside ------------------------------------------------------------------------------------------------------

    async def _value(self, held: Mapping[str, str], ref: RemoteRef) -> bytes | ProviderError:
        if ref.key in held:
            try:
                return await property_in(held[ref.key].encode(), ref)
            except ProviderError as problem:
                return problem
        self._rest.note_missing(self._missing(ref.key))
        return not_found(ref.key, known=held)

    def _missing(self, key: str) -> str:
        return f"{self.config.project}/{self.config.config}/{key}"

    async def _values(self) -> dict[str, str]:
        """Return all values of the config under their own names."""
        return (await self._download({"format": "json"})).read(dict[str, str])

    async def _spelled(self) -> Mapping[str, bytes]:
        """Return all values under the names of the transformer, or the whole config as one file."""
        config = self.config
        transformer = {"name_transformer": config.name_transformer} if config.name_transformer else {}
        response = await self._download({"format": config.format or "json", **transformer})
        if config.format:
            return {WHOLE_FILE: response.body}
        return {name: text.encode() for name, text in response.read(dict[str, str]).items()}

    async def _download(self, query: Mapping[str, str]) -> RestResponse:
        response = await self._rest.send(
            RestRequest(
                "GET", _DOWNLOAD, "DownloadSecrets", {**self._place(), **query}, allowed=(404,), subject=self._subject()
            )
        )
        return self._present(response)

    async def _update(self, change: Mapping[str, Any]) -> None:
        body = {**self._place(), **change}
        request = RestRequest("POST", _UPDATE, "UpdateSecrets", json=body, allowed=(404,), subject=self._subject())
        self._present(await self._rest.send(request))

    def _present(self, response: RestResponse) -> RestResponse:
        """Raise if the config itself is missing: that is not a missing key, and nothing may be deleted for it."""
        if response.status == 404:
            raise backend_error(f"{self._subject()} does not exist; check project and config", backend_code="404")
        return response

    def _place(self) -> dict[str, str]:
        scope = {"project": self.config.project, "config": self.config.config}
        return {name: text for name, text in scope.items() if text}

    def _subject(self) -> str:
        if not self.config.project:
            return "Doppler, the config of the token"
        return f'Doppler, config "{self.config.config}" of project "{self.config.project}"'


def _base() -> URL:
    """Return the address of the API, which the environment of the process may replace."""
    if os.environ.get("DOPPLER_VERIFY_TLS", "").lower() in ("0", "f", "false"):
        raise invalid_config(
            "DOPPLER_VERIFY_TLS", "verification stays on; let SSL_CERT_FILE of the provider name the authority to trust"
        )
    return URL(os.environ.get("DOPPLER_BASE_URL") or DEFAULT_URL)
