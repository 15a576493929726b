"""The webhook provider keeps the contract: the black-box suite finds nothing."""

from __future__ import annotations

from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from eso_conformance.cases import Profile
from eso_conformance.fixture import Fixture, from_plain
from eso_conformance.runner import CaseResult, Verdict, run
from eso_conformance.subject import Identity, Target
from eso_provider_webhook.provider import PROVIDER
from eso_sdk.testing import ProviderServer
from eso_sdk.testing.certificates import SERVER_NAME, Authority
from eso_sdk.testing.server import CLIENT_ID

NTLM = {"usernameSecret": {"name": "login", "key": "user"}, "passwordSecret": {"name": "login", "key": "password"}}


async def test_conformance_of_the_generator(endpoint: Any) -> None:
    endpoint.json('{"password": "of the endpoint"}')
    webhook = {
        "kind": "Webhook",
        "spec": {"url": endpoint.url, "result": {}, "auth": {"ntlm": NTLM}},
        "credentials": {"/auth/ntlm/usernameSecret": "anna", "/auth/ntlm/passwordSecret": "sesame"},
        "invalid": [{}, {"url": endpoint.url, "result": {"jsonPath": "$..a"}}],
    }

    results = await _tried(Profile.GENERATOR, from_plain({"kinds": [webhook]}))

    assert _failures(results) == []
    assert {str(result.kind) for result in results if result.verdict is Verdict.PASSED}
    assert endpoint.asked


async def _tried(profile: Profile, fixture: Fixture) -> list[CaseResult]:
    async with ProviderServer(PROVIDER) as server:
        target = _target(server.address, server.authority)
        return [result async for result in run(target, [profile], fixture)]


def _failures(results: list[CaseResult]) -> list[str]:
    return [f"{result.kind}: {result.case}: {result.why}" for result in results if result.verdict is Verdict.FAILED]


def _target(address: str, authority: Authority) -> Target:
    client = authority.leaf(CLIENT_ID)
    key = authority.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    identity = Identity(client.ca, client.certificate, client.key.reveal())
    return Target(address, identity, SERVER_NAME, (authority.pem, key))
