"""From sources and stores to deliveries: template, selection, and which source wins a place.

All of it happens before the first push: what is wrong in the spec stops everything, not half of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from eso_api.pushsecret import PushSecret
from eso_operator.pushsecret.places import Known, Place
from eso_operator.pushsecret.push import Delivery, Parcel
from eso_operator.pushsecret.records import Spot, spot_of, spots_of
from eso_operator.pushsecret.select import Entry, entries_for
from eso_operator.pushsecret.snapshot import Chosen
from eso_operator.pushsecret.sources import Source, caller_of
from eso_render.scopes import RenderText
from eso_render.secret import render_push
from eso_render.sources import TemplateObjects
from eso_wire.values import SourceSecret


def templated(push: PushSecret, source: Source, objects: TemplateObjects, render: RenderText) -> Source:
    """The source as its template makes it. Its own keys stay; type, labels and annotations follow the template."""
    template = push.spec.template
    if template is None:
        return source
    desired = render_push(template, source.values, objects=objects, render=render)
    about = SourceSecret(
        type=desired.type,
        labels={**source.about.labels, **desired.labels},
        annotations={**source.about.annotations, **desired.annotations},
    )
    return replace(source, about=about, values=desired.data)


def deliveries(
    push: PushSecret,
    stores: Sequence[Chosen],
    *,
    sources: Sequence[Source],
    known: Mapping[Place, Known],
    render: RenderText,
) -> Iterator[Delivery]:
    """One for each store. Raises EntryError."""
    for store in stores:
        yield Delivery(
            store=store,
            parcels=tuple(_parcels(push, store, sources, render)),
            spec=push.spec,
            caller=caller_of(push),
            ours=spots_of(push.status.synced_push_secrets, store.key),
            known=known,
        )


def _parcels(push: PushSecret, store: Chosen, sources: Sequence[Source], render: RenderText) -> Iterator[Parcel]:
    """What each source gives. Where several give to one place, the last in the order of names does."""
    selected = [(source, entries_for(store, push.spec, source.values, render=render)) for source in sources]
    winner: dict[Spot, str] = {spot_of(entry.data): source.name for source, entries in selected for entry in entries}
    for source, entries in selected:
        won: tuple[Entry, ...] = tuple(entry for entry in entries if winner[spot_of(entry.data)] == source.name)
        if won:
            yield Parcel(source.about, won)
