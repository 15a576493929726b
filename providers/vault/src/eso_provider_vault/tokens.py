"""The source of a session's token."""

from __future__ import annotations

from typing import Protocol

from eso_api.values import SecretBytes


class TokenSource(Protocol):
    """Returns the token for each request, and another one after the server rejected it."""

    async def token(self) -> SecretBytes | None:
        """Return the token to send; None if an agent in front of the server adds one."""
        ...

    async def renewed(self, rejected: SecretBytes | None) -> SecretBytes | None:
        """Replace a token that a request got a 403 with.

        Called at most once for a request. Returns the token to try again with. Returns None when a new login cannot
        help: the token is a static one, or the present token is younger than the refusal.
        """
        ...

    async def close(self) -> None: ...


class NoToken:
    """For stores without `auth`: an agent in front of the server adds the token."""

    async def token(self) -> None:
        return None

    async def renewed(self, rejected: SecretBytes | None) -> None:
        del rejected

    async def close(self) -> None:
        """Keep nothing, so close nothing."""
