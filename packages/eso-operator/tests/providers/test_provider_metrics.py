"""R116: the names and labels of the runtime's metrics; addresses are never labels."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from eso_operator.providers.metrics import ProviderMetrics
from eso_operator.stores.resolved import CallPolicy
from eso_testkit.operator.boundstores import bound_store, endpoint, wanted
from eso_testkit.operator.gateways import LoopbackGateway
from eso_wire.errors import ErrorReason, ProviderError

ONCE = CallPolicy(gated=False, max_retries=0)


def value(loop: LoopbackGateway, name: str, **labels: str) -> float | None:
    return loop.registry.get_sample_value(name, {"provider": "scripted", **labels})


async def test_calls_are_counted_by_method_code_and_reason(loop: LoopbackGateway) -> None:
    await loop.gateway.get(bound_store(policy=ONCE), wanted("a"))
    loop.provider.broken = ProviderError(ErrorReason.PERMISSION_DENIED, "no")
    with pytest.raises(ProviderError):
        await loop.gateway.get(bound_store(policy=ONCE), wanted("a"))

    handled = "eso_grpc_client_handled_total"
    assert value(loop, "eso_grpc_client_started_total", method="GetSecrets") == 2
    assert value(loop, handled, method="GetSecrets", code="OK", reason="") == 1
    assert value(loop, handled, method="GetSecrets", code="PERMISSION_DENIED", reason="PERMISSION_DENIED") == 1
    assert value(loop, "eso_grpc_client_latency_seconds_count", method="GetSecrets") == 2


async def test_a_cancelled_call_is_counted_as_such(loop: LoopbackGateway) -> None:
    loop.provider.hangs = True
    call = asyncio.create_task(loop.gateway.get(bound_store(), wanted("a")))
    await loop.clock.settle()

    call.cancel()
    await asyncio.gather(call, return_exceptions=True)

    assert value(loop, "eso_grpc_client_handled_total", method="GetSecrets", code="CANCELLED", reason="") == 1


async def test_retries_are_counted(loop: LoopbackGateway) -> None:
    loop.provider.errors.append(ProviderError(ErrorReason.BACKEND_ERROR, "once"))
    call = asyncio.create_task(loop.gateway.get(bound_store(), wanted("a")))

    await loop.clock.run_until_idle()

    assert call.exception() is None
    assert value(loop, "eso_grpc_client_retried_total", method="GetSecrets") == 1


async def test_the_address_is_in_no_label(loop: LoopbackGateway) -> None:
    await loop.gateway.get(bound_store(endpoint("dns:///10.1.2.3:8080")), wanted("a"))

    assert b"10.1.2.3" not in generate_latest(loop.registry)


def test_two_operators_in_one_process_keep_their_own_figures() -> None:
    first, second = CollectorRegistry(), CollectorRegistry()
    ProviderMetrics(first).batch("p", items=3, wanted=10)
    ProviderMetrics(second)

    assert first.get_sample_value("eso_provider_reads_merged_total", {"provider": "p"}) == 7
    assert second.get_sample_value("eso_provider_reads_merged_total", {"provider": "p"}) is None
