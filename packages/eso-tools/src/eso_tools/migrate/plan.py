"""The plan of a migration: new objects, references that switch, and a sentence about everything that is left. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import msgspec

from eso_api.externalsecret import CLUSTER_EXTERNAL_SECRET
from eso_api.generators.clustergenerator import CLUSTER_GENERATOR
from eso_api.kinds import AnyKind
from eso_api.pushsecret import CLUSTER_PUSH_SECRET
from eso_api.references import LabelSelector, SelectorError
from eso_api.v2.secretstore import STORE_GROUP
from eso_tools.migrate.bridges import Bridges
from eso_tools.migrate.convert import (
    LABEL,
    MADE_BY,
    ORIGIN,
    Converted,
    RefusedError,
    convert_generator,
    convert_store,
    same_spec,
)
from eso_tools.migrate.inventory import (
    USERS,
    V1_GENERATORS,
    V1_STORES,
    V2_GENERATORS,
    V2_STORES,
    Id,
    Inventory,
    id_of,
    owned_by,
)
from eso_tools.migrate.references import Path, Site, generates, namespace_of, pushes, sites, switched
from kubebase.meta import JsonObject

_V1_KINDS: Final = frozenset((kind.group, kind.name) for kind in (*V1_STORES, *V1_GENERATORS))

_ORIGIN_STEPS: Final = 2

REGENERATES: Final = (
    "a change of the object makes its generator produce new values: run again with --regenerate if they may change"
)


@dataclass(frozen=True, slots=True)
class Switch:
    """The references of one object, and the same object with other references."""

    user: JsonObject = field(repr=False)
    changed: JsonObject = field(repr=False)
    changes: tuple[tuple[Site, JsonObject], ...]

    @property
    def id(self) -> Id:
        return id_of(self.user)

    @property
    def targets(self) -> set[Id]:
        """Return the objects that the new references name; namespaces of a cluster-scoped user are unknown."""
        return {Site(site.path, site.role, ref).target(self.id.namespace) for site, ref in self.changes}


@dataclass(frozen=True, slots=True)
class Left:
    """An object, or one of its references, that stays as it is."""

    what: Id
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


@dataclass(slots=True)
class MigrationPlan:
    """What a migration would do."""

    converted: list[Converted] = field(default_factory=list)
    switches: list[Switch] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    obsolete: list[JsonObject] = field(default_factory=list)
    """Objects of an earlier migration that a rollback removes once no object refers to them."""

    @property
    def made(self) -> list[JsonObject]:
        return [obj for each in self.converted for obj in each.made]


def plan_forth(inventory: Inventory, bridges: Bridges, *, regenerate: bool) -> MigrationPlan:
    """Plan the migration of everything in the inventory."""
    plan = MigrationPlan()
    outcomes = _Outcomes(inventory, (*V2_STORES, *V2_GENERATORS, *bridges.kinds))
    labels = frozenset(_selected_labels(inventory))
    for store in inventory.of(*V1_STORES):
        _convert(plan, outcomes, store, partial(convert_store, store, bridges, labels))
    names = _GeneratorNames(inventory)
    for generator in inventory.of(*V1_GENERATORS):
        name = names.name_for(id_of(generator))
        _convert(plan, outcomes, generator, partial(convert_generator, generator, bridges, name))
    for user in inventory.of(*USERS):
        _switch(plan, outcomes, user, regenerate=regenerate)
    return plan


def _convert(plan: MigrationPlan, outcomes: _Outcomes, obj: JsonObject, convert: Callable[[], Converted]) -> None:
    origin = id_of(obj)
    try:
        made = convert()
        found = {id_of(each): outcomes.inventory.get(id_of(each)) for each in made.objects}
        for each in made.objects:
            _check_free(found[id_of(each)], each, outcomes.kinds[id_of(each)[:2]])
        made = replace(made, existing=frozenset(one for one, obj in found.items() if obj and not is_made(obj)))
    except RefusedError as problem:
        plan.left.append(Left(origin, str(problem)))
        outcomes.refused.add(origin)
        return
    plan.converted.append(made)
    outcomes.converted[origin] = made


def _check_free(found: JsonObject | None, wanted: JsonObject, kind: AnyKind) -> None:
    """Refuse to overwrite an object that people wrote, unless it says the same."""
    if found is None or same_spec(kind, found, wanted):
        return
    if is_made(found) and origin_of(found) == origin_of(wanted):
        return
    raise RefusedError(
        f"{id_of(found)} of {id_of(found).group} exists and differs from what the migration would create: delete or"
        " rename it, or write the references yourself"
    )


def origin_of(obj: JsonObject) -> Id:
    """Return the v1 object that a migration created this one for."""
    group, kind, name = str(obj["metadata"]["annotations"][ORIGIN]).split("/", 2)
    return Id(group, kind, id_of(obj).namespace, name)


def is_made(obj: JsonObject) -> bool:
    """Return whether a migration created the object."""
    metadata = obj["metadata"]
    origin = (metadata.get("annotations") or {}).get(ORIGIN, "")
    return (metadata.get("labels") or {}).get(LABEL) == MADE_BY and origin.count("/") == _ORIGIN_STEPS


def _switch(plan: MigrationPlan, outcomes: _Outcomes, user: JsonObject, *, regenerate: bool) -> None:
    if owned_by(user, CLUSTER_EXTERNAL_SECRET, CLUSTER_PUSH_SECRET):
        return  # it follows its parent
    identity = id_of(user)
    changes: list[tuple[Site, JsonObject]] = []
    refused = False
    for site in sites(user):
        if (site.group, site.kind) not in _V1_KINDS:
            continue
        try:
            changes.append((site, outcomes.successor(site, user)))
        except RefusedError as problem:
            plan.left.append(Left(identity, f"{site} stays: {problem}"))
            refused = True
    if not (refused and pushes(user)):
        add_switch(plan, user, changes, regenerate=regenerate)


def add_switch(
    plan: MigrationPlan, user: JsonObject, changes: Sequence[tuple[Site, JsonObject]], *, regenerate: bool
) -> None:
    """Plan the switch of one object, unless that would generate new values."""
    if not changes:
        return
    if generates(user) and not regenerate:
        plan.left.append(Left(id_of(user), REGENERATES))
        return
    by_path: dict[Path, JsonObject] = {site.path: ref for site, ref in changes}
    plan.switches.append(Switch(user, switched(user, by_path), tuple(changes)))


class _Outcomes:
    """What became of each v1 object, and the references that follow from it."""

    def __init__(self, inventory: Inventory, kinds: Sequence[AnyKind]) -> None:
        self.inventory = inventory
        self.kinds = {(kind.group, kind.name): kind for kind in kinds}
        self.converted: dict[Id, Converted] = {}
        self.refused: set[Id] = set()

    def successor(self, site: Site, user: JsonObject) -> JsonObject:
        """Return the reference to the v2 object. Raises RefusedError if not every object that is meant has one."""
        namespace = namespace_of(user)
        if site.selector is not None:
            return self._selected(site, namespace)
        known = [*self.converted, *self.refused]
        if namespace is None and not site.kind.startswith("Cluster"):
            meant = [one for one in known if (one.group, one.kind, one.name) == (site.group, site.kind, site.name)]
        else:
            meant = [one for one in known if one == site.target(namespace or "")]
        if not meant:
            raise RefusedError(f"{site.kind} {site.name} is not among the objects that were read")
        refs = [self._made(one).reference for one in meant]
        if any(ref != refs[0] for ref in refs):
            raise RefusedError(f"{site.kind} {site.name} has successors of different names in several namespaces")
        return refs[0]

    def _selected(self, site: Site, namespace: str | None) -> JsonObject:
        """Return the same selector for v2 stores, if it selects the successors and no other store."""
        v1, v2 = (
            selected(self.inventory, V1_STORES, site, namespace),
            selected(self.inventory, V2_STORES, site, namespace),
        )
        made = {id_of(self._made(one).store) for one in v1}
        if not made or v2 - made:
            extra = ", ".join(str(one) for one in sorted(v2 - made))
            raise RefusedError(
                f"its labelSelector would also select {extra}" if extra else "its labelSelector selects no store"
            )
        return {**site.ref, "apiVersion": f"{STORE_GROUP}/{V2_STORES[0].versions[0]}", "kind": site.kind}

    def _made(self, one: Id) -> Converted:
        if one not in self.converted:
            raise RefusedError(f"{one} is not migrated")
        return self.converted[one]


def selected(inventory: Inventory, kinds: Sequence[AnyKind], site: Site, namespace: str | None) -> set[Id]:
    """Return the stores of these kinds that a labelSelector selects. Raises RefusedError if it is not valid."""
    found = set()
    try:
        selector = msgspec.convert(site.selector, LabelSelector)
        for obj in inventory.of(*kinds):
            one = id_of(obj)
            near = one.kind == site.kind and (namespace is None or one.namespace in ("", namespace))
            if near and selector.matches(obj["metadata"].get("labels") or {}):
                found.add(one)
    except (SelectorError, msgspec.ValidationError) as problem:
        raise RefusedError(f"its labelSelector is not valid: {problem}") from None
    return found


def _selected_labels(inventory: Inventory) -> Iterator[str]:
    """Yield the keys of labels that references select stores by: their successors need them too."""
    for user in inventory.of(*USERS):
        for site in sites(user):
            selector = site.selector or {}
            yield from selector.get("matchLabels") or {}
            for each in selector.get("matchExpressions") or ():
                if isinstance(each, dict) and isinstance(each.get("key"), str):
                    yield each["key"]


class _GeneratorNames:
    """Names for Generators: one kind takes the place of many, so that two generators may have the same name.

    A generator keeps the name that an earlier migration gave it.
    """

    def __init__(self, inventory: Inventory) -> None:
        made = [obj for obj in inventory.of(*V2_GENERATORS) if is_made(obj)]
        self._names = {origin_of(obj): id_of(obj).name for obj in made}
        self._taken = {(origin.namespace, name) for origin, name in self._names.items()}

    def name_for(self, origin: Id) -> str:
        """Return the name; with the kind appended if another generator of the namespace has it."""
        if origin.kind == CLUSTER_GENERATOR.name:
            return origin.name
        if origin not in self._names:
            taken = (origin.namespace, origin.name) in self._taken
            self._names[origin] = f"{origin.name}-{origin.kind.lower()}" if taken else origin.name
            self._taken.add((origin.namespace, self._names[origin]))
        return self._names[origin]
