"""The settings of a session, from either block: `spec.provider.vault` or `spec.provider.openBao`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, cast
from urllib.parse import urlsplit

from eso_api.stores.vault import OpenBaoProvider, VaultProvider
from eso_sdk.errors import invalid_config

KvVersion = Literal["v1", "v2"]


@dataclass(frozen=True, slots=True)
class Settings:
    """The configuration of a session without its credentials."""

    server: str
    mount: str
    """The spec's `path` without leading and trailing slashes; empty if keys begin with the path of the engine.

    It is the path of the engine. For version 1 it may reach into the engine.
    """
    version: KvVersion = "v2"
    namespace: str = ""
    auth_namespace: str = ""
    """Namespace of logins and token lookups."""
    headers: Mapping[str, str] = field(default_factory=dict)
    read_your_writes: bool = False
    forward_inconsistent: bool = False
    cas_required: bool = False
    has_auth: bool = True
    versions_refused: bool = False
    """True if `remoteRef.version` is an error on a version 1 engine, which has no versions."""


def settings_of(config: VaultProvider | OpenBaoProvider) -> Settings:
    """Bring either block into one form; raise `invalid_config` for what can never work."""
    auth_namespace = (config.auth.namespace if config.auth is not None else "") or config.namespace
    _check_server(config.server)
    mount = (config.path or "").strip("/")
    version = cast(KvVersion, config.version or "v2")
    if isinstance(config, OpenBaoProvider):
        return Settings(
            server=config.server.rstrip("/"),
            mount=mount or "kv",
            version=version,
            namespace=config.namespace,
            auth_namespace=auth_namespace,
            has_auth=config.auth is not None,
            versions_refused=True,
        )
    cas_required = config.check_and_set is not None and config.check_and_set.required
    if cas_required and version == "v1":
        raise invalid_config("/checkAndSet", "needs a version 2 engine; set version: v2 or remove checkAndSet")
    return Settings(
        server=config.server.rstrip("/"),
        mount=mount,
        version=version,
        namespace=config.namespace,
        auth_namespace=auth_namespace,
        headers=config.headers,
        read_your_writes=config.read_your_writes,
        forward_inconsistent=config.read_your_writes and config.forward_inconsistent,
        cas_required=cas_required,
        has_auth=config.auth is not None,
    )


def _check_server(server: str) -> None:
    try:
        parts = urlsplit(server)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and not (parts.query or parts.fragment)
        _ = parts.port  # raises if the port is invalid
    except ValueError:
        usable = False
    if not usable:
        raise invalid_config("/server", "must be the URL of the server, such as https://vault.example.com:8200")
