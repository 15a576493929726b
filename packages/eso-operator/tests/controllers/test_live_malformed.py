"""Objects that the API server took and their type refuses: people hear of them, and they can be deleted.

A CRD of another version would let them in. Here the answers of the API server are changed on their way to the operator.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from eso_api.externalsecret import CLUSTER_EXTERNAL_SECRET
from eso_api.pushsecret import PUSH_SECRET
from eso_operator.targets.metadata import FINALIZER
from eso_testkit.operator.operators import Bench
from eso_testkit.operator.scenes import ES, STORES
from eso_testkit.operator.transports import Between
from kubebase.meta import JsonObject, Resource
from kubebase.testing.waiting import eventually
from kuberun.requests import Request

pytestmark = pytest.mark.live

ODD = "77h77m"
ENTRY = {"secretKey": "a", "remoteRef": {"key": "a"}}
SPEC: JsonObject = {"secretStoreRef": {"name": "any"}, "data": [ENTRY]}
PUSH: JsonObject = {"secretStoreRefs": [{"name": "any"}], "selector": {"secret": {"name": "any"}}}


class OddAnswers(Between):
    """Turns a text of the API server into a list for readers of this transport."""

    async def request(self, request: Request) -> bytes:
        return _odd(await self.inner.request(request))

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._stream(request)

    @asynccontextmanager
    async def _stream(self, request: Request) -> AsyncGenerator[AsyncIterator[bytes], None]:
        async with self.inner.stream(request) as lines:
            yield _each(lines)


def _odd(text: bytes) -> bytes:
    return text.replace(f'"{ODD}"'.encode(), b"[77]")


async def _each(lines: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    async for line in lines:
        yield _odd(line)


@pytest.mark.parametrize(
    ("resource", "spec", "field", "reason"),
    [
        pytest.param(ES, SPEC, "refreshInterval", "SecretSyncedError", id="an ExternalSecret"),
        pytest.param(PUSH_SECRET.resource(), PUSH, "refreshInterval", "Errored", id="a PushSecret"),
        pytest.param(STORES, {"provider": {"fake": {"data": []}}}, "controller", "InvalidProviderConfig", id="a store"),
        pytest.param(
            CLUSTER_EXTERNAL_SECRET.resource(),
            {"externalSecretSpec": SPEC},
            "refreshTime",
            "Errored",
            id="a cluster object",
        ),
    ],
)
async def test_the_report_names_the_invalid_field_of_an_object(
    bench: Bench, resource: Resource, spec: JsonObject, field: str, reason: str
) -> None:
    name = f"odd-{bench.namespace}"
    await bench.create(resource, name, spec={**spec, field: ODD})

    async with bench.operator(through=OddAnswers().over):
        found = await bench.ready(resource, name, lambda condition: condition.status == "False")
        await bench.until_event(name, "Warning", "Malformed")

    [ready] = found["status"]["conditions"]
    assert f"$.spec.{field}" in ready["message"]
    assert ready.get("reason", "") == reason
    await bench.delete(resource, name)


async def test_an_object_that_decodes_again_is_reconciled_as_ever(bench: Bench) -> None:
    await bench.create(ES, "odd", spec={**SPEC, "refreshInterval": ODD})

    async with bench.operator(through=OddAnswers().over):
        await bench.ready(ES, "odd", lambda condition: "$.spec.refreshInterval" in condition.message)
        await bench.patch(ES, "odd", {"spec": {"refreshInterval": "1h"}})

        await bench.ready(ES, "odd", lambda condition: "StoreNotFound" in condition.message)


async def test_an_object_that_does_not_decode_can_be_deleted(bench: Bench) -> None:
    """The Secret that an ExternalSecret owns goes with it anyway."""
    spec = {**SPEC, "refreshInterval": ODD, "target": {"deletionPolicy": "Delete"}}
    await bench.create(ES, "odd", metadata={"finalizers": [FINALIZER]}, spec=spec)

    async with bench.operator(through=OddAnswers().over):
        await bench.ready(ES, "odd", lambda condition: condition.status == "False")
        await bench.delete(ES, "odd")

        async def gone() -> bool:
            return await bench.find(ES, "odd") is None

        await eventually(gone, "it does not go")
