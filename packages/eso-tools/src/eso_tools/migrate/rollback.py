"""The way back: references name v1 objects again, and objects of a migration become obsolete. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from eso_api.externalsecret import CLUSTER_EXTERNAL_SECRET
from eso_api.generators.generatorstate import GENERATOR_STATE
from eso_api.pushsecret import CLUSTER_PUSH_SECRET
from eso_api.references import CORE_GROUP, GENERATORS_API_VERSION
from eso_operator.controllers.pushsecret.record import split_key
from eso_tools.migrate.convert import RefusedError
from eso_tools.migrate.inventory import (
    USERS,
    V1_STORES,
    V2_GENERATORS,
    V2_STORES,
    Id,
    Inventory,
    id_of,
    owned_by,
    spec_of,
)
from eso_tools.migrate.plan import Left, MigrationPlan, add_switch, is_made, origin_of, selected
from eso_tools.migrate.references import Site, namespace_of, pushes, sites
from kubebase.meta import JsonObject

_V2_KINDS = frozenset((kind.group, kind.name) for kind in (*V2_STORES, *V2_GENERATORS))


def plan_back(inventory: Inventory, *, regenerate: bool) -> MigrationPlan:
    """Plan the way back for every reference to an object that a migration created."""
    plan = MigrationPlan(obsolete=[obj for obj in inventory if is_made(obj)])
    for user in inventory.of(*USERS):
        if owned_by(user, CLUSTER_EXTERNAL_SECRET, CLUSTER_PUSH_SECRET):
            continue
        changes: list[tuple[Site, JsonObject]] = []
        refused = False
        for site in sites(user):
            if (site.group, site.kind) not in _V2_KINDS:
                continue
            try:
                if (ref := _predecessor(inventory, site, user)) is not None:
                    changes.append((site, ref))
            except RefusedError as problem:
                plan.left.append(Left(id_of(user), f"{site} stays: {problem}"))
                refused = True
        if not (refused and pushes(user)):
            add_switch(plan, user, changes, regenerate=regenerate)
    return plan


def _predecessor(inventory: Inventory, site: Site, user: JsonObject) -> JsonObject | None:
    """Return the reference to the v1 object; None if no migration created the object that is named."""
    namespace = namespace_of(user)
    if site.selector is not None:
        return _selected(inventory, site, namespace)
    meant = [obj for obj in inventory.of(*V2_STORES, *V2_GENERATORS) if _is_meant(site, id_of(obj), namespace)]
    if not meant or not all(map(is_made, meant)):
        return None
    origins = {origin_of(obj) for obj in meant}
    for origin in sorted(origins):
        if inventory.get(origin) is None:
            raise RefusedError(f"{origin} of {origin.group} does not exist: create it again first")
    refs = [_reference(origin) for origin in sorted(origins)]
    if any(ref != refs[0] for ref in refs):
        raise RefusedError(f"{site.kind} {site.name} was made from different objects in several namespaces")
    return refs[0]


def _is_meant(site: Site, one: Id, namespace: str | None) -> bool:
    if namespace is None:
        return (one.group, one.kind, one.name) == (site.group, site.kind, site.name)
    return one == site.target(namespace)


def _selected(inventory: Inventory, site: Site, namespace: str | None) -> JsonObject | None:
    v2 = [inventory.get(one) for one in selected(inventory, V2_STORES, site, namespace)]
    made = [obj for obj in v2 if obj is not None and is_made(obj)]
    if not made:
        return None
    if len(made) < len(v2) or {origin_of(obj) for obj in made} != selected(inventory, V1_STORES, site, namespace):
        raise RefusedError("its labelSelector selects other stores among v1 stores")
    return {name: value for name, value in site.ref.items() if name != "apiVersion"} | {"kind": site.kind}


def _reference(origin: Id) -> JsonObject:
    ref: JsonObject = {"kind": origin.kind, "name": origin.name}
    return ref if origin.group == CORE_GROUP else {"apiVersion": GENERATORS_API_VERSION, **ref}


# --- what may be removed ---------------------------------------------------------------------------------------------


def still_needed(inventory: Inventory) -> set[Id]:
    """Return the v2 objects that an object refers to: by a reference, a record of a push, or a generated state."""
    found: set[Id] = set()
    for user in inventory.of(*USERS):
        found |= set(_named(inventory, user))
    for state in inventory.of(GENERATOR_STATE):
        match spec_of(state).get("resource"):
            case {"apiVersion": str(version), "kind": str(kind), "metadata": {"name": str(name)}}:
                namespace = "" if kind.startswith("Cluster") else id_of(state).namespace
                found.add(Id(version.rpartition("/")[0], kind, namespace, name))
    return found | set(_configurations(inventory, found))


def _named(inventory: Inventory, user: JsonObject) -> Iterator[Id]:
    namespace = namespace_of(user)
    for site in sites(user):
        if site.selector is not None:
            yield from selected(inventory, V2_STORES, site, namespace)
        elif namespace is not None:
            yield site.target(namespace)
        else:
            yield from (id_of(obj) for obj in inventory if _is_meant(site, id_of(obj), None))
    status = user.get("status")
    recorded = status.get("syncedPushSecrets") if isinstance(status, dict) else None
    for key in recorded if isinstance(recorded, dict) else ():
        group, kind, name = split_key(key)
        yield Id(group, kind, "" if kind.startswith("Cluster") else namespace or "", name)


def _configurations(inventory: Inventory, stores: Iterable[Id]) -> Iterator[Id]:
    """Yield the configuration objects of stores and generators that are needed."""
    for one in stores:
        obj = inventory.get(one)
        if obj is None or (one.group, one.kind) not in _V2_KINDS:
            continue
        for each in inventory:
            if is_made(obj) and is_made(each) and origin_of(each) == origin_of(obj):
                yield id_of(each)
