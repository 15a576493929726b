"""The settings of a v2 store for the connection to its provider, seen from the provider: endpoint and certificate."""

import base64
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from grpc import aio

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.v2.providerclass import PROVIDER_CLASS
from eso_api.v2.secretstore import CLUSTER_SECRET_STORE_V2, SECRET_STORE_V2
from eso_operator.settings import FeatureGate, ProviderSettings
from eso_operator.stores.resolved import ServiceKey
from eso_testkit.operator.operators import BACKEND, LABEL, SERVICE, SERVICES, Bench, free_port, scripted
from eso_testkit.operator.providerhost import SERVER_NAME, ProviderHost, TestAuthority
from eso_wire.tls import TlsMaterial
from eso_wire.values import ObjectRef
from kubebase.clock import SystemClock
from kubebase.meta import Condition, JsonObject, Resource
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import SECRETS
from kuberun.testing.rawapi import MERGE_PATCH

pytestmark = pytest.mark.live

STORES_V2 = SECRET_STORE_V2.resource()
CLUSTER_STORES_V2 = CLUSTER_SECRET_STORE_V2.resource()
CLASSES = PROVIDER_CLASS.resource()
BACKENDS = BACKEND.resource()
EXTERNAL_SECRETS = EXTERNAL_SECRET.resource()
NEXT = "provider-next"
REF = {"providerRef": {"kind": "Backend", "name": "one"}}
OWN = {"clientCertificate": {"secretRef": {"name": "own"}}}


def ready(condition: Condition) -> bool:
    return condition.status == "True"


def refused(cause: str) -> Callable[[Condition], bool]:
    return lambda condition: condition.status == "False" and cause in f"{condition.reason} {condition.message}"


async def put_certificates(bench: Bench, name: str, material: TlsMaterial) -> None:
    parts = {"tls.crt": material.certificate, "tls.key": material.key.reveal(), "ca.crt": material.ca}
    data = {key: base64.b64encode(value).decode() for key, value in parts.items()}
    await bench.create(SECRETS, name, type="kubernetes.io/tls", data=data)


async def read(bench: Bench, name: str, store: Resource, store_name: str) -> str:
    """Return the value that an ExternalSecret gets through the store for the remote key `a`."""
    ref = {"apiVersion": store.api_version, "kind": store.kind, "name": store_name}
    spec = {"secretStoreRef": ref, "data": [{"secretKey": "a", "remoteRef": {"key": "a"}}]}
    await bench.create(EXTERNAL_SECRETS, name, spec=spec)
    await bench.ready(EXTERNAL_SECRETS, name, ready)
    found = await bench.find(SECRETS, name)
    assert found is not None
    return base64.b64decode(found["data"]["a"]).decode()


async def test_a_providers_releases_run_side_by_side_and_a_store_names_the_one_it_wants(bench: Bench) -> None:
    """R60, R65: each release is a Service with certificates of its own, for which a class is made."""
    plain, port = bench.settings, free_port()
    both = (*plain.providers.trusted, (ServiceKey(bench.namespace, NEXT), f"127.0.0.1:{port}"))
    async with bench.operator(replace(plain, providers=replace(plain.providers, trusted=both))):
        await bench.install(scripted(data={"a": b"of this release"}))
        await bench.create(SERVICES, NEXT, metadata={"labels": LABEL}, spec={"ports": [{"name": "grpc", "port": 8080}]})
        material = await eventually(lambda: bench.server_material(NEXT), "no certificates for the second release")
        host = ProviderHost(scripted(data={"a": b"of the next release"}), material, port=port)
        await host.start()
        try:
            await bench.create(BACKENDS, "one", spec={"url": "https://backend"})
            for service in (SERVICE, NEXT):
                chosen = {"classRef": {"kind": "ProviderClass", "name": service}}
                await bench.create(STORES_V2, service, spec={"providerConfig": {**REF, **chosen}})

            values = [await read(bench, service, STORES_V2, service) for service in (SERVICE, NEXT)]
        finally:
            await host.stop()

    assert values == ["of this release", "of the next release"]


