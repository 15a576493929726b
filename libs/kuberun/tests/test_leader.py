"""Leader election on virtual time: taking, renewing, losing, handing over."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubebase.meta import JsonObject, ObjectKey
from kubebase.testing.clock import VirtualClock
from kuberun.leader import LeaderElection, LeadershipLostError, LeaseSettings, new_identity
from kuberun.testing.leases import LeaseClient, LeaseServer

KEY = ObjectKey("default", "operator")
DURATION, RENEW_DEADLINE, RETRY = 15, 10.0, 2.0


class OneLease(LeaseServer):
    """A cluster whose only Lease is the one that is contended."""

    @property
    def lease(self) -> JsonObject | None:
        return self.leases.get(KEY)

    @property
    def spec(self) -> JsonObject:
        spec: JsonObject = self.get(KEY)["spec"]
        return spec


class Candidate:
    def __init__(self, server: OneLease, clock: VirtualClock, identity: str) -> None:
        self.leases = LeaseClient(server, clock)
        self.election = LeaderElection(
            self.leases,
            KEY,
            clock=clock,
            identity=identity,
            settings=LeaseSettings(DURATION, RENEW_DEADLINE, RETRY),
            draw=lambda: 0.5,
        )
        self.running = asyncio.ensure_future(self.election.run())

    def leads(self) -> bool:
        return self.election.leading

    @property
    def lost(self) -> bool:
        return self.running.done() and not self.running.cancelled() and self.running.exception() is not None

    async def stop(self) -> None:
        self.running.cancel()
        await asyncio.wait({self.running})


@asynccontextmanager
async def candidates(clock: VirtualClock, *names: str) -> AsyncIterator[tuple[OneLease, list[Candidate]]]:
    server = OneLease()
    standing = [Candidate(server, clock, name) for name in names]
    try:
        yield server, standing
    finally:
        for candidate in standing:
            await candidate.stop()


async def test_a_free_lease_is_taken_and_renewed() -> None:
    clock = VirtualClock()
    async with candidates(clock, "a") as (server, [a]):
        await clock.advance(0.1)
        assert a.leads()
        first = dict(server.spec)

        await clock.advance(60)

        assert a.leads()
        assert server.spec["renewTime"] > first["renewTime"]
        assert server.spec["acquireTime"] == first["acquireTime"] == "2030-01-01T00:00:00.010000Z"
        assert (server.spec["holderIdentity"], server.spec["leaseDurationSeconds"]) == ("a", DURATION)
        assert server.spec["leaseTransitions"] == 0


async def test_a_standby_waits_while_the_leader_renews() -> None:
    clock = VirtualClock()
    async with candidates(clock, "a", "b") as (_, [a, b]):
        await clock.advance(600)

        assert [a.leads(), b.leads()] == [True, False]


async def test_a_dead_leader_is_replaced_after_its_lease_ran_out() -> None:
    clock = VirtualClock()
    async with candidates(clock, "a", "b") as (server, [a, b]):
        await clock.advance(5)
        await a.stop()

        await clock.advance(DURATION - RETRY - 1)
        assert not b.leads()
        await clock.advance(2 * RETRY + 2)

        assert b.leads()
        assert server.spec["leaseTransitions"] == 1


async def test_a_released_lease_is_taken_over_at_the_next_look() -> None:
    clock = VirtualClock()
    async with candidates(clock, "a", "b") as (server, [a, b]):
        await clock.advance(5)
        await a.stop()

        releasing = asyncio.ensure_future(a.election.release())
        await clock.advance(0.1)
        await releasing
        released = dict(server.spec)
        await clock.advance(2 * RETRY)

        assert "holderIdentity" not in released
        assert [a.leads(), b.leads()] == [False, True]


async def test_a_standby_releases_nothing() -> None:
    clock = VirtualClock()
    async with candidates(clock, "a", "b") as (server, [_, b]):
        await clock.advance(5)
        before = server.lease

        await b.election.release()

        assert server.lease == before


@pytest.mark.parametrize("how", ["unreachable", "hanging"])
async def test_a_leader_that_cannot_renew_gives_up_before_anybody_else_may_take_over(how: str) -> None:
    clock = VirtualClock()
    async with candidates(clock, "a", "b") as (_, [a, b]):
        await clock.advance(5)
        a.leases.reachable, a.leases.hangs = how != "unreachable", how == "hanging"

        gave_up = took_over = 0.0
        for tick in range(300):
            await clock.advance(0.1)
            assert not (a.leads() and b.leads())
            gave_up = gave_up or (tick if a.lost else 0)
            took_over = took_over or (tick if b.leads() else 0)

        assert isinstance(a.running.exception(), LeadershipLostError)
        assert took_over - gave_up > 10 * (DURATION - RENEW_DEADLINE) - 10 * RETRY


async def test_a_leader_survives_answers_that_get_lost_now_and_then() -> None:
    clock = VirtualClock()
    async with candidates(clock, "a") as (_, [a]):
        await clock.advance(5)
        for _round in range(20):
            a.leases.loses_responses = not a.leases.loses_responses
            await clock.advance(3)

        assert a.leads()
        assert not a.lost


async def test_a_candidate_whose_taking_was_never_answered_finds_itself_the_holder() -> None:
    clock = VirtualClock()
    async with candidates(clock, "a") as (server, [a]):
        a.leases.loses_responses = True
        await clock.advance(1)
        assert server.spec["holderIdentity"] == "a"
        assert not a.leads()

        a.leases.loses_responses = False
        await clock.advance(2 * RETRY)

        assert a.leads()
        assert server.spec["leaseTransitions"] == 0


@pytest.mark.parametrize("what", ["taken", "deleted"])
async def test_a_leader_whose_lease_is_taken_or_deleted_stops_at_its_next_write(what: str) -> None:
    clock = VirtualClock()
    async with candidates(clock, "a") as (server, [a]):
        await clock.advance(5)
        assert server.lease is not None
        if what == "taken":
            server.write({**server.lease, "spec": {**server.spec, "holderIdentity": "thief"}}, create=False)
        else:
            server.delete(KEY)

        await clock.advance(RETRY + 1)

        assert a.lost
        assert not a.leads()


async def test_a_change_of_the_lease_by_hand_that_keeps_the_holder_costs_nothing() -> None:
    clock = VirtualClock()
    async with candidates(clock, "a") as (server, [a]):
        await clock.advance(5)
        assert server.lease is not None
        labelled = {**server.lease, "metadata": {**server.lease["metadata"], "labels": {"team": "red"}}}
        server.write(labelled, create=False)

        await clock.advance(30)

        assert a.leads()
        assert server.get(KEY)["metadata"]["labels"] == {"team": "red"}, "what others wrote stays"


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(
            {"duration": 10, "renew_deadline": 10}, id="no time to stop between giving up and the next leader"
        ),
        pytest.param({"retry_period": 12}, id="no second attempt before the deadline"),
    ],
)
def test_settings_that_are_not_safe_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="leases need"):
        LeaseSettings(**wrong)


def test_identities_are_never_the_same() -> None:
    assert new_identity() != new_identity()


async def play(script: list[tuple[str, int, float]]) -> None:
    clock = VirtualClock()
    async with candidates(clock, "a", "b", "c") as (_, standing):
        for fault, who, seconds in script:
            network = standing[who].leases
            match fault:
                case "cut":
                    network.reachable = not network.reachable
                case "hang":
                    network.hangs = not network.hangs
                case _:
                    network.loses_responses = not network.loses_responses
            for _tick in range(int(seconds)):
                await clock.advance(1)
                assert sum(candidate.leads() for candidate in standing) <= 1


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["cut", "hang", "lose"]), st.integers(0, 2), st.sampled_from([1.0, 4.0, 20.0])),
        max_size=12,
    )
)
def test_whatever_the_network_does_there_are_never_two_leaders(script: list[tuple[str, int, float]]) -> None:
    asyncio.run(play(script))
