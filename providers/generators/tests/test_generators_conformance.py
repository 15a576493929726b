"""The generators provider keeps the contract: the black-box suite finds nothing."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from eso_conformance.cases import Profile
from eso_conformance.runner import CaseResult, Verdict, run
from eso_conformance.subject import Identity, Target
from eso_provider_generators.provider import PROVIDER
from eso_sdk.testing import ProviderServer
from eso_sdk.testing.server import CLIENT_ID, SERVER_NAME, Authority


@pytest.mark.parametrize("profile", ["generator", "tls"])
async def test_conformance(profile: str) -> None:
    results = await _tried(Profile(profile))

    assert _failures(results) == []
    assert any(result.verdict is Verdict.PASSED for result in results)


async def _tried(profile: Profile) -> list[CaseResult]:
    async with ProviderServer(PROVIDER) as server:
        target = _target(server.address, server.authority)
        return [result async for result in run(target, [profile])]


def _failures(results: list[CaseResult]) -> list[str]:
    return [f"{result.kind}: {result.case}: {result.why}" for result in results if result.verdict is Verdict.FAILED]


def _target(address: str, authority: Authority) -> Target:
    client = authority.leaf(CLIENT_ID)
    key = authority.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    identity = Identity(client.ca, client.certificate, client.key.reveal())
    return Target(address, identity, SERVER_NAME, (authority.pem, key))
