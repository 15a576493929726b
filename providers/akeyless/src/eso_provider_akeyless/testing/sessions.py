"""Contexts of calls for tests of stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eso_provider_akeyless.store import AkeylessStore
from eso_provider_akeyless.testing.server import ACCESS_ID, ACCESS_KEY
from eso_sdk.testing import call_context
from eso_wire.values import Context

PLACE = "/authSecretRef/secretRef"


def store(url: str, key: str = ACCESS_KEY, access_id: str = ACCESS_ID, **spec: Any) -> Context:
    """Return the context of a store with an access key; `namespace` is the one of the store."""
    return with_login(url, {"accessID": access_id, "accessType": "access_key", "accessTypeParam": key}, **spec)


def with_login(
    url: str, parts: Mapping[str, str], more: Mapping[str, Any] | None = None, auth: Any = None, **spec: Any
) -> Context:
    """Return the context of a store whose Secret has these parts; `more` are other credentials, by their pointer."""
    references = {part: {"name": "akeyless", "key": part} for part in parts}
    whole = {"akeylessGWApiURL": url, "authSecretRef": {"secretRef": references, **(auth or {})}, **spec}
    credentials = {f"{PLACE}/{part}": text for part, text in parts.items()}
    namespace = whole.pop("namespace", "team")
    return call_context(AkeylessStore, whole, {**credentials, **(more or {})}, namespace=namespace)


def with_auth(url: str, auth: Mapping[str, Any], credentials: Mapping[str, Any], **spec: Any) -> Context:
    """Return the context of a store with another form of login."""
    return call_context(AkeylessStore, {"akeylessGWApiURL": url, "authSecretRef": auth, **spec}, dict(credentials))
