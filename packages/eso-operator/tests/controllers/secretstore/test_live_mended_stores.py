"""Whatever mends a store or its users is heard of when it happens, not at the next try (R113, R117)."""

import base64
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.secretstore import CLUSTER_SECRET_STORE, SECRET_STORE
from eso_api.v2.owned import namespaced_config
from eso_api.v2.providerclass import PROVIDER_CLASS
from eso_api.v2.secretstore import SECRET_STORE_V2
from eso_operator.settings import FeatureGate
from eso_testkit.operator.operators import LABEL, READS, SERVICES, Backend, Bench, scripted
from eso_testkit.operator.scriptedprovider import ScriptedProvider
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import KindId, KindInfo, KindRole
from kubebase.clock import SystemClock
from kubebase.meta import Condition, Resource
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import SECRETS, SERVICE_ACCOUNTS

pytestmark = pytest.mark.live

STORES = SECRET_STORE.resource()
STORES_V2 = SECRET_STORE_V2.resource()
CLUSTER_STORES = CLUSTER_SECRET_STORE.resource()
CLASSES = PROVIDER_CLASS.resource()
EXTERNAL_SECRETS = EXTERNAL_SECRET.resource()
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)

Lines = list[MutableMapping[str, Any]]


def ready(condition: Condition) -> bool:
    return condition.status == "True"


def broken(*words: str) -> Callable[[Condition], bool]:
    return lambda condition: (
        condition.status == "False" and all(word in f"{condition.reason} {condition.message}" for word in words)
    )


def inline(spec: dict[str, Any], **config: Any) -> dict[str, Any]:
    return {"providerConfig": {"inline": {"kind": "Backend", "spec": spec}, **config}}


def looked_at_because(lines: Lines, reason: str) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return any(line["event"] == "reconcile starts" and reason in line["reason"] for line in lines)

    return look


async def test_rejected_credentials_that_are_corrected(bench: Bench) -> None:
    """The provider answers the validation with an error, not with a verdict."""
    provider = scripted()
    with capture_logs() as lines:
        async with bench.operator():
            await bench.install(provider)
            provider.broken = ProviderError(ErrorReason.CREDENTIALS_REJECTED, "wrong password")
            await bench.create(SECRETS, "token", data={"token": base64.b64encode(b"old").decode()})
            await bench.create(
                STORES_V2, "store", spec=inline({"auth": {"tokenSecretRef": {"name": "token", "key": "token"}}})
            )
            await bench.ready(STORES_V2, "store", broken("AuthenticationFailed", "wrong password"))
            provider.broken = None

            await bench.patch(SECRETS, "token", {"data": {"token": base64.b64encode(b"new").decode()}})

            await bench.ready(STORES_V2, "store", ready)
            changed = f"Secret {bench.namespace}/token changed"
            await eventually(looked_at_because(lines, changed), "no reconcile heard of the new credentials")


async def test_a_missing_service_account_that_appears(bench: Bench) -> None:
    with capture_logs() as lines:
        async with bench.operator():
            await bench.install(scripted())
            await bench.create(STORES_V2, "store", spec=inline({}, auth={"serviceAccountRef": {"name": "robot"}}))
            await bench.ready(STORES_V2, "store", broken("CredentialsNotFound", "robot"))

            await bench.create(SERVICE_ACCOUNTS, "robot")

            await bench.ready(STORES_V2, "store", ready)
            changed = f"ServiceAccount {bench.namespace}/robot changed"
            await eventually(looked_at_because(lines, changed), "no reconcile heard of the service account")


async def test_a_namespace_that_is_labelled_for_a_cluster_store(bench: Bench) -> None:
    """R90, R132."""
    name = f"blue-{bench.namespace}"
    selector = {"namespaceSelector": {"matchLabels": {"team": "blue"}}}
    data = [{"secretKey": "a", "remoteRef": {"key": "a"}}]
    with capture_logs() as lines:
        async with bench.operator():
            await bench.install(scripted(data={"a": b"value"}))
            await bench.create(
                CLUSTER_STORES, name, spec={"provider": {"fake": {"data": []}}, "conditions": [selector]}
            )
            await bench.ready(CLUSTER_STORES, name, ready)
            await bench.create(
                EXTERNAL_SECRETS,
                "user",
                spec={"secretStoreRef": {"kind": "ClusterSecretStore", "name": name}, "data": data},
            )
            await bench.ready(EXTERNAL_SECRETS, "user", broken("does not allow namespace"))

            await bench.patch(NAMESPACES, bench.namespace, {"metadata": {"labels": {"team": "blue"}}})

            await bench.ready(EXTERNAL_SECRETS, "user", ready)
            changed = f"Namespace {bench.namespace} changed"
            await eventually(looked_at_because(lines, changed), "no reconcile heard of the label")
            await bench.delete(CLUSTER_STORES, name)


async def test_a_providers_kind_that_is_installed_after_the_store_that_names_it(bench: Bench) -> None:
    late = namespaced_config(Backend, f"{bench.namespace}.example.com", "backends")
    info = KindInfo(KindId(late.group, "v2alpha1", late.name), KindRole.STORE, READS)
    config = {"apiVersion": late.resource().api_version, "kind": late.name, "name": "config"}
    with capture_logs() as lines:
        async with bench.operator():
            await bench.install(ScriptedProvider(SystemClock(), kinds=(info,)))
            await bench.create(STORES_V2, "store", spec={"providerConfig": {"providerRef": config}})
            await bench.ready(STORES_V2, "store", broken("UnknownStoreKind", late.group))

            await bench.api.post(CRDS.path(), late.crd())

            served = f"{info.kind} is served now"
            await eventually(looked_at_because(lines, served), "no reconcile heard of the definition")
            await bench.create(late.resource(), "config", spec={"url": "https://backend"})
            await bench.ready(STORES_V2, "store", ready)
    await bench.delete(CRDS, late.crd_name)


async def test_a_service_by_name_needs_no_label_and_gets_no_class(bench: Bench) -> None:
    """R189: its name says that it is the provider of v1 stores with the key `fake`; no server listens there, though."""
    settings = replace(
        bench.impatient,
        gates=bench.settings.gates | {FeatureGate.PROVIDER_NAMING_CONVENTION},
        providers=replace(bench.impatient.providers, trusted=()),
    )
    ports = {"ports": [{"name": "grpc", "port": 8080}]}
    async with bench.operator(settings):
        await bench.create(STORES, "store", spec={"provider": {"fake": {"data": []}}})
        await bench.ready(STORES, "store", broken("ProviderNotInstalled"))

        await bench.create(SERVICES, "provider-fake", spec=ports)
        await bench.create(SERVICES, "labelled", metadata={"labels": LABEL}, spec=ports)

        await bench.ready(STORES, "store", broken(f"{bench.namespace}/provider-fake was not reached"))
        await eventually(lambda: bench.find(CLASSES, "labelled"), "no class for the labelled Service")
        assert await bench.find(CLASSES, "provider-fake") is None
        await bench.patch(SERVICES, "labelled", {"metadata": {"labels": {"external-secrets.io/provider": None}}})
        await eventually(lambda: _is_gone(bench, "labelled"), "the class outlives the label")


async def _is_gone(bench: Bench, name: str) -> bool:
    return await bench.find(CLASSES, name) is None
