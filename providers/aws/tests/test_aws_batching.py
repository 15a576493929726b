"""Denied batches are remembered for an hour, in a message that names the permission."""

from __future__ import annotations

from contextlib import nullcontext

from eso_api.values import SecretBytes
from eso_provider_aws.api import Api, Batching
from eso_provider_aws.identity import Keys, Runtime
from kubebase.testing.clock import VirtualClock


async def test_denied_batches_are_tried_again_after_an_hour() -> None:
    clock = VirtualClock()
    identity = Keys("id", SecretBytes(b"key"), None)
    api = Api(Runtime(clock), identity, "ssm", "eu-west-1", observe=lambda _call: nullcontext())
    batching = Batching(api, "GetParameters", what="ten parameters")
    assert (batching.is_denied, batching.conditions()) == (False, ())

    batching.deny()

    await clock.advance(3599)
    (condition,) = batching.conditions()
    assert (condition.type, condition.status, condition.reason) == ("BatchReads", "False", "PermissionMissing")
    assert condition.message == (
        "values are read one by one because GetParameters is denied; allow ssm:GetParameters to read ten parameters"
        " with one call"
    )
    await clock.advance(1)
    assert (batching.is_denied, batching.conditions()) == (False, ())
