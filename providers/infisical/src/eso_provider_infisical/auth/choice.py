"""Choose the form of `auth`, and share its token with every session of the same identity."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from eso_api.stores.infisical import InfisicalAuth, InfisicalProvider
from eso_api.values import SecretBytes
from eso_provider_infisical.auth.clouds import amazon, azure, gcp_id_token
from eso_provider_infisical.auth.credentials import jwt, ldap, oracle, universal
from eso_provider_infisical.auth.files import gcp_iam, kubernetes
from eso_provider_infisical.auth.form import Form, Opened
from eso_sdk.authorization import Authorization, FixedHeaders, LoginHeaders, bearer, digest
from eso_sdk.backend import Backend
from eso_sdk.errors import backend_error, invalid_config, rejected
from eso_sdk.loginbodies import text
from eso_sdk.logins import Grant, LogIn, Login, join_login
from eso_sdk.rest import Rest, RestRequest, RestSettings

_REFUSED: Final = (400, 401, 403, 404, 422)
_TOKEN: Final = "token_auth_credentials"  # noqa: S105 - the name of a field
_FORMS: Final[Mapping[str, Callable[[Any, Opened], Form]]] = {
    "universal_auth_credentials": universal,
    "azure_auth_credentials": azure,
    "gcp_id_token_auth_credentials": gcp_id_token,
    "gcp_iam_auth_credentials": gcp_iam,
    "jwt_auth_credentials": jwt,
    "ldap_auth_credentials": ldap,
    "oci_auth_credentials": oracle,
    "kubernetes_auth_credentials": kubernetes,
    "aws_auth_credentials": amazon,
}
"""In the order in which they are checked; the access token is the last."""


class _Granted(msgspec.Struct, rename="camel", frozen=True):
    access_token: str
    expires_in: float = 0.0


@dataclass(slots=True)
class Auth:
    """The authorization of one session, and what it holds."""

    authorization: Authorization
    login: Login | None = None
    log_in: LogIn | None = field(default=None, repr=False)
    rest: Rest | None = None

    async def close(self) -> None:
        if self.login is not None and self.log_in is not None:
            self.login.leave(self.log_in)
        if self.rest is not None:
            await self.rest.close()


def check_auth(auth: InfisicalAuth) -> tuple[str, ...]:
    """Check `auth` alone: return warnings, or raise `invalid_config`."""
    chosen = [_spelled(name) for name in (*_FORMS, _TOKEN) if getattr(auth, name) is not None]
    if not chosen:
        raise invalid_config("/auth", f"needs one of {', '.join(_spelled(name) for name in (*_FORMS, _TOKEN))}")
    return (f"auth configures {', '.join(chosen)}; only {chosen[0]} is used",) if len(chosen) > 1 else ()


def open_auth(store: Backend[InfisicalProvider], settings: RestSettings) -> Auth:
    """Return the authorization of a session. The identity logs in when the first token is needed."""
    auth = store.config.auth
    for name, make in _FORMS.items():
        if (part := getattr(auth, name)) is not None:
            return _logged_in(store, settings, make(part, store))
    if auth.token_auth_credentials is None:
        check_auth(auth)
        raise invalid_config("/auth", "names no login")
    pointer = "/auth/tokenAuthCredentials/accessToken"
    token = text(store, auth.token_auth_credentials.access_token, pointer)
    return Auth(FixedHeaders(bearer(SecretBytes(token.encode()), pointer)))


def _logged_in(store: Backend[InfisicalProvider], settings: RestSettings, form: Form) -> Auth:
    organization = store.config.secrets_scope.organization_slug
    proof = digest(str(settings.base), settings.ca, form.method, organization, *form.proof)
    # Logins have connections of their own: a rejected login must not stop those of other identities.
    anonymous = FixedHeaders()
    anonymous.proof = digest("login", proof)
    rest = Rest(store, replace(settings, etags=False), anonymous)

    async def log_in() -> Grant:
        body = dict(await form.body()) | ({"organizationSlug": organization} if organization else {})
        response = await rest.send(RestRequest("POST", form.path, form.call, json=body, allowed=_REFUSED))
        if response.status in _REFUSED:
            message = (
                f"{settings.subject} refuses the login of /auth/{form.name}: HTTP {response.status}; {form.advice}"
            )
            raise rejected(message, backend_code=str(response.status))
        granted: _Granted = response.read(_Granted)
        if not granted.access_token:
            raise backend_error(f"{settings.subject} sends no token for the login")
        return Grant(SecretBytes(granted.access_token.encode()), granted.expires_in or math.inf)

    login = join_login(proof, store.clock, log_in)
    return Auth(LoginHeaders(login, proof, bearer), login, log_in, rest)


def _spelled(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
