"""Status written once, as a difference.

    async with status_of(client, KIND, obj) as status:
        status.conditions = set_condition(status.conditions, ready, now)

On the way out, what changed is sent as one merge patch to the status subresource; nothing changed, nothing sent. Fields
the Python type does not know stay as they are. The patch carries the object's resourceVersion, because lists are
replaced as a whole: if anybody wrote in between, the server refuses and `Conflict` is raised. It is for the controller
to look at the new object and try again; there is no loop in here.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar

import msgspec

from kuberun.client import Client
from kuberun.mergepatch import difference
from kuberun.meta import JsonObject, Kind, ObjectMeta
from kuberun.requests import PLAIN, WriteOptions

S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)


class HasStatus(Protocol[S_co]):
    """A typed object with a status."""

    @property
    def metadata(self) -> ObjectMeta: ...

    @property
    def status(self) -> S_co: ...


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


def _plain(status: Any) -> JsonObject:
    plain: JsonObject = {} if status is None else msgspec.to_builtins(status)
    return plain
