"""The providers that objects of the API server need, so that `eso up` starts each with the first object that needs it.

Providers are imported when the first object appears that can need one. Until all providers run, each change of such an
object is inspected once. After that, changes cost nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from eso_api.generators.clustergenerator import CLUSTER_GENERATOR
from eso_api.generators.generatorstate import GENERATOR_STATE
from eso_api.kinds import GENERATOR_KINDS, KINDS, AnyKind, installed_kinds
from eso_api.secretstore import CLUSTER_SECRET_STORE, SECRET_STORE
from eso_api.v2.generator import CLUSTER_GENERATOR_V2, GENERATOR
from eso_api.v2.provider import CLUSTER_PROVIDER, PROVIDER
from eso_api.v2.secretstore import CLUSTER_SECRET_STORE_V2, SECRET_STORE_V2
from eso_tools.providers import Want, offers, wanted_by
from kubebase.meta import JsonObject
from localkube.cluster import Cluster
from localkube.model import ListQuery
from localkube.storage import Change

_USERS: Final[tuple[AnyKind, ...]] = (
    SECRET_STORE,
    CLUSTER_SECRET_STORE,
    SECRET_STORE_V2,
    CLUSTER_SECRET_STORE_V2,
    PROVIDER,
    CLUSTER_PROVIDER,
    GENERATOR,
    CLUSTER_GENERATOR_V2,
    CLUSTER_GENERATOR,
    GENERATOR_STATE,  # its clean-up needs the provider that created it, also after the generator was deleted
    *GENERATOR_KINDS,
)
"""The core kinds that need a provider. Every kind that a provider defines needs one too."""


_MAX_UNSERVED: Final = 100


def _ignore(_name: str, _problem: Exception) -> None:
    """Ignore a provider that cannot be loaded: `offers` warns about it."""


class Demand:
    """The providers that have not started yet. If several serve the same kind, `running` ones take precedence."""

    def __init__(
        self, cluster: Cluster, running: Iterable[str], waiting: Iterable[str], *, warn: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._waiting = dict.fromkeys(waiting)
        self._names = (*running, *self._waiting)
        self._warn = warn
        own = [kind for kind in installed_kinds(_ignore) if kind not in KINDS]
        self._kinds = frozenset(Want(kind.group, kind.name) for kind in (*_USERS, *own))
        self._resources = frozenset(kind.crd_name for kind in (*_USERS, *own))
        self._offers: dict[Want, str] | None = None
        self._unserved: set[Want] = set()
        self._needed: dict[str, str] = {}
        self._changed_event = asyncio.Event()

    @property
    def is_met(self) -> bool:
        """Whether all providers have been started."""
        return not self._waiting

    @contextmanager
    def following(self) -> Iterator[None]:
        """Listen to changes of objects inside the block."""
        end = self._cluster.store.listen(self._note_change)
        try:
            yield
        finally:
            end()

    async def changed(self) -> None:
        """Wait until `look` may find something."""
        await self._changed_event.wait()

    async def take_needed(self) -> dict[str, str]:
        """Return providers that are newly needed, each with an object that needs it."""
        self._changed_event.clear()
        if self._offers is None:
            if self._resources.isdisjoint(self._cluster.store.resources()):
                return {}
            self._offers = await asyncio.to_thread(offers, self._names, self._warn)
            await self._note_present()
        needed, self._needed = self._needed, {}
        return needed

    async def expect(self, objects: Sequence[JsonObject]) -> None:
        """Note the needs of objects that are about to be created, so that their providers are known before them."""
        users = [obj for obj in objects if _kind_of(obj) in self._kinds]
        if not users:
            return
        if self._offers is None:
            self._offers = await asyncio.to_thread(offers, self._names, self._warn)
            await self._note_present()
        for obj in users:
            self._note(obj)

    async def _note_present(self) -> None:
        for resource in self._resources:
            if (kind := self._cluster.catalog.stored(resource)) is not None:
                for obj in (await self._cluster.list(kind, ListQuery())).items:
                    self._note(obj)

    def _note_change(self, change: Change) -> None:
        if not self._waiting or change.key.resource not in self._resources or change.type == "DELETED":
            return
        if self._offers is None:  # `look` reads all existing objects
            self._changed_event.set()
        else:
            self._note(change.object)

    def _note(self, obj: JsonObject) -> None:
        want = wanted_by(obj)
        if want is None or self._offers is None:
            return
        name = self._offers.get(want)
        if name is None:
            self._warn_unserved(want, obj)
        elif name in self._waiting:
            del self._waiting[name]
            self._needed[name] = _shown(obj)
            self._changed_event.set()

    def _warn_unserved(self, want: Want, obj: JsonObject) -> None:
        """Warn once about a kind or key that no installed provider serves."""
        if want not in self._unserved and len(self._unserved) < _MAX_UNSERVED:
            self._unserved.add(want)
            what = f"{want.name} of {want.group}" if want.group else f"spec.provider.{want.name}"
            self._warn(
                f"{_shown(obj)}: no installed provider serves {what}; `eso provider list` shows the installed ones"
            )


def _kind_of(obj: JsonObject) -> Want:
    return Want(str(obj.get("apiVersion", "")).rpartition("/")[0], str(obj.get("kind", "")))


def _shown(obj: JsonObject) -> str:
    """Name an object, which may come from a file and be incomplete."""
    metadata = obj.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    namespace, name = metadata.get("namespace", ""), metadata.get("name", "")
    return f"{obj.get('kind')} {namespace}/{name}" if namespace else f"{obj.get('kind')} {name}"
