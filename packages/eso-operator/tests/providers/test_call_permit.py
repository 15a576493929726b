"""A process that no longer leads changes nothing at backends."""

from __future__ import annotations

import pytest

from eso_api.values import SecretBytes
from eso_operator.stores.resolved import CallPolicy
from eso_testkit.operator.boundstores import bound_store, wanted
from eso_testkit.operator.gateways import LoopbackGateway
from eso_wire.errors import ProviderError
from eso_wire.values import GenerateRequest, PushBatch, PushItem, RemoteRef
from kuberun.permit import work_by

ONCE = CallPolicy(gated=False, max_retries=0)


@pytest.mark.parametrize("change", ["push", "generate"])
async def test_without_a_permit_backends_are_only_read(loop: LoopbackGateway, change: str) -> None:
    loop.provider.data["a"] = b"value"
    bound = bound_store(policy=ONCE)
    pushing = loop.gateway.push(bound, PushBatch((PushItem("x", RemoteRef("x"), SecretBytes(b"new")),)))
    generating = loop.gateway.generate(bound, GenerateRequest())
    changing, other = (pushing, generating) if change == "push" else (generating, pushing)
    other.close()
    work_by(lambda: False)

    with pytest.raises(ProviderError, match="does not lead any more"):
        await changing
    (result,) = await loop.gateway.get(bound, wanted("a"))

    assert isinstance(result.outcome, SecretBytes)
    assert set(loop.provider.calls) & {"PushSecrets", "Generate"} == set()