async def test_a_store_brings_the_certificate_that_its_provider_asks_for(bench: Bench) -> None:
    """R84, R104: Secrets as cert-manager writes them. Without one of its own, a store shows that of its class."""
    accepted, other = TestAuthority(SystemClock().now()), TestAuthority(SystemClock().now())
    address = f"127.0.0.1:{bench.port}"
    deps = replace(bench.settings, providers=ProviderSettings(allowed_addresses=(address,)))
    tls = {"mode": "SecretRef", "secretRef": {"name": "theirs"}, "serverName": SERVER_NAME}
    chosen = {**REF, "classRef": {"kind": "ProviderClass", "name": "outside"}}
    await put_certificates(bench, "own", accepted.client())
    await put_certificates(bench, "theirs", other.client(accepted.credential.certificate))
    await bench.listen(scripted(), accepted.server())
    async with bench.operator(deps):
        await bench.create(CLASSES, "outside", spec={"address": f"grpc://{address}", "tls": tls})
        await bench.create(BACKENDS, "one", spec={"url": "https://backend"})
        await bench.create(STORES_V2, "with", spec={"providerConfig": {**chosen, "auth": OWN}})
        await bench.create(STORES_V2, "without", spec={"providerConfig": chosen})

        await bench.ready(STORES_V2, "with", ready)
        await bench.ready(STORES_V2, "without", refused("ClientCertRejected"))


@pytest.fixture
def path() -> Iterator[Path]:
    """Of a Unix socket; such paths must be short."""
    with tempfile.TemporaryDirectory(prefix="eso-") as folder:
        yield Path(folder) / "provider.sock"


async def test_a_provider_on_a_unix_socket_is_reached_over_mutual_tls_only(bench: Bench, path: Path) -> None:
    """R83: with the gate on. Neither a store without certificates nor a socket that speaks plainly is good enough."""
    settings = replace(bench.settings, gates=bench.settings.gates | {FeatureGate.UNIX_SOCKET_PROVIDERS})
    authority = TestAuthority(SystemClock().now())
    config = {**REF, "address": f"http+unix://{path}"}
    await put_certificates(bench, "own", authority.client())
    plain = aio.server()
    plain.add_insecure_port(f"unix:{path}")
    await plain.start()
    async with bench.operator(settings):
        await bench.create(BACKENDS, "one", spec={"url": "https://backend"})
        await bench.create(STORES_V2, "with", spec={"providerConfig": {**config, "auth": OWN}})
        await bench.create(STORES_V2, "without", spec={"providerConfig": config})
        await bench.ready(STORES_V2, "with", refused("was not reached"))
        await plain.stop(None)

        secured = ProviderHost(scripted(data={"a": b"b"}), authority.server(name="localhost"), socket=str(path))
        await secured.start()
        try:
            await bench.ready(STORES_V2, "with", ready)
            await bench.ready(STORES_V2, "without", refused("CertificateRequired"))
            assert await read(bench, "reader", STORES_V2, "with") == "b"
        finally:
            await secured.stop()


@pytest.mark.parametrize(
    ("resource", "ref"),
    [
        pytest.param(STORES_V2, {}, id="kind and name alone"),
        pytest.param(STORES_V2, {"apiVersion": BACKENDS.api_version, "namespace": "{own}"}, id="every field"),
        pytest.param(CLUSTER_STORES_V2, {"namespace": "{own}"}, id="of a cluster-scoped store"),
    ],
)
async def test_a_request_names_the_configuration_that_the_store_refers_to(
    bench: Bench, resource: Resource, ref: JsonObject
) -> None:
    """R86, R87: also with what the reference leaves out. The object and its status are the provider's own."""
    provider, name = scripted(data={"a": b"b"}), f"store-{bench.namespace}"
    said = {key: bench.namespace if value == "{own}" else value for key, value in ref.items()}
    async with bench.operator():
        await bench.install(provider)
        created = await bench.create(BACKENDS, "one", spec={"url": "https://backend"})
        status = {
            "conditions": [{"type": "Synced", "status": "False", "reason": "Theirs", "message": "their business"}]
        }
        path = f"{BACKENDS.path(bench.namespace, 'one')}/status"
        written = await bench.api.patch(path, {"status": status}, MERGE_PATCH)
        await bench.create(resource, name, spec={"providerConfig": {"providerRef": {**REF["providerRef"], **said}}})
        try:
            await read(bench, "reader", resource, name)
            after = await bench.find(BACKENDS, "one")
        finally:
            await bench.delete(resource, name)

    wanted = ObjectRef(
        api_version=BACKENDS.api_version,
        kind="Backend",
        namespace=bench.namespace,
        name="one",
        uid=created["metadata"]["uid"],
        generation=1,
    )
    # Objects of earlier tests may find this provider, too, while their namespaces are on their way out.
    assert {one for one in provider.configurations if one.namespace == bench.namespace} == {wanted}
    assert (written.status, after) == (200, written.body)
