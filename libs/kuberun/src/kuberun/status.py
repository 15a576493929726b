"""Status written once, as a difference.

    written = await write_status(client, KIND, obj, status)

The changes are sent as one merge patch to the status subresource; without changes no request is sent. Fields that the
Python type does not declare stay unchanged. The patch carries the object's resourceVersion, because a merge patch
replaces lists as a whole: if the object changed in between, the server refuses and `Conflict` is raised. The controller
must then read the new object and retry; this module does not loop.

A difference computed from a stale object may be empty and hide a needed write. A controller that
remembers the version of its last write can check that with `is_stale`.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import msgspec

from kubebase.mergepatch import difference
from kubebase.meta import JsonObject, Kind, ObjectMeta
from kuberun.client import Client

S_co = TypeVar("S_co", covariant=True)


class HasStatus(Protocol[S_co]):
    """A typed object with a status."""

    @property
    def metadata(self) -> ObjectMeta: ...

    @property
    def status(self) -> S_co: ...


T = TypeVar("T", bound=HasStatus[Any])


def is_stale(observed: str, written_on: str) -> bool:
    """Return whether a version of an object is older than our write, which was made on the version `written_on`.

    While a watch lags, several writes may follow one another on objects read from the server, and the cache is behind
    all of them. Decimal versions are compared as numbers; any other version is only compared for equality.
    """
    return observed == written_on or (
        observed.isdecimal() and written_on.isdecimal() and int(observed) < int(written_on)
    )


async def write_status(client: Client, kind: Kind[T], obj: T, status: Any) -> T:
    """Send what differs from the status of the object; return the written object, or `obj` if nothing differs."""
    patch = status_patch(obj.metadata, obj.status, status)
    if patch is None:
        return obj
    return await client.merge_patch(kind, obj.metadata.key, patch, subresource="status")


def status_patch(metadata: ObjectMeta, old: Any, new: Any) -> JsonObject | None:
    """Return the merge patch from one status to another; None if they are equal."""
    changes = difference(_plain(old), _plain(new))
    if not changes:
        return None
    return {"metadata": {"resourceVersion": metadata.resource_version}, "status": changes}


def _plain(status: Any) -> JsonObject:
    plain: JsonObject = {} if status is None else msgspec.to_builtins(status)
    return plain
