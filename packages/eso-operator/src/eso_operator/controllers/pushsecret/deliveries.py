"""Builds deliveries from sources and stores: template, selection, and the source that wins a place.

This happens before the first push, so an error in the spec stops everything and leaves no partial push.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from eso_api.pushsecret import PushSecret, PushSecretSpec
from eso_api.values import SecretBytes
from eso_operator.controllers.pushsecret.places import Known, Place
from eso_operator.controllers.pushsecret.push import Delivery, Parcel
from eso_operator.controllers.pushsecret.records import Spot, spot_of, spots_of
from eso_operator.controllers.pushsecret.select import Entry, Selection
from eso_operator.controllers.pushsecret.snapshot import Chosen
from eso_operator.controllers.pushsecret.sources import Source, caller_of
from eso_operator.controllers.pushsecret.stores import targets_store
from eso_render.secret import Desired
from eso_wire.values import SourceSecret


def templated(source: Source, desired: Desired) -> Source:
    """Return the source after its template. Its own keys stay; type, labels and annotations follow the template."""
    about = SourceSecret(
        type=desired.type,
        labels={**source.about.labels, **desired.labels},
        annotations={**source.about.annotations, **desired.annotations},
    )
    return replace(source, about=about, values=desired.data)


def selections(push: PushSecret, stores: Sequence[Chosen], sources: Sequence[Source]) -> tuple[Selection, ...]:
    """Return the selection of each store from each source, in order. Raises SelectorError."""
    return tuple(selection_for(store, push.spec, source.values) for store in stores for source in sources)


def selection_for(store: Chosen, spec: PushSecretSpec, values: Mapping[str, SecretBytes]) -> Selection:
    """Return the selection of one store from one source."""
    rules = [
        (index, rule)
        for index, rule in enumerate(spec.data_to)
        if rule.store_ref is not None and targets_store(rule.store_ref, store)
    ]
    return Selection(spec.data, rules, values)


def deliveries(
    push: PushSecret,
    stores: Sequence[Chosen],
    *,
    sources: Sequence[Source],
    known: Mapping[Place, Known],
    selected: Sequence[tuple[Entry, ...]],
) -> Iterator[Delivery]:
    """Yield one delivery for each store, from the results of `selections`."""
    entries = iter(selected)
    for store in stores:
        given = [(source, next(entries)) for source in sources]
        yield Delivery(
            store=store,
            parcels=tuple(_parcels(given)),
            spec=push.spec,
            caller=caller_of(push),
            ours=spots_of(push.status.synced_push_secrets, store.key),
            known=known,
        )


def _parcels(selected: Sequence[tuple[Source, tuple[Entry, ...]]]) -> Iterator[Parcel]:
    """Yield the values of each source. If several sources have a value for one place, the last by name wins."""
    winner: dict[Spot, str] = {spot_of(entry.data): source.name for source, entries in selected for entry in entries}
    for source, entries in selected:
        won: tuple[Entry, ...] = tuple(entry for entry in entries if winner[spot_of(entry.data)] == source.name)
        if won:
            yield Parcel(source.about, won)
