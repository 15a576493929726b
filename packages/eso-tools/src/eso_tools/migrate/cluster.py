"""Reads and writes the cluster of a migration: lists objects, creates v2 objects, switches references, removes objects.

A reference is switched only if the spec of its object is still the one that was planned for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from eso_api.kinds import AnyKind
from eso_operator.stores.loading import ready_condition
from eso_tools.crds import missing_crds
from eso_tools.migrate.convert import MADE_BY, Converted
from eso_tools.migrate.inventory import CORE_KINDS, V2_GENERATORS, V2_STORES, Id, Inventory, id_of, spec_of
from eso_tools.migrate.plan import Left, Switch
from eso_tools.migrate.references import namespace_of
from eso_tools.migrate.rollback import still_needed
from kubebase.clock import Clock
from kubebase.mergepatch import difference
from kubebase.meta import JsonObject, Malformed, ObjectKey, Resource, raw
from kuberun.client import Client
from kuberun.errors import ApiError, Conflict, NotFound
from kuberun.requests import FieldValidation, WriteOptions

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_ATTEMPTS: Final = 5
_STORES: Final = frozenset((kind.group, kind.name) for kind in (*V2_STORES, *V2_GENERATORS))
_WRITES: Final = WriteOptions(MADE_BY, FieldValidation.STRICT)


class Cluster:
    """The cluster. `kinds` are the configurations that a migration may create; each wait ends after `seconds`."""

    def __init__(self, client: Client, clock: Clock, kinds: Iterable[AnyKind], seconds: float) -> None:
        self.client = client
        self.clock = clock
        self.seconds = seconds
        self._kinds: tuple[AnyKind, ...] = (*CORE_KINDS, *kinds)
        self._resources = {(kind.group, kind.name): kind.resource() for kind in self._kinds}
        self._missing: dict[tuple[str, str], AnyKind] = {}

    async def inventory(self) -> Inventory:
        """List every object that matters. A kind that is not installed has none."""
        inventory = Inventory()
        self._missing.clear()
        for kind in self._kinds:
            try:
                listed = await self.client.list(raw(kind.resource()))
            except NotFound:  # of a list: the kind itself
                self._missing[kind.group, kind.name] = kind
                continue
            for item in listed.items:
                if not isinstance(item, Malformed):
                    # Items of a list carry neither apiVersion nor kind.
                    inventory.add({"apiVersion": kind.resource().api_version, "kind": kind.name, **item})
        return inventory

    def missing_for(self, objects: Iterable[JsonObject]) -> list[str]:
        """Return a sentence about each missing CRD that the objects need, as of the last inventory."""
        needed = dict.fromkeys((id_of(obj).group, id_of(obj).kind) for obj in objects)
        return missing_crds(self._missing[each] for each in needed if each in self._missing)

    def resource(self, one: Id) -> Resource:
        return self._resources[one.group, one.kind]

    async def create(self, converted: Sequence[Converted]) -> list[tuple[Converted, str]]:
        """Create or update the v2 objects; return those that the API server refused, with the reason."""
        refused = []
        for each in converted:
            if missing := self.missing_for(each.made):
                refused.append((each, "; ".join(missing)))
                continue
            try:
                for obj in each.made:
                    kind = raw(self.resource(id_of(obj)))
                    await self.client.apply(kind, obj, field_manager=MADE_BY, force=True, options=_WRITES)
            except ApiError as problem:
                refused.append((each, str(problem)))
        return refused

    async def unready(self, converted: Sequence[Converted]) -> list[tuple[Converted, str]]:
        """Wait until the operator has validated the v2 objects; return those that are not usable, with the reason."""
        waiting = {id_of(each.store): (each, "the operator has not validated it") for each in converted}

        async def is_reconciled() -> bool:
            for one, (each, _) in list(waiting.items()):
                obj = await self.client.get(raw(self.resource(one)), _key(one))
                ready = ready_condition(obj)
                if ready is not None and ready.status != "False" and _is_current(obj):
                    del waiting[one]
                elif ready is not None:
                    waiting[one] = (each, ready.message)
            return not waiting

        await self.until(is_reconciled)
        return list(waiting.values())

    async def switch(self, switch: Switch) -> Left | None:
        """Switch the references of one object; return why not. Its status may change meanwhile, its spec may not."""
        kind, key, said = raw(self.resource(switch.id)), _key(switch.id), ""
        patch = difference(spec_of(switch.user), spec_of(switch.changed))
        for _ in range(_ATTEMPTS):
            try:
                live = await self.client.get(kind, key)
                if spec_of(live) != spec_of(switch.user):
                    said = "it was changed meanwhile"
                    break
                version = {"resourceVersion": live["metadata"]["resourceVersion"]}
                await self.client.merge_patch(kind, key, {"metadata": version, "spec": patch}, options=_WRITES)
            except Conflict as problem:
                said = str(problem)
            except ApiError as problem:
                said = str(problem)
                break
            else:
                return None
        return Left(switch.id, f"its references stay: {said}; run the command again")

    async def remove(self, obsolete: Sequence[JsonObject]) -> list[Left]:
        """Remove objects of a migration once no object refers to them; return those that stay."""
        left = {id_of(obj) for obj in obsolete}

        async def removed() -> bool:
            needed = still_needed(await self.inventory())
            # Stores before their configurations: a store without one would be reported as broken.
            for one in sorted(left - needed, key=lambda each: (each.group, each.kind) not in _STORES):
                await self.delete(one)
                left.discard(one)
            return not left

        await self.until(removed)
        return [Left(one, "it stays, because an object still refers to it") for one in sorted(left)]

    async def delete(self, one: Id) -> None:
        try:
            await self.client.delete(raw(self.resource(one)), _key(one))
        except NotFound:
            return

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> bool:
        """Poll until it holds or the time is over; return whether it does."""
        end, pause = self.clock.monotonic() + self.seconds, _FIRST_PAUSE
        while not await holds():
            if self.clock.monotonic() >= end:
                return False
            await self.clock.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        return True


def without_broken(switches: Sequence[Switch], broken: Mapping[Id, str]) -> tuple[list[Switch], list[Left]]:
    """Separate the switches to v2 objects that cannot be used."""
    good, left = [], []
    for switch in switches:
        bad = [one for one in broken if any(_is(target, one, switch) for target in switch.targets)]
        if bad:
            left.append(Left(switch.id, f"its references stay, because {bad[0]} is not usable: {broken[bad[0]]}"))
        else:
            good.append(switch)
    return good, left


def _is(target: Id, one: Id, switch: Switch) -> bool:
    if namespace_of(switch.user) is not None:
        return target == one
    return target._replace(namespace="") == one._replace(namespace="")


def _key(one: Id) -> ObjectKey:
    return ObjectKey(one.namespace, one.name)


def _is_current(obj: JsonObject) -> bool:
    """Return whether the status is about the object as it is now."""
    status = obj.get("status")
    observed = status.get("observedGeneration") if isinstance(status, dict) else None
    return observed in (None, 0, obj["metadata"].get("generation"))
