"""Records that follow their place: a PushSecret that names another store of the same backend keeps its values.

`status.syncedPushSecrets` names stores. If a PushSecret switches from a v1 store to a v2 store, or back, the entries of
the former store are in the same place as the new ones. Without this step they would count as obsolete: with
`deletionPolicy: Delete` the operator would delete the values that it has just pushed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eso_api.pushsecret import PushSecret
from eso_operator.controllers.pushsecret.outcome import Records
from eso_operator.controllers.pushsecret.push import BoundDelivery
from eso_operator.controllers.pushsecret.records import Pushed, spot_of, union
from eso_operator.controllers.pushsecret.removal import REMOVAL
from eso_operator.controllers.pushsecret.sources import caller_of
from eso_operator.controllers.pushsecret.stores import StoreChooser
from eso_operator.stores.resolved import Bind, BoundStore, ResolutionError, same_backend
from eso_operator.stores.resolver import Resolver
from eso_wire.errors import ProviderError


class Moves:
    """Finds the records of former stores whose backend a PushSecret still pushes to. The process has one."""

    def __init__(self, resolver: Resolver, bind: Bind, chooser: StoreChooser) -> None:
        self._resolver = resolver
        self._bind = bind
        self._chooser = chooser

    async def followed(
        self, push: PushSecret, deliveries: Sequence[BoundDelivery], ours: Records
    ) -> tuple[tuple[BoundDelivery, ...], Records]:
        """Return deliveries and records in which entries of a former store belong to its successor."""
        current = {each.delivery.store.key for each in deliveries}
        found = tuple(deliveries)
        for former in [store for store in ours if store not in current]:
            bound = await self._bound(push, former) if found else None
            heir = None if bound is None else _heir(found, bound)
            if heir is not None:
                moved = ours[former]
                ours = _renamed(ours, former, heir.delivery.store.key)
                found = tuple(_owning(each, moved) if each is heir else each for each in found)
        return found, ours

    async def _bound(self, push: PushSecret, store: str) -> BoundStore | None:
        """Return the former store; None if it is unusable: then its entries stay where they are recorded."""
        try:
            ref = await self._chooser.by_key(store, push)
            return await self._bind(await self._resolver.resolve(ref, caller_of(push), REMOVAL))
        except (ResolutionError, ProviderError):
            return None


def _heir(deliveries: Sequence[BoundDelivery], former: BoundStore) -> BoundDelivery | None:
    return next((each for each in deliveries if each.bound is not None and same_backend(each.bound, former)), None)


def _owning(way: BoundDelivery, moved: Sequence[Pushed]) -> BoundDelivery:
    """Return the delivery with these entries as ours, so that IfNotExists does not take them for foreign ones."""
    ours = way.delivery.ours | {spot_of(each.data) for each in moved}
    return replace(way, delivery=replace(way.delivery, ours=ours))


def _renamed(ours: Records, former: str, heir: str) -> Records:
    rest = {store: entries for store, entries in ours.items() if store != former}
    return union(rest, {heir: ours[former]})
