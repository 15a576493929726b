"""Addresses inside a project: a key of a reference names a folder and a secret in it."""

from __future__ import annotations

from dataclasses import dataclass
from posixpath import normpath

from yarl import URL

from eso_sdk.errors import invalid_config, invalid_request


@dataclass(frozen=True, slots=True)
class Place:
    """A secret: its folder, and its name there."""

    folder: str
    name: str


def place_of(key: str, scope_path: str) -> Place:
    """Return the place of a key.

    | key | folder |
    |---|---|
    | `NAME` | the scope's |
    | `/A/NAME` | `/A` |
    | `A/NAME` | `A` below the scope's |
    """
    folder, slash, name = key.rpartition("/")
    if not name or name in (".", ".."):
        raise invalid_request(
            f'"{key}" does not end with the name of a secret; write NAME, FOLDER/NAME or /FOLDER/NAME'
        )
    if not slash:
        return Place(folder_of(scope_path), name)
    return Place(folder_of(folder if key.startswith("/") else f"{scope_path}/{folder}"), name)


def folder_of(path: str) -> str:
    """Return a path with one slash before each folder, and none at its end."""
    return "/" + normpath(f"/{path}").strip("/")


def api_url(host: str) -> URL:
    """Return the base address of the API. Manifests name it with and without `/api`."""
    text = host.rstrip("/")
    try:
        return URL(text if text.endswith("/api") else f"{text}/api")
    except ValueError:
        raise invalid_config("/hostAPI", "must be a URL such as https://app.infisical.com") from None
