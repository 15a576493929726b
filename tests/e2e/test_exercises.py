"""The exercises of the guide: manifests into the folder that `eso up` follows, results from the API."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from eso_api.externalsecret import CLUSTER_EXTERNAL_SECRET, EXTERNAL_SECRET
from eso_api.pushsecret import PUSH_SECRET
from kubebase.meta import JsonObject, Resource
from kuberun.testing.builders import NAMESPACES, SECRETS

pytestmark = pytest.mark.slow

EXTERNAL_SECRETS = EXTERNAL_SECRET.resource()
PUSH_SECRETS = PUSH_SECRET.resource()
CLUSTER_EXTERNAL_SECRETS = CLUSTER_EXTERNAL_SECRET.resource()
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
CERTIFICATE = {"tls.crt": "an example", "tls.key": "not a key"}
TEAMS = ("exercise-red", "exercise-green", "exercise-blue")


async def test_exercise_1_a_password_is_generated_once(site: Any) -> None:
    """R37, the first half: the password stays, whatever causes another reconcile."""
    site.place("guide/exercise-1-generate-and-push.yaml")
    await site.ready(EXTERNAL_SECRETS, "exercise-password", "production")
    first = await site.secret("exercise-password", "production", lambda text: len(text.get("password", "")) == 24)

    annotate = {"metadata": {"annotations": {"force-sync": "now"}}}
    await site.patch(EXTERNAL_SECRETS, "exercise-password", annotate, "production")
    site.kill("-m eso_operator")
    await site.apply(from_same_generator("exercise-1-probe"))
    await site.ready(EXTERNAL_SECRETS, "exercise-1-probe", "production")  # the operator is back and at work

    again = await site.secret("exercise-password", "production", lambda text: text)
    assert again["text"] == first["text"]
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_exercise_1_the_password_is_pushed_and_reads_the_same_from_the_backend(site: Any) -> None:
    """R37, R40, the second half: the backend is asked by an ExternalSecret that reads what was pushed."""
    site.place("guide/exercise-1-generate-and-push.yaml")
    await site.ready(PUSH_SECRETS, "exercise-password", "production")

    spec = {
        "refreshInterval": "1s",
        "secretStoreRef": {"name": "exercise-backend"},
        "data": [{"secretKey": "password", "remoteRef": {"key": "exercise/password"}}],
    }
    metadata = {"name": "exercise-read-back", "namespace": "production"}
    await site.apply(
        {"apiVersion": "external-secrets.io/v1", "kind": "ExternalSecret", "metadata": metadata, "spec": spec}
    )

    generated = await site.secret("exercise-password", "production", lambda text: text)
    read_back = await site.secret("exercise-read-back", "production", lambda text: text)
    assert read_back["text"] == generated["text"]
    fresh = base64.b64encode(b"rotated by hand, then pushed").decode()
    await site.patch(
        PUSH_SECRETS, "exercise-password", {"spec": {"selector": {"secret": {"name": "rotated"}}}}, "production"
    )
    await site.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "rotated", "namespace": "production"},
            "data": {"password": fresh},
        }
    )
    await site.secret("exercise-read-back", "production", {"password": "rotated by hand, then pushed"}.__eq__)


def from_same_generator(name: str) -> JsonObject:
    """An ExternalSecret from the same generator, for a Secret of its own."""
    source = {"sourceRef": {"generatorRef": {"kind": "Password", "name": "exercise-password"}}}
    return {
        "apiVersion": "external-secrets.io/v1",
        "kind": "ExternalSecret",
        "metadata": {"name": name, "namespace": "production"},
        "spec": {"refreshInterval": "0", "dataFrom": [source]},
    }


async def test_exercise_2_a_certificate_follows_the_label_of_namespaces(site: Any) -> None:
    """R28, R29, R31, R38: three labelled namespaces have it, a late one gets it, an unlabelled one is cleaned up."""
    for team in TEAMS:
        await site.namespace(team, needs_tls="true")
    site.place("guide/exercise-2-shared-certificate.yaml")
    copies = {team: await site.secret("shared-certificate", team, CERTIFICATE.__eq__) for team in TEAMS}

    await site.namespace("exercise-late")
    await site.patch(NAMESPACES, "exercise-late", {"metadata": {"labels": {"needs-tls": "true"}}})
    await site.secret("shared-certificate", "exercise-late", CERTIFICATE.__eq__)
    await site.patch(NAMESPACES, "exercise-red", {"metadata": {"labels": {"needs-tls": None}}})
    await site.gone(EXTERNAL_SECRETS, "exercise-certificate", "exercise-red")
    await site.gone(SECRETS, "shared-certificate", "exercise-red")

    async def is_reported() -> bool:
        parent = await site.find(CLUSTER_EXTERNAL_SECRETS, "exercise-certificate")
        there = set(parent["status"]["provisionedNamespaces"])
        return "exercise-red" not in there and {"exercise-green", "exercise-blue", "exercise-late"} <= there

    await site.until(is_reported, "the status does not show which namespaces have it")
    for team in ("exercise-green", "exercise-blue"):
        left = await site.find(SECRETS, "shared-certificate", team)
        assert left["metadata"]["resourceVersion"] == copies[team]["metadata"]["resourceVersion"]
    assert len({copy["metadata"]["uid"] for copy in copies.values()}) == len(TEAMS)
    assert not (await site.find(NAMESPACES, "exercise-red"))["metadata"].get("finalizers")


async def test_exercise_3_a_workload_gets_its_database_url(site: Any) -> None:
    """R34, R39: the environment of the container, taken from the Secret as a kubelet takes it."""
    site.place("guide/exercise-3-database-url.yaml")
    await site.ready(EXTERNAL_SECRETS, "exercise-database-url", "production")

    shop = await site.find(DEPLOYMENTS, "exercise-shop", "production")

    (container,) = shop["spec"]["template"]["spec"]["containers"]
    source = container["env"][0]["valueFrom"]["secretKeyRef"]
    secret = await site.find(SECRETS, source["name"], "production")
    value = base64.b64decode(secret["data"][source["key"]]).decode()
    assert container["env"][0]["name"] == "DATABASE_URL"
    assert value == "postgresql://app:example@db.example.com:5432/shop?sslmode=require"
