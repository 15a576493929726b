"""The settings of a session, from either block: `spec.provider.vault` or `spec.provider.openBao`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, cast
from urllib.parse import urlsplit

from eso_api.stores.vault import OpenBaoProvider, VaultProvider
from eso_sdk.errors import invalid_config, invalid_request

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


# --- Mount and path of a remote key, in all spellings of existing manifests ------------------------------------------
#
# version 2, path "kv"    app/db, kv/app/db, kv/data/app/db  -> kv/data/app/db, kv/metadata/app/db
# version 2, no path      kv/app/db, kv/data/app/db          -> the same; the first segment is the mount
# version 1, path "kv"    app/db, kv/app/db                  -> kv/app/db
# version 1, path "kv/x"  app/db, kv/x/app/db                -> kv/x/app/db; the path may reach into the mount
# version 1, no path      kv/app/db                          -> kv/app/db
#
# Slashes at the ends of a key and repeated ones do not matter: `/app//db/` is `app/db`.


_DATA: Final = "data"
_METADATA: Final = "metadata"
_MAX_KEY_CHARS: Final = 4096


@dataclass(frozen=True, slots=True)
class Location:
    """One key of an engine. Equal locations are one remote value, however the keys were spelled."""

    mount: str
    """Empty for version 1 without `path`: only the server knows where the mount ends."""
    key: str
    versioned: bool = True

    @property
    def data(self) -> str:
        """Return the path of the value."""
        return _joined(self.mount, _DATA if self.versioned else "", self.key)

    @property
    def metadata(self) -> str:
        """Return the path of the metadata; version 1 has none."""
        return _joined(self.mount, _METADATA, self.key)

    @property
    def folder(self) -> str:
        """Return the path whose listing shows the keys below this key."""
        return self.metadata if self.versioned else self.data


def locate(key: str, settings: Settings) -> Location:
    """Find the location of a remote key."""
    path = checked(key)
    versioned = settings.version == "v2"
    mount = settings.mount
    if mount:
        if path.startswith(f"{mount}/"):
            path = path.removeprefix(f"{mount}/")
            path = path.removeprefix(f"{_DATA}/") if versioned else path
    elif versioned:
        if f"/{_DATA}/" in path:
            mount, _, path = path.partition(f"/{_DATA}/")
        else:
            mount, _, path = path.partition("/")
        if not path:
            raise invalid_request(
                f'key "{key}" names an engine but no secret; write ENGINE/NAME, or set path in the store'
            )
    return Location(mount, path, versioned)


def checked(key: str) -> str:
    """Return the key without needless slashes; raise if a server would read it as another path."""
    path = _cleaned(key)
    if not path or len(path) > _MAX_KEY_CHARS:
        raise invalid_request(f"a key has between 1 and {_MAX_KEY_CHARS} characters besides slashes at its ends")
    if any(segment in (".", "..") for segment in path.split("/")):
        raise invalid_request(f'key "{key}" has a segment "." or ".."; write the path in full')
    if not path.isprintable():
        raise invalid_request("a key has only printable characters")
    return path


def folder(path: str, settings: Settings) -> Location:
    """Find the folder that a search begins in; without a path it is the whole engine."""
    trimmed = _cleaned(path)
    if not settings.mount and not trimmed:
        raise invalid_request("find needs path, in the store or in the query, so that it knows the engine")
    if settings.mount and trimmed in ("", settings.mount):
        return Location(settings.mount, "", settings.version == "v2")
    if not settings.mount and "/" not in trimmed:
        return Location(checked(trimmed), "", settings.version == "v2")
    return locate(trimmed, settings)


def _cleaned(path: str) -> str:
    return "/".join(segment for segment in path.split("/") if segment)


def _joined(*parts: str) -> str:
    return "/".join(part for part in parts if part)
