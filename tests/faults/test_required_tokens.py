"""A provider that requires the token of a service account: the store says so, and which field to set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eso_api.v2.secretstore import SECRET_STORE_V2
from kuberun.testing.rawapi import RawApi

pytestmark = pytest.mark.live

STORES = SECRET_STORE_V2.resource()
ACCOUNT = {"serviceAccountRef": {"name": "robot"}}


async def test_a_store_without_the_account_that_its_provider_requires_names_the_field_to_set(
    site: Any, api: RawApi, tmp_path: Path
) -> None:
    """R85, R158: the account that a store names is the one that its provider sees."""
    keys, about = await api.get("/openid/v1/jwks", accept="*/*"), await api.get("/.well-known/openid-configuration")
    jwks = tmp_path / "jwks.json"
    jwks.write_text(json.dumps(keys.body))
    audience = f"external-secrets-provider/{site.namespace}/{site.service.name}"
    issued = ("--token-jwks", str(jwks), "--token-issuer", about.body["issuer"], "--token-audience", audience)
    await site.provider.start("--token-policy", "required", *issued)
    async with site.running():
        await site.create_store()

        message = await site.broken("AuthenticationFailed", "auth.serviceAccountRef")
        await api.post(f"/api/v1/namespaces/{site.namespace}/serviceaccounts", {"metadata": {"name": "robot"}})
        await site.bench.patch(STORES, "fake", {"spec": {"providerConfig": {"auth": ACCOUNT}}})
        await site.ready()

    assert "carry a service account's token" in message
