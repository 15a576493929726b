"""Calls to the kinds of this provider, as an operator makes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from eso_provider_infisical.store import InfisicalStore
from eso_provider_infisical.testing.server import CLIENT_ID, CLIENT_SECRET, MAIN, InfisicalServer
from eso_sdk.testing import call_context
from eso_wire.values import Context

UNIVERSAL: Final = {
    "universalAuthCredentials": {
        "clientId": {"name": "infisical", "key": "id"},
        "clientSecret": {"name": "infisical", "key": "secret"},
    }
}
CREDENTIALS: Final = {
    "/auth/universalAuthCredentials/clientId": CLIENT_ID,
    "/auth/universalAuthCredentials/clientSecret": CLIENT_SECRET,
}


def spec_of(server: InfisicalServer, auth: Mapping[str, Any] = UNIVERSAL, **scope: Any) -> dict[str, Any]:
    """Return the block of a store of the main project."""
    return {
        "hostAPI": server.url,
        "auth": auth,
        "secretsScope": {"projectSlug": MAIN, "environmentSlug": "dev", **scope},
    }


def store(
    server: InfisicalServer,
    credentials: Mapping[str, Any] | None = None,
    *,
    auth: Mapping[str, Any] = UNIVERSAL,
    namespace: str = "team",
    **scope: Any,
) -> Context:
    """Return the context of a call to a store; without settings, it logs in with universal auth."""
    sent = CREDENTIALS if credentials is None else credentials
    return call_context(InfisicalStore, spec_of(server, auth, **scope), sent, namespace=namespace)
