"""The objects that a migration reads: from files, or from a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from eso_api.externalsecret import CLUSTER_EXTERNAL_SECRET, EXTERNAL_SECRET
from eso_api.generators.clustergenerator import CLUSTER_GENERATOR
from eso_api.generators.generatorstate import GENERATOR_STATE
from eso_api.kinds import GENERATOR_KINDS, AnyKind
from eso_api.pushsecret import CLUSTER_PUSH_SECRET, PUSH_SECRET
from eso_api.secretstore import CLUSTER_SECRET_STORE, SECRET_STORE
from eso_api.v2.generator import CLUSTER_GENERATOR_V2, GENERATOR
from eso_api.v2.secretstore import CLUSTER_SECRET_STORE_V2, SECRET_STORE_V2
from eso_tools.manifests import STDIN, InputError, read_manifests, without_manifests
from kubebase.meta import JsonObject

V1_STORES: Final[tuple[AnyKind, ...]] = (SECRET_STORE, CLUSTER_SECRET_STORE)
V1_GENERATORS: Final[tuple[AnyKind, ...]] = (*GENERATOR_KINDS, CLUSTER_GENERATOR)
V2_STORES: Final[tuple[AnyKind, ...]] = (SECRET_STORE_V2, CLUSTER_SECRET_STORE_V2)
V2_GENERATORS: Final[tuple[AnyKind, ...]] = (GENERATOR, CLUSTER_GENERATOR_V2)
USERS: Final[tuple[AnyKind, ...]] = (EXTERNAL_SECRET, CLUSTER_EXTERNAL_SECRET, PUSH_SECRET, CLUSTER_PUSH_SECRET)
CORE_KINDS: Final = (*V1_STORES, *V1_GENERATORS, *V2_STORES, *V2_GENERATORS, *USERS, GENERATOR_STATE)

_SUFFIXES: Final = (".yaml", ".yml", ".json")


class Id(NamedTuple):
    """An object by group, kind, namespace and name. Versions of one group name the same object."""

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


def id_of(obj: JsonObject) -> Id:
    metadata = obj["metadata"]
    group = str(obj["apiVersion"]).rpartition("/")[0]
    return Id(group, str(obj["kind"]), str(metadata.get("namespace") or ""), str(metadata["name"]))


def spec_of(obj: JsonObject) -> JsonObject:
    spec = obj.get("spec")
    return spec if isinstance(spec, dict) else {}


class Inventory:
    """Objects by identity."""

    def __init__(self, objects: Iterable[JsonObject] = ()) -> None:
        self._objects: dict[Id, JsonObject] = {}
        for obj in objects:
            self.add(obj)

    def add(self, obj: JsonObject) -> None:
        self._objects[id_of(obj)] = obj

    def get(self, identity: Id) -> JsonObject | None:
        return self._objects.get(identity)

    def of(self, *kinds: AnyKind) -> Iterator[JsonObject]:
        """Yield the objects of these kinds, in order of namespace, kind and name."""
        wanted = {(kind.group, kind.name) for kind in kinds}
        found = [each for each in self._objects if (each.group, each.kind) in wanted]
        for each in sorted(found, key=lambda one: (one.namespace, one.group, one.kind, one.name)):
            yield self._objects[each]

    def __iter__(self) -> Iterator[JsonObject]:
        return iter(self._objects.values())


def read_files(places: Iterable[str]) -> Inventory:
    """Return the objects of files and folders; `-` is standard input. Raises InputError."""
    inventory = Inventory()
    for place in places:
        documents = [document for file in _files(place) for document in read_manifests(file)]
        if not documents:
            raise InputError(without_manifests(place))
        for document in documents:
            match document.content:
                case {"apiVersion": str(), "kind": str(), "metadata": {"name": str()}}:
                    inventory.add(document.content)
                case {"apiVersion": str(), "kind": str()}:
                    continue  # without a name it can neither be a store nor be changed
                case _:
                    raise document.problem(
                        (), "this is not a Kubernetes object: it needs apiVersion, kind and metadata"
                    )
    return inventory


def _files(place: str) -> list[str]:
    path = Path(place)
    if place != STDIN and not path.exists():
        raise InputError(f"{place}: no such file or folder")
    if place == STDIN or not path.is_dir():
        return [place]
    return [str(file) for file in sorted(path.rglob("*")) if file.suffix in _SUFFIXES and file.is_file()]


def owned_by(obj: JsonObject, *kinds: AnyKind) -> bool:
    """Return whether an object of one of these kinds maintains this one."""
    owners: list[Any] = obj["metadata"].get("ownerReferences") or []
    names = {kind.name for kind in kinds}
    return any(isinstance(owner, dict) and owner.get("kind") in names for owner in owners)
