"""The service account of a call, proved by the token sent with it (`auth.serviceAccountRef` of a store).

    authorization metadata -> TokenGate -> Verifier (`jwks.py`, `tokenreview.py`) -> ServiceAccount, or a refusal

TLS has already authenticated the operator. A token identifies one account, for providers that treat accounts
differently. It is verified here and goes no further: author code sees the account, never the token.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

import structlog

from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.options import AUTHORIZATION_KEY
from eso_wire.values import Context

MAX_TOKEN_CHARS: Final = 16 * 1024
_SUBJECT: Final = re.compile(r"system:serviceaccount:([a-z0-9-]{1,63}):([a-z0-9.-]{1,253})")

_log = structlog.get_logger("eso_sdk.accounts")

Metadata = Iterable[tuple[str, str | bytes]]


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """A service account that a cluster vouches for. `uid` is empty if the token does not contain it."""

    namespace: str
    name: str
    uid: str = ""

    @property
    def username(self) -> str:
        """Return the user name in the format of Kubernetes."""
        return f"system:serviceaccount:{self.namespace}:{self.name}"


class TokenPolicy(StrEnum):
    """How calls without a token are treated if tokens are verified."""

    REQUIRED = "required"
    OPTIONAL = "optional"


@dataclass(frozen=True, slots=True)
class JwksSettings:
    """The trusted issuer. `source` is an address or a file path. Here, because `jwks.py` loads cryptography."""

    source: str
    issuer: str
    ca_file: Path | None = None


class Verifier(Protocol):
    """Finds the account of a token. Raises `refused` for an invalid token, `undecided` if it cannot tell."""

    async def verify(self, token: str) -> ServiceAccount: ...


class TokenGate:
    """Admits calls by their token.

    Without a verifier no token is needed, and a token is ignored: refusing it would protect nothing, because the same
    call without it is served. One warning is logged, because the sender of a token expects a check.
    """

    def __init__(self, verifier: Verifier | None = None, policy: TokenPolicy = TokenPolicy.REQUIRED) -> None:
        self._verifier = verifier
        self._policy = policy
        self._warned = False

    async def account(self, metadata: Metadata) -> ServiceAccount | None:
        """Return the verified account of a call; None for a call that needs no token."""
        sent = [value for key, value in metadata if key == AUTHORIZATION_KEY]
        if self._verifier is None:
            self._warn_of_unverified(sent)
            return None
        if not sent:
            if self._policy is TokenPolicy.OPTIONAL:
                return None
            raise ProviderError(
                ErrorReason.CREDENTIALS_REJECTED,
                "this provider serves only calls that carry a service account's token;"
                " name the account in the store's auth.serviceAccountRef",
            )
        return await self._verifier.verify(_token(sent))

    def _warn_of_unverified(self, sent: list[str | bytes]) -> None:
        if sent and not self._warned:
            self._warned = True
            _log.warning("tokens of calls are not verified; see --token-jwks and --token-review")


def refused(problem: str) -> ProviderError:
    """Return the error for an invalid token. It says what is wrong, and never quotes the token."""
    return ProviderError(
        ErrorReason.CREDENTIALS_REJECTED, f"the token of the store's auth.serviceAccountRef is refused: {problem}"
    )


def undecided(problem: str) -> ProviderError:
    """Return the error for a token that could not be checked because the authority was not reachable."""
    return ProviderError(
        ErrorReason.BACKEND_UNAVAILABLE, f"the token of the store's auth.serviceAccountRef cannot be checked: {problem}"
    )


def account_of(subject: object, uid: object = "") -> ServiceAccount:
    """Return the account that a user name denotes."""
    found = _SUBJECT.fullmatch(subject) if isinstance(subject, str) else None
    if found is None:
        raise refused("it belongs to no service account")
    return ServiceAccount(found.group(1), found.group(2), uid if isinstance(uid, str) else "")


def check_account(account: ServiceAccount | None, context: Context) -> None:
    """Refuse a namespaced store that uses an account of another namespace; the operator checks this too."""
    namespace = context.store.namespace
    if account is not None and namespace and account.namespace != namespace:
        raise ProviderError(
            ErrorReason.NAMESPACE_DENIED,
            f'the token belongs to a service account of namespace "{account.namespace}", but the store is in'
            f' "{namespace}"; name an account of that namespace in auth.serviceAccountRef',
            subject=context.store,
        )


def _token(sent: list[str | bytes]) -> str:
    if len(sent) != 1 or not isinstance(text := sent[0], str):
        raise refused("the call carries more than one")
    scheme, _, token = text.partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise refused('the authorization metadata is not "Bearer TOKEN"')
    if len(token) > MAX_TOKEN_CHARS:
        raise refused(f"it is longer than {MAX_TOKEN_CHARS} characters")
    return token
