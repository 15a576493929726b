"""Attacks of a tenant with an account of its own: none of them succeeds, and the neighbour gets its Secret."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.generators.aws import STS_SESSION_TOKEN
from eso_api.generators.azure import ACR_ACCESS_TOKEN
from eso_api.generators.gcp import GCR_ACCESS_TOKEN
from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import CLUSTER_SECRET_STORE, SECRET_STORE
from eso_testkit.cli.upprocess import UpProcess
from kubebase.meta import JsonObject, Resource
from kuberun.testing.builders import NAMESPACES, SECRETS, SERVICE_ACCOUNTS
from kuberun.testing.rawapi import MERGE_PATCH, RawApi

pytestmark = pytest.mark.slow

STORES, CLUSTER_STORES = SECRET_STORE.resource(), CLUSTER_SECRET_STORE.resource()
EXTERNAL_SECRETS, PUSH_SECRETS = EXTERNAL_SECRET.resource(), PUSH_SECRET.resource()
VALUE = "the value of the neighbour"


def fake(**data: str) -> JsonObject:
    return {"provider": {"fake": {"data": [{"key": key, "value": value} for key, value in data.items()]}}}


def reading(store: str, *refs: JsonObject, **spec: Any) -> JsonObject:
    data = [{"secretKey": f"k{number}", "remoteRef": ref} for number, ref in enumerate(refs)]
    return {"refreshInterval": "1h", "secretStoreRef": {"name": store}, "data": data, **spec}


def pushing(store: JsonObject, key: str, namespace: str = "") -> JsonObject:
    metadata = {"apiVersion": "kubernetes.external-secrets.io/v1alpha1", "kind": "PushSecretMetadata"}
    chosen = {"metadata": {**metadata, "spec": {"remoteNamespace": namespace}}} if namespace else {}
    match = {"secretKey": "password", "remoteRef": {"remoteKey": key, "property": "password"}}
    return {
        "refreshInterval": "1s",
        "secretStoreRefs": [store],
        "selector": {"secret": {"name": "own"}},
        "data": [{"match": match, **chosen}],
    }


async def test_the_tenant_is_one(tenants: Any) -> None:
    """Without this, the other tests would prove nothing."""
    attacker, neighbour = tenants

    own = await attacker.api.get(SECRETS.path(attacker.namespace))
    others = await attacker.api.get(SECRETS.path(neighbour.namespace))
    stores = await attacker.api.get(CLUSTER_STORES.path())

    assert (own.status, others.status, stores.status) == (200, 403, 403)


# --- the identity of the provider -------------------------------------------------------------------------------------

PROOFS = [
    pytest.param("vault", {"auth": {"iam": {"vaultRole": "app", "region": "eu-west-1"}}}, id="Vault, AWS role"),
    pytest.param("vault", {"auth": {"kubernetes": {"role": "app", "mountPath": "k"}}}, id="Vault, token of the pod"),
    pytest.param("vault", {"auth": {"gcp": {"role": "app"}}}, id="Vault, Google identity"),
    pytest.param("infisical", {"auth": {"awsAuthCredentials": "identity"}}, id="Infisical, AWS role"),
]


@pytest.mark.parametrize(("provider", "block"), PROOFS)
async def test_a_server_of_the_tenant_receives_no_proof_of_the_provider(
    tenants: Any, thief: Any, provider: str, block: JsonObject
) -> None:
    attacker, _ = tenants
    if provider == "vault":
        block = {"server": thief.url, "path": "secret", **block}
    else:
        identity = {"name": "own", "key": "password"}
        scope = {"projectSlug": "p", "environmentSlug": "dev"}
        block = {"hostAPI": thief.url, "auth": {"awsAuthCredentials": {"identityId": identity}}, "secretsScope": scope}

    await attacker.put(STORES, "theft", spec={"provider": {provider: block}})

    assert "--ambient-identity=namespaced" in await attacker.refused(STORES, "theft")
    assert thief.calls == []


async def test_a_store_without_credentials_reads_nothing_with_those_of_the_provider(tenants: Any) -> None:
    attacker, _ = tenants
    spec = {"provider": {"aws": {"service": "SecretsManager", "region": "eu-west-1"}}}

    await attacker.put(STORES, "ambient", spec=spec)

    assert "--ambient-identity=namespaced" in await attacker.refused(STORES, "ambient")


GENERATORS = [
    pytest.param(STS_SESSION_TOKEN.resource(), {"region": "eu-west-1"}, id="STS"),
    pytest.param(GCR_ACCESS_TOKEN.resource(), {"projectID": "p", "auth": {}}, id="GCR"),
    pytest.param(
        ACR_ACCESS_TOKEN.resource(),
        {"registry": "evil.test", "auth": {"workloadIdentity": {}}, "environmentType": "PublicCloud"},
        id="ACR",
    ),
]


@pytest.mark.parametrize(("resource", "spec"), GENERATORS)
async def test_no_token_of_the_provider_is_generated_for_the_tenant(
    tenants: Any, resource: Resource, spec: JsonObject
) -> None:
    attacker, _ = tenants
    await attacker.put(resource, "token", spec=spec)
    ref = {"apiVersion": resource.api_version, "kind": resource.kind, "name": "token"}
    wanted = {"refreshInterval": "1h", "dataFrom": [{"sourceRef": {"generatorRef": ref}}]}

    await attacker.put(EXTERNAL_SECRETS, "token", spec=wanted)

    assert "--ambient-identity=namespaced" in await attacker.refused(EXTERNAL_SECRETS, "token")
    assert (await attacker.api.get(SECRETS.path(attacker.namespace, "token"))).status == 404


# --- the work of the provider -----------------------------------------------------------------------------------------


async def test_expensive_properties_leave_the_neighbour_its_provider(tenants: Any) -> None:
    attacker, neighbour = tenants
    paths = [f"{'|'.join(['@pretty|@ugly'] * 15)}|x{number}" for number in range(200)]
    await attacker.put(STORES, "store", spec=fake(document=f'{{"a":"{"x" * 800_000}"}}'))
    await neighbour.put(STORES, "store", spec=fake(db=VALUE))
    await asyncio.gather(attacker.ready(STORES, "store"), neighbour.ready(STORES, "store"))

    costly = [{"key": "document", "property": path} for path in paths]
    for number in range(3):
        await attacker.put(EXTERNAL_SECRETS, f"costly-{number}", spec=reading("store", *costly))
    for number in range(3):
        await neighbour.put(EXTERNAL_SECRETS, f"app-{number}", spec=reading("store", {"key": "db"}))
    for number in range(3):
        await neighbour.ready(EXTERNAL_SECRETS, f"app-{number}")

    await attacker.refused(EXTERNAL_SECRETS, "costly-0")  # there are no such properties


# --- the rights of the administrator ----------------------------------------------------------------------------------


async def test_a_push_does_not_choose_the_namespace_of_the_neighbour(
    tenants: Any, up: UpProcess, admin: RawApi
) -> None:
    attacker, neighbour = tenants
    store = await cluster_store(up, admin, attacker.namespace)

    await attacker.put(PUSH_SECRETS, "elsewhere", spec=pushing(store, "own", neighbour.namespace))

    message = await attacker.refused(PUSH_SECRETS, "elsewhere")
    assert "allowedRemoteNamespaces" in message
    kept = await neighbour.api.get(SECRETS.path(neighbour.namespace, "own"))
    assert base64.b64decode(kept.body["data"]["password"]).decode() == f"of {neighbour.namespace}"


@pytest.mark.parametrize("is_right", [True, False], ids=["a right guess", "a wrong guess"])
async def test_two_tenants_that_push_to_one_key_learn_nothing_of_each_other(
    tenants: Any, up: UpProcess, admin: RawApi, is_right: bool
) -> None:
    attacker, neighbour = tenants
    store = await cluster_store(up, admin, attacker.namespace)
    await neighbour.put(PUSH_SECRETS, "honest", spec=pushing(store, "shared"))
    await neighbour.ready(PUSH_SECRETS, "honest")
    guess = f"of {neighbour.namespace}" if is_right else "a wrong guess"
    patch = {"data": {"password": base64.b64encode(guess.encode()).decode()}}
    assert (await attacker.api.patch(SECRETS.path(attacker.namespace, "own"), patch, MERGE_PATCH)).status == 200

    await attacker.put(PUSH_SECRETS, "guess", spec=pushing(store, "shared"))
    await attacker.ready(PUSH_SECRETS, "guess")

    said = await attacker.text(PUSH_SECRETS, "guess")
    assert "SharedPlace" in said
    assert neighbour.namespace not in said
    assert "honest" not in said


async def cluster_store(up: UpProcess, admin: RawApi, name: str) -> JsonObject:
    """A store of the administrator: it writes wherever its account may, which is everywhere."""
    home = f"{name}-home"
    rules = [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"]},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["*"], "verbs": ["create"]},
    ]
    roles = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
    bindings = Resource(
        "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
    )
    subjects = [{"kind": "ServiceAccount", "name": "pusher", "namespace": home}]
    role = {"apiGroup": roles.group, "kind": "ClusterRole", "name": home}
    provider = {
        "remoteNamespace": home,
        "server": {"url": up.url, "caBundle": base64.b64encode(up.ca_file.read_bytes()).decode()},
        "auth": {"serviceAccount": {"name": "pusher", "namespace": home}},
    }
    store = {"metadata": {"name": home}, "spec": {"provider": {"kubernetes": provider}}}
    bodies: list[tuple[Resource, str, JsonObject]] = [
        (NAMESPACES, "", {"metadata": {"name": home}}),
        (SERVICE_ACCOUNTS, home, {"metadata": {"name": "pusher"}}),
        (roles, "", {"metadata": {"name": home}, "rules": rules}),
        (bindings, "", {"metadata": {"name": home}, "subjects": subjects, "roleRef": role}),
        (CLUSTER_STORES, "", {"apiVersion": CLUSTER_STORES.api_version, "kind": CLUSTER_STORES.kind, **store}),
    ]
    for resource, namespace, body in bodies:
        answer = await admin.post(resource.path(namespace), body)
        assert answer.status == 201, answer.body
    return {"name": home, "kind": "ClusterSecretStore"}
