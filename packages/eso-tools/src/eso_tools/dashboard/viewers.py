"""Who uses the dashboard, and which objects they may read.

With authentication, a viewer sees the objects that the API server would list for them: `TokenReview` says who they are,
`SubjectAccessReview` what they may list. Responses are cached for a minute. What belongs to one object, such as its
target, is read with the token of the viewer: the dashboard's own account may read no Secret. Without authentication,
everyone who can connect sees what the dashboard may read; `process.py` then allows loopback addresses only.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Final, Protocol

from eso_operator.telemetry.webserver import MAX_TOKEN_CHARS, AccessReviews, User
from eso_tools.status.overview import AnyKind, Gap, Missing, Overview
from kubebase.bounded import ExpiringDict
from kubebase.clock import Clock
from kubebase.meta import Resource
from kuberun.client import Client
from kuberun.connection import Connection, Credential, FixedCredentials, bearer
from kuberun.transport import AiohttpTransport

MAX_NAMESPACES: Final = 50
"""Namespaces that are checked for a viewer who may not list all of them; each costs a request for each kind."""
_FRESH_SECONDS: Final = 60.0
_MAX_CACHED: Final = 4096
_AT_ONCE: Final = 16
"""Requests to the API server at the same time, for all viewers together."""

_Attributes = tuple[tuple[str, str], ...]


class Viewer(Protocol):
    """A user of the dashboard."""

    @property
    def name(self) -> str: ...

    async def may(self, verb: str, resource: Resource, namespace: str, name: str = "") -> bool:
        """Return whether they may read these objects. Raises ApiError if the API server does not answer."""
        ...

    def client(self) -> AbstractAsyncContextManager[Client]:
        """Return a client with the rights of the viewer."""
        ...


class AnonymousViewer:
    """Anyone who can connect to a dashboard without authentication."""

    name = ""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def may(self, verb: str, resource: Resource, namespace: str, name: str = "") -> bool:  # noqa: ARG002 - the protocol's signature
        return True

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        yield self._client


class Authorizer:
    """Knows viewers by their token. Bounded; the oldest responses are evicted."""

    def __init__(self, reviews: AccessReviews, connection: Connection, clock: Clock) -> None:
        self._reviews = reviews
        self._connection = connection
        self._users: ExpiringDict[bytes, User | None] = ExpiringDict(_MAX_CACHED, clock)
        self._rights: ExpiringDict[tuple[bytes, _Attributes], bool] = ExpiringDict(_MAX_CACHED, clock)
        self._requests = asyncio.Semaphore(_AT_ONCE)

    async def viewer(self, token: str) -> Viewer | None:
        """Return the viewer of a token; None if the API server does not accept it. Raises ApiError."""
        if not token or len(token) > MAX_TOKEN_CHARS:
            return None
        digest = hashlib.sha256(token.encode(errors="surrogateescape")).digest()
        if digest in self._users:
            user = self._users.get(digest)
        else:
            async with self._requests:
                user = await self._reviews.user(token)
            self._users.put(digest, user, _FRESH_SECONDS)
        return None if user is None else _TokenViewer(user, token, digest, self)

    def connect(self, token: str) -> Client:
        """Return a client of the API server that has this token only: no certificate, no impersonation."""
        credentials = FixedCredentials(Credential(bearer(token, "the token of the viewer")))
        return Client(AiohttpTransport(replace(self._connection, credentials=credentials, headers=())))

    async def allowed(self, user: User, digest: bytes, attributes: _Attributes) -> bool:
        if (known := self._rights.get((digest, attributes))) is not None:
            return known
        review = {"resourceAttributes": {name: value for name, value in attributes if value}}
        async with self._requests:
            response = await self._reviews.allowed(user, review)
        self._rights.put((digest, attributes), response, _FRESH_SECONDS)
        return response


class _TokenViewer:
    def __init__(self, user: User, token: str, digest: bytes, authorizer: Authorizer) -> None:
        self.name = user.name
        self._user = user
        self._token = token
        self._digest = digest
        self._authorizer = authorizer

    async def may(self, verb: str, resource: Resource, namespace: str, name: str = "") -> bool:
        attributes = (
            ("verb", verb),
            ("group", resource.group),
            ("version", resource.version),
            ("resource", resource.plural),
            ("namespace", namespace),
            ("name", name),
        )
        return await self._authorizer.allowed(self._user, self._digest, attributes)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        client = self._authorizer.connect(self._token)
        try:
            yield client
        finally:
            await client.close()


# --- what a viewer may read -------------------------------------------------------------------------------------------


async def visible(overview: Overview, viewer: Viewer, namespace: str = "") -> Overview:
    """Return the rows that the viewer may list; kinds that they may list nowhere or only in part become gaps."""
    if isinstance(viewer, AnonymousViewer):
        return overview
    namespaces: dict[AnyKind, set[str]] = {}
    for row in overview.rows:
        namespaces.setdefault(row.custom, set()).add(row.namespace)
    kinds = list(namespaces)
    responses = await asyncio.gather(*(_listable(viewer, custom, namespaces[custom], namespace) for custom in kinds))
    listable = dict(zip(kinds, responses, strict=True))
    gaps = [
        Gap(custom, Missing.PARTLY if listable[custom] else Missing.FORBIDDEN)
        for custom in kinds
        if listable[custom] != namespaces[custom]
    ]
    shown = overview.only(lambda row: row.namespace in listable[row.custom])
    return replace(shown, gaps=(*overview.gaps, *gaps))


async def _listable(viewer: Viewer, custom: AnyKind, namespaces: set[str], namespace: str) -> set[str]:
    """Return the namespaces whose objects of a kind the viewer may list; that of cluster-scoped objects is empty."""
    resource = custom.resource()

    async def may_list(where: str) -> bool:
        return await viewer.may("list", resource, where)

    if await may_list(""):
        return namespaces
    if not custom.namespaced:
        return set()
    first = sorted(namespaces, key=lambda each: (each != namespace, each))[:MAX_NAMESPACES]
    return {each for each, allowed in zip(first, await asyncio.gather(*map(may_list, first)), strict=True) if allowed}
