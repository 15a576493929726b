"""The directory of providers, and the notifications about its changes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from eso_operator.certificates.problems import CertificateError, Problem, ProblemName
from eso_operator.providers.directory import Change, Directory
from eso_operator.providers.errors import NoResponseError, restated
from eso_operator.providers.gateway import Gateway
from eso_operator.providers.settings import START_SECONDS, DirectorySettings
from eso_operator.stores.resolved import Connection, SecretTls
from eso_testkit.operator.boundstores import KIND, TLS, bound_store, endpoint, wanted
from eso_testkit.operator.gateways import LoopbackGateway
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.status import TransportError
from eso_wire.values import Handshake, KindInfo, KindRole, Operation
from eso_wire.versions import ProtocolVersion

CONNECTION = Connection(endpoint(), TLS)
REFRESH = DirectorySettings().refresh


@dataclass
class Listed:
    loop: LoopbackGateway
    heard: list[Change] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.directory = Directory(self.loop.gateway, self.loop.clock, draw=lambda: 0.0)
        self.directory.listen(lambda _connection, change: self.heard.append(change))

    @property
    def calls(self) -> int:
        return self.loop.provider.calls["Handshake"]

    async def ask(self) -> None:
        """A handshake that may fail, with the time that its retries take."""
        await self._through(self.directory.ensure(CONNECTION))

    async def refresh(self) -> None:
        """The same, although there was one before."""
        await self._through(self.directory.refresh(CONNECTION))

    async def _through(self, handshake: Coroutine[Any, Any, Handshake]) -> None:
        task = asyncio.create_task(handshake)
        await self.loop.clock.settle()
        while not task.done():
            await self.loop.clock.advance(0.5)
        task.exception()


@pytest.fixture
async def listed(loop: LoopbackGateway) -> Listed:
    loop.provider.kinds = (KindInfo(KIND, KindRole.STORE, frozenset({Operation.GET}), v1_provider_key="scripted"),)
    return Listed(loop)


async def test_a_connection_is_asked_once_and_then_known(listed: Listed) -> None:
    for _ in range(3):
        await listed.directory.ensure(CONNECTION)

    assert listed.calls == 1
    assert listed.heard == [Change.CONNECTED]


async def test_concurrent_first_users_share_one_handshake(listed: Listed) -> None:
    listed.loop.provider.latency = 1.0
    tasks = [asyncio.create_task(listed.directory.ensure(CONNECTION)) for _ in range(10)]

    await listed.loop.clock.run_until_idle()

    assert listed.calls == 1
    assert all(task.exception() is None for task in tasks)


async def test_a_failure_is_cached_for_all_callers(listed: Listed) -> None:
    listed.loop.down = TransportError("refused")
    await listed.ask()
    started = listed.loop.registry.get_sample_value(
        "eso_grpc_client_started_total", {"method": "Handshake", "provider": "scripted"}
    )

    for _ in range(20):
        with pytest.raises(TransportError):
            await listed.directory.ensure(CONNECTION)

    assert started == listed.loop.registry.get_sample_value(
        "eso_grpc_client_started_total", {"method": "Handshake", "provider": "scripted"}
    )
    assert listed.directory.handshakes[CONNECTION.key] == "provider scripted was not reached: refused"
    assert listed.heard == [Change.FAILED]


async def test_callers_do_not_wait_for_the_next_try_at_a_failed_provider(listed: Listed) -> None:
    """The attempt may hang, and each caller holds a worker; callers are notified when the provider responds."""
    listed.loop.down = TransportError("refused")
    await listed.ask()
    listed.loop.down, listed.loop.provider.hangs = None, True
    await listed.loop.clock.advance(REFRESH)
    tries = asyncio.create_task(listed.directory.ensure(CONNECTION))
    await listed.loop.clock.settle()

    with pytest.raises(TransportError, match="refused"):
        async with asyncio.timeout(30):
            await listed.directory.ensure(CONNECTION)

    assert not tries.done()
    tries.cancel()
    await asyncio.wait([tries])


async def test_a_failure_with_another_cause_is_news_and_the_same_one_is_not(listed: Listed) -> None:
    """Conditions name the cause, so they have to follow it."""
    running = asyncio.create_task(listed.directory.run())
    listed.loop.down = TransportError("refused")
    await listed.ask()
    await listed.loop.clock.advance(REFRESH)
    heard_before = list(listed.heard)

    listed.loop.down = ProviderError(ErrorReason.PERMISSION_DENIED, "you are not the one")
    await listed.loop.clock.advance(2 * REFRESH)

    assert heard_before == [Change.FAILED]
    assert listed.heard == [Change.FAILED, Change.FAILED]
    running.cancel()


async def test_a_provider_that_first_fails_is_asked_again_without_a_caller(listed: Listed) -> None:
    """Objects that wait for a provider do not ask for it meanwhile."""
    running = asyncio.create_task(listed.directory.run())
    listed.loop.down = TransportError("refused")
    await listed.ask()
    listed.loop.down = None

    await listed.loop.clock.advance(5.0)

    assert listed.heard == [Change.FAILED, Change.CONNECTED]
    running.cancel()


async def test_one_users_failure_is_not_anothers(listed: Listed) -> None:
    listed.loop.down = TransportError("refused")
    await listed.ask()
    listed.loop.down = None

    handshake = await listed.directory.ensure(Connection(endpoint(), SecretTls("other", "own")))

    assert handshake.provider_name == "scripted"


async def test_a_restarted_provider_is_noticed(listed: Listed) -> None:
    running = asyncio.create_task(listed.directory.run())
    await listed.directory.ensure(CONNECTION)

    listed.loop.provider.instance_id = "instance-2"
    await listed.loop.clock.advance(REFRESH + 1)

    assert listed.heard == [Change.CONNECTED, Change.NEW_INSTANCE]
    running.cancel()


async def test_alternating_replicas_are_not_reported_as_a_change(listed: Listed) -> None:
    for number in range(6):
        listed.loop.provider.instance_id = f"replica-{number % 2}"
        await listed.directory.refresh(CONNECTION)

    assert listed.heard == [Change.CONNECTED, Change.NEW_INSTANCE]


async def test_a_provider_that_serves_something_else_is_news(listed: Listed) -> None:
    await listed.directory.ensure(CONNECTION)

    listed.loop.provider.kinds = ()
    await listed.directory.refresh(CONNECTION)

    assert listed.heard == [Change.CONNECTED, Change.DIFFERENT]


async def test_a_known_provider_that_is_away_stays_known_and_is_found_again(listed: Listed) -> None:
    running = asyncio.create_task(listed.directory.run())
    await listed.directory.ensure(CONNECTION)
    listed.loop.down = TransportError("refused")

    listed.directory.suspect(CONNECTION)
    await listed.loop.clock.advance(20.0)
    away = await listed.directory.ensure(CONNECTION)
    listed.loop.down = None
    listed.loop.provider.instance_id = "instance-2"
    await listed.loop.clock.advance(REFRESH)

    assert away.instance_id == "instance-1"
    assert listed.heard == [Change.CONNECTED, Change.FAILED, Change.NEW_INSTANCE]
    running.cancel()


async def test_a_thousand_failures_of_calls_ask_for_one_handshake(listed: Listed) -> None:
    running = asyncio.create_task(listed.directory.run())
    listed.loop.gateway.listen(lambda connection, _error: listed.directory.suspect(connection))
    await listed.directory.ensure(CONNECTION)
    listed.loop.provider.broken = ProviderError(ErrorReason.UNSUPPORTED_KIND, "no such kind any more")
    listed.loop.provider.kinds = ()
    await listed.loop.clock.advance(10.0)

    for number in range(1000):
        with pytest.raises(ProviderError):
            await listed.loop.gateway.get(bound_store(identity=str(number)), wanted("a"))
    await listed.loop.clock.advance(1.0)

    assert listed.calls == 2
    assert listed.heard == [Change.CONNECTED, Change.DIFFERENT]
    running.cancel()


@pytest.mark.parametrize(
    ("speaks", "works"),
    [
        pytest.param((ProtocolVersion(2, 0), ProtocolVersion(2, 1)), True, id="one minor older"),
        pytest.param((ProtocolVersion(2, 2), ProtocolVersion(2, 3)), True, id="one minor newer"),
        pytest.param((ProtocolVersion(3, 0),), False, id="another major"),
        pytest.param((), False, id="none at all"),
    ],
)
async def test_versions(listed: Listed, speaks: tuple[ProtocolVersion, ...], works: bool) -> None:
    listed.loop.provider.speaks = speaks

    if works:
        assert (await listed.directory.ensure(CONNECTION)).selected in speaks
        return
    with pytest.raises(ProviderError, match=r"this operator speaks 2\.1, 2\.2") as caught:
        await listed.directory.ensure(CONNECTION)
    assert caught.value.reason is ErrorReason.PROTOCOL_INCOMPATIBLE


async def test_the_kinds_of_an_incompatible_provider_are_known(listed: Listed) -> None:
    """R141: so that its stores name it as the cause."""
    listed.loop.provider.speaks = (ProtocolVersion(3, 0),)

    with pytest.raises(ProviderError):
        await listed.directory.ensure(CONNECTION)

    known = listed.directory.handshakes[CONNECTION.key]
    assert isinstance(known, Handshake)
    assert (known.selected, known.supported) == (None, (ProtocolVersion(3, 0),))


async def test_a_forgotten_connection_is_gone(listed: Listed) -> None:
    await listed.directory.ensure(CONNECTION)

    listed.directory.forget(CONNECTION)

    assert not listed.directory.handshakes
    assert listed.heard[-1] is Change.FORGOTTEN


# --- providers that start ---------------------------------------------------------------------------------------------


class Failing(Gateway):
    """A gateway whose handshakes fail with this error until it is None."""

    def __init__(self, error: ProviderError | None) -> None:
        self.error = error
        self.asked = 0

    async def handshake(self, _endpoint: object, _tls: object) -> Handshake:
        self.asked += 1
        if self.error is not None:
            raise restated(self.error)
        return Handshake(ProtocolVersion(2, 2), (ProtocolVersion(2, 2),), "scripted", "1.0.0", "instance-1", ())


def found(code: str) -> TransportError:
    """The failure of a connection in which the probe found this."""
    error = restated(TransportError("x"), backend_code=code)
    assert isinstance(error, TransportError)
    return error


def certificate(name: ProblemName) -> CertificateError:
    return CertificateError(Problem(name, "x"))


@pytest.mark.parametrize(
    ("error", "starts"),
    [
        pytest.param(certificate(ProblemName.NOT_ISSUED), True, id="it waits for its certificate"),
        pytest.param(found("DNSFailure"), True, id="no pod of it is ready yet"),
        pytest.param(found("Refused"), True, id="nothing listens there yet"),
        pytest.param(found("Timeout"), True, id="no answer from there yet"),
        pytest.param(NoResponseError("x"), True, id="it is too busy to answer"),
        pytest.param(found("UnknownCA"), False, id="another authority"),
        pytest.param(found("HostnameMismatch"), False, id="another name"),
        pytest.param(certificate(ProblemName.SERVICE_NOT_FOUND), False, id="its Service does not exist"),
        pytest.param(certificate(ProblemName.SECRET_NOT_FOUND), False, id="a Secret of the user does not exist"),
        pytest.param(ProviderError(ErrorReason.PROTOCOL_INCOMPATIBLE, "x"), False, id="another protocol"),
    ],
)
async def test_a_provider_that_never_answered_is_starting_if_it_fails_as_one_that_starts(
    loop: LoopbackGateway, error: ProviderError, starts: bool
) -> None:
    directory = Directory(Failing(error), loop.clock, draw=lambda: 0.0)

    with pytest.raises(ProviderError):
        await directory.ensure(CONNECTION)

    assert directory.starting(CONNECTION) == (START_SECONDS if starts else 0.0)


async def test_a_start_ends_with_its_time_or_with_the_first_answer(loop: LoopbackGateway) -> None:
    gateway = Failing(found("Refused"))
    directory = Directory(gateway, loop.clock, draw=lambda: 0.0)
    left = []
    for _ in range(4):
        with pytest.raises(ProviderError):
            await directory.refresh(CONNECTION)
        left.append(directory.starting(CONNECTION))
        await loop.clock.advance(START_SECONDS / 2)
    gateway.error = None
    await directory.refresh(CONNECTION)
    gateway.error = found("Refused")
    with pytest.raises(ProviderError):
        await directory.refresh(CONNECTION)

    assert left == [START_SECONDS, START_SECONDS / 2, 0.0, 0.0]
    assert directory.starting(CONNECTION) == 0.0  # it answered before: an outage


async def test_a_provider_outside_the_cluster_is_not_ours_to_start(loop: LoopbackGateway) -> None:
    outside = Connection(replace(endpoint(), service=None), TLS)
    directory = Directory(Failing(found("Refused")), loop.clock)

    with pytest.raises(ProviderError):
        await directory.ensure(outside)

    assert directory.starting(outside) == 0.0


async def test_a_provider_that_starts_is_asked_every_two_seconds_and_later_less_often(loop: LoopbackGateway) -> None:
    gateway = Failing(found("Refused"))
    directory = Directory(gateway, loop.clock, draw=lambda: 0.0)
    with pytest.raises(ProviderError):
        await directory.ensure(CONNECTION)
    running = asyncio.create_task(directory.run())
    await loop.clock.settle()
    for _ in range(20):
        await loop.clock.advance(1.0)
    early = gateway.asked
    await loop.clock.advance(START_SECONDS)
    later = gateway.asked
    for _ in range(20):
        await loop.clock.advance(1.0)

    assert early >= 10
    assert gateway.asked - later <= 2
    running.cancel()


async def test_a_provider_that_eso_up_may_start_is_expected_for_a_while_by_all_that_want_it(
    loop: LoopbackGateway,
) -> None:
    directory = Directory(Failing(None), loop.clock)

    first = directory.expecting("spec.provider.fake")
    await loop.clock.advance(20.0)
    second = directory.expecting("spec.provider.fake")
    await loop.clock.advance(20.0)

    assert (first, second) == (30.0, 10.0)
    assert directory.expecting("spec.provider.fake") == 0.0
    assert directory.expecting("spec.provider.chef") == 30.0


async def test_a_provider_is_unreachable_until_it_answers_and_counts_as_returned_for_a_while(listed: Listed) -> None:
    """Meanwhile its stores are validated again."""
    await listed.ask()
    before = listed.directory.unreachable(CONNECTION), listed.directory.returned(CONNECTION)
    listed.loop.down = TransportError("refused")
    await listed.refresh()
    away = listed.directory.unreachable(CONNECTION)
    listed.loop.down = None
    await listed.refresh()

    back = listed.directory.unreachable(CONNECTION), listed.directory.returned(CONNECTION)
    await listed.loop.clock.advance(DirectorySettings().revalidate)

    assert before == (None, 0.0)
    assert isinstance(away, TransportError)
    assert back == (None, DirectorySettings().revalidate)
    assert listed.directory.returned(CONNECTION) == 0.0


async def test_a_provider_that_answers_with_an_error_is_reached(listed: Listed) -> None:
    listed.loop.down = ProviderError(ErrorReason.PERMISSION_DENIED, "you are not the one")
    await listed.ask()

    assert listed.directory.unreachable(CONNECTION) is None
