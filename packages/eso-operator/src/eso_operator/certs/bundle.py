"""The certificates of one provider Service as a frozen state, and the plan of the steps that are due. Pure.

    observe -> State -> plan -> steps -> carry_out -> State -> write -> observe ...

A plan depends only on the stored state and the time, so it survives a crash between any two writes. Leaves are renewed
under their authority. The authority is replaced in three phases:

    STEADY      one authority
      |  it expires soon
    PUBLISHING  1: both authorities are in every trust bundle, the old one signs
      |  both Secrets have held both authorities for the settle time
    RETIRING    2: the new one signs, leaves are issued again, the old one is still trusted
      |  both leaves have been of the new one for the settle time and the longest life of a connection
    STEADY      3: the old one is removed

Peers must load a changed Secret within the settle time. A peer that does never meets a valid certificate that it does
not trust. A lost issuer restarts at phase 2: all authorities in the bundles stay trusted, and leaves are replaced only
after the new authority has settled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, assert_never

from eso_operator.certs import authority
from eso_operator.certs.authority import Credential, ServerNames

MAX_PREVIOUS: Final = 8

# --- values ----------------------------------------------------------------------------------------------------------


class Role(StrEnum):
    SERVER = "server"
    CLIENT = "client"


class Phase(StrEnum):
    STEADY = "steady"
    PUBLISHING = "publishing"
    RETIRING = "retiring"


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Lifetimes and renewal times. They are checked so that a rollover ends before the old certificates expire."""

    authority: timedelta = timedelta(days=365)
    authority_renewal: timedelta = timedelta(days=60)
    leaf: timedelta = timedelta(days=90)
    leaf_renewal: timedelta = timedelta(days=35)
    settle: timedelta = timedelta(hours=1)
    connection_age: timedelta = timedelta(minutes=15)

    def __post_init__(self) -> None:
        rollover = 2 * self.settle + self.connection_age
        ordered = (
            ("settle and connection age", rollover, "leaf renewal", self.leaf_renewal),
            ("leaf renewal", self.leaf_renewal, "leaf lifetime", self.leaf),
            ("leaf renewal and rollover", self.leaf_renewal + rollover, "authority renewal", self.authority_renewal),
            ("authority renewal", self.authority_renewal, "authority lifetime", self.authority),
        )
        for smaller, less, larger, more in ordered:
            if less >= more:
                raise ValueError(f"{smaller} ({less}) must be shorter than {larger} ({more})")


@dataclass(frozen=True, slots=True)
class Identity:
    """The names in the certificates. `authority` is the subject of the issuer."""

    authority: str
    server: ServerNames
    client: str

    def wanted(self, role: Role) -> tuple[str, ...]:
        """Return the alternative names that a leaf must have."""
        match role:
            case Role.SERVER:
                return (*self.server.dns, *self.server.addresses, self.server.identity)
            case Role.CLIENT:
                return (self.client,)
            case _:
                assert_never(role)


@dataclass(frozen=True, slots=True)
class Authorities:
    """The stored authorities: `current` signs, `next` is being published, `previous` are trusted but no longer sign."""

    current: Credential
    next: Credential | None = None
    previous: tuple[bytes, ...] = ()

    @property
    def phase(self) -> Phase:
        if self.next is not None:
            return Phase.PUBLISHING
        return Phase.RETIRING if self.previous else Phase.STEADY

    @property
    def trust(self) -> tuple[bytes, ...]:
        upcoming = () if self.next is None else (self.next.certificate,)
        return (self.current.certificate, *upcoming, *self.previous)


@dataclass(frozen=True, slots=True)
class Leaf:
    """The certificate and trust bundle of one side; `written_at` is the time of their last change."""

    credential: Credential
    trust: tuple[bytes, ...]
    written_at: datetime


@dataclass(frozen=True, slots=True)
class State:
    """The stored certificates; None if missing or unreadable."""

    issuer: Authorities | None = None
    server: Leaf | None = None
    client: Leaf | None = None

    def leaf(self, role: Role) -> Leaf | None:
        match role:
            case Role.SERVER:
                return self.server
            case Role.CLIENT:
                return self.client
            case _:
                assert_never(role)

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        return tuple(leaf for leaf in (self.server, self.client) if leaf is not None)


# --- steps -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FoundAuthority:
    """Create a new authority; keep trusting the authorities in `keep`."""

    reason: str
    keep: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class PrepareAuthority:
    """Phase 1."""


@dataclass(frozen=True, slots=True)
class SwitchAuthority:
    """Phase 2."""


@dataclass(frozen=True, slots=True)
class DropPrevious:
    """Phase 3."""


@dataclass(frozen=True, slots=True)
class IssueLeaf:
    role: Role
    reason: str


@dataclass(frozen=True, slots=True)
class PublishTrust:
    role: Role


IssuerStep = FoundAuthority | PrepareAuthority | SwitchAuthority | DropPrevious
LeafStep = IssueLeaf | PublishTrust
Step = IssuerStep | LeafStep


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps that are due now, and the time of the next check. Steps of the issuer are stored first."""

    steps: tuple[Step, ...]
    due: datetime


# --- planning --------------------------------------------------------------------------------------------------------


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
