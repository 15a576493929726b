"""ExternalSecrets that hear of changes from a provider process: what arrives without waiting, also after it was killed.

No interval here ends during a test.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.v2.secretstore import SECRET_STORE_V2
from eso_api.values import SecretBytes
from eso_operator.changes.pace import PaceSettings
from eso_operator.providers.settings import SubscriptionSettings
from eso_operator.wiring import Operator
from eso_wire.values import PushBatch, PushItem, RemoteRef
from kubebase.backoff import ExponentialBackoff
from kubebase.meta import ObjectKey
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import SECRETS

pytestmark = pytest.mark.live

ES = EXTERNAL_SECRET.resource()
STORES = SECRET_STORE_V2.resource()
KEY = "pushed"
STORM = 1000


@pytest.fixture(autouse=True)
def short_gap(site: Any) -> None:
    """Between two reads for the same reason; how long that is, is tested in virtual time."""
    site.tempo = replace(site.tempo, pace=PaceSettings(gap=2.0))


async def put(site: Any, text: str) -> None:
    """Change the value in the backend, as another writer would."""
    item = PushItem("one", RemoteRef(KEY), SecretBytes(text.encode()))
    (result,) = await site.operator.gateway.push(await site.bound(), PushBatch((item,), idempotency_key=text))
    assert not isinstance(result.outcome, Exception)


async def follow(site: Any) -> None:
    """Create an ExternalSecret and wait until it is synced."""
    store = {"apiVersion": STORES.api_version, "kind": STORES.kind, "name": "fake"}
    data = [{"secretKey": "password", "remoteRef": {"key": KEY}}]
    await site.bench.create(ES, "db", spec={"secretStoreRef": store, "refreshInterval": "24h", "data": data})
    await site.bench.ready(ES, "db", lambda condition: condition.status == "True")


async def started(operator: Operator, method: str) -> int:
    """Return the number of calls of that method."""
    return _counted(operator, f'eso_grpc_client_started_total{{method="{method}",')


async def answered(operator: Operator, method: str) -> int:
    """Return the number of calls of that method that succeeded."""
    return _counted(operator, f'eso_grpc_client_handled_total{{code="OK",method="{method}",')


def _counted(operator: Operator, series: str) -> int:
    lines = operator.metrics.exposition().decode().splitlines()
    return int(sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(series)))


async def until(site: Any, text: str) -> None:
    async def arrived() -> bool:
        found = await site.bench.find(SECRETS, "db")
        return found is not None and base64.b64decode(found["data"]["password"]).decode() == text

    await eventually(arrived, "the value does not arrive")


async def synced(site: Any) -> None:
    """A store, a value in it, and an ExternalSecret that has read it."""
    await site.create_store()
    await site.ready()
    await put(site, "v1")
    await follow(site)


async def followed(site: Any) -> None:
    """The same, with an open stream of changes."""
    await synced(site)
    await opened(site.operator)


async def opened(operator: Operator) -> None:
    await eventually(lambda: answered(operator, "Subscribe"), "no stream is opened")


async def test_changes_arrive_and_none_is_missed_by_a_provider_that_is_killed(site: Any) -> None:
    """The fake backend lives and dies with the process: the last value is written into an empty one."""
    await site.start()
    async with site.running():
        await followed(site)

        await put(site, "v2")
        await until(site, "v2")
        site.provider.kill()
        await site.broken("Refused", site.provider.address)
        await site.start()
        await site.ready()
        await put(site, "v3")

        await until(site, "v3")


async def test_a_storm_of_events_costs_few_reads(site: Any) -> None:
    site.fails({"method": "subscribe", "fault": {"type": "events", "count": STORM}})
    await site.start()
    async with site.running() as operator:
        await followed(site)

        await put(site, "v2")
        await until(site, "v2")

        assert 0 < await answered(operator, "GetSecrets") <= STORM / 50


async def test_a_stream_that_always_fails_leaves_everything_else_alone(site: Any) -> None:
    site.fails({"method": "subscribe", "fault": {"type": "error", "reason": "PERMISSION_DENIED"}})
    await site.start()
    async with site.running() as operator:
        await synced(site)
        await eventually(lambda: _twice(operator), "the stream is not opened again")

        await put(site, "v2")
        await site.bench.patch(ES, "db", {"metadata": {"annotations": {"force-sync": "1"}}})

        await until(site, "v2")
        await site.bench.ready(ES, "db", lambda condition: condition.status == "True")


async def _twice(operator: Operator) -> bool:
    return await started(operator, "Subscribe") >= 2


async def test_an_operator_that_starts_again_goes_on_where_its_stream_was(site: Any) -> None:
    """Its reads after that are caused by the next change."""
    await site.start()
    async with site.running():
        await followed(site)
        await put(site, "v2")
        await until(site, "v2")
        await recorded(site)

    async with site.bench.operator(site.settings) as operator:
        site.operator = operator
        await opened(operator)
        await site.ready()
        await put(site, "v3")
        await until(site, "v3")

        assert await answered(operator, "GetSecrets") == 1


async def recorded(site: Any) -> None:
    """Wait until the last refresh is recorded: an object that is not fresh is read, whatever the stream says."""
    await site.bench.ready(ES, "db", lambda condition: condition.status == "True")

    async def idle() -> bool:
        return site.operator.changes.notified_at(ObjectKey(site.namespace, "db")) is None

    await eventually(idle, "what was read is not on record")


async def test_a_provider_that_has_forgotten_where_the_stream_was_has_everything_read_once(site: Any) -> None:
    await site.start()
    async with site.running():
        await followed(site)
        await recorded(site)
    site.provider.kill()
    await site.start()

    async with site.bench.operator(site.settings) as operator:
        await eventually(lambda: answered(operator, "GetSecrets"), "nothing is read")


async def test_a_store_whose_stream_cannot_be_held_says_so_and_stays_ready(site: Any) -> None:
    hasty = SubscriptionSettings(degraded_after=0.0, proven_after=0.0, reconnect=ExponentialBackoff(first=0.2, cap=1.0))
    site.tempo = replace(site.tempo, runtime=replace(site.tempo.runtime, subscriptions=hasty))
    site.fails({"method": "subscribe", "fault": {"type": "error", "reason": "PERMISSION_DENIED"}})
    await site.start()
    async with site.running():
        await synced(site)

        await eventually(lambda: _is_degraded(site), "the store does not say that its stream is broken")
        await site.ready()
        site.fails()

        await eventually(lambda: _is_fine(site), "the store goes on saying that its stream is broken")
        await site.ready()
        await put(site, "v2")
        await until(site, "v2")


async def _is_degraded(site: Any) -> bool:
    store = await site.bench.find(STORES, "fake")
    return any(
        one["type"] == "PushRefreshDegraded" and one["status"] == "True" for one in store["status"]["conditions"]
    )


async def _is_fine(site: Any) -> bool:
    return not await _is_degraded(site)
