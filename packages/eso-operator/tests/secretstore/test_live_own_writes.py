"""A watch that lags: what is said about an object is said against our own last word, not against an older one."""

from __future__ import annotations

import pytest

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_operator.testing.operators import Bench, scripted, with_interval
from eso_operator.testing.transports import LaggingWatch
from eso_wire.errors import ErrorReason, ProviderError
from kuberun.meta import Condition, JsonObject

pytestmark = pytest.mark.live

STORES = SECRET_STORE.resource()
EXTERNAL_SECRETS = EXTERNAL_SECRET.resource()
FAKE: JsonObject = {"provider": {"fake": {"data": []}}}


def is_ready(condition: Condition) -> bool:
    return condition.status == "True"


def is_broken(condition: Condition) -> bool:
    return condition.status == "False"


async def test_a_store_that_recovers_before_its_own_verdict_is_seen_is_ready_again(bench: Bench) -> None:
    watch = LaggingWatch("secretstores")

    async with bench.operator(with_interval(bench.settings, 1.0), through=watch.over):
        host = await bench.install(scripted())
        await bench.create(STORES, "fake", spec=FAKE)
        await bench.ready(STORES, "fake", is_ready)
        watch.flowing.clear()
        await host.stop()
        await bench.ready(STORES, "fake", is_broken)
        await host.start()

        await bench.ready(STORES, "fake", is_ready)

        watch.flowing.set()


async def test_an_externalsecret_that_recovers_before_its_own_verdict_is_seen_is_ready_again(bench: Bench) -> None:
    watch = LaggingWatch("externalsecrets")

    async with bench.operator(through=watch.over):
        host = await bench.install(scripted(data={"a": b"1"}))
        await bench.create(STORES, "fake", spec=FAKE)
        entry = {"secretKey": "key", "remoteRef": {"key": "a"}}
        spec = {"refreshInterval": "1s", "secretStoreRef": {"name": "fake"}, "data": [entry]}
        await bench.create(EXTERNAL_SECRETS, "one", spec=spec)
        await bench.ready(EXTERNAL_SECRETS, "one", is_ready)
        watch.flowing.clear()
        host.provider.item_errors["a"] = ProviderError(ErrorReason.SECRET_NOT_FOUND, "not there")
        await bench.ready(EXTERNAL_SECRETS, "one", is_broken)
        host.provider.item_errors.clear()

        await bench.ready(EXTERNAL_SECRETS, "one", is_ready)

        watch.flowing.set()
