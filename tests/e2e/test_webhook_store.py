"""The Webhook store through all parts: operator, provider process, and an endpoint that knows who may ask."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import SECRET_STORE
from kubebase.meta import JsonObject
from kuberun.testing.builders import NAMESPACES, SECRETS

pytestmark = pytest.mark.slow

EXTERNAL_SECRETS, PUSH_SECRETS = EXTERNAL_SECRET.resource(), PUSH_SECRET.resource()
SECRET_STORES = SECRET_STORE.resource()
NAMESPACE = "production"
TOKEN = "CANARY-of-the-webhook-store"
LABEL = "external-secrets.io/type"


@dataclass(slots=True)
class Manager:
    """A small secret manager that wants a token, and answers by namespace too."""

    url: str = ""
    values: dict[str, str] = field(default_factory=dict)
    denied: set[str] = field(default_factory=set)
    failing: list[int] = field(default_factory=list)
    """Statuses of the next answers, in order."""
    answered: list[int] = field(default_factory=list)
    pushed: list[tuple[str, str]] = field(default_factory=list)
    unchanged: Counter[str] = field(default_factory=Counter)
    """How often a namespace got the status 304."""

    async def handle(self, request: web.Request) -> web.Response:
        key = request.match_info["key"]
        if self.failing:
            self.answered.append(self.failing.pop(0))
            return web.Response(status=self.answered[-1], text="CANARY")
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return web.Response(status=401, text="CANARY")
        if key in self.denied:
            return web.Response(status=403, text="CANARY")
        if request.method == "POST":
            self.values[key] = await request.text()
            self.pushed.append((request.raw_path, request.headers["X-Source"]))
            return web.Response(status=201)
        if key not in self.values:
            return web.Response(status=404, text="CANARY")
        if request.method == "DELETE":
            del self.values[key]
            return web.Response(status=204)
        return web.Response(text=self.values[key])

    async def of_namespace(self, request: web.Request) -> web.Response:
        """Every namespace has a value of its own, and all of them the same ETag."""
        namespace = request.match_info["namespace"]
        if request.headers.get("If-None-Match"):
            self.unchanged[namespace] += 1
            return web.Response(status=304)
        return web.json_response({"value": f"value of {namespace}"}, headers={"ETag": '"1"'})


@pytest.fixture
async def manager() -> AsyncIterator[Manager]:
    made = Manager()
    application = web.Application()
    application.router.add_get("/namespaces/{namespace}", made.of_namespace)
    application.router.add_route("*", "/secrets/{key:.+}", made.handle)
    runner = web.AppRunner(application, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield made
    finally:
        await runner.cleanup()


def of_kind(kind: str, name: str, spec: JsonObject, namespace: str = NAMESPACE) -> JsonObject:
    version = "v1alpha1" if kind == "PushSecret" else "v1"
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": f"external-secrets.io/{version}", "kind": kind, "metadata": metadata, "spec": spec}


def token(name: str, *, labelled: bool = True) -> JsonObject:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {LABEL: "webhook"} if labelled else {}}
    data = {"token": base64.b64encode(TOKEN.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


def store(manager: Manager, name: str, **more: Any) -> JsonObject:
    webhook = {
        "url": manager.url + "/secrets/{{ .remoteRef.key }}{{ .remoteRef.remoteKey }}",
        "headers": {"Authorization": "Bearer {{ .auth.token }}", "X-Source": "{{ .remoteRef.secretKey }}"},
        "secrets": [{"name": "auth", "secretRef": {"name": f"{name}-token"}}],
    }
    return of_kind("SecretStore", name, {"provider": {"webhook": webhook | more}})


def external_secret(name: str, key: str, **more: Any) -> JsonObject:
    data = [{"secretKey": "value", "remoteRef": {"key": key}}]
    return of_kind(
        "ExternalSecret", name, {"refreshInterval": "1s", "secretStoreRef": {"name": name}, "data": data} | more
    )


async def told(site: Any, resource: Any, name: str, words: str) -> JsonObject:
    """The object once a condition says so."""

    async def look() -> JsonObject | None:
        found: JsonObject = await site.find(resource, name, NAMESPACE) or {}
        said = [one.get("message", "") for one in found.get("status", {}).get("conditions", [])]
        return found if any(words in message for message in said) else None

    found: JsonObject = await site.until(look, f"{resource.kind} {name} does not say: {words}")
    assert "CANARY" not in str(found["status"])
    assert "127.0.0.1" not in str(found["status"])
    return found


async def test_a_v1_store_syncs_values_and_maps_once_its_token_is_labelled(site: Any, manager: Manager) -> None:
    manager.values = {"dir/greeting": "hello", "login": '{"user": "anna", "port": 5432}'}
    await site.apply(token("wh-read-token", labelled=False), store(manager, "wh-read"))
    await site.apply(external_secret("wh-read", "dir/greeting", dataFrom=[{"extract": {"key": "login"}}]))
    await told(site, EXTERNAL_SECRETS, "wh-read", f"{LABEL}: webhook")
    assert await site.find(SECRETS, "wh-read", NAMESPACE) is None

    await site.patch(SECRETS, "wh-read-token", {"metadata": {"labels": {LABEL: "webhook"}}}, NAMESPACE)

    expected = {"value": "hello", "user": "anna", "port": "5432"}
    await site.secret("wh-read", NAMESPACE, expected.__eq__)
    manager.values["dir/greeting"] = "changed"
    await site.secret("wh-read", NAMESPACE, (expected | {"value": "changed"}).__eq__)


async def test_a_denied_key_keeps_the_secret_and_a_deleted_one_removes_it(site: Any, manager: Manager) -> None:
    manager.values = {"key": "hello"}
    await site.apply(token("wh-gone-token"), store(manager, "wh-gone"))
    await site.apply(external_secret("wh-gone", "key", target={"deletionPolicy": "Delete"}))
    await site.secret("wh-gone", NAMESPACE, {"value": "hello"}.__eq__)

    manager.denied = {"key"}
    await told(site, EXTERNAL_SECRETS, "wh-gone", "HTTP 403")
    assert await site.find(SECRETS, "wh-gone", NAMESPACE) is not None
    manager.denied, manager.values = set(), {}

    await site.gone(SECRETS, "wh-gone", NAMESPACE)


@pytest.mark.parametrize("status", [500, 429, 503])
async def test_failures_are_retried_within_one_attempt_and_not_reported(
    site: Any, manager: Manager, status: int
) -> None:
    name = f"wh-retry-{status}"
    manager.values = {"key": "hello"}
    spec = store(manager, name)
    spec["spec"]["retrySettings"] = {"maxRetries": 3, "retryInterval": "50ms"}
    await site.apply(token(f"{name}-token"), spec)
    await site.ready(SECRET_STORES, name, NAMESPACE)
    manager.failing = [status, status]

    await site.apply(external_secret(name, "key", refreshInterval="1h"))

    await site.secret(name, NAMESPACE, {"value": "hello"}.__eq__)
    await site.ready(EXTERNAL_SECRETS, name, NAMESPACE)
    events = (await site.api.get(f"/api/v1/namespaces/{NAMESPACE}/events")).body["items"]
    assert manager.answered == [status, status]
    assert [one for one in events if one["involvedObject"]["name"] == name and one["type"] == "Warning"] == []


@pytest.mark.parametrize("status", [500, 429, 503])
async def test_a_store_without_retries_reports_the_first_status(site: Any, manager: Manager, status: int) -> None:
    name = f"wh-once-{status}"
    manager.values, manager.failing = {"key": "hello"}, [status]
    spec = store(manager, name)
    spec["spec"]["retrySettings"] = {"maxRetries": 0}
    await site.apply(token(f"{name}-token"), spec, external_secret(name, "key", refreshInterval="1h"))

    async def reported() -> list[JsonObject] | None:
        events = (await site.api.get(f"/api/v1/namespaces/{NAMESPACE}/events")).body["items"]
        return [one for one in events if one["involvedObject"]["name"] == name and f"HTTP {status}" in one["message"]]

    await site.until(reported, f"no event says HTTP {status}")


async def test_a_cluster_store_gives_each_namespace_its_own_value(site: Any, manager: Manager) -> None:
    """Both read the same key of the same store, again and again, at the same time."""
    webhook = {"url": manager.url + "/namespaces/{{ .remoteRef.namespace }}", "result": {"jsonPath": "$.value"}}
    shared = {"kind": "ClusterSecretStore", "name": "wh-shared"}
    names = ("wh-team-a", "wh-team-b")
    for name in names:
        if await site.find(NAMESPACES, name) is None:
            await site.namespace(name)
    await site.apply(of_kind("ClusterSecretStore", "wh-shared", {"provider": {"webhook": webhook}}, ""))
    data = [{"secretKey": "value", "remoteRef": {"key": "same"}}]
    spec = {"refreshInterval": "1s", "secretStoreRef": shared, "data": data}

    await site.apply(*(of_kind("ExternalSecret", "mine", spec, name) for name in names))

    async def both_read_often() -> bool:
        return all(manager.unchanged[name] >= 3 for name in names)

    async def check_values() -> None:
        for name in names:
            found = await site.secret("mine", name, lambda text: "value" in text)
            assert found["text"] == {"value": f"value of {name}"}

    await check_values()
    await site.until(both_read_often, "the ExternalSecrets are not refreshed")
    await check_values()


CONFIGS = "provider.secretstore.external-secrets.io/v2alpha1"
V2_STORES = "secretstore.external-secrets.io/v2alpha1"


@pytest.mark.parametrize("form", ["v2 store", "direct", "cluster"])
async def test_the_kinds_of_the_provider_work_with_and_without_a_store(site: Any, manager: Manager, form: str) -> None:
    manager.values = {"key": "hello"}
    name = f"wh-{form.replace(' ', '-')}"
    spec = store(manager, name)["spec"]["provider"]["webhook"]
    kind = "ClusterWebhook" if form == "cluster" else "Webhook"
    config = of_kind(kind, name, spec, "" if form == "cluster" else NAMESPACE) | {"apiVersion": CONFIGS}
    if form == "cluster":
        spec["secrets"][0]["secretRef"]["namespace"] = NAMESPACE
    await site.apply(token(f"{name}-token"), config)
    ref = {"apiVersion": CONFIGS, "kind": kind, "name": name}
    if form == "v2 store":
        wrapped = of_kind("SecretStore", name, {"providerConfig": {"providerRef": {"kind": kind, "name": name}}})
        await site.apply(wrapped | {"apiVersion": V2_STORES})
        ref = {"apiVersion": V2_STORES, "kind": "SecretStore", "name": name}

    await site.apply(external_secret(name, "key", secretStoreRef=ref))

    await site.secret(name, NAMESPACE, {"value": "hello"}.__eq__)


async def test_a_secret_is_pushed_and_deleted_again(site: Any, manager: Manager) -> None:
    source = token("wh-push-source")
    source["data"] = {"password": base64.b64encode(b"CANARY-of-the-source").decode()}
    spec = {
        "deletionPolicy": "Delete",
        "secretStoreRefs": [{"name": "wh-push", "kind": "SecretStore"}],
        "selector": {"secret": {"name": "wh-push-source"}},
        "data": [{"match": {"secretKey": "password", "remoteRef": {"remoteKey": "app/pass word"}}}],
    }
    await site.apply(token("wh-push-token"), store(manager, "wh-push"), source)

    await site.apply(of_kind("PushSecret", "wh-push", spec))
    await site.ready(PUSH_SECRETS, "wh-push", NAMESPACE)
    pushed = dict(manager.values)
    await site.delete(PUSH_SECRETS, "wh-push", NAMESPACE)
    await site.gone(PUSH_SECRETS, "wh-push", NAMESPACE)

    assert list(pushed.values()) == ["CANARY-of-the-source"]
    assert set(manager.pushed) == {("/secrets/app%2Fpass+word", "password")}
    assert manager.values == {}


async def test_an_address_that_tenants_may_not_reach_is_refused(site: Any, manager: Manager) -> None:
    """The administrator of `eso up` allows loopback, and nothing else."""
    url = "http://169.254.169.254/latest/meta-data/{{ .remoteRef.key }}"
    await site.apply(token("wh-metadata-token"), store(manager, "wh-metadata", url=url))

    await told(site, SECRET_STORES, "wh-metadata", "/url: resolves to a link-local address")
