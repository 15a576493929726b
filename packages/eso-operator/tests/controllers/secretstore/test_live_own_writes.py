"""A lagging watch: a report is compared with our own last write, not with an older status."""

from __future__ import annotations

import pytest

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_api.v2.providerclass import PROVIDER_CLASS
from eso_testkit.operator.operators import SERVICE, Bench, scripted, with_interval
from eso_testkit.operator.transports import LaggingWatch
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.meta import Condition, JsonObject
from kubebase.testing.waiting import eventually
from kuberun.errors import ServiceUnavailable
from kuberun.requests import Request

pytestmark = pytest.mark.live

STORES = SECRET_STORE.resource()
EXTERNAL_SECRETS = EXTERNAL_SECRET.resource()
CLASSES = PROVIDER_CLASS.resource()
FAKE: JsonObject = {"provider": {"fake": {"data": []}}}
EVERY_SECOND: JsonObject = {
    "refreshInterval": "1s",
    "secretStoreRef": {"name": "fake"},
    "data": [{"secretKey": "key", "remoteRef": {"key": "a"}}],
}


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


async def test_a_class_whose_provider_is_back_before_its_own_verdict_is_seen_is_ready_again(bench: Bench) -> None:
    watch = LaggingWatch("providerclasses")

    async with bench.operator(with_interval(bench.settings, 1.0), through=watch.over):
        host = await bench.install(scripted())
        await bench.ready(CLASSES, SERVICE, is_ready)
        watch.flowing.clear()
        await host.stop()
        await bench.ready(CLASSES, SERVICE, is_broken)
        await host.start()

        await bench.ready(CLASSES, SERVICE, is_ready)

        watch.flowing.set()


async def test_an_externalsecret_that_recovers_before_its_own_verdict_is_seen_is_ready_again(bench: Bench) -> None:
    watch = LaggingWatch("externalsecrets")

    async with bench.operator(through=watch.over):
        host = await bench.install(scripted(data={"a": b"1"}))
        await bench.create(STORES, "fake", spec=FAKE)
        await bench.create(EXTERNAL_SECRETS, "one", spec=EVERY_SECOND)
        await bench.ready(EXTERNAL_SECRETS, "one", is_ready)
        watch.flowing.clear()
        host.provider.item_errors["a"] = ProviderError(ErrorReason.SECRET_NOT_FOUND, "not there")
        await bench.ready(EXTERNAL_SECRETS, "one", is_broken)
        host.provider.item_errors.clear()

        await bench.ready(EXTERNAL_SECRETS, "one", is_ready)

        watch.flowing.set()


class DeafOperator(LaggingWatch):
    """An operator whose reads of one object are rejected too while `refusing` is set; `refused` counts them."""

    def __init__(self, plural: str, name: str) -> None:
        super().__init__(plural)
        self._path = f"/{plural}/{name}"
        self.refusing = False
        self.refused = 0

    async def request(self, request: Request) -> bytes:
        if self.refusing and request.method == "GET" and request.path.endswith(self._path):
            self.refused += 1
            raise ServiceUnavailable(503, "ServiceUnavailable", "the API server is away")
        return await super().request(request)


async def test_a_store_that_recovers_while_its_own_verdict_cannot_be_read_is_ready_again(bench: Bench) -> None:
    """The cached status equals the new verdict: without our own last write there would be no difference to write."""
    deaf = DeafOperator("secretstores", "fake")

    async def asked_twice() -> bool:
        return deaf.refused >= 2

    async with bench.operator(through=deaf.over):
        host = await bench.install(scripted(data={"a": b"1"}))
        await bench.create(STORES, "fake", spec=FAKE)
        await bench.create(EXTERNAL_SECRETS, "one", spec=EVERY_SECOND)
        await bench.ready(EXTERNAL_SECRETS, "one", is_ready)
        deaf.flowing.clear()
        await host.stop()
        await bench.ready(STORES, "fake", is_broken)
        deaf.refusing = True
        await host.start()
        await eventually(asked_twice, "no reconcile looked at the store")

        deaf.refusing = False

        await bench.ready(STORES, "fake", is_ready)
        deaf.flowing.set()
