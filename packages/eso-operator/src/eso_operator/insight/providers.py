"""Facts about stores, generators and the providers behind them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from eso_api.conditions import READY
from eso_operator.controllers.secretstore.kinds import STORE_KINDS
from eso_operator.insight.evidence import Evidence, Source
from eso_operator.insight.facts import Fact, Mark, other_conditions, ready_of, verdict
from eso_operator.insight.sights import Look, Sight
from eso_operator.insight.ways import DEPENDS_ON_FLAGS, ENDPOINT, GATE, HANDSHAKE
from eso_operator.stores.resolve import Stage
from eso_operator.stores.resolved import Reason
from kuberun.conditions import is_true

EXISTS: Final = "it exists"

_VALIDATED: Final = frozenset(kind.custom.name for kind in STORE_KINDS)


def source_facts(evidence: Evidence) -> Iterator[Fact]:
    """Return one fact for each store or generator, with its provider below."""
    works = is_true(evidence.sight.conditions, READY)
    yield from (source_fact(source, works=works) for source in evidence.sources)
    if evidence.left_out:
        yield Fact("store", Mark.OPEN, f"and {evidence.left_out} more", "not looked at")


def source_fact(source: Source, *, works: bool = False) -> Fact:
    """Return the fact about a store or generator. `works`: an object uses it successfully."""
    sight, ready, stage = source.sight, ready_of(source.sight.conditions), source.way.failed
    name, subject = "store" if sight.kind in _VALIDATED else "generator", str(sight)
    if sight.look is not Look.FOUND:
        state = stage.reason.value if stage is not None and stage.reason is not None else ""
        return Fact(name, unseen(sight), subject, state, sight.why)
    below, notes = tuple(_providers(source, works=works)), other_conditions(sight.conditions)
    refused = stage if stage is not None and stage.name not in (ENDPOINT, GATE, HANDSHAKE) else None
    if ready is not None and ready.status == "False":
        return Fact(name, Mark.BAD, subject, ready.reason, ready.message, notes, below)
    if refused is not None and refused.reason is not None:
        mark = Mark.OPEN if refused.reason in DEPENDS_ON_FLAGS else Mark.BAD
        return Fact(name, mark, subject, refused.reason.value, refused.detail, notes, below)
    if ready is not None and (ready.status == "True" or ready.reason == Reason.REFERENT_AUTH):
        return Fact(name, Mark.GOOD, subject, ready.reason, notes=notes, below=below)
    if ready is not None:
        return Fact(name, Mark.OPEN, subject, ready.reason, ready.message, notes, below)
    if sight.kind in _VALIDATED:
        return Fact(name, Mark.OPEN, subject, "not validated yet", below=below)
    return Fact(name, Mark.GOOD, subject, EXISTS, notes=notes, below=below)


def class_fact(sight: Sight) -> Fact:
    """Return the fact about a provider: its class, or a Service or address without one."""
    ready, subject = ready_of(sight.conditions), f"provider {sight}"
    if sight.look is not Look.FOUND:
        return Fact("provider", unseen(sight), subject, sight.why)
    if ready is None:
        return Fact("provider", Mark.OPEN, subject, EXISTS)
    message = "" if ready.status == "True" else ready.message
    notes = (sight.address,) if sight.address else ()
    return Fact("provider", verdict(ready), subject, ready.reason, message, notes)


def unseen(sight: Sight) -> Mark:
    return {Look.FOUND: Mark.GOOD, Look.ABSENT: Mark.BAD, Look.HIDDEN: Mark.OPEN}[sight.look]


def _providers(source: Source, *, works: bool) -> Iterator[Fact]:
    way, stage = source.way, source.way.failed
    unconnected = stage is not None and stage.reason is Reason.NOT_CONNECTED
    if way.provider is not None:
        if not (unconnected and is_true(way.provider.conditions, READY)):
            yield class_fact(way.provider)
        # Else the class still has the address of a former process, with which the operator was connected.
    elif way.hidden:
        yield Fact("provider", Mark.OPEN, "provider", "not known", way.hidden)
    if stage is not None and stage.reason is not None and stage.name in (ENDPOINT, HANDSHAKE):
        yield Fact("provider", _blame(source, stage, works=works), "provider", stage.reason.value, stage.detail)


def _blame(source: Source, stage: Stage, *, works: bool) -> Mark:
    """Return bad, or open if a flag of the operator may permit it: a working object shows that it does."""
    works = works or is_true(source.sight.conditions, READY)
    return Mark.OPEN if works and stage.reason in DEPENDS_ON_FLAGS else Mark.BAD
