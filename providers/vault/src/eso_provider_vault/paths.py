"""Mount and path of a remote key, in all spellings of existing manifests.

version 2, path "kv"    app/db, kv/app/db, kv/data/app/db  -> kv/data/app/db, kv/metadata/app/db
version 2, no path      kv/app/db, kv/data/app/db          -> the same; the first segment is the mount
version 1, path "kv"    app/db, kv/app/db                  -> kv/app/db
version 1, path "kv/x"  app/db, kv/x/app/db                -> kv/x/app/db; the path may reach into the mount
version 1, no path      kv/app/db                          -> kv/app/db

Slashes at the ends of a key and repeated ones do not matter: `/app//db/` is `app/db`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from eso_provider_vault.settings import Settings
from eso_sdk.errors import invalid_request

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
