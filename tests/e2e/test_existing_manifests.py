"""Existing manifests: v1beta1, v1 stores, and workloads that move to v2 stores."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

import pytest

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.secretstore import SECRET_STORE
from kubebase.meta import JsonObject
from kuberun.testing.builders import NAMESPACES, SECRETS

pytestmark = pytest.mark.slow

EXTERNAL_SECRETS = EXTERNAL_SECRET.resource()
STORES = SECRET_STORE.resource()


def v1_store(name: str, namespace: str = "", version: str = "v1beta1", **values: str) -> JsonObject:
    """A store as the guide's manifests name one, with the fake backend behind it."""
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    data = [{"key": key.replace("__", "/"), "value": value} for key, value in values.items()]
    return {
        "apiVersion": f"external-secrets.io/{version}",
        "kind": "SecretStore" if namespace else "ClusterSecretStore",
        "metadata": metadata,
        "spec": {"provider": {"fake": {"data": data}}},
    }


async def test_the_guides_v1beta1_manifests_work_unedited(site: Any) -> None:
    """R32, R33, R35: a connection string, a decoded certificate and a JSON file from single values."""
    rds = json.dumps({"username": "app", "password": "p", "host": "db", "port": "5432", "database": "shop"})
    tls = json.dumps({"ca_cert_b64": "YSBjZXJ0aWZpY2F0ZQ=="})
    await site.apply(v1_store("aws-sm", "production", production__rds=rds, **{"production__rds-tls": tls}))

    await site.apply_example("guide/template-connection-string.yaml")

    await site.ready(EXTERNAL_SECRETS, "db-connection", "production")
    secret = await site.secret("database-url", "production", lambda text: text)
    assert secret["text"]["DATABASE_URL"] == "postgresql://app:p@db:5432/shop?sslmode=require"
    assert secret["text"]["TLS_CERT"] == "a certificate"
    assert json.loads(secret["text"]["config.json"])["database"]["port"] == 5432


async def test_a_v1beta1_clusterexternalsecret_reaches_namespaces_through_a_cluster_store(site: Any) -> None:
    """R28, R31, R35: the guide's manifest, with a type and a key of its own."""
    auth = json.dumps({"dockerconfig": '{"auths":{}}'})
    await site.apply(v1_store("central-vault", **{"shared__registry-auth": auth}))

    await site.apply_example("guide/clusterexternalsecret.yaml")
    await site.namespace("new-service")
    await site.patch(NAMESPACES, "new-service", {"metadata": {"labels": {"env": "production"}}})

    for namespace in ("production", "staging", "monitoring", "new-service"):
        secret = await site.secret("registry-credentials", namespace, lambda text: text)
        assert secret["type"] == "kubernetes.io/dockerconfigjson"
        assert secret["text"] == {".dockerconfigjson": '{"auths":{}}'}


async def test_v1beta1_generators_make_their_values_once(site: Any) -> None:
    """R18, R19, R22, R35: `refreshInterval: 0`, written as a number."""
    await site.apply_example("guide/generator-password.yaml")
    await site.apply_example("guide/generator-uuid.yaml")

    password = await site.secret("db-password", "production", lambda text: "password" in text)
    identity = await site.secret("service-id", "production", lambda text: "uuid" in text)

    made = password["text"]["password"]
    symbols = [one for one in made if not one.isalnum()]
    assert (len(made), sum(one.isdigit() for one in made), len(symbols)) == (32, 6, 4)
    assert set(symbols) <= set("!@#$%^&*")
    assert uuid.UUID(identity["text"]["uuid"]).version == 4


async def test_moving_a_workload_to_a_v2_store_loses_no_data(site: Any) -> None:
    """R133, R134: every version of the Secret that a watch sees has all keys; then the v1 store goes away."""
    await site.namespace("moving")
    await site.apply(v1_store("before", "moving", "v1", user="app", password="kept"), *_v2_store("after", "moving"))
    await site.apply(_external_secret("moves", "moving"))
    before = await site.secret("moves", "moving", {"user": "app", "password": "kept"}.__eq__)

    async with site.api.watch(SECRETS.path("moving"), resourceVersion=before["metadata"]["resourceVersion"]) as frames:
        ref = {"apiVersion": "secretstore.external-secrets.io/v2alpha1", "kind": "SecretStore", "name": "after"}
        await site.patch(EXTERNAL_SECRETS, "moves", {"spec": {"secretStoreRef": ref}}, "moving")
        await site.until(lambda: _synced_at(site, generation=2), "the move is not reported")
        await site.delete(STORES, "before", "moving")
        await site.patch(SECRETS, "moves", {"metadata": {"annotations": {"people": "were here"}}}, "moving")
        async with asyncio.timeout(30):
            seen = [await frames.next()]
            while "people" not in seen[-1]["object"]["metadata"].get("annotations", {}):
                seen.append(await frames.next())

    assert {frame["type"] for frame in seen} == {"MODIFIED"}
    assert all(frame["object"]["data"] == before["data"] for frame in seen)
    assert seen[-1]["object"]["metadata"]["uid"] == before["metadata"]["uid"]
    assert len(seen) == 1, "equal values are not written again"
    config = {"spec": {"data": [{"key": "user", "value": "app"}, {"key": "password", "value": "rotated"}]}}
    await site.apply(_fake("after", "moving", config["spec"]))
    await site.patch(EXTERNAL_SECRETS, "moves", {"metadata": {"annotations": {"force-sync": "now"}}}, "moving")
    await site.secret("moves", "moving", lambda text: text.get("password") == "rotated")


def _v2_store(name: str, namespace: str) -> tuple[JsonObject, JsonObject]:
    data = {"data": [{"key": "user", "value": "app"}, {"key": "password", "value": "kept"}]}
    store = {
        "apiVersion": "secretstore.external-secrets.io/v2alpha1",
        "kind": "SecretStore",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"providerConfig": {"providerRef": {"kind": "Fake", "name": name}}},
    }
    return _fake(name, namespace, data), store


def _fake(name: str, namespace: str, spec: JsonObject) -> JsonObject:
    return {
        "apiVersion": "provider.secretstore.external-secrets.io/v2alpha1",
        "kind": "Fake",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def _external_secret(name: str, namespace: str) -> JsonObject:
    return {
        "apiVersion": "external-secrets.io/v1",
        "kind": "ExternalSecret",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "refreshInterval": "1h",
            "secretStoreRef": {"name": "before"},
            "data": [{"secretKey": key, "remoteRef": {"key": key}} for key in ("user", "password")],
        },
    }


async def _synced_at(site: Any, generation: int) -> bool:
    found = await site.find(EXTERNAL_SECRETS, "moves", "moving")
    return str(found["status"].get("syncedResourceVersion", "")).startswith(f"{generation}-")
