"""A Webhook generator through all parts: operator, provider process, and an endpoint that knows who may ask."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.generators.webhook import WEBHOOK
from kubebase.meta import JsonObject
from kuberun.testing.builders import SECRETS

pytestmark = pytest.mark.slow

EXTERNAL_SECRETS = EXTERNAL_SECRET.resource()
NAMESPACE = "production"
TOKEN = "CANARY-of-the-webhook"
LABEL = "external-secrets.io/type"


@pytest.fixture
async def endpoint() -> AsyncIterator[str]:
    """Serve an address that returns a password to clients with the token."""

    async def answer(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return web.json_response({"error": "who are you?"}, status=401)
        return web.json_response({"data": {"user": "anna", "port": 5432}})

    application = web.Application()
    application.router.add_get("/new", answer)
    runner = web.AppRunner(application, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/new"
    finally:
        await runner.cleanup()


def documents(name: str, url: str, token: str) -> tuple[JsonObject, ...]:
    """Return a Secret without the label, a webhook that uses it, and an ExternalSecret that uses the webhook."""
    metadata = {"name": name, "namespace": NAMESPACE}
    webhook = {
        "url": url,
        "headers": {"Authorization": "Bearer {{ .auth.token }}"},
        "result": {"jsonPath": "$.data"},
        "secrets": [{"name": "auth", "secretRef": {"name": f"{name}-token"}}],
    }
    source = {"sourceRef": {"generatorRef": {"kind": "Webhook", "name": name}}}
    return (
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {**metadata, "name": f"{name}-token"},
            "data": {"token": base64.b64encode(token.encode()).decode()},
        },
        {"apiVersion": WEBHOOK.resource().api_version, "kind": "Webhook", "metadata": metadata, "spec": webhook},
        {
            "apiVersion": "external-secrets.io/v1",
            "kind": "ExternalSecret",
            "metadata": metadata,
            "spec": {"refreshInterval": "1h", "dataFrom": [source]},
        },
    )


async def failure(site: Any, name: str, words: str) -> JsonObject:
    """The ExternalSecret once its condition says so."""

    async def look() -> JsonObject | None:
        found: JsonObject = await site.find(EXTERNAL_SECRETS, name, NAMESPACE) or {}
        said = [one.get("message", "") for one in found.get("status", {}).get("conditions", [])]
        return found if any(words in message for message in said) else None

    found: JsonObject = await site.until(look, f"ExternalSecret {name} does not say: {words}")
    return found


async def test_a_secret_comes_from_a_webhook_once_its_token_is_labelled(site: Any, endpoint: str) -> None:
    await site.apply(*documents("webhook-good", endpoint, TOKEN))
    refused = await failure(site, "webhook-good", f"{LABEL}: webhook")
    assert await site.find(SECRETS, "webhook-good", NAMESPACE) is None

    await site.patch(SECRETS, "webhook-good-token", {"metadata": {"labels": {LABEL: "webhook"}}}, NAMESPACE)

    await site.secret("webhook-good", NAMESPACE, {"user": "anna", "port": "5432"}.__eq__)
    ready = await site.ready(EXTERNAL_SECRETS, "webhook-good", NAMESPACE)
    assert TOKEN not in str(refused) + str(ready)


async def test_an_endpoint_that_refuses_the_token_is_reported(site: Any, endpoint: str) -> None:
    secret, *others = documents("webhook-bad", endpoint, "CANARY-of-another-user")
    secret["metadata"]["labels"] = {LABEL: "webhook"}

    await site.apply(secret, *others)

    reported = await failure(site, "webhook-bad", "does not accept the credentials")
    assert "CANARY" not in str(reported["status"])
    assert "127.0.0.1" not in str(reported["status"])
    assert await site.find(SECRETS, "webhook-bad", NAMESPACE) is None
