"""The due steps for the certificates of one Service: every situation, and two years hour by hour."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest

from eso_operator.certificates.authority import issue_authority, issue_server, validity_of
from eso_operator.certificates.issuance import MAX_PREVIOUS, carry_out, plan
from eso_operator.certificates.state import (
    Authorities,
    CreateAuthority,
    DropPrevious,
    Identity,
    IssueLeaf,
    Leaf,
    Lifetimes,
    Phase,
    PrepareAuthority,
    PublishTrust,
    Side,
    State,
    Step,
    SwitchAuthority,
    window,
)
from kubebase.testing.clock import START

LIFETIMES = Lifetimes()
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def settled(state: State, now: datetime, identity: Identity) -> State:
    """The state after everything due at that time is done."""
    while steps := plan(state, now, LIFETIMES, identity).steps:
        for step in steps:
            state = carry_out(step, state, now, LIFETIMES, identity)
    return state


def due(state: State, now: datetime, identity: Identity) -> tuple[Step, ...]:
    return plan(state, now, LIFETIMES, identity).steps


def leaf_of(state: State, side: Side) -> Leaf:
    leaf = state.leaf(side)
    assert leaf is not None
    return leaf


def issuer_of(state: State) -> Authorities:
    assert state.issuer is not None
    return state.issuer


# --- leaves ----------------------------------------------------------------------------------------------------------


def test_a_new_service_gets_an_authority_first_and_then_both_leaves(identity: Identity) -> None:
    state = State()

    first = due(state, START, identity)
    state = carry_out(first[0], state, START, LIFETIMES, identity)
    then = due(state, START, identity)

    assert first == (CreateAuthority("no issuer is stored", ()),)
    assert then == (IssueLeaf(Side.SERVER, "none is stored"), IssueLeaf(Side.CLIENT, "none is stored"))


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        pytest.param(36 * DAY, (), id="36 days before its end a leaf is left alone"),
        pytest.param(35 * DAY, ("renewal is due",) * 2, id="35 days before its end a leaf is renewed"),
        pytest.param(timedelta(0), ("ServerCertExpired",) * 2, id="R137 an expired leaf is replaced"),
    ],
)
def test_leaves_are_renewed_in_time(identity: Identity, left: timedelta, expected: tuple[str, ...]) -> None:
    state = settled(State(), START, identity)

    steps = due(state, START + LIFETIMES.leaf - left, identity)

    assert tuple(step.reason for step in steps if isinstance(step, IssueLeaf)) == expected


def test_a_leaf_that_is_lost_is_issued_again_by_the_same_authority(identity: Identity) -> None:
    state = replace(settled(State(), START, identity), client=None)

    assert due(state, START, identity) == (IssueLeaf(Side.CLIENT, "none is stored"),)


def test_a_leaf_without_a_name_that_is_wanted_now_is_replaced(identity: Identity) -> None:
    state = settled(State(), START, identity)
    renamed = replace(identity, server=replace(identity.server, dns=(*identity.server.dns, "provider.example")))

    assert due(state, START, renamed) == (IssueLeaf(Side.SERVER, "HostnameMismatch"),)


def test_a_bundle_that_was_changed_by_hand_is_put_right(identity: Identity) -> None:
    state = settled(State(), START, identity)
    stranger = issue_authority("stranger", window(START, 30 * DAY)).certificate
    server = leaf_of(state, Side.SERVER)

    tampered = replace(state, server=replace(server, trust=(*server.trust, stranger)))

    assert due(tampered, START, identity) == (PublishTrust(Side.SERVER),)


def test_a_leaf_of_a_stranger_is_replaced(identity: Identity) -> None:
    state = settled(State(), START, identity)
    forged = issue_server(
        issue_authority("stranger", window(START, 300 * DAY)), identity.server, window(START, 90 * DAY)
    )

    tampered = replace(state, server=replace(leaf_of(state, Side.SERVER), credential=forged))

    assert due(tampered, START, identity) == (IssueLeaf(Side.SERVER, "UnknownCA"),)


def test_a_leaf_that_ends_with_its_authority_is_not_renewed_over_and_over(identity: Identity) -> None:
    """A rollover that cannot go on must not make a hot loop of renewals."""
    state = settled(State(), START, identity)
    late = START + LIFETIMES.authority - 20 * DAY
    stuck = replace(state, issuer=replace(issuer_of(state), previous=(issuer_of(state).current.certificate,)))
    renewed = carry_out(IssueLeaf(Side.SERVER, ""), stuck, late, LIFETIMES, identity)

    steps = due(renewed, late + 10 * DAY, identity)

    assert not [step for step in steps if isinstance(step, IssueLeaf) and step.side is Side.SERVER]


# --- the three phases ------------------------------------------------------------------------------------------------

ROLLOVER = START + LIFETIMES.authority - LIFETIMES.authority_renewal


def at_rollover(identity: Identity) -> State:
    """One second before the rollover begins, everything renewed."""
    state = settled(State(), START, identity)
    return settled(state, ROLLOVER - timedelta(seconds=1), identity)


def test_a_rollover_goes_through_its_three_phases(identity: Identity) -> None:
    """R147: publish both, sign with the new one, drop the old one; each phase waits for the writes of the last one."""
    state = at_rollover(identity)
    entered: dict[Phase, tuple[int, timedelta]] = {}
    now = ROLLOVER

    while Phase.STEADY not in entered:
        state = settled(state, now, identity)
        entered.setdefault(issuer_of(state).phase, (len(leaf_of(state, Side.CLIENT).trust), now - ROLLOVER))
        now = plan(state, now, LIFETIMES, identity).due

    wait = LIFETIMES.settle
    assert entered == {
        Phase.PUBLISHING: (2, timedelta(0)),
        Phase.RETIRING: (2, wait),
        Phase.STEADY: (1, 2 * wait + LIFETIMES.connection_age),
    }


def published(identity: Identity) -> State:
    return settled(at_rollover(identity), ROLLOVER, identity)


def switched(identity: Identity) -> State:
    return settled(published(identity), ROLLOVER + LIFETIMES.settle, identity)


def without_news(leaf: Leaf) -> Leaf:
    return replace(leaf, trust=leaf.trust[:1])


def test_a_secret_that_did_not_get_both_authorities_holds_phase_two_back(identity: Identity) -> None:
    state = published(identity)
    behind = replace(state, client=without_news(leaf_of(state, Side.CLIENT)))

    assert due(behind, ROLLOVER + 5 * DAY, identity) == (PublishTrust(Side.CLIENT),)


def test_a_secret_that_got_both_authorities_late_restarts_the_settle_time(identity: Identity) -> None:
    state = published(identity)
    late = ROLLOVER + 10 * HOUR
    client = replace(leaf_of(state, Side.CLIENT), written_at=late)

    assert due(replace(state, client=client), late + LIFETIMES.settle - timedelta(seconds=1), identity) == ()
    assert due(replace(state, client=client), late + LIFETIMES.settle, identity) == (SwitchAuthority(),)


def test_a_leaf_of_the_old_authority_holds_phase_three_back(identity: Identity) -> None:
    old = published(identity)
    new = settled(old, ROLLOVER + LIFETIMES.settle, identity)
    behind = replace(new, client=replace(leaf_of(old, Side.CLIENT), trust=issuer_of(new).trust))

    steps = due(behind, ROLLOVER + 5 * DAY, identity)

    assert steps == (IssueLeaf(Side.CLIENT, "the authority has changed"),)
    assert due(new, ROLLOVER + 5 * DAY, identity) == (DropPrevious(),), "nothing else holds it back"


def test_a_missing_secret_holds_both_phases_back_until_it_is_there(identity: Identity) -> None:
    for state in (published(identity), switched(identity)):
        steps = due(replace(state, server=None), ROLLOVER + 5 * DAY, identity)

        assert steps == (IssueLeaf(Side.SERVER, "none is stored"),)


def test_the_next_authority_takes_over_at_once_when_the_old_one_has_ended(identity: Identity) -> None:
    state = published(identity)

    assert due(state, START + LIFETIMES.authority, identity) == (SwitchAuthority(),)


def test_prepare_is_due_sixty_days_before_the_end(identity: Identity) -> None:
    assert due(at_rollover(identity), ROLLOVER, identity) == (PrepareAuthority(),)


# --- loss ------------------------------------------------------------------------------------------------------------


def test_a_lost_issuer_is_replaced_without_a_gap_in_trust(identity: Identity) -> None:
    state = settled(State(), START, identity)
    old = issuer_of(state).current.certificate
    lost = settled(replace(state, issuer=None), START + DAY, identity)

    assert issuer_of(lost).previous == (old,)
    assert all(old in leaf.trust and len(leaf.trust) == 2 for leaf in lost.leaves)
    assert lost.leaves[0].credential == state.leaves[0].credential, "leaves stay until the new authority has settled"
    assert {type(step) for step in due(lost, START + DAY + LIFETIMES.settle, identity)} == {IssueLeaf}


def test_an_issuer_lost_again_and_again_does_not_grow_the_bundle_without_bound(identity: Identity) -> None:
    state = settled(State(), START, identity)
    first = issuer_of(state).current.certificate

    for minute in range(20):
        state = settled(replace(state, issuer=None), START + timedelta(minutes=minute), identity)

    assert len(issuer_of(state).previous) == MAX_PREVIOUS
    assert first in issuer_of(state).previous, "it signed the leaves in use"


def test_after_a_long_absence_all_certificates_are_issued_again(identity: Identity) -> None:
    state = settled(State(), START, identity)

    later = settled(state, START + 3 * LIFETIMES.authority, identity)

    assert issuer_of(later).phase is Phase.STEADY
    assert not set(issuer_of(later).trust) & set(issuer_of(state).trust)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"settle": timedelta(days=40)}, id="settling longer than a leaf's last days"),
        pytest.param({"leaf_renewal": timedelta(days=90)}, id="renewing a leaf from the start"),
        pytest.param({"authority_renewal": timedelta(days=35)}, id="an authority ending before its leaves are renewed"),
        pytest.param({"authority": timedelta(days=60)}, id="renewing an authority from the start"),
    ],
)
def test_lifetimes_that_would_break_a_rollover_are_refused(change: dict[str, timedelta]) -> None:
    with pytest.raises(ValueError, match="must be shorter than"):
        replace(LIFETIMES, **change)


# --- two years -------------------------------------------------------------------------------------------------------


@dataclass
class World:
    """The stored Secrets, and every version of them that a peer within the settle time may still use."""

    identity: Identity
    lifetimes: Lifetimes
    chance: random.Random
    state: State = field(default_factory=State)
    in_use: dict[Side, list[tuple[datetime, Leaf]]] = field(default_factory=lambda: {side: [] for side in Side})
    phases: set[Phase] = field(default_factory=set)
    due: datetime = START

    def reconcile(self, now: datetime, failing: float) -> None:
        """Plan and store; any write may fail, which ends the run as a crash would."""
        for _ in range(8):
            found = plan(self.state, now, self.lifetimes, self.identity)
            self.due = found.due
            if not found.steps:
                break
            for step in found.steps:
                if self.chance.random() < failing:
                    return
                self._store(carry_out(step, self.state, now, self.lifetimes, self.identity), now)

    def _store(self, after: State, now: datetime) -> None:
        for side in Side:
            leaf = after.leaf(side)
            if leaf is not None and leaf is not self.state.leaf(side):
                self.in_use[side].append((now, leaf))
        self.state = after
        if after.issuer is not None:
            self.phases.add(after.issuer.phase)

    def readable(self, side: Side, now: datetime) -> list[Leaf]:
        """The newest version, and those that were the newest one within the settle time."""
        versions = self.in_use[side]
        while len(versions) > 1 and versions[1][0] + self.lifetimes.settle <= now:
            versions.pop(0)
        return [leaf for _, leaf in versions]


HOURS = 2 * 365 * 24


@pytest.mark.parametrize(
    ("failing", "lost", "seed"),
    [
        pytest.param(0.0, 0.0, 1, id="R147 when all goes well"),
        pytest.param(0.6, 0.0, 2, id="R147 when most writes fail"),
        pytest.param(0.3, 0.001, 3, id="R147 when the issuer is lost now and then"),
        pytest.param(0.8, 0.002, 4, id="R147 when the issuer is lost often and most writes fail"),
        pytest.param(0.0, 0.005, 5, id="R147 when the issuer is lost every week"),
    ],
)
def test_for_two_years_every_pair_of_peers_accepts_each_other_at_every_hour(
    identity: Identity, mutually_verify: Callable[..., bool], failing: float, lost: float, seed: int
) -> None:
    lifetimes = Lifetimes(settle=timedelta(hours=6), connection_age=timedelta(hours=1))
    world = World(identity, lifetimes, random.Random(seed))  # noqa: S311 - the same faults on every run
    verified: set[tuple[bytes, ...]] = set()
    world.reconcile(START, 0.0)

    for hour in range(HOURS):
        now = START + hour * HOUR
        if world.chance.random() < lost:
            world.state, world.due = replace(world.state, issuer=None), now
        if now >= world.due:
            world.reconcile(now, failing)
        for server in world.readable(Side.SERVER, now):
            for client in world.readable(Side.CLIENT, now):
                _accept_each_other(server, client, now, verified, mutually_verify)

    assert lost or world.phases == set(Phase)
    assert len(verified) > 20


def _accept_each_other(
    server: Leaf, client: Leaf, now: datetime, verified: set[tuple[bytes, ...]], verify: Callable[..., bool]
) -> None:
    """The whole verification for each new pair of states; later only the part of it that time can change."""
    pair = (server.credential.certificate, *server.trust, b"|", client.credential.certificate, *client.trust)
    if pair not in verified:
        assert verify(server.credential, server.trust, client.credential, client.trust, now), now
        verified.add(pair)
    for leaf in (server, client):
        valid = validity_of(leaf.credential.certificate)
        assert valid.not_before <= now < valid.not_after, now
