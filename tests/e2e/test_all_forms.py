"""The whole product with every provider there is, and every way an ExternalSecret can name one of them."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from eso_api.externalsecret import EXTERNAL_SECRET
from kubebase.meta import JsonObject

pytestmark = pytest.mark.slow

EXTERNAL_SECRETS = EXTERNAL_SECRET.resource()
NAMESPACE = "all-forms"
HERE = Path(__file__).resolve().parent
V1 = "external-secrets.io/v1"
V2_STORES = "secretstore.external-secrets.io/v2alpha1"
V2_GENERATORS = "generator.external-secrets.io/v2alpha1"
CONFIGS = "provider.secretstore.external-secrets.io/v2alpha1"
GENERATOR_CONFIGS = "provider.generator.external-secrets.io/v2alpha1"
DATA = {"data": [{"key": "password", "value": "of the backend"}]}
FAKE_REF = {"providerRef": {"kind": "Fake", "name": "config"}}
PASSWORD_REF = {"providerRef": {"kind": "Password", "name": "config"}}


def named(api_version: str, kind: str, name: str, spec: JsonObject) -> JsonObject:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    }


def reference(obj: JsonObject) -> JsonObject:
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": obj["metadata"]["name"]}


FAKE = named(CONFIGS, "Fake", "config", DATA)
PASSWORD = named(GENERATOR_CONFIGS, "Password", "config", {"length": 20})
STORES = {
    "v1-store": named(V1, "SecretStore", "one", {"provider": {"fake": DATA}}),
    "v1-plugin": named(V1, "SecretStore", "plugin", {"provider": {"plugin": FAKE_REF}}),
    "v2-store": named(V2_STORES, "SecretStore", "two", {"providerConfig": FAKE_REF}),
    "provider": named("external-secrets.io/v1alpha1", "Provider", "three", FAKE_REF),
    "direct": FAKE,
}
GENERATORS = {
    "v1-generator": named("generators.external-secrets.io/v1alpha1", "Password", "one", {"length": 20}),
    "v2-generator": named(V2_GENERATORS, "Generator", "two", {"providerConfig": PASSWORD_REF}),
    "direct-generator": PASSWORD,
}


def external_secret(name: str, spec: JsonObject) -> JsonObject:
    return named(V1, "ExternalSecret", name, {"refreshInterval": "1h", **spec})


async def test_every_form_of_reference_works_side_by_side_through_provider_processes(site: Any) -> None:
    """R143, R167: v1 manifests, the plugin bridge and v2 kinds, of stores and of generators, in one cluster."""
    await site.namespace(NAMESPACE)
    await site.apply(FAKE, PASSWORD, *STORES.values(), *GENERATORS.values())
    read = [{"secretKey": "password", "remoteRef": {"key": "password"}}]

    for name, store in STORES.items():
        ref = {"kind": "Provider", "name": "three"} if name == "provider" else reference(store)
        await site.apply(external_secret(name, {"secretStoreRef": ref, "data": read}))
    for name, generator in GENERATORS.items():
        made = {"sourceRef": {"generatorRef": reference(generator)}}
        await site.apply(external_secret(name, {"dataFrom": [made]}))

    for name in STORES:
        await site.secret(name, NAMESPACE, {"password": "of the backend"}.__eq__)
    passwords = [await site.secret(name, NAMESPACE, lambda text: text.get("password")) for name in GENERATORS]
    assert {len(secret["text"]["password"]) for secret in passwords} == {20}
    assert len({secret["text"]["password"] for secret in passwords}) == len(GENERATORS)
    for name in (*STORES, *GENERATORS):
        await site.ready(EXTERNAL_SECRETS, name, NAMESPACE)

    words = ("-m eso_operator", "eso_cli.serving fake", "eso_cli.serving generators")
    assert len({site.up.component(each) for each in words}) == len(words)


def test_every_provider_has_tests_of_the_whole_product() -> None:
    """R75, R143: every provider of the workspace must be part of the tested product."""
    names = set(entry_points(group="eso.providers").names) - {"fake", "generators"}

    assert [name for name in sorted(names) if not list(HERE.glob(f"test_{name}*.py"))] == []
