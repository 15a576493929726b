"""Calls to the kinds of this provider, as an operator makes them."""

from __future__ import annotations

from typing import Any, Final

from eso_provider_gitlab.generator import GitlabDeployTokenGenerator
from eso_provider_gitlab.store import VariableStore
from eso_provider_gitlab.testing.server import TOKEN
from eso_sdk.testing import InMemory, call_context
from eso_wire.values import Context, FindQuery

REFERENCE: Final = {"name": "gitlab", "key": "token"}
AUTH: Final = {"SecretRef": {"accessToken": REFERENCE}}
POINTER: Final = "/auth/SecretRef/accessToken"


def store(url: str, *, token: str = TOKEN, namespace: str = "team", **spec: Any) -> Context:
    """Return the context of a call to a store; without other fields, of the project `shop/app`."""
    places = {} if {"projectID", "groupIDs"} & spec.keys() else {"projectID": "shop/app"}
    config = {"url": url, "auth": AUTH} | places | spec
    return call_context(VariableStore, config, {POINTER: token}, namespace=namespace)


def generator(url: str, *, token: str = TOKEN, **spec: Any) -> Context:
    """Return the context of a call to a generator of deploy tokens."""
    auth = {"token": {"secretRef": REFERENCE}}
    config = {"url": url, "name": "pull", "scopes": ["read_registry"], "auth": auth} | spec
    if "groupID" not in config:
        config.setdefault("projectID", "shop/app")
    return call_context(GitlabDeployTokenGenerator, config, {"/auth/token/secretRef": token}, namespace="team")


async def find(provider: InMemory, call: Context, name: str = ".*", **more: Any) -> dict[str, bytes]:
    """Return the values of a find by key."""
    found = await provider.find(call, FindQuery(name_regexp=name, **more))
    return {each.key: each.value.reveal() for each in found}
