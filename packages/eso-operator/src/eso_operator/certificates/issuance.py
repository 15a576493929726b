"""Carries out the steps of a plan in memory: new keys and certificates.

`planning.py` decides the steps and their order; `issuer.py` and `local.py` store the result.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import assert_never

from eso_operator.certificates import authority
from eso_operator.certificates.bundle import (
    Authorities,
    DropPrevious,
    FoundAuthority,
    Identity,
    IssueLeaf,
    Leaf,
    Lifetimes,
    PrepareAuthority,
    PublishTrust,
    Role,
    State,
    Step,
    SwitchAuthority,
)
from eso_operator.certificates.planning import still_valid
from eso_operator.certificates.values import Credential, window


def carry_out(step: Step, state: State, now: datetime, lifetimes: Lifetimes, identity: Identity) -> State:
    """Return the state after one step."""
    match step:
        case FoundAuthority(keep=keep):
            return replace(state, issuer=Authorities(_new_authority(now, lifetimes, identity), previous=keep))
        case IssueLeaf(role=role):
            return _with_leaf(state, role, _issued(state, role, now, lifetimes, identity))
        case PublishTrust(role=role):
            leaf = state.leaf(role)
            if leaf is None or state.issuer is None:
                raise AssertionError("trust is published to a leaf that is there")
            return _with_leaf(state, role, replace(leaf, trust=state.issuer.trust, written_at=_second(now)))
        case PrepareAuthority() | SwitchAuthority() | DropPrevious():
            if state.issuer is None:
                raise AssertionError("a rollover needs an issuer")
            return replace(state, issuer=_rolled(step, state.issuer, now, lifetimes, identity))
        case _:
            assert_never(step)


def _rolled(
    step: PrepareAuthority | SwitchAuthority | DropPrevious,
    issuer: Authorities,
    now: datetime,
    lifetimes: Lifetimes,
    identity: Identity,
) -> Authorities:
    match step:
        case PrepareAuthority():
            return replace(issuer, next=_new_authority(now, lifetimes, identity))
        case SwitchAuthority():
            if issuer.next is None:
                raise AssertionError("a switch follows a publication")
            return Authorities(issuer.next, previous=still_valid((issuer.current.certificate, *issuer.previous), now))
        case DropPrevious():
            return Authorities(issuer.current)
        case _:
            assert_never(step)


def _new_authority(now: datetime, lifetimes: Lifetimes, identity: Identity) -> Credential:
    return authority.issue_authority(identity.authority, window(now, lifetimes.authority))


def _issued(state: State, role: Role, now: datetime, lifetimes: Lifetimes, identity: Identity) -> Leaf:
    issuer = state.issuer
    if issuer is None:
        raise AssertionError("leaves are issued by a stored issuer")
    valid = window(now, lifetimes.leaf)
    match role:
        case Role.SERVER:
            credential = authority.issue_server(issuer.current, identity.server, valid)
        case Role.CLIENT:
            credential = authority.issue_client(issuer.current, identity.client, valid)
        case _:
            assert_never(role)
    return Leaf(credential, issuer.trust, _second(now))


def _with_leaf(state: State, role: Role, leaf: Leaf) -> State:
    match role:
        case Role.SERVER:
            return replace(state, server=leaf)
        case Role.CLIENT:
            return replace(state, client=leaf)
        case _:
            assert_never(role)


def _second(now: datetime) -> datetime:
    """Return the time in whole seconds, as it is stored."""
    return now.replace(microsecond=0)
