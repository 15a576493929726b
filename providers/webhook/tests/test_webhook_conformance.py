"""The webhook provider keeps the contract: the black-box suite finds nothing."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from eso_conformance.cases import Profile
from eso_conformance.fixture import from_plain
from eso_conformance.runner import Verdict, run
from eso_conformance.subject import Identity, Target
from eso_provider_webhook.conformance import fixture_at
from eso_provider_webhook.provider import PROVIDER
from eso_sdk.addresses import AddressPolicy
from eso_sdk.testing import ProviderServer
from eso_sdk.testing.server import CLIENT_ID, SERVER_NAME, Authority

STORES = {"Webhook", "ClusterWebhook"}
KINDS = {"read": STORES, "write": STORES, "generator": {"Webhook"}, "tls": {"Webhook"}}


@pytest.mark.parametrize("profile", ["read", "write", "generator", "tls"])
async def test_conformance(profile: str, endpoint: Any, shelf: Any) -> None:
    endpoint.json('{"password": "of the endpoint"}', path="/new")
    shelf.values |= {"greeting": b"hello", "dir/greeting": b"hello again", "login": b'{"user":"anna","realm":"test"}'}
    fixture = from_plain(fixture_at(endpoint.url))

    async with ProviderServer(PROVIDER, addresses=AddressPolicy.parse(["loopback"])) as server:
        target = _target(server.address, server.authority)
        results = [result async for result in run(target, [Profile(profile)], fixture)]

    assert [
        f"{result.kind}: {result.case}: {result.why}" for result in results if result.verdict is Verdict.FAILED
    ] == []
    assert {result.kind for result in results if result.verdict is Verdict.PASSED} == KINDS[profile]


def _target(address: str, authority: Authority) -> Target:
    client = authority.leaf(CLIENT_ID)
    key = authority.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    identity = Identity(client.ca, client.certificate, client.key.reveal())
    return Target(address, identity, SERVER_NAME, (authority.pem, key))
