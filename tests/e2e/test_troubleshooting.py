"""A fault is found with nothing but kubectl and the logs: each link of the chain names the next one (R172)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.v2.secretstore import SECRET_STORE_V2
from kubebase.meta import JsonObject
from kuberun.testing.builders import NAMESPACES
from kuberun.testing.kubectl import Kubectl

pytestmark = pytest.mark.slow

EXTERNAL_SECRETS = EXTERNAL_SECRET.resource()
STORES = SECRET_STORE_V2.resource()
STORE_KIND = f"{STORES.plural}.{STORES.group}"
NAMESPACE = "trouble"
VALUE = "CANARY-of-the-chain"
CONFIG_KIND = "fakes.provider.secretstore.external-secrets.io"


def documents(*, key: str, config: str) -> tuple[JsonObject, ...]:
    """Configuration, store, ExternalSecret."""
    metadata = {"namespace": NAMESPACE}
    return (
        {
            "apiVersion": "provider.secretstore.external-secrets.io/v2alpha1",
            "kind": "Fake",
            "metadata": {**metadata, "name": "config"},
            "spec": {"data": [{"key": "there", "value": VALUE}]},
        },
        {
            "apiVersion": STORES.api_version,
            "kind": "SecretStore",
            "metadata": {**metadata, "name": "store"},
            "spec": {"providerConfig": {"providerRef": {"kind": "Fake", "name": config}}},
        },
        {
            "apiVersion": EXTERNAL_SECRETS.api_version,
            "kind": "ExternalSecret",
            "metadata": {**metadata, "name": "app"},
            "spec": {
                "refreshInterval": "1h",
                "secretStoreRef": {"apiVersion": STORES.api_version, "kind": "SecretStore", "name": "store"},
                "data": [{"secretKey": "password", "remoteRef": {"key": key}}],
            },
        },
    )


@pytest.fixture
async def kubectl(site: Any, tmp_path: Path) -> Kubectl:
    if await site.find(NAMESPACES, NAMESPACE) is None:
        await site.namespace(NAMESPACE)
    return Kubectl(site.up, tmp_path, namespace=NAMESPACE)


def described(kubectl: Kubectl, kind: str, name: str) -> str:
    """As people read it, without how it was broken into lines."""
    return " ".join(kubectl("describe", kind, name).split())


async def until_described(site: Any, kubectl: Kubectl, kind: str, *words: str, name: str) -> str:
    seen = [""]

    async def look() -> bool:
        seen[0] = described(kubectl, kind, name)
        return all(word in seen[0] for word in words)

    try:
        await site.until(look, "")
    except AssertionError:
        missing = [word for word in words if word not in seen[0]]
        raise AssertionError(f"describing {kind} {name} does not say {missing}: {seen[0]}") from None
    return seen[0]


async def test_a_fault_is_followed_from_the_secret_to_the_provider_by_describing(site: Any, kubectl: Kubectl) -> None:
    """Two faults, one after the other: a configuration that is not there, then a key that is not."""
    await site.apply(*documents(key="not-there", config="no-config"))

    assert "NotFound" in kubectl.fails("describe", "secret", "app")
    texts = [
        await until_described(
            site, kubectl, "externalsecret", "SecretSyncedError", "spec.data[0]", "SecretStore store", name="app"
        ),
        await until_described(
            site,
            kubectl,
            STORE_KIND,
            "ProviderConfigNotFound",
            "Fake",
            "no-config",
            name="store",
        ),
    ]
    await site.apply(*documents(key="not-there", config="config"))
    texts += [
        await until_described(site, kubectl, STORE_KIND, "Valid", name="store"),
        await until_described(
            site, kubectl, "externalsecret", "SecretSyncedError", "not-there", "UpdateFailed", name="app"
        ),
        await until_described(site, kubectl, CONFIG_KIND, "there", name="config"),
    ]
    await site.apply(*documents(key="there", config="config"))
    await site.ready(EXTERNAL_SECRETS, "app", NAMESPACE)
    texts += [
        await until_described(
            site, kubectl, "secret", "external-secrets.io/managed=true", "password: 19 bytes", name="app"
        ),
        await until_described(site, kubectl, "externalsecret", "SecretSynced", "Created", name="app"),
    ]

    shown_as_configuration = texts.pop(4)
    assert VALUE in shown_as_configuration
    assert VALUE not in " ".join(texts)


async def test_the_logs_of_core_and_provider_tell_of_the_same_fault(site: Any, kubectl: Kubectl) -> None:
    """Each line says which component wrote it. No value is in any of them."""
    await site.apply(*documents(key="lost", config="config"))
    await until_described(site, kubectl, "externalsecret", "lost", name="app")

    async def core_tells() -> bool:
        return any(
            "lost" in line.get("why", "") for line in lines_of(site, "operator", external_secret=f"{NAMESPACE}/app")
        )

    async def provider_tells() -> bool:
        asked = lines_of(site, "provider-fake", method="GetSecrets", store=f"SecretStore {NAMESPACE}/store")
        return any(line.get("failed") == "1 SECRET_NOT_FOUND" for line in asked)

    await site.until(core_tells, "the operator's log does not say why")
    await site.until(provider_tells, "the provider's log does not say what failed")
    assert VALUE not in site.up.output


def lines_of(site: Any, component: str, **fields: str) -> Iterator[JsonObject]:
    """The log lines of one process with these fields."""
    for text in site.up.output.splitlines():
        if text.startswith("{"):
            line = json.loads(text)
            if all(line.get(key) == value for key, value in {"component": component, **fields}.items()):
                yield line
