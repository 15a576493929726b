"""Calls to the kinds of this provider, as an operator makes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from eso_provider_bitwarden.store import BitwardenStore
from eso_provider_bitwarden.testing.server import ORGANIZATION, PROJECT, TOKEN, CompanionServer
from eso_sdk.testing import call_context
from eso_wire.values import Context

AUTH: Final = {"secretRef": {"credentials": {"name": "bitwarden", "key": "token"}}}
CREDENTIAL: Final = "/auth/secretRef/credentials"


def spec_of(server: CompanionServer | None, **more: Any) -> dict[str, Any]:
    """Return the block of a store; without a server, one that uses Bitwarden's SDK."""
    address = {} if server is None else {"bitwardenServerSDKURL": server.url}
    return {"organizationID": ORGANIZATION, "projectID": PROJECT, "auth": AUTH, **address, **more}


def store(server: CompanionServer | None, *, token: str = TOKEN, namespace: str = "team", **more: Any) -> Context:
    """Return the context of a call to a store."""
    sent: Mapping[str, str] = {CREDENTIAL: token}
    return call_context(BitwardenStore, spec_of(server, **more), sent, namespace=namespace)
