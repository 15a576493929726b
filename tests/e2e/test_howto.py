"""The manifests of the concepts and of the how-to pages are applied, and have the described effects."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from eso_api.externalsecret import CLUSTER_EXTERNAL_SECRET, EXTERNAL_SECRET
from kubebase.meta import JsonObject
from kuberun.testing.builders import NAMESPACES

pytestmark = pytest.mark.slow

DOCS = Path(__file__).resolve().parents[2] / "docs"
CONCEPTS = ("stores-and-providers", "v1-and-v2", "identity-and-namespaces", "refresh")
HOWTOS = ("templating", "find-and-rewrite", "clusterexternalsecret", "cost")
EXTERNAL_SECRETS = EXTERNAL_SECRET.resource()
LOGIN = {"user": "app", "password": "a/b"}
VALUES = {
    "app/db": json.dumps(LOGIN),
    "app/registry": json.dumps(LOGIN),
    "app/db-password": "a/b",
    "settings-base": '{"level": "info", "host": "db"}',
    "settings-production": '{"level": "error"}',
    "shared/registry": '{"auths": {}}',
}


def manifests(*pages: str) -> list[JsonObject]:
    texts = "".join((DOCS / f"{page}.md").read_text(encoding="utf-8") for page in pages)
    blocks = re.findall(r"^```yaml\n(.*?)^```", texts, re.DOTALL | re.MULTILINE)
    return [document for block in blocks for document in yaml.safe_load_all(block)]


def store(kind: str, name: str, **metadata: str) -> JsonObject:
    data = [{"key": key, "value": value} for key, value in VALUES.items()]
    body = {"kind": kind, "metadata": {"name": name, **metadata}, "spec": {"provider": {"fake": {"data": data}}}}
    return {"apiVersion": EXTERNAL_SECRETS.api_version, **body}


@pytest.fixture
async def shop(site: Any) -> Any:
    """Everything that the pages show, in the namespace `shop`; its store has the values that they read."""
    if await site.find(NAMESPACES, "shop") is None:
        await site.namespace("shop", team="shop")
    await site.apply(*manifests(*(f"concepts/{page}" for page in CONCEPTS)))
    await site.apply(store("SecretStore", "backend", namespace="shop"), store("ClusterSecretStore", "central"))
    await site.apply(*manifests(*(f"howto/{page}" for page in HOWTOS)))
    return site


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        pytest.param("database", {"password"}, id="a v1 store"),
        pytest.param("database-v2", {"password"}, id="a v2 store"),
        pytest.param("slow", {"password"}, id="a long interval"),
        pytest.param("database-url", {"url"}, id="one text from several values"),
        pytest.param("app-config", {"app.ini"}, id="a template in a ConfigMap"),
        pytest.param("upper", {"USER", "PASSWORD"}, id="every key"),
        pytest.param("all-of-app", {"DB", "REGISTRY", "DB_PASSWORD"}, id="find and rewrite"),
        pytest.param("merged", {"host", "level"}, id="merged documents"),
        pytest.param("cheap", {"user", "password"}, id="two properties"),
        pytest.param("registry-login", {".dockerconfigjson"}, id="a Secret of a certain type"),
        pytest.param("registry", {".dockerconfigjson"}, id="a ClusterExternalSecret"),
    ],
)
async def test_a_sample_becomes_a_secret_with_these_keys(name: str, keys: set[str], shop: Any) -> None:
    await shop.ready(EXTERNAL_SECRETS, name, "shop")

    await shop.secret(name, "shop", lambda text: set(text) == keys)


async def test_the_samples_have_the_values_that_the_pages_promise(shop: Any) -> None:
    await shop.secret("database-url", "shop", lambda text: text["url"] == "postgres://app:a%2Fb@db.internal:5432/shop")
    await shop.secret("merged", "shop", lambda text: text["level"] == "error")
    await shop.secret("all-of-app", "shop", lambda text: text["DB_PASSWORD"] == "a/b")


async def test_the_cluster_external_secret_of_the_page_becomes_ready(shop: Any) -> None:
    await shop.ready(CLUSTER_EXTERNAL_SECRET.resource(), "registry")


def test_the_alerts_use_metrics_that_exist() -> None:
    (rules,) = manifests("howto/alerting")
    reference = (DOCS / "reference" / "metrics.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(\w+)` \|", reference, re.MULTILINE))
    kinds = re.findall(r"`(\w+)`", reference.partition("`KIND` is one of ")[2].partition("\n")[0])
    known = listed | {f"{kind}_status_condition" for kind in kinds}

    used = {
        name
        for rule in rules["groups"][0]["rules"]
        for name in re.findall(r"[a-z]\w+", re.sub(r"\{.*?\}", "", rule["expr"]))
    }

    assert used - known == {"or", "time"}
