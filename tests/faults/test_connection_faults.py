"""Wrong names, connections, certificates and identities: each is reported by name, and the store recovers."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from eso_api.values import SecretBytes
from eso_operator.certificates.authority import issue_authority, issue_server
from eso_operator.certificates.state import Credential, ServerNames, Window
from eso_operator.settings import CertificateSettings
from eso_wire.tls import client_id
from kubebase.clock import SystemClock
from kubebase.testing.waiting import eventually

pytestmark = pytest.mark.live

Files = dict[str, bytes]
FILES = ("ca.crt", "tls.crt", "tls.key")


async def test_a_name_that_does_not_resolve(site: Any) -> None:
    """R135. Names of Services do not resolve here, unless the operator gets the address."""
    await site.start()
    async with site.running():
        await site.create_service("provider-elsewhere")
        await site.create_store(service="provider-elsewhere")

        message = await site.broken("DNSFailure", "provider-elsewhere")

        assert "does not resolve" in message
        await site.point_at("provider-fake")
        await site.ready()


async def test_the_address_refuses_connections(site: Any) -> None:
    async with site.running():
        await site.create_store()

        await site.broken("Refused", site.provider.address)

        await site.start()
        await site.ready()


@pytest.mark.parametrize(
    ("spoil", "reason", "words"),
    [
        pytest.param("expired", "ServerCertExpired", ["validity"], id="the provider's certificate has expired, R137"),
        pytest.param(
            "stranger", "UnknownCA", ["ca.crt"], id="the provider's certificate is of another authority, R136"
        ),
        pytest.param(
            "namesake",
            "HostnameMismatch",
            ["provider-fake"],
            id="the provider has the certificate of another one, R136",
        ),
        pytest.param(
            "distrust", "ClientCertRejected", ["ca.crt"], id="the provider does not trust our authority, R136"
        ),
    ],
)
async def test_certificates_that_cannot_be_accepted(site: Any, spoil: str, reason: str, words: list[str]) -> None:
    folder = site.certificates.server
    good, issuer = (
        {name: (place / name).read_bytes() for name in FILES} for place in (folder, folder.parent / "issuer")
    )
    site.use(spoilt(spoil, good, issuer, site.namespace))
    await site.start()
    async with site.running():
        await site.create_store()

        await site.broken(reason, *words)

        site.use(good)
        await site.ready()


async def test_a_provider_that_admits_another_client(site: Any) -> None:
    """R136: it trusts our authority, and not us."""
    ours, site.provider.client = site.provider.client, "spiffe://cluster.local/ns/other/sa/external-secrets"
    await site.start()
    async with site.running():
        await site.create_store()

        await site.broken("AccessDenied", "--allowed-client")

        await site.provider.stop()
        site.provider.client = ours
        await site.start()
        await site.ready()


async def test_a_provider_admits_exactly_the_service_account_that_the_operator_runs_as(site: Any) -> None:
    """R136: the operator issues the certificates, and issues its own anew when its account is another one."""
    renamed = replace(site.managed, certificates=CertificateSettings(service_account="eso-core"))
    async with site.running(site.managed):
        site.use(await eventually(site.issued, "no certificates were issued"))
        await site.start()
        await site.create_store()
        await site.ready()
    async with site.bench.operator(renamed):
        ours = client_id("cluster.local", site.namespace, "eso-core")
        await site.broken("AccessDenied", ours, "--allowed-client", "--service-account=ACCOUNT")
        await site.provider.stop()
        site.provider.client = ours
        await site.start()
        await site.ready()


def spoilt(how: str, good: Files, issuer: Files, namespace: str) -> Files:
    """The provider's certificates, wrong in one respect."""
    now = SystemClock().now()
    valid = Window(now - timedelta(hours=2), now + timedelta(hours=1))
    expired = Window(now - timedelta(minutes=4), now - timedelta(minutes=1))  # not before its authority begins
    authority = Credential(issuer["tls.crt"], SecretBytes(issuer["tls.key"]))
    other = issue_authority("another authority", valid)
    names = ServerNames((f"provider-fake.{namespace}.svc",), f"spiffe://cluster.local/ns/{namespace}/svc/provider-fake")
    wrong = ServerNames(("provider-other.svc",), f"spiffe://cluster.local/ns/{namespace}/svc/provider-other")
    match how:
        case "expired":
            return files(issue_server(authority, names, expired), good["ca.crt"])
        case "stranger":
            return files(issue_server(other, names, valid), good["ca.crt"])
        case "namesake":
            return files(issue_server(authority, wrong, valid), good["ca.crt"])
        case _:
            return {**good, "ca.crt": other.certificate}


def files(leaf: Credential, ca: bytes) -> Files:
    return {"tls.crt": leaf.certificate, "tls.key": leaf.key.reveal(), "ca.crt": ca}
