"""Whether an operator works: Leases decide, and a Lease that was left behind does not hide one that is renewed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from eso_api.crd import MEMBER_LABEL
from eso_operator.election import Heartbeat, election_of
from eso_operator.settings import LeaderSettings, Settings
from eso_testkit.operator.operators import Bench
from eso_tools.status.operators import (
    DEFAULT_LEASE,
    OperatorLease,
    Operators,
    OperatorState,
    operators_of,
    read_operators,
)
from kubebase.clock import SystemClock, rfc3339
from kubebase.meta import ObjectKey
from kubebase.testing.clock import START as NOW
from kubebase.testing.clock import VirtualClock
from kubebase.testing.waiting import eventually
from kuberun import config
from kuberun.client import Client
from kuberun.errors import Forbidden
from kuberun.leader import LEASES
from kuberun.requests import Selection
from kuberun.transport import AiohttpTransport

WHEN = rfc3339(NOW - timedelta(minutes=5))


def lease(name: str = DEFAULT_LEASE, *, ago: float = 3, holder: str = "pod-1", election: str = DEFAULT_LEASE) -> Any:
    renewed = NOW - timedelta(seconds=ago)
    return OperatorLease(ObjectKey("eso", name), election, holder, renewed, timedelta(seconds=15))


@pytest.mark.parametrize(
    ("leases", "state", "since"),
    [
        pytest.param([], OperatorState.UNKNOWN, "", id="without a Lease nothing is known"),
        pytest.param([lease()], OperatorState.WORKS, "", id="a renewed Lease is held"),
        pytest.param([lease(ago=15)], OperatorState.WORKS, "", id="a Lease is held for its whole duration"),
        pytest.param([lease(ago=300)], OperatorState.ABSENT, WHEN, id="an expired Lease is not held"),
        pytest.param([lease(ago=300, holder="")], OperatorState.ABSENT, WHEN, id="a released Lease is not held"),
        pytest.param([lease(ago=3, holder="")], OperatorState.ABSENT, rfc3339(NOW - timedelta(seconds=3)), id="just"),
        pytest.param(
            [lease(ago=900), lease("x", ago=300, election="x")], OperatorState.ABSENT, WHEN, id="the last one counts"
        ),
        pytest.param(
            [lease(ago=900), lease("x", election="x")], OperatorState.WORKS, "", id="one operator that works is enough"
        ),
        pytest.param(
            [replace(lease(), renewed=None)], OperatorState.ABSENT, "", id="a Lease that was never renewed is not held"
        ),
    ],
)
def test_leases_say_whether_an_operator_works(leases: list[Any], state: OperatorState, since: str) -> None:
    found = operators_of(leases, NOW)

    assert (found.state, found.since, found.all_work) == (state, since, state is not OperatorState.ABSENT)


def test_the_lease_of_an_operator_that_is_gone_is_a_note_beside_one_that_works() -> None:
    found = operators_of([lease(), lease("old", ago=300, election="old"), lease("bye", holder="", election="bye")], NOW)

    assert found.notes == (f"Lease eso/old is not renewed (last at {WHEN}); delete it if its operator was uninstalled",)
    assert found.all_work


def test_a_shard_that_no_replica_holds_is_a_problem_and_a_former_shard_is_not() -> None:
    member = lease(f"{DEFAULT_LEASE}-member-2-0badcafe")
    shards = [lease(f"{DEFAULT_LEASE}-shard-{number}", ago=3 if number == 0 else 300) for number in range(3)]

    found = operators_of([member, *shards], NOW)

    assert found.unheld == (
        f"no operator holds Lease eso/{DEFAULT_LEASE}-shard-1: the objects of this shard are not refreshed",
    )
    assert (found.state, found.all_work) == (OperatorState.WORKS, False)


class Denied:
    """A client whose user may list Leases in some namespaces only."""

    def __init__(self, *allowed: str) -> None:
        self._allowed = allowed
        self.asked: list[str] = []

    async def list(self, _: Any, selection: Selection) -> Any:
        self.asked.append(selection.namespace)
        if selection.namespace not in self._allowed:
            raise Forbidden(403, "Forbidden", "no")
        spec = {"holderIdentity": "pod", "renewTime": rfc3339(NOW), "leaseDurationSeconds": 15}
        metadata = {"namespace": selection.namespace, "name": DEFAULT_LEASE}
        return type("Page", (), {"items": [{"metadata": metadata, "spec": spec}]})()


@pytest.mark.parametrize(
    ("allowed", "state"),
    [
        pytest.param(("external-secrets",), OperatorState.WORKS, id="the default namespace of the chart"),
        pytest.param(("team",), OperatorState.WORKS, id="the namespace that is shown"),
        pytest.param((), OperatorState.UNKNOWN, id="none"),
    ],
)
async def test_a_user_who_may_not_list_all_leases_sees_those_of_some_namespaces(
    allowed: tuple[str, ...], state: OperatorState
) -> None:
    found = await read_operators(Denied(*allowed), NOW, "team")  # type: ignore[arg-type]  # a fake

    assert found.state is state


# --- live -------------------------------------------------------------------------------------------------------------


async def _authenticated(client: Client, namespace: str) -> Operators:
    """Judge the Leases of one namespace only: other tests have operators too."""
    now = SystemClock().now()
    page = await client.list(LEASES, Selection(namespace, label_selector=MEMBER_LABEL))
    assert len(page.items) <= 1

    class Here:
        async def list(self, _: Any, selection: Selection) -> Any:
            return await client.list(LEASES, replace(selection, namespace=namespace))

    return await read_operators(Here(), now)  # type: ignore[arg-type]  # limits the namespaces


@pytest.mark.live
@pytest.mark.parametrize("elected", [pytest.param(True, id="leader election"), pytest.param(False, id="no election")])
async def test_a_running_operator_is_seen_and_one_that_stopped_is_absent(bench: Bench, elected: bool) -> None:
    settings = replace(bench.settings, leader=LeaderSettings(enabled=elected, lease="of-my-own"))
    client = Client(AiohttpTransport(config.load(bench.kubeconfig)))

    async def works() -> bool:
        return (await _authenticated(client, bench.namespace)).state is OperatorState.WORKS

    before = await _authenticated(client, bench.namespace)
    async with bench.operator(settings):
        await eventually(works, "no Lease says that the operator works")
    after = await _authenticated(client, bench.namespace)
    await client.close()

    assert before.state is OperatorState.UNKNOWN
    assert after.state is OperatorState.ABSENT
    assert after.since


@pytest.mark.live
async def test_a_lease_that_another_program_created_gets_the_label_when_it_is_taken(bench: Bench) -> None:
    client = Client(AiohttpTransport(config.load(bench.kubeconfig)))
    key = ObjectKey(bench.namespace, "of-my-own")
    await client.create(LEASES, {"metadata": {"namespace": key.namespace, "name": key.name}, "spec": {}})
    settings = replace(bench.settings, leader=LeaderSettings(enabled=True, lease=key.name))

    election = election_of(settings, client, SystemClock())
    assert election is not None
    running = asyncio.ensure_future(election.run())
    await election.wait_acquired()
    running.cancel()
    taken = await client.get(LEASES, key)
    await client.close()

    assert taken["metadata"]["labels"] == {MEMBER_LABEL: key.name}


async def test_a_heartbeat_that_may_not_be_written_is_tried_again_and_ends_nothing() -> None:
    clock, leases = VirtualClock(), _Refusing()
    heartbeat = Heartbeat(Settings(core_namespace="eso"), leases, clock)

    running = asyncio.ensure_future(heartbeat.run())
    await clock.advance(100)
    running.cancel()
    await asyncio.wait({running})

    assert running.cancelled()
    assert leases.requests == 11


class _Refusing(Client):
    def __init__(self) -> None:
        self.requests = 0

    async def get(self, kind: Any, key: Any, **_: Any) -> Any:  # noqa: ARG002 - as in Client
        self.requests += 1
        raise Forbidden(403, "Forbidden", "no")
