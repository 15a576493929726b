"""GithubAccessToken: a token of an installation of a GitHub App, limited to repositories and permissions.

| value | meaning |
|---|---|
| `token` | the token; it expires after an hour |

A token that is no longer used is revoked before it expires.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from eso_api.generators.github import GITHUB_ACCESS_TOKEN as V1_GITHUB_ACCESS_TOKEN
from eso_api.generators.github import GithubAccessTokenSpec
from eso_api.values import SecretBytes
from eso_provider_github.app import App, Issued, generator_base, issue, settings_of
from eso_provider_github.kinds import ACCESS_TOKEN
from eso_sdk.errors import invalid_config, invalid_request
from eso_sdk.logins import FixedHeaders, bearer
from eso_sdk.processwide import generations_of
from eso_sdk.provider import Generator, generator_kind
from eso_sdk.rest import Rest, RestRequest, segments
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Generated, GenerateRequest, Validation, ValidationState, ValueMetadata

# ---------------------------------------------------------------------------------------------------------------------
# The state of a generated token: the token itself, encrypted so that only the App's private key opens it.
#
# GitHub revokes a token of an installation only at the request of its bearer, and the operator keeps states in the
# cluster, where more people may read them than Secrets. So the state holds the token in AES-256-GCM under a key that is
# derived from the App's private key. Whoever has that key can issue tokens anyway.


_PURPOSE: Final = b"eso-provider-github: state of a generated token"
_NONCE: Final = 12


class TokenState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The state as the operator stores it."""

    expires_at: datetime
    sealed: str
    """Nonce and encrypted token, in base64."""

    def has_expired(self, now: datetime) -> bool:
        expiry = self.expires_at if self.expires_at.tzinfo else self.expires_at.replace(tzinfo=UTC)
        return expiry <= now


def deposit(app: App, place: str, issued: Issued) -> SecretBytes:
    """Return the state for a token. `place` names the API and the installation; the state opens only there."""
    nonce = secrets.token_bytes(_NONCE)
    sealed = nonce + _cipher(app).encrypt(nonce, issued.token.encode(), place.encode())
    state = TokenState(expires_at=issued.expiry, sealed=base64.b64encode(sealed).decode())
    return SecretBytes(msgspec.json.encode(state))


def read(state: SecretBytes) -> TokenState:
    try:
        return msgspec.json.decode(state.reveal(), type=TokenState)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise invalid_request("the state is not that of a GithubAccessToken") from None


def withdraw(app: App, place: str, state: TokenState) -> SecretBytes | None:
    """Return the token of a state; None if another key or place sealed it."""
    try:
        sealed = base64.b64decode(state.sealed, validate=True)
        return SecretBytes(_cipher(app).decrypt(sealed[:_NONCE], sealed[_NONCE:], place.encode()))
    except (binascii.Error, ValueError, InvalidTag):
        return None


def _cipher(app: App) -> AESGCM:
    return AESGCM(HKDF(SHA256(), 32, salt=None, info=_PURPOSE).derive(app.secret.reveal()))


# --- GithubAccessToken -----------------------------------------------------------------------------------------------


KEY_FIELD: Final = "/auth/privateKey/secretRef"


@generator_kind(objects=(ACCESS_TOKEN,), bridged=(V1_GITHUB_ACCESS_TOKEN,))
class GithubAccessTokenGenerator(Generator[GithubAccessTokenSpec]):
    """A token of an installation."""

    @classmethod
    def check_config(cls, config: GithubAccessTokenSpec) -> tuple[str, ...]:
        generator_base(config.url)
        for field, value in {"/appID": config.app_id, "/installID": config.install_id}.items():
            if not value.strip():
                raise invalid_config(field, "must be set")
        return ()

    async def open(self) -> None:
        config = self.config
        self._settings = settings_of(generator_base(config.url))
        self._place = f"{self._settings.base} {config.install_id}"
        self._app = App(config.app_id, self.secret(config.auth.private_key.secret_ref), self.clock, field=KEY_FIELD)
        self._rest = self.close_later(Rest(self, self._settings, self._app))
        self._generations = generations_of("GithubAccessToken", self.clock)

    async def validate(self) -> Validation:
        """Ask for the installation as the App; no token is made."""
        path = segments("app", "installations", self.config.install_id)
        answer = await self._rest.send(RestRequest("GET", path, "GetInstallation", allowed=(404,)))
        if answer.status == 404:
            raise invalid_config("/installID", f'App "{self._app.id}" has no such installation at GitHub')
        return Validation(ValidationState.READY)

    async def generate(self, request: GenerateRequest) -> Generated:
        if (former := self._generations.of(request.idempotency_key)) is not None:
            await self.cleanup(former)  # the answer was lost, so its token was never used
        limits: dict[str, Any] = {}
        if self.config.permissions:
            limits["permissions"] = self.config.permissions
        if self.config.repositories:
            limits["repositories"] = self.config.repositories
        issued = await issue(self._rest, self._app, self.config.install_id, limits)
        state = deposit(self._app, self._place, issued)
        self._generations.add(request.idempotency_key, state)
        return Generated({"token": SecretBytes(issued.token.encode())}, state, ValueMetadata(expires_at=issued.expiry))

    async def cleanup(self, state: SecretBytes) -> bool:
        """Revoke a token; return whether it was still valid."""
        kept = read(state)
        if kept.has_expired(self.clock.now()):
            return False
        token = withdraw(self._app, self._place, kept)
        if token is None:
            raise ProviderError(
                ErrorReason.BACKEND_ERROR,
                "the token was made with another private key, App or installation, so it cannot be revoked; it expires"
                f" at {kept.expires_at:%Y-%m-%dT%H:%M:%SZ}",
            )
        bearing = Rest(self, self._settings, FixedHeaders(bearer(token)))
        try:
            answer = await bearing.send(
                RestRequest("DELETE", "installation/token", "RevokeInstallationToken", allowed=(401,))
            )
        finally:
            await bearing.close()
        return answer.status != 401

    async def cleanup_lost(self, idempotency_key: str) -> bool | None:
        """Revoke the token of a call whose answer was lost, if this process still remembers the call."""
        state = self._generations.of(idempotency_key)
        if state is None:
            return await super().cleanup_lost(idempotency_key)
        revoked = await self.cleanup(state)
        self._generations.forget(idempotency_key)
        return revoked
