"""Requests of one session: a connection with the token and the namespace of the store.

A 403 means that the token has expired, or that its policies do not allow the path; the server does not show which. So
the session requests one new token and tries once more. If there is no better token, a lookup of the token itself
separates the two cases; its result is cached for a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Final

from eso_api.values import SecretBytes
from eso_provider_vault.connection import Connection, Query
from eso_provider_vault.documents import Json
from eso_provider_vault.errors import accepts_token, dead_token, denied, refusal
from eso_provider_vault.identities import TokenSource
from eso_provider_vault.replies import Endpoint, Reply
from eso_wire.errors import ProviderError
from kubebase.clock import Clock

LOOKUP_SELF: Final = "auth/token/lookup-self"
VERDICT_SECONDS: Final = 60.0

Observe = Callable[[str], AbstractContextManager[None]]


class _CountedError(Exception):
    """Leaves the count of a call with a refusal, so that metrics show it as an error. A missing key is not one."""

    def __init__(self, reply: Reply) -> None:
        super().__init__()
        self.reply = reply


class Api:
    """The requests of a store's operations to their server."""

    def __init__(self, connection: Connection, tokens: TokenSource, *, observe: Observe, clock: Clock) -> None:
        self.connection = connection
        self.settings = connection.settings
        self.clock = clock
        self._tokens = tokens
        self._observe = observe
        self._dead_until = 0.0
        self._alive_until = 0.0

    async def send(
        self,
        method: str,
        path: str,
        *,
        call: str,
        query: Query | None = None,
        body: Mapping[str, Json] | None = None,
    ) -> Reply:
        """Send one request with the session's token; `call` is its name in metrics. Any response is returned."""
        token = await self._tokens.token()
        reply = await self._send(method, path, token=token, call=call, query=query, body=body)
        if reply.status == 403 and (fresh := await self._tokens.renewed(token)) is not None:
            reply = await self._send(method, path, token=fresh, call=call, query=query, body=body)
        return reply

    async def probe(self, method: str, path: str, *, call: str, query: Query | None = None) -> Reply:
        """Test whether something is possible. A 403 of the policies is a result, not a reason to log in again."""
        reply = await self._send(method, path, token=await self._tokens.token(), call=call, query=query)
        if reply.status == 403 and accepts_token(reply) is not True:
            return await self.send(method, path, call=call, query=query)
        return reply

    async def renew(self) -> None:
        """Replace the token after a refusal that did not come through `send`."""
        await self._tokens.renewed(await self._tokens.token())

    async def _send(
        self,
        method: str,
        path: str,
        *,
        token: SecretBytes | None,
        call: str,
        query: Query | None = None,
        body: Mapping[str, Json] | None = None,
    ) -> Reply:
        try:
            with self._observe(call):
                reply = await self.connection.request(
                    method, path, token=token, namespace=self.settings.namespace, query=query, body=body
                )
                _count_refusal(reply)
        except _CountedError as counted:
            return counted.reply
        return reply

    def endpoint(self, path: str) -> Endpoint:
        return self.connection.endpoint(path, self.settings.namespace)

    async def refused(self, reply: Reply, path: str) -> ProviderError:
        """Return the error of a response that is neither a success nor "no such key"."""
        endpoint = self.endpoint(path)
        if reply.status != 403:
            return refusal(reply, endpoint)
        good = accepts_token(reply)
        if good is None:
            good = await self.token_is_good()
        return denied(endpoint) if good else dead_token(endpoint)

    async def token_is_good(self) -> bool:
        """Tell whether the server accepts the token at all; by looking the token up."""
        now = self.clock.monotonic()
        if now < self._alive_until or now < self._dead_until:
            return now < self._alive_until
        good = accepts_token(await self.look_up_token()) is True
        if good:
            self._alive_until = now + VERDICT_SECONDS
        else:
            self._dead_until = now + VERDICT_SECONDS
        return good

    async def look_up_token(self) -> Reply:
        """Ask the server about the token, in the namespace it was made in."""
        token = await self._tokens.token()
        with self._observe("LookupSelf"):
            return await self.connection.request(
                "GET", LOOKUP_SELF, token=token, namespace=self.settings.auth_namespace
            )

    async def token(self) -> SecretBytes | None:
        return await self._tokens.token()

    async def close(self) -> None:
        await self._tokens.close()
        await self.connection.close()


def _count_refusal(reply: Reply) -> None:
    if reply.status >= 400 and reply.status != 404:
        raise _CountedError(reply)
