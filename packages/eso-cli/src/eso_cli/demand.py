"""Which providers the objects of the API server need, so that `eso up` starts each one when its first user appears.

    object -> wanted_by -> Want -> offers -> name of a provider

Providers are imported when the first object appears that can need one. While a provider is not running yet, a change
of such an object costs one look at it. Once all of them run, changes cost nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from eso_api import references
from eso_api.clustersecretstore import CLUSTER_SECRET_STORE
from eso_api.generators.clustergenerator import CLUSTER_GENERATOR
from eso_api.generators.generatorstate import GENERATOR_STATE
from eso_api.kinds import GENERATOR_KINDS, KINDS, AnyKind, installed_kinds
from eso_api.secretstore import SECRET_STORE
from eso_api.v2.clustergenerator import CLUSTER_GENERATOR_V2
from eso_api.v2.clusterprovider import CLUSTER_PROVIDER
from eso_api.v2.clustersecretstore import CLUSTER_SECRET_STORE_V2
from eso_api.v2.connection import GENERATOR_CONFIG_API_VERSION, STORE_CONFIG_API_VERSION
from eso_api.v2.generator import GENERATOR
from eso_api.v2.provider import PROVIDER
from eso_api.v2.secretstore import SECRET_STORE_V2
from eso_cli.providers import load
from eso_operator.stores.loading import PLUGIN_KEY
from eso_sdk.redaction import seat
from eso_wire.values import KindRole
from kuberun.meta import JsonObject
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
    GENERATOR_STATE,  # its clean-up needs the provider that made it, also after the generator is gone
    *GENERATOR_KINDS,
)
"""The kinds of the core that need a provider. So does every kind that a provider brings along."""


class Want(NamedTuple):
    """What a provider must serve: a kind, or the key of `spec.provider` of a v1 store (then `group` is empty)."""

    group: str
    name: str


def wanted_by(obj: JsonObject) -> Want | None:
    """Say what an object needs to have served; None where it does not say."""
    group, kind = str(obj.get("apiVersion", "")).rpartition("/")[0], str(obj.get("kind", ""))
    match group, kind, obj.get("spec"):
        case (references.CORE_GROUP, "SecretStore" | "ClusterSecretStore", {"provider": dict(blocks)}):
            config = blocks.get(PLUGIN_KEY)
            if isinstance(config, dict):
                return _configured(config, STORE_CONFIG_API_VERSION)
            return Want("", next(iter(blocks))) if len(blocks) == 1 else None
        case (references.CORE_GROUP, "Provider" | "ClusterProvider", dict(spec)):
            return _configured(spec.get("config", spec), STORE_CONFIG_API_VERSION)
        case (SECRET_STORE_V2.group, _, {"providerConfig": config}):
            return _configured(config, STORE_CONFIG_API_VERSION)
        case (GENERATOR.group, _, {"providerConfig": config}):
            return _configured(config, GENERATOR_CONFIG_API_VERSION)
        case (references.GENERATORS_GROUP, "ClusterGenerator", {"kind": str(embedded)}):
            return Want(group, embedded)
        case (references.GENERATORS_GROUP, "GeneratorState", {"resource": {"kind": str(made_by)} as generator}):
            return None if made_by == kind else wanted_by(generator)
        case _:
            return Want(group, kind) if group else None


def _configured(config: Any, api_version: str) -> Want | None:
    """The kind that a connection names, by reference or inline."""
    match config:
        case {"providerRef": {"kind": str(kind)} as named} | {"inline": {"kind": str(kind)} as named}:
            return Want(str(named.get("apiVersion") or api_version).rpartition("/")[0], kind)
        case _:
            return None


def offers(names: Iterable[str], warn: Callable[[str], None]) -> dict[Want, str]:
    """Say which provider serves what; where two serve the same, the one named first. This imports all of them."""
    found: dict[Want, str] = {}
    for name in names:
        try:
            infos = load(name).kind_infos
        except Exception as problem:  # noqa: BLE001 - a provider's own code: the others must work all the same
            warn(f"provider {name} cannot be loaded: {seat(problem)}; install it again, or remove it")
            continue
        for info in infos:
            found.setdefault(Want(info.kind.group, info.kind.kind), name)
            if info.v1_provider_key:
                group = "" if info.role is KindRole.STORE else references.GENERATORS_GROUP
                found.setdefault(Want(group, info.v1_provider_key), name)
    return found


class Demand:
    """The providers that wait for their first user. `running` ones come first where several serve the same."""

    def __init__(
        self, cluster: Cluster, running: Iterable[str], waiting: Iterable[str], *, warn: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._waiting = dict.fromkeys(waiting)
        self._names = (*running, *self._waiting)
        self._warn = warn
        own = [kind for kind in installed_kinds() if kind not in KINDS]
        self._resources = frozenset(kind.crd_name for kind in (*_USERS, *own))
        self._offers: dict[Want, str] | None = None
        self._needed: dict[str, str] = {}
        self._news = asyncio.Event()

    @property
    def is_met(self) -> bool:
        """Whether every provider was needed: nothing is left to wait for."""
        return not self._waiting

    @contextmanager
    def following(self) -> Iterator[None]:
        """Hear of changes for as long as the block lasts."""
        end = self._cluster.store.listen(self._hear)
        try:
            yield
        finally:
            end()

    async def changed(self) -> None:
        """Wait until `look` may find something."""
        await self._news.wait()

    async def look(self) -> dict[str, str]:
        """Name the providers that are needed and were not named before, each with an object that needs it."""
        self._news.clear()
        if self._offers is None:
            if self._resources.isdisjoint(self._cluster.store.resources()):
                return {}
            self._offers = await asyncio.to_thread(offers, self._names, self._warn)
            await self._note_present()
        needed, self._needed = self._needed, {}
        return needed

    async def _note_present(self) -> None:
        for resource in self._resources:
            if (kind := self._cluster.catalog.stored(resource)) is not None:
                for obj in (await self._cluster.list(kind, ListQuery())).items:
                    self._note(obj)

    def _hear(self, change: Change) -> None:
        if not self._waiting or change.key.resource not in self._resources or change.type == "DELETED":
            return
        if self._offers is None:  # `look` reads everything that is there
            self._news.set()
        else:
            self._note(change.object)

    def _note(self, obj: JsonObject) -> None:
        want = wanted_by(obj)
        name = self._offers.get(want) if self._offers is not None and want is not None else None
        if name is not None and name in self._waiting:
            del self._waiting[name]
            self._needed[name] = _shown(obj)
            self._news.set()


def _shown(obj: JsonObject) -> str:
    metadata = obj["metadata"]
    namespace = metadata.get("namespace", "")
    return f"{obj['kind']} {namespace}/{metadata['name']}" if namespace else f"{obj['kind']} {metadata['name']}"
