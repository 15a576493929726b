"""The state of all objects of both generations, in one value that `eso status` and the dashboard show.

    Objects (a client, or caches of informers) -> rows_of each kind, page by page -> Overview -> causes.py

A kind that is not installed or that the user may not list is a `Gap`; the other kinds are shown. `MAX_ROWS` bounds the
rows; objects beyond it are counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol

from eso_api.crd import CustomKind
from eso_operator.insight.overviewrows import OVERVIEW_KINDS, Health, ObjectId, Row, row_of
from kuberun.errors import ApiError, Forbidden, NotFound
from kuberun.requests import Selection

if TYPE_CHECKING:
    from kuberun.cache import Cache
    from kuberun.client import Client

MAX_ROWS: Final = 20_000
_CHUNK: Final = 50

AnyKind = CustomKind[Any]


class Missing(Enum):
    """Why the objects of a kind are not shown."""

    NOT_INSTALLED = "its CRD is not installed"
    FORBIDDEN = "you may not list it"
    PARTLY = "you may list it in some namespaces only"
    NOT_WATCHED = "this operator does not watch it"
    UNREADABLE = "the API server could not list it"


@dataclass(frozen=True, slots=True)
class Gap:
    """A kind whose objects could not be listed."""

    custom: AnyKind
    why: Missing

    def __str__(self) -> str:
        return f"{self.custom.crd_name}: {self.why.value}"


class KindGap(Exception):  # noqa: N818 - not an error of the program
    """Raised by `Objects` for a kind that cannot be listed."""

    def __init__(self, why: Missing) -> None:
        super().__init__(why.value)
        self.why = why


class Objects(Protocol):
    """The objects of a cluster, decoded or `Malformed`."""

    def pages(self, custom: AnyKind) -> AsyncIterator[Iterable[Any]]:
        """Yield the objects of a kind. Raises `KindGap` if they cannot be listed."""
        ...


@dataclass(frozen=True, slots=True)
class Overview:
    """The rows of all kinds, in the order of `OVERVIEW_KINDS`."""

    rows: tuple[Row, ...] = ()
    gaps: tuple[Gap, ...] = ()
    left_out: int = 0
    """The number of objects beyond `MAX_ROWS`."""

    def counts(self, health: Health) -> dict[AnyKind, int]:
        """Return the number of rows of each kind with this health; kinds without any are left out."""
        counted: dict[AnyKind, int] = {}
        for row in self.rows:
            if row.health is health:
                counted[row.custom] = counted.get(row.custom, 0) + 1
        return counted

    def only(self, wanted: Callable[[Row], bool]) -> Overview:
        return Overview(tuple(filter(wanted, self.rows)), self.gaps, self.left_out)

    def find(self, identity: ObjectId) -> Row | None:
        return next((row for row in self.rows if row.id == identity), None)


async def gather(
    objects: Objects,
    kinds: Sequence[AnyKind] = OVERVIEW_KINDS,
    *,
    max_rows: int = MAX_ROWS,
    row: Callable[[AnyKind, Any], Row] = row_of,
) -> Overview:
    """Read every kind once."""
    rows: list[Row] = []
    gaps: list[Gap] = []
    left_out = 0
    for custom in kinds:
        try:
            async for page in objects.pages(custom):
                found = [row(custom, obj) for obj in page]
                kept = found[: max_rows - len(rows)]
                rows += kept
                left_out += len(found) - len(kept)
        except KindGap as gap:
            gaps.append(Gap(custom, gap.why))
    return Overview(tuple(rows), tuple(gaps), left_out)


class ListedObjects:
    """The objects that an API server lists now. Cluster-scoped kinds are listed for every namespace."""

    def __init__(self, client: Client, namespace: str = "") -> None:
        self._client = client
        self._namespace = namespace

    async def pages(self, custom: AnyKind) -> AsyncIterator[Iterable[Any]]:
        selection = Selection(self._namespace if custom.namespaced else "")
        try:
            async for page in self._client.pages(custom.kind(), selection):
                yield page.items
        except NotFound:  # of a list: the resource itself
            raise KindGap(Missing.NOT_INSTALLED) from None
        except Forbidden:
            raise KindGap(Missing.FORBIDDEN) from None


class CachedObjects:
    """The objects in the caches of informers; `gaps` are the kinds that have none."""

    def __init__(self, caches: Mapping[AnyKind, Cache[Any]], gaps: Mapping[AnyKind, Missing]) -> None:
        self._caches = caches
        self._gaps = gaps

    async def pages(self, custom: AnyKind) -> AsyncIterator[Iterable[Any]]:
        cache = self._caches.get(custom)
        if cache is None or custom in self._gaps:
            raise KindGap(self._gaps.get(custom, Missing.NOT_WATCHED))
        found = [*cache.objects(), *cache.malformed()]
        for start in range(0, len(found), _CHUNK):
            yield found[start : start + _CHUNK]
            await asyncio.sleep(0)  # noqa: TID251 - lets other tasks of the operator run; nothing waits for time


async def gap_of(client: Client, custom: AnyKind, namespace: str = "") -> Missing | None:
    """Return why a kind cannot be listed; None if it can. Other errors of the API server are raised."""
    source = client.source(custom.kind(), Selection(namespace if custom.namespaced else ""))
    try:
        await source.list_page(limit=1, continue_token="", resource_version="")
    except NotFound:  # of a list: the resource itself
        return Missing.NOT_INSTALLED
    except Forbidden:
        return Missing.FORBIDDEN
    except ApiError:
        raise
    return None
