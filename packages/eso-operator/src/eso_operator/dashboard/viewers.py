"""Who uses the dashboard, and which objects they may read.

With authentication, a viewer sees the objects that the API server would list for them: `TokenReview` says who they are,
`SubjectAccessReview` what they may list. Answers are cached for a minute. Without it, everyone who can connect sees
what the operator sees; `settings.py` then allows loopback addresses only.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar

from eso_operator.insight.overview import AnyKind, Gap, Missing, Overview
from eso_operator.telemetry.webserver import MAX_TOKEN_CHARS, AccessReviews, User
from kubebase.bounded import ExpiringDict
from kubebase.clock import Clock
from kubebase.meta import Kind, ObjectKey, Page, Resource
from kuberun.client import PAGE_SIZE, Client
from kuberun.errors import Forbidden
from kuberun.requests import ALL, Selection

MAX_NAMESPACES: Final = 50
"""Namespaces that are checked for a viewer who may not list all of them; each costs a request for each kind."""
_FRESH_SECONDS: Final = 60.0
_MAX_CACHED: Final = 4096
_AT_ONCE: Final = 16
"""Requests to the API server at the same time, for all viewers together."""

T = TypeVar("T")
_Attributes = tuple[tuple[str, str], ...]


class Viewer(Protocol):
    """A user of the dashboard."""

    @property
    def name(self) -> str: ...

    async def may(self, verb: str, resource: Resource, namespace: str, name: str = "") -> bool:
        """Return whether they may read these objects. Raises ApiError if the API server does not answer."""
        ...


class AnonymousViewer:
    """Anyone who can connect to a dashboard without authentication."""

    name = ""

    async def may(self, verb: str, resource: Resource, namespace: str, name: str = "") -> bool:  # noqa: ARG002 - the protocol's signature
        return True


class Authorizer:
    """Knows viewers by their token. Bounded; the oldest responses are evicted."""

    def __init__(self, reviews: AccessReviews, clock: Clock) -> None:
        self._reviews = reviews
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
        return None if user is None else _Reviewed(user, digest, self)

    async def allowed(self, user: User, digest: bytes, attributes: _Attributes) -> bool:
        if (known := self._rights.get((digest, attributes))) is not None:
            return known
        review = {"resourceAttributes": {name: value for name, value in attributes if value}}
        async with self._requests:
            response = await self._reviews.allowed(user, review)
        self._rights.put((digest, attributes), response, _FRESH_SECONDS)
        return response


class _Reviewed:
    def __init__(self, user: User, digest: bytes, authorizer: Authorizer) -> None:
        self.name = user.name
        self._user = user
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


class ViewerClient(Client):
    """A client that reads only what a viewer may read; everything else raises `Forbidden`."""

    def __init__(self, inner: Client, viewer: Viewer) -> None:
        self._inner = inner
        self._viewer = viewer

    async def close(self) -> None:
        """Leave the inner client open: the operator uses it."""

    async def get(self, kind: Kind[T], key: ObjectKey, *, subresource: str = "") -> T:
        await self._check("get", kind.resource, key.namespace, key.name)
        return await self._inner.get(kind, key, subresource=subresource)

    async def pages(
        self, kind: Kind[T], selection: Selection = ALL, *, size: int = PAGE_SIZE
    ) -> AsyncIterator[Page[T]]:
        await self._check("list", kind.resource, selection.namespace)
        async for page in self._inner.pages(kind, selection, size=size):
            yield page

    async def read(self, path: str, result: type[Any]) -> Any:
        """Discovery says which kinds exist, and nothing about objects."""
        return await self._inner.read(path, result)

    async def _check(self, verb: str, resource: Resource, namespace: str, name: str = "") -> None:
        where = namespace if resource.namespaced else ""
        if not await self._viewer.may(verb, resource, where, name):
            raise Forbidden(403, "Forbidden", f"you may not {verb} {resource}")
