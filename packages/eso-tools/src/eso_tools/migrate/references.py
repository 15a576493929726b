"""Where ExternalSecrets, PushSecrets and their cluster-scoped forms name stores and generators."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from eso_api.externalsecret import CLUSTER_EXTERNAL_SECRET, EXTERNAL_SECRET
from eso_api.pushsecret import CLUSTER_PUSH_SECRET
from eso_api.references import CORE_GROUP, GENERATORS_API_VERSION
from eso_tools.migrate.inventory import Id, id_of, spec_of
from eso_wire.values import KindRole
from kubebase import durations
from kubebase.meta import JsonObject

Path = tuple[str | int, ...]

_TEMPLATES: Final = {CLUSTER_EXTERNAL_SECRET.name: "externalSecretSpec", CLUSTER_PUSH_SECRET.name: "pushSecretSpec"}
_READERS: Final = (EXTERNAL_SECRET.name, CLUSTER_EXTERNAL_SECRET.name)


@dataclass(frozen=True, slots=True)
class Site:
    """One reference in one object."""

    path: Path
    role: KindRole
    ref: JsonObject

    @property
    def group(self) -> str:
        assumed = f"{CORE_GROUP}/v1" if self.role is KindRole.STORE else GENERATORS_API_VERSION
        return str(self.ref.get("apiVersion") or assumed).rpartition("/")[0]

    @property
    def kind(self) -> str:
        return str(self.ref.get("kind") or "SecretStore")

    @property
    def name(self) -> str:
        return str(self.ref.get("name") or "")

    @property
    def selector(self) -> JsonObject | None:
        """Return the labels that select stores; it wins over the name."""
        found = self.ref.get("labelSelector")
        return found if isinstance(found, dict) else None

    def target(self, namespace: str) -> Id:
        """Return the object that is meant, for a user in this namespace."""
        return Id(self.group, self.kind, "" if self.kind.startswith("Cluster") else namespace, self.name)

    def __str__(self) -> str:
        steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path]
        return "".join(steps).removeprefix(".")


def sites(user: JsonObject) -> Iterator[Site]:
    """Yield every reference of a user of stores and generators, in the order of its fields."""
    kind, spec = str(user["kind"]), spec_of(user)
    above: Path = ("spec",)
    if (nested := _TEMPLATES.get(kind)) is not None:
        above, spec = ("spec", nested), _object(spec.get(nested))
    found = _of_reader(spec) if kind in _READERS else _of_pusher(spec)
    yield from (Site((*above, *path), role, ref) for path, role, ref in found if isinstance(ref, dict))


def switched(user: JsonObject, changes: Mapping[Path, JsonObject]) -> JsonObject:
    """Return the object with other references in these places."""
    changed = copy.deepcopy(user)
    for path, ref in changes.items():
        holder: Any = changed
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = ref
    return changed


def pushes(user: JsonObject) -> bool:
    """Return whether the object pushes. Its references switch together: dataTo must name stores of secretStoreRefs."""
    return user["kind"] not in _READERS


def generates(user: JsonObject) -> bool:
    """Return whether a change of the object makes a generator produce new values."""
    if all(site.role is KindRole.STORE for site in sites(user)):
        return False
    spec = spec_of(user)
    spec = _object(spec.get(_TEMPLATES[user["kind"]])) if user["kind"] in _TEMPLATES else spec
    if pushes(user):
        return True
    policy = spec.get("refreshPolicy") or "Periodic"
    return policy == "OnChange" or (policy == "Periodic" and _interval(spec) > 0)


def _interval(spec: JsonObject) -> float:
    try:
        return durations.seconds(spec.get("refreshInterval", "1h"), field="spec.refreshInterval")
    except durations.DurationError:
        return 1.0  # the operator takes its default


def _of_reader(spec: JsonObject) -> Iterator[tuple[Path, KindRole, Any]]:
    yield ("secretStoreRef",), KindRole.STORE, spec.get("secretStoreRef")
    for field in ("data", "dataFrom"):
        for index, entry in _entries(spec, field):
            source = _object(entry.get("sourceRef"))
            yield (field, index, "sourceRef", "storeRef"), KindRole.STORE, source.get("storeRef")
            yield (field, index, "sourceRef", "generatorRef"), KindRole.GENERATOR, source.get("generatorRef")


def _of_pusher(spec: JsonObject) -> Iterator[tuple[Path, KindRole, Any]]:
    for index, ref in _entries(spec, "secretStoreRefs"):
        yield ("secretStoreRefs", index), KindRole.STORE, ref
    generator = _object(spec.get("selector")).get("generatorRef")
    yield ("selector", "generatorRef"), KindRole.GENERATOR, generator
    for index, entry in _entries(spec, "dataTo"):
        yield ("dataTo", index, "storeRef"), KindRole.STORE, entry.get("storeRef")


def _entries(spec: JsonObject, field: str) -> list[tuple[int, JsonObject]]:
    listed = spec.get(field)
    return [(index, each) for index, each in enumerate(listed if isinstance(listed, list) else []) if _object(each)]


def _object(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


def namespace_of(user: JsonObject) -> str | None:
    """Return the namespace in which references are looked up; None for a cluster-scoped user, which has many."""
    return None if user["kind"] in _TEMPLATES else id_of(user).namespace
