"""Where the token of a session comes from."""

from __future__ import annotations

from typing import Protocol

from eso_api.values import SecretBytes


class TokenSource(Protocol):
    """Gives the token of every request, and a better one after the server refused it."""

    async def token(self) -> SecretBytes | None:
        """The token to send; None when an agent in front of the server adds one."""
        ...

    async def renewed(self, rejected: SecretBytes | None) -> SecretBytes | None:
        """Replace a token that a request got a 403 with.

        Called at most once for a request. Returns the token to try again with. Returns None when a new login cannot
        help: the token is a static one, or the present token is younger than the refusal.
        """
        ...

    async def close(self) -> None: ...


class StaticToken:
    """A token kept in a Secret. A newline at its end, as editors leave it, is not part of the token."""

    def __init__(self, token: SecretBytes | None) -> None:
        self._token = None if token is None else SecretBytes(token.reveal().rstrip(b"\r\n"))

    async def token(self) -> SecretBytes | None:
        return self._token

    async def renewed(self, rejected: SecretBytes | None) -> None:
        del rejected

    async def close(self) -> None:
        """Keep the token: it belongs to the user."""
