"""The Vault provider keeps the contract: the black-box suite finds nothing, on a real OpenBao."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from eso_conformance.cases import Profile
from eso_conformance.fixture import from_plain
from eso_conformance.runner import Verdict, run
from eso_conformance.subject import Identity, Target
from eso_provider_vault.changes import POLL_SECONDS
from eso_provider_vault.conformance import KINDS, fixture
from eso_provider_vault.provider import PROVIDER
from eso_provider_vault.testing.openbao import OpenBao
from eso_sdk.addresses import AddressPolicy
from eso_sdk.testing import ProviderServer
from eso_sdk.testing.server import CLIENT_ID, SERVER_NAME, Authority
from kubebase.clock import SystemClock


class HastyClock(SystemClock):
    """Real time, but looks for changes follow each other quickly."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(0.2 if seconds == POLL_SECONDS else seconds)


@pytest.mark.parametrize("profile", ["read", "write", "subscribe", "generator", "tls"])
async def test_conformance(profile: str, bao: OpenBao, mount: str) -> None:
    bao.put(mount, "login", {"user": "first"})
    bao.put(mount, "login", {"user": "anna", "realm": "test"})
    bao.put(mount, "folder/greeting", {"text": "hello"})
    known = from_plain(
        fixture(
            bao.url,
            bao.root_token,
            mount,
            known=[
                {"key": "login", "value": "anna", "property": "user"},
                {"key": "login", "value": "first", "property": "user", "version": "1"},
                {"key": f"{mount}/folder/greeting", "value": '{"text":"hello"}'},
            ],
            maps=[{"key": "login", "value": {"user": "anna", "realm": "test"}}],
            find={"name": "^folder/", "keys": ["folder/greeting"]},
        )
    )

    async with ProviderServer(PROVIDER, HastyClock(), addresses=AddressPolicy.parse(["loopback"])) as server:
        target = _target(server.address, server.authority)
        results = [result async for result in run(target, [Profile(profile)], known)]

    assert [
        f"{result.kind}: {result.case}: {result.why}" for result in results if result.verdict is Verdict.FAILED
    ] == []
    passed = {result.kind for result in results if result.verdict is Verdict.PASSED}
    expected = {"tls": set(), "generator": {"VaultDynamicSecret"}}.get(profile, set(KINDS))
    assert expected <= {kind.rpartition("/")[2] for kind in passed}
    assert passed


def _target(address: str, authority: Authority) -> Target:
    client = authority.leaf(CLIENT_ID)
    key = authority.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    identity = Identity(client.ca, client.certificate, client.key.reveal())
    return Target(address, identity, SERVER_NAME, (authority.pem, key))
