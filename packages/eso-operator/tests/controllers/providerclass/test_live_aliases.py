"""Services of type ExternalName: an alias is neither dialled nor given certificates, labelled or not.

The operator runs with the informers that it has in a cluster: they know labelled Services only.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from eso_api.v2.secretstore import SECRET_STORE_V2
from eso_operator.certificates.problems import CertificateError, ProblemName
from eso_operator.providers.channels import Transport
from eso_operator.providers.gateway import CallHooks
from eso_operator.providers.reachability import ServiceCheck
from eso_operator.settings import Settings
from eso_operator.stores.resolved import Endpoint, EndpointSource, ServiceKey
from eso_testkit.operator.operators import LABEL, SERVICES, Bench
from eso_testkit.operator.providerhost import TestAuthority
from eso_wire.probe import TlsProblem, TlsProblemKind, diagnose
from eso_wire.status import TransportError
from eso_wire.tls import TlsMaterial
from kubebase.clock import SystemClock
from kubebase.testing.clock import VirtualClock
from kuberun import config
from kuberun.client import Client
from kuberun.testing.builders import SECRETS
from kuberun.transport import AiohttpTransport

pytestmark = pytest.mark.live

STORES = SECRET_STORE_V2.resource()
ALIAS = {"type": "ExternalName", "externalName": "169.254.169.254.example.com", "ports": [{"port": 8080}]}


@dataclass
class Dialled:
    """Notes every attempt to connect, and makes none."""

    targets: list[str] = field(default_factory=list)
    probed: list[str] = field(default_factory=list)

    def hooks(self) -> CallHooks:
        return CallHooks(dial=self._dial, probe=self._probe)

    def _dial(self, endpoint: Endpoint, _material: TlsMaterial) -> Transport:
        self.targets.append(endpoint.uri)
        raise TransportError("this test connects to no server")

    async def _probe(self, host: str, port: int, **_: Any) -> TlsProblem | None:
        self.probed.append(f"{host}:{port}")
        return None


def tenants_too(bench: Bench) -> Settings:
    return replace(bench.settings, providers=replace(bench.settings.providers, namespaced=True))


@pytest.mark.parametrize("labels", [{}, LABEL], ids=["without the label", "labelled"])
@pytest.mark.parametrize("own", [False, True], ids=["managed certificates", "certificates of the tenant"])
async def test_an_alias_is_not_dialled_and_gets_no_certificates(
    bench: Bench, labels: dict[str, str], own: bool
) -> None:
    dialled, tenant = Dialled(), await bench.tenant()
    client = TestAuthority(SystemClock().now()).client()
    data = {"tls.crt": client.certificate, "tls.key": client.key.reveal(), "ca.crt": client.ca}
    await tenant.create(SECRETS, "mine", stringData={name: text.decode() for name, text in data.items()})
    await tenant.create(SERVICES, "alias", metadata={"labels": labels}, spec=ALIAS)
    provider: dict[str, Any] = {"address": "alias:8080", "inline": {"kind": "Backend", "spec": {}}}
    if own:
        provider["auth"] = {"clientCertificate": {"secretRef": {"name": "mine"}}}

    async with bench.operator(tenants_too(bench), hooks=dialled.hooks()):
        await tenant.create(STORES, "store", spec={"providerConfig": provider})

        await tenant.ready(STORES, "store", lambda condition: "only stands for another host" in condition.message)
        listed = (await bench.api.get(f"/api/v1/namespaces/{bench.namespace}/secrets")).body["items"]

    assert (dialled.targets, dialled.probed) == ([], [])
    assert await tenant.find(SECRETS, "alias-provider-tls") is None
    assert not [found for found in listed if found["metadata"]["name"].startswith(f"{tenant.namespace}.")]


async def test_a_service_that_becomes_an_alias_is_dialled_for_a_few_seconds_at_most(bench: Bench) -> None:
    await bench.create(SERVICES, "provider", spec={"ports": [{"port": 8080}]})
    service = ServiceKey(bench.namespace, "provider")
    endpoint = Endpoint("dns:///provider.x.svc:8080", "provider", EndpointSource.EXPLICIT, "provider", service)
    client, clock = Client(AiohttpTransport(config.load(bench.kubeconfig))), VirtualClock()
    doors = ServiceCheck(client, clock)
    try:
        await doors.check(endpoint)
        await bench.patch(SERVICES, "provider", {"spec": ALIAS})
        await clock.advance(11)

        with pytest.raises(CertificateError) as refused:
            await doors.check(endpoint)
    finally:
        await client.close()

    assert refused.value.problem.name is ProblemName.SERVICE_IS_ALIAS


async def test_a_diagnosis_does_not_connect_to_what_is_never_dialled() -> None:
    """Earlier, the diagnosis after the refused connection connected itself."""
    asked: list[str] = []

    def refused(address: str) -> bool:
        asked.append(address)
        return True

    material = TestAuthority(SystemClock().now()).client()
    problem = await diagnose("127.0.0.1", 9, server_name="x", material=material, deadline=3.0, refused=refused)

    assert asked == ["127.0.0.1"]
    assert problem == TlsProblem(TlsProblemKind.UNKNOWN, "127.0.0.1 leads to an address that is never dialled")
