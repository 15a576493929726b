"""Status written once, as a difference.

    async with status_of(client, KIND, obj) as status:
        status.conditions = set_condition(status.conditions, ready, now)

On the way out, what changed is sent as one merge patch to the status subresource; nothing changed, nothing sent. Fields
the Python type does not know stay as they are. The patch carries the object's resourceVersion, because lists are
replaced as a whole: if anybody wrote in between, the server refuses and `Conflict` is raised. It is for the controller
to look at the new object and try again; there is no loop in here.

A difference to something old may be none at all, and then nobody would notice: `OwnWrites` tells whether a cache still
shows an object as it was before our own last word.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar

import msgspec

from kuberun.client import Client
from kuberun.mergepatch import difference
from kuberun.meta import JsonObject, Kind, ObjectKey, ObjectMeta
from kuberun.requests import PLAIN, WriteOptions

S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)


class HasStatus(Protocol[S_co]):
    """A typed object with a status."""

    @property
    def metadata(self) -> ObjectMeta: ...

    @property
    def status(self) -> S_co: ...


class OwnWrites:
    """On which version of each object its status was last written; bounded, oldest out.

    While a watch lags, several writes follow one another on objects read from the server: the cache is behind all of
    them. Versions are compared as the decimal numbers they are; one that is not is only ever compared with itself.
    """

    def __init__(self, limit: int = 200_000) -> None:
        self._limit = limit
        self._versions: OrderedDict[ObjectKey, tuple[str, str]] = OrderedDict()

    def wrote(self, metadata: ObjectMeta) -> None:
        """A status was written on this version, so the object has another one now."""
        self._versions[metadata.key] = (metadata.uid, metadata.resource_version)
        self._versions.move_to_end(metadata.key)
        while len(self._versions) > self._limit:
            self._versions.popitem(last=False)

    def behind(self, metadata: ObjectMeta) -> bool:
        """Whether this is the object as it was before our last write, or before an earlier one."""
        uid, written = self._versions.get(metadata.key, ("", ""))
        return uid == metadata.uid and bool(written) and _not_after(metadata.resource_version, written)

    def forget(self, key: ObjectKey) -> None:
        self._versions.pop(key, None)


@asynccontextmanager
async def status_of(
    client: Client, kind: Kind[Any], obj: HasStatus[S], *, options: WriteOptions = PLAIN
) -> AsyncGenerator[S, None]:
    """A copy of the object's status to change at will; written when the block ends without an exception."""
    status = copy.deepcopy(obj.status)
    yield status
    await write_status(client, kind, obj.metadata, old=obj.status, new=status, options=options)


async def write_status(
    client: Client, kind: Kind[Any], metadata: ObjectMeta, *, old: Any, new: Any, options: WriteOptions = PLAIN
) -> bool:
    """Send the difference between two statuses; says whether there was one."""
    patch = status_patch(metadata, old, new)
    if patch is None:
        return False
    await client.merge_patch(kind, metadata.key, patch, subresource="status", options=options)
    return True


def status_patch(metadata: ObjectMeta, old: Any, new: Any) -> JsonObject | None:
    """The merge patch from one status to another; None when they are the same."""
    changes = difference(_plain(old), _plain(new))
    if not changes:
        return None
    return {"metadata": {"resourceVersion": metadata.resource_version}, "status": changes}


def _not_after(seen: str, written: str) -> bool:
    return seen == written or (seen.isdecimal() and written.isdecimal() and int(seen) < int(written))


def _plain(status: Any) -> JsonObject:
    plain: JsonObject = {} if status is None else msgspec.to_builtins(status)
    return plain
