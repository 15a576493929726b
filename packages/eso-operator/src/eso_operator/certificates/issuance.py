"""The steps that are due for the certificates of one Service, and their result: new keys and certificates.

    stored Secrets -> read -> plan -> carry_out -> changed Secrets

Pure, except for random keys; `state.py` explains the phases. This needs cryptography, which the operator does not load:
it sends a request to a process (`worker.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, assert_never

from eso_api.values import SecretBytes
from eso_operator.certificates import authority, secrets
from eso_operator.certificates.state import (
    Authorities,
    CreateAuthority,
    Credential,
    DropPrevious,
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
    Side,
    State,
    Step,
    SwitchAuthority,
    Window,
    join,
    window,
)
from eso_operator.certificates.worker import Review, ReviewRequest, SecretContent
from kubebase.clock import parse_rfc3339, rfc3339

# --- which steps are due ----------------------------------------------------------------------------------------------


MAX_PREVIOUS: Final = 8


def plan(state: State, now: datetime, lifetimes: Lifetimes, identity: Identity) -> Plan:
    step = _issuer_step(state, now, lifetimes)
    if step is not None:
        return Plan((step,), now)
    steps = [found for side in Side if (found := _leaf_step(state, side, now, lifetimes, identity)) is not None]
    if steps:
        return Plan(tuple(steps), now)
    upcoming = [moment for moment in _possible_times(state, lifetimes) if moment > now]
    return Plan((), min(upcoming, default=now + lifetimes.leaf))


def _issuer_step(state: State, now: datetime, lifetimes: Lifetimes) -> IssuerStep | None:
    issuer = state.issuer
    if issuer is None:
        return CreateAuthority("no issuer is stored", _still_trusted(state, now))
    problem = authority.authority_problem(issuer.current, now)
    match issuer.phase:
        case Phase.PUBLISHING if issuer.next is not None and not authority.authority_problem(issuer.next, now):
            return SwitchAuthority() if problem or _published(state, issuer, now, lifetimes) else None
        case _ if problem is not None or issuer.phase is Phase.PUBLISHING:
            reason = problem.name if problem else "the next authority is unusable"
            return CreateAuthority(reason, _still_trusted(state, now))
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


def _leaf_step(state: State, side: Side, now: datetime, lifetimes: Lifetimes, identity: Identity) -> LeafStep | None:
    issuer, leaf = state.issuer, state.leaf(side)
    if issuer is None:
        raise AssertionError("leaves are planned after their issuer")
    if leaf is None:
        return IssueLeaf(side, "none is stored")
    if problem := authority.leaf_problem(leaf.credential, issuer.trust, identity.wanted(side), now):
        return IssueLeaf(side, problem.name)
    if not _signed(issuer.current.certificate, leaf):
        if _published(state, issuer, now, lifetimes):
            return IssueLeaf(side, "the authority has changed")
    elif _renewal_due(leaf, issuer, now, lifetimes):
        return IssueLeaf(side, "renewal is due")
    return PublishTrust(side) if set(leaf.trust) != set(issuer.trust) else None


def _renewal_due(leaf: Leaf, issuer: Authorities, now: datetime, lifetimes: Lifetimes) -> bool:
    """Return whether a leaf expires soon and a new one would last longer than the authority allowed this one to."""
    ends = authority.validity_of(leaf.credential.certificate).not_after
    would_end = min(now + lifetimes.leaf, authority.validity_of(issuer.current.certificate).not_after)
    return ends - lifetimes.leaf_renewal <= now and would_end - ends > timedelta(seconds=1)


def _possible_times(state: State, lifetimes: Lifetimes) -> Iterator[datetime]:
    """Yield the times at which a step may become due."""
    for leaf in state.leaves:
        ends = authority.validity_of(leaf.credential.certificate).not_after
        yield ends - lifetimes.leaf_renewal
        yield ends
        yield leaf.written_at + lifetimes.settle
        yield leaf.written_at + lifetimes.settle + lifetimes.connection_age
    if state.issuer is not None:
        yield authority.validity_of(state.issuer.current.certificate).not_after - lifetimes.authority_renewal


def _still_trusted(state: State, now: datetime) -> tuple[bytes, ...]:
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


# --- steps, carried out -----------------------------------------------------------------------------------------------


def carry_out(step: Step, state: State, now: datetime, lifetimes: Lifetimes, identity: Identity) -> State:
    """Return the state after one step: new keys and certificates, which `issuer.py` and `local.py` store."""
    if isinstance(step, CreateAuthority):
        return replace(state, issuer=Authorities(_new_authority(now, lifetimes, identity), previous=step.trusted))
    issuer = state.issuer
    if issuer is None:
        raise AssertionError("every other step needs a stored issuer")
    match step:
        case IssueLeaf(side=side):
            credential = _new_leaf(issuer.current, side, window(now, lifetimes.leaf), identity)
            return _with_leaf(state, side, Leaf(credential, issuer.trust, _second(now)))
        case PublishTrust(side=side):
            leaf = state.leaf(side)
            if leaf is None:
                raise AssertionError("trust is published to a stored leaf")
            return _with_leaf(state, side, replace(leaf, trust=issuer.trust, written_at=_second(now)))
        case PrepareAuthority():
            return replace(state, issuer=replace(issuer, next=_new_authority(now, lifetimes, identity)))
        case SwitchAuthority():
            if issuer.next is None:
                raise AssertionError("a switch follows a publication")
            previous = still_valid((issuer.current.certificate, *issuer.previous), now)
            return replace(state, issuer=Authorities(issuer.next, previous=previous))
        case DropPrevious():
            return replace(state, issuer=Authorities(issuer.current))
        case _:
            assert_never(step)


def _new_authority(now: datetime, lifetimes: Lifetimes, identity: Identity) -> Credential:
    return authority.issue_authority(identity.authority, window(now, lifetimes.authority))


def _new_leaf(signer: Credential, side: Side, valid: Window, identity: Identity) -> Credential:
    if side is Side.SERVER:
        return authority.issue_server(signer, identity.server, valid)
    return authority.issue_client(signer, identity.client, valid)


def _with_leaf(state: State, side: Side, leaf: Leaf) -> State:
    return replace(state, server=leaf) if side is Side.SERVER else replace(state, client=leaf)


def _second(now: datetime) -> datetime:
    """Return the time in whole seconds, as it is stored."""
    return now.replace(microsecond=0)


# --- review -----------------------------------------------------------------------------------------------------------


def review(request: ReviewRequest) -> Review:
    """Return the steps that are due now and the content that the Secrets get by them."""
    state = _state(request.stored)
    due = plan(state, request.now, request.lifetimes, request.identity)
    after = state
    for step in due.steps:
        after = carry_out(step, after, request.now, request.lifetimes, request.identity)
    ends = [authority.validity_of(leaf.credential.certificate).not_after for leaf in after.leaves]
    return Review(
        steps=tuple((type(step).__name__, step.reason if isinstance(step, IssueLeaf) else "") for step in due.steps),
        due=due.due,
        changed=_changed(state, after, rfc3339(request.now)),
        phase=None if after.issuer is None else after.issuer.phase,
        expires_at=min(ends, default=None),
    )


def _changed(before: State, after: State, now: str) -> dict[str, SecretContent]:
    """Return the Secrets to write, in the order of writes: an authority is stored before it signs."""
    changed = {}
    if after.issuer is not None and after.issuer is not before.issuer:
        changed[secrets.ISSUER] = SecretContent(secrets.issuer_data(after.issuer), now)
    pairs = ((secrets.SERVER, before.server, after.server), (secrets.CLIENT, before.client, after.client))
    for part, old, new in pairs:
        if new is not None and new is not old:
            changed[part] = SecretContent(secrets.leaf_data(new), rfc3339(new.written_at))
    return changed


def _state(stored: Mapping[str, SecretContent]) -> State:
    missing = SecretContent({}, "")
    issuer, server, client = (stored.get(part, missing) for part in (secrets.ISSUER, secrets.SERVER, secrets.CLIENT))
    return State(
        issuer=issuer_of(issuer.data),
        server=leaf_of(server.data, server.written_at),
        client=leaf_of(client.data, client.written_at),
    )


def issuer_of(data: Mapping[str, bytes]) -> Authorities | None:
    """Return the issuer of the content; None if it is inconsistent and must be created again."""
    try:
        return Authorities(
            _credential(data, secrets.CERTIFICATE, secrets.KEY),
            _credential(data, secrets.NEXT_CERTIFICATE, secrets.NEXT_KEY) if secrets.NEXT_CERTIFICATE in data else None,
            authority.split(data[secrets.PREVIOUS]) if secrets.PREVIOUS in data else (),
        )
    except (KeyError, ValueError):
        return None


def leaf_of(data: Mapping[str, bytes], written_at: str) -> Leaf | None:
    """Return the leaf of the content; None if it is inconsistent and must be issued again."""
    try:
        moment = parse_rfc3339(written_at)
        if moment.tzinfo is None:
            return None
        return Leaf(_credential(data, secrets.CERTIFICATE, secrets.KEY), authority.split(data[secrets.TRUST]), moment)
    except (KeyError, ValueError):
        return None


def _credential(data: Mapping[str, bytes], certificate: str, key: str) -> Credential:
    return Credential(join(authority.split(data[certificate])), SecretBytes(data[key]))
