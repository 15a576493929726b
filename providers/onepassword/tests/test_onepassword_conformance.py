"""The provider keeps the contract: the black-box suite finds nothing."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from eso_conformance.cases import Profile
from eso_conformance.fixture import from_plain
from eso_conformance.runner import Verdict, run
from eso_conformance.subject import Identity, Target
from eso_provider_onepassword.conformance import CONNECT, SDK, connect_kinds, sdk_kinds
from eso_provider_onepassword.provider import PROVIDER
from eso_provider_onepassword.testing.connect import TOKEN, ConnectServer
from eso_provider_onepassword.testing.core import TOKEN as ACCOUNT_TOKEN
from eso_provider_onepassword.testing.core import FakeAccount
from eso_sdk.addresses import AddressPolicy
from eso_sdk.testing import ProviderServer
from eso_sdk.testing.certificates import SERVER_NAME, Authority
from eso_sdk.testing.server import CLIENT_ID

VALUES = {"user": "anna", "password": "first"}
STORES = {*CONNECT, *SDK}
KINDS = {"read": STORES, "write": STORES, "tls": {"OnePassword"}}


@pytest.mark.parametrize("profile", ["read", "write", "tls"])
async def test_conformance(profile: str, server: ConnectServer, account: FakeAccount) -> None:
    server.vault("team").put("login", VALUES)
    account.vault("team").put("login", VALUES)
    maps, find = [{"key": "login", "value": VALUES}], {"name": "^user$", "keys": ["user"]}
    known = [{"key": "login", "value": "anna", "property": "user"}]
    kinds = [
        *connect_kinds(server.url, TOKEN, "team", known=known, maps=maps, find=find),
        *sdk_kinds(ACCOUNT_TOKEN, "team", known=known, maps=maps, find=find),
    ]

    async with ProviderServer(PROVIDER, addresses=AddressPolicy.parse(["loopback"])) as running:
        target = _target(running.address, running.authority)
        results = [result async for result in run(target, [Profile(profile)], from_plain({"kinds": kinds}))]

    assert "\n".join(f"{one.kind}: {one.case}: {one.why}" for one in results if one.verdict is Verdict.FAILED) == ""
    assert {result.kind for result in results if result.verdict is Verdict.PASSED} == KINDS[profile]


def _target(address: str, authority: Authority) -> Target:
    client = authority.leaf(CLIENT_ID)
    key = authority.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    identity = Identity(client.ca, client.certificate, client.key.reveal())
    return Target(address, identity, SERVER_NAME, (authority.pem, key))
