"""The fake provider keeps the contract: the black-box suite finds nothing."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from eso_conformance.cases import Profile
from eso_conformance.runner import Verdict, run
from eso_conformance.subject import Identity, Target
from eso_provider_fake.provider import PROVIDER
from eso_sdk.testing import ProviderServer
from eso_sdk.testing.server import CLIENT_ID, SERVER_NAME, Authority


@pytest.mark.parametrize("profile", ["read", "write", "subscribe", "tls"])
async def test_conformance(profile: str) -> None:
    async with ProviderServer(PROVIDER) as server:
        target = _target(server.address, server.authority)
        results = [result async for result in run(target, [Profile(profile)])]

    assert [
        f"{result.kind}: {result.case}: {result.why}" for result in results if result.verdict is Verdict.FAILED
    ] == []
    assert any(result.verdict is Verdict.PASSED for result in results)


def _target(address: str, authority: Authority) -> Target:
    client = authority.leaf(CLIENT_ID)
    key = authority.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    identity = Identity(client.ca, client.certificate, client.key.reveal())
    return Target(address, identity, SERVER_NAME, (authority.pem, key))
