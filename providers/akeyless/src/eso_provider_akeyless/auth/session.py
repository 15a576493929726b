"""One login for all sessions of an identity, and the path of the API below its address."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

import msgspec

from eso_api.values import SecretBytes
from eso_provider_akeyless.auth.cloud import Form, Opened
from eso_provider_akeyless.gateways import UNKNOWN_PATH, prefixes
from eso_sdk.authorization import Authorization, FixedHeaders, LoginHeaders, digest
from eso_sdk.errors import backend_error, rejected
from eso_sdk.logins import Grant, join_login
from eso_sdk.processwide import shared_table
from eso_sdk.rest import Rest, RestRequest, RestResponse, RestSettings
from kubebase.bounded import BoundedDict

UNKNOWN_LIFE: Final = 15 * 60.0
"""Life of a token whose expiration is absent or not a moment; Akeyless's own default is an hour."""
MAX_ADDRESSES: Final = 1024
_REFUSED: Final = (400, 401, 403, 404, 405)
_ABSENT: Final = (404, 405)


class _Granted(msgspec.Struct, frozen=True):
    token: str = ""
    expiration: str | int | None = None


class Session:
    """The login of one store."""

    def __init__(self, store: Opened, settings: RestSettings, form: Form) -> None:
        self.proof = digest("akeyless", str(settings.base), settings.ca, *form.proof)
        self._form = form
        self._settings = settings
        self._clock = store.clock
        # Logins have connections of their own: a rejected login must not stop those of other identities.
        anonymous = FixedHeaders()
        anonymous.proof = digest("login", self.proof)
        self._rest = Rest(store, replace(settings, credentials_in_body=False, status_of=None), anonymous)
        self._found: BoundedDict[str, str] = shared_table(
            "eso_provider_akeyless.prefixes", store.clock, lambda: BoundedDict(MAX_ADDRESSES)
        )
        self._login = join_login(self.proof, store.clock, self._log_in)

    def authorization(self) -> Authorization:
        return LoginHeaders(self._login, self.proof, token_members)

    async def check(self) -> None:
        """Log in, unless a token is at hand."""
        await self._login.token()

    async def prefix(self) -> str:
        """Return the prefix of paths. The first login finds it."""
        known = prefixes(self._settings.base)
        if len(known) > 1 and self._address not in self._found:
            await self._login.token()
        return self._found.get(self._address, known[0])

    async def close(self) -> None:
        self._login.leave(self._log_in)
        await self._rest.close()

    @property
    def _address(self) -> str:
        return str(self._settings.base)

    async def _log_in(self) -> Grant:
        body = dict(await self._form.body())
        for prefix in prefixes(self._settings.base):
            response = await self._rest.send(RestRequest("POST", f"{prefix}auth", "Auth", json=body, allowed=_REFUSED))
            if not _is_absent(response):
                self._found[self._address] = prefix
                break
        if response.status in _REFUSED:
            raise rejected(
                f"{self._settings.subject} refuses the login with {self._form.name}: HTTP {response.status};"
                f" {self._form.advice}",
                backend_code=str(response.status),
            )
        granted: _Granted = response.read(_Granted)
        if not granted.token:
            raise backend_error(f"{self._settings.subject} sends no token for the login")
        return Grant(SecretBytes(granted.token.encode()), seconds_left(granted.expiration, self._clock.now()))


def token_members(token: SecretBytes) -> dict[str, str]:
    """Return the member of bodies for a token; those of universal identities have another one."""
    text = token.reveal().decode()
    return {"uid-token" if text.startswith("u-") else "token": text}


def seconds_left(expiration: str | int | None, now: datetime) -> float:
    """Return the life of a token: its expiration is in seconds since 1970, in ISO 8601 or as Go prints a moment."""
    text = str(expiration or "").strip()
    for candidate in (text, text[:19]):
        try:
            ends = datetime.fromtimestamp(int(text), UTC) if text.isdecimal() else datetime.fromisoformat(candidate)
            return (ends if ends.tzinfo else ends.replace(tzinfo=UTC)).timestamp() - now.timestamp()
        except (ValueError, OverflowError, OSError):
            continue
    return UNKNOWN_LIFE


def _is_absent(response: RestResponse) -> bool:
    """Return whether no API is at the path."""
    return response.status in _ABSENT or (response.status == 400 and UNKNOWN_PATH.encode() in response.body)
