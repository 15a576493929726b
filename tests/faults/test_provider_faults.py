"""A provider process that dies, hangs, fails or speaks another version: what people see, and how it heals."""

from __future__ import annotations

from typing import Any

import pytest

from eso_api.values import SecretBytes
from eso_operator.stores.resolved import BoundStore
from eso_operator.wiring import Operator
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import GetItem, Handshake, RemoteRef
from kubebase.testing.waiting import eventually

pytestmark = pytest.mark.live

READ = [GetItem("a", RemoteRef("a"))]
VALUE = SecretBytes(b"value-of-a")


def error(reason: str, **choice: Any) -> dict[str, Any]:
    """A rule by which whole reads fail."""
    return {"method": "get", "level": "call", "fault": {"type": "error", "reason": reason}, **choice}


# --- the process ------------------------------------------------------------------------------------------------------


async def test_a_provider_that_is_killed_is_named_and_its_successor_is_taken(site: Any) -> None:
    await site.start()
    async with site.running() as operator:
        await site.create_store()
        await site.ready()
        bound = await site.bound()

        site.provider.kill()
        await site.broken("Refused", site.provider.address)
        await site.start()

        await site.ready()
        (result,) = await operator.gateway.get(bound, READ)
        assert result.outcome == VALUE
        await eventually(lambda: _knows_another(operator, bound), "the directory does not know the new instance")


async def _knows_another(operator: Operator, bound: BoundStore) -> bool:
    known = operator.directory.handshakes[bound.resolved.connection.key]
    return isinstance(known, Handshake) and known.instance_id != bound.resolved.handshake.instance_id


async def test_a_rolled_provider_answers_the_same_stores(site: Any) -> None:
    """R146: a roll asks the old process to end. A target that was resolved before stays good."""
    await site.start()
    async with site.running() as operator:
        await site.create_store()
        await site.ready()
        bound = await site.bound()

        await site.provider.stop()
        await site.start()

        await eventually(lambda: _knows_another(operator, bound), "the directory does not know the new instance")
        await site.ready()
        (result,) = await operator.gateway.get(bound, READ)
        assert result.outcome == VALUE


# --- answers ----------------------------------------------------------------------------------------------------------


async def test_a_provider_that_hangs_costs_no_more_than_the_deadline(site: Any) -> None:
    """R139."""
    site.fails({"method": "validate", "fault": {"type": "hang"}})
    await site.start()
    async with site.running():
        await site.create_store(timeouts={"call": "2s"}, retrySettings={"maxRetries": 0})

        await site.broken("BackendTimeout", "the backend did not answer in time")

        site.fails()
        await site.ready()


async def test_a_read_that_hangs_ends_at_the_deadline_of_its_caller(site: Any) -> None:
    """R139."""
    site.fails({"method": "get", "fault": {"type": "hang"}})
    await site.start()
    async with site.running() as operator:
        await site.create_store()
        await site.ready()
        bound = await site.bound()

        with pytest.raises(ProviderError) as caught:
            await operator.gateway.get(bound, READ, within=0.5)

        site.fails()
        (result,) = await operator.gateway.get(bound, READ)
        assert caught.value.reason is ErrorReason.BACKEND_TIMEOUT
        assert result.outcome == VALUE


async def test_only_errors_that_may_heal_are_tried_again(site: Any) -> None:
    """R138. One process for all reasons: the number of calls shows how the operator classified each."""
    expected = {
        "BACKEND_UNAVAILABLE": 3,
        "BACKEND_ERROR": 3,
        "INTERNAL": 3,
        "PERMISSION_DENIED": 1,
        "INVALID_REQUEST": 1,
        "UNSUPPORTED_OPERATION": 1,
        "CONFIG_INVALID": 1,
    }
    await site.start()
    async with site.running() as operator:
        await site.create_store(retrySettings={"maxRetries": 5, "retryInterval": "20ms"})
        await site.ready()
        bound = await site.bound()

        calls = {reason: await calls_of_failing_read(site, operator, bound, reason) for reason in expected}

        assert calls == expected


async def calls_of_failing_read(site: Any, operator: Operator, bound: BoundStore, reason: str) -> int:
    """Return the number of calls of a read that fails twice and would then succeed.

    Fail unless the outcome fits the number.
    """
    before = await site.provider.calls("GetSecrets")
    site.fails(error(reason, first=2))
    outcome: object
    try:
        (result,) = await operator.gateway.get(bound, READ)
        outcome = result.outcome
    except ProviderError as failure:
        outcome = failure.reason
    calls = await site.provider.calls("GetSecrets") - before
    assert outcome == (VALUE if calls == 3 else ErrorReason[reason])
    return int(calls)


async def test_a_store_that_its_provider_refuses_says_so_and_heals_when_it_does_not(site: Any) -> None:
    rejected = {"type": "error", "reason": "CREDENTIALS_REJECTED", "message": "the token was revoked"}
    site.fails({"method": "validate", "fault": rejected})
    await site.start()
    async with site.running():
        await site.create_store()

        await site.broken("AuthenticationFailed", "the token was revoked")

        site.fails()
        await site.ready()


# --- versions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocols", "selected"),
    [
        pytest.param(["2.0", "2.1"], (2, 1), id="a provider of the minor before ours, R140"),
        pytest.param(["2.1", "2.2"], (2, 2), id="a provider of our minor"),
        pytest.param(["2.2", "2.3"], (2, 2), id="a provider of the minor after ours, R140"),
    ],
)
async def test_a_provider_one_minor_apart_works(site: Any, protocols: list[str], selected: tuple[int, int]) -> None:
    site.fails(protocols=protocols)
    await site.start()
    async with site.running() as operator:
        await site.create_store()
        await site.ready()
        bound = await site.bound()

        (result,) = await operator.gateway.get(bound, READ)

        assert result.outcome == VALUE
        assert bound.resolved.handshake.selected == selected


@pytest.mark.parametrize("protocols", [pytest.param(["1.4", "1.5"], id="too old"), pytest.param(["3.0"], id="too new")])
async def test_an_incompatible_provider_is_refused_with_both_ranges(site: Any, protocols: list[str]) -> None:
    """R141."""
    site.fails(protocols=protocols)
    await site.start()
    async with site.running():
        await site.create_store()

        await site.broken("ProviderIncompatible", ", ".join(protocols), "2.1, 2.2")

        site.provider.kill()
        site.fails()
        await site.start()
        await site.ready()
