"""The token of one generation: Vault revokes a lease with the token that requested it.

    tokens = LeaseTokens(shared)
    reply = ...                                the request that makes a lease, with tokens.token()
    seconds = await tokens.cover(reply's TTL)  the token now outlives the lease, or this is how long it lives
    tokens.release()

The token is extended once, when the lease is created, so a lease outlives its session and a restart of the provider.
"""

from __future__ import annotations

import math

from eso_api.values import SecretBytes
from eso_provider_vault.identities import Held, SharedToken
from eso_provider_vault.tokens import TokenSource


class LeaseTokens:
    """A `TokenSource` that keeps the token it gave out from being revoked."""

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
