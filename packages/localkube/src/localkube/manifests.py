"""Objects from files, applied to the cluster at its start."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import yaml

from kuberun.meta import JsonObject
from localkube.access.rbac import MASTERS
from localkube.cluster import Cluster
from localkube.errors import StatusError
from localkube.model import User, WriteOptions

_SUFFIXES: Final = (".yaml", ".yml", ".json")
_INSTALLER: Final = User("system:apiserver", (MASTERS,))
_MANAGER: Final = "localkube"


class ManifestError(ValueError):
    """A file cannot be read as Kubernetes objects, or one of them is refused; the message says which and why."""


def load(places: Iterable[Path]) -> list[JsonObject]:
    """Every object in these files, and in the YAML and JSON files of these directories, in order."""
    objects: list[JsonObject] = []
    for place in places:
        files = sorted(file for file in place.iterdir() if file.suffix in _SUFFIXES) if place.is_dir() else [place]
        for file in files:
            objects += _objects(file)
    return objects


async def install(cluster: Cluster, objects: Iterable[JsonObject]) -> None:
    """Apply the objects, taking over whatever fields they name."""
    options = WriteOptions(_INSTALLER, field_manager=_MANAGER, force=True)
    for obj in objects:
        kind = cluster.catalog.find_kind(str(obj.get("apiVersion")), str(obj.get("kind")))
        if kind is None:
            raise ManifestError(f"{obj.get('apiVersion')} {obj.get('kind')} is not served here")
        metadata = obj["metadata"]
        namespace = metadata.get("namespace", "default") if kind.resource.namespaced else ""
        try:
            await cluster.patch(kind, namespace, metadata["name"], "apply", obj, options)
        except StatusError as problem:
            # The server's words may quote what a field holds, which is fine for every kind but this one.
            why = problem.reason if kind.storage_key == "secrets" else problem.message
            raise ManifestError(f"{obj['kind']} {metadata['name']} was refused: {why}") from None


def _objects(file: Path) -> list[JsonObject]:
    try:
        documents = list(yaml.load_all(file.read_bytes(), Loader=yaml.CSafeLoader))
    except OSError as problem:
        raise ManifestError(f"{file}: {problem.strerror}") from problem
    except (yaml.YAMLError, UnicodeDecodeError) as problem:
        raise ManifestError(f"{file}: not YAML: {problem}") from problem
    found: list[JsonObject] = []
    for document in documents:
        match document:
            case None:
                continue
            case {"kind": "List", "items": list(items)}:
                found += items
            case {"kind": str(), "apiVersion": str(), "metadata": {"name": str()}}:
                found.append(document)
            case _:
                raise ManifestError(f"{file}: a document lacks apiVersion, kind or metadata.name")
    return found
