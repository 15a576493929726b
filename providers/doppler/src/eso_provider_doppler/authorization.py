"""How a store authorizes its requests: a token of a Secret, or one that Doppler issues for a service account."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec

from eso_api.stores.doppler import DopplerAuth, DopplerOidc
from eso_api.values import SecretBytes
from eso_sdk.authorization import Authorization, FixedHeaders, LoginHeaders, basic, digest, header_text
from eso_sdk.backend import Backend
from eso_sdk.errors import invalid_config
from eso_sdk.logins import Grant, Login, join_login
from eso_sdk.rest import Rest, RestSettings

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
