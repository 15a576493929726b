"""The templates and paths of one webhook user do not delay other calls. On a real loop, in real time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from eso_api.values import SecretBytes
from eso_provider_webhook.store import WebhookStore
from eso_sdk.testing import InMemory, call_context
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Context, GetItem, RemoteRef
from kubebase.clock import SystemClock
from kuberun.testing.heartbeat import heartbeat

CLOCK = SystemClock()
DEEP = '{"a":' * 30 + "1" + "}" * 30
SENT = {"/secrets/0/secretRef": {"long": SecretBytes(b"x" * 120_000)}}


def context(spec: dict[str, Any], namespace: str) -> Context:
    spec = {"secrets": [{"name": "auth", "secretRef": {"name": "long"}}], **spec}
    return call_context(WebhookStore, spec, SENT, namespace=namespace)


@pytest.mark.parametrize(
    "slow",
    [
        pytest.param({"body": '{{ regexReplaceAll "(x*y|x)" .auth.long "b" }}'}, id="a pattern in the body"),
        pytest.param({"headers": {"X": '{{ derivePassword 1 "long" "p" "u" "s" }}' * 20}}, id="key derivation"),
        pytest.param({"result": {"jsonPath": "$..*..*..*..*..*"}}, id="a path that descends again and again"),
    ],
)
async def test_a_neighbour_is_answered_while_others_compute(client: InMemory, endpoint: Any, slow: Any) -> None:
    endpoint.json(DEEP)
    item = GetItem("only", RemoteRef("db"))
    busy = [asyncio.create_task(client.get(context({"url": endpoint.url} | slow, "greedy"), [item])) for _ in range(20)]

    async with heartbeat() as heart, asyncio.timeout(60.0):
        for _ in range(5):
            await CLOCK.sleep(0.2)
            (found,) = await client.get(context({"url": endpoint.url}, "neighbour"), [item])
            assert found.outcome == SecretBytes(DEEP.encode())
        waiting = [task for task in busy if not task.done()]
    for task in busy:
        task.cancel()
    await asyncio.gather(*busy, return_exceptions=True)

    assert heart.worst_lag < 0.5
    assert waiting, "the neighbour did not wait for all of them"


async def test_errors_of_templates_that_were_filled_in_elsewhere_name_their_field(
    client: InMemory, endpoint: Any
) -> None:
    spec = {"url": endpoint.url, "headers": {"X-Sum": '{{ regexFind "a" "b" }}{{ .auth.nope }}'}}

    (found,) = await client.get(context(spec, "team"), [GetItem("only", RemoteRef("db"))])

    assert isinstance(found.outcome, ProviderError)
    assert found.outcome.reason is ErrorReason.CONFIG_INVALID
    assert found.outcome.message.startswith("/headers/X-Sum: unable to execute template at key headers/X-Sum")
