"""Plans the steps that are due for the certificates of one provider Service. Pure; `bundle.py` explains the phases."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from eso_operator.certificates import authority
from eso_operator.certificates.bundle import (
    Authorities,
    DropPrevious,
    FoundAuthority,
    Identity,
    IssueLeaf,
    IssuerStep,
    Leaf,
    LeafStep,
    Lifetimes,
    Phase,
    Plan,
    PrepareAuthority,
    PublishTrust,
    Role,
    State,
    SwitchAuthority,
)

MAX_PREVIOUS: Final = 8


def plan(state: State, now: datetime, lifetimes: Lifetimes, identity: Identity) -> Plan:
    step = _issuer_step(state, now, lifetimes)
    if step is not None:
        return Plan((step,), now)
    steps = [found for role in Role if (found := _leaf_step(state, role, now, lifetimes, identity)) is not None]
    if steps:
        return Plan(tuple(steps), now)
    upcoming = [moment for moment in _moments(state, lifetimes) if moment > now]
    return Plan((), min(upcoming, default=now + lifetimes.leaf))


def _issuer_step(state: State, now: datetime, lifetimes: Lifetimes) -> IssuerStep | None:
    issuer = state.issuer
    if issuer is None:
        return FoundAuthority("no issuer is stored", _kept(state, now))
    problem = authority.authority_problem(issuer.current, now)
    match issuer.phase:
        case Phase.PUBLISHING if issuer.next is not None and not authority.authority_problem(issuer.next, now):
            return SwitchAuthority() if problem or _published(state, issuer, now, lifetimes) else None
        case _ if problem is not None or issuer.phase is Phase.PUBLISHING:
            reason = problem.name if problem else "the next authority is unusable"
            return FoundAuthority(reason, _kept(state, now))
        case Phase.STEADY:
            ends = authority.validity_of(issuer.current.certificate).not_after
            return PrepareAuthority() if ends - lifetimes.authority_renewal <= now else None
        case _:
            return DropPrevious() if _switched(state, issuer, now, lifetimes) else None


def _published(state: State, issuer: Authorities, now: datetime, lifetimes: Lifetimes) -> bool:
    """Return whether every peer that keeps to the settle time trusts all authorities by now."""
    return all(
        leaf is not None and set(issuer.trust) <= set(leaf.trust) and leaf.written_at + lifetimes.settle <= now
        for leaf in (state.server, state.client)
    )


def _switched(state: State, issuer: Authorities, now: datetime, lifetimes: Lifetimes) -> bool:
    """Return whether no peer uses a leaf of a previous authority any more, not even on an old connection."""
    wait = lifetimes.settle + lifetimes.connection_age
    return all(
        leaf is not None and _signed(issuer.current.certificate, leaf) and leaf.written_at + wait <= now
        for leaf in (state.server, state.client)
    )


def _leaf_step(state: State, role: Role, now: datetime, lifetimes: Lifetimes, identity: Identity) -> LeafStep | None:
    issuer, leaf = state.issuer, state.leaf(role)
    if issuer is None:
        raise AssertionError("leaves are planned after their issuer")
    if leaf is None:
        return IssueLeaf(role, "none is stored")
    if problem := authority.leaf_problem(leaf.credential, issuer.trust, identity.wanted(role), now):
        return IssueLeaf(role, problem.name)
    if not _signed(issuer.current.certificate, leaf):
        if _published(state, issuer, now, lifetimes):
            return IssueLeaf(role, "the authority has changed")
    elif _renewal_due(leaf, issuer, now, lifetimes):
        return IssueLeaf(role, "renewal is due")
    return PublishTrust(role) if set(leaf.trust) != set(issuer.trust) else None


def _renewal_due(leaf: Leaf, issuer: Authorities, now: datetime, lifetimes: Lifetimes) -> bool:
    """Return whether a leaf expires soon and a new one would last longer than the authority allowed this one to."""
    ends = authority.validity_of(leaf.credential.certificate).not_after
    would_end = min(now + lifetimes.leaf, authority.validity_of(issuer.current.certificate).not_after)
    return ends - lifetimes.leaf_renewal <= now and would_end - ends > timedelta(seconds=1)


def _moments(state: State, lifetimes: Lifetimes) -> Iterator[datetime]:
    """Yield the times at which a step may become due."""
    for leaf in state.leaves:
        ends = authority.validity_of(leaf.credential.certificate).not_after
        yield ends - lifetimes.leaf_renewal
        yield ends
        yield leaf.written_at + lifetimes.settle
        yield leaf.written_at + lifetimes.settle + lifetimes.connection_age
    if state.issuer is not None:
        yield authority.validity_of(state.issuer.current.certificate).not_after - lifetimes.authority_renewal


def _kept(state: State, now: datetime) -> tuple[bytes, ...]:
    """Return the authorities to keep trusting beside a new one; those that signed a leaf in use come first.

    The number is bounded, so that an issuer that is lost repeatedly cannot grow the bundle without limit.
    """
    issuer = () if state.issuer is None else state.issuer.trust
    known = still_valid((*issuer, *(certificate for leaf in state.leaves for certificate in leaf.trust)), now)
    in_use = [each for each in known if any(_signed(each, leaf) for leaf in state.leaves)]
    return tuple(dict.fromkeys((*in_use, *known)))[:MAX_PREVIOUS]


def _signed(certificate: bytes, leaf: Leaf) -> bool:
    return authority.is_issued_by(leaf.credential.certificate, certificate)


def still_valid(certificates: tuple[bytes, ...], now: datetime) -> tuple[bytes, ...]:
    alive = (each for each in certificates if authority.validity_of(each).not_after > now)
    return tuple(dict.fromkeys(alive))
