"""Objects from files, applied to the cluster at its start."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from kubebase.meta import JsonObject
from kubebase.yamlvalues import MAX_BYTES, YamlError, read_all
from localkube.access.rbac import MASTERS
from localkube.cluster import Cluster
from localkube.errors import StatusError
from localkube.model import DeleteOptions, ListQuery, User, WriteOptions
from localkube.wire.yamlbody import RULES

_SUFFIXES: Final = (".yaml", ".yml", ".json")
_INSTALLER: Final = User("system:apiserver", (MASTERS,))
_MANAGER: Final = "localkube"
_DEFINITION: Final = "CustomResourceDefinition"
_MASK: Final = "***"
_SHORTEST_VALUE: Final = 4


class ManifestError(ValueError):
    """A file cannot be read as Kubernetes objects, or one of them is refused; the message says which and why."""


def load(places: Iterable[Path]) -> list[JsonObject]:
    """Return every object in these files, and in the YAML and JSON files of these directories, in order."""
    objects: list[JsonObject] = []
    for place in places:
        files = sorted(file for file in place.iterdir() if file.suffix in _SUFFIXES) if place.is_dir() else [place]
        for file in files:
            objects += _objects(file)
    return objects


async def install(cluster: Cluster, objects: Iterable[JsonObject]) -> None:
    """Apply the objects in order, and take over all fields that they contain.

    Definitions that follow each other are committed together: each commit waits for the disk.
    """
    for is_definition, group in groupby(objects, _is_definition):
        if is_definition:
            await _apply_together(cluster, group)
        else:
            for obj in group:
                await _apply(cluster, obj)


def _is_definition(obj: JsonObject) -> bool:
    return obj.get("kind") == _DEFINITION


async def _apply_together(cluster: Cluster, objects: Iterable[JsonObject]) -> None:
    try:
        async with asyncio.TaskGroup() as tasks:
            for obj in objects:
                tasks.create_task(_apply(cluster, obj))
    except ExceptionGroup as problems:
        raise problems.exceptions[0] from None


async def _apply(cluster: Cluster, obj: JsonObject) -> None:
    options = WriteOptions(_INSTALLER, field_manager=_MANAGER, force=True)
    kind = cluster.catalog.find_kind(str(obj.get("apiVersion")), str(obj.get("kind")))
    if kind is None:
        raise ManifestError(f"{obj.get('apiVersion')} {obj.get('kind')} is not served here")
    metadata = obj["metadata"]
    namespace = metadata.get("namespace", "default") if kind.resource.namespaced else ""
    try:
        await cluster.patch(kind, namespace, metadata["name"], "apply", obj, options)
    except StatusError as problem:
        why = problem.reason if kind.storage_key == "secrets" else without_values(problem.message, obj)
        raise ManifestError(f"{obj['kind']} {metadata['name']} was refused: {why}") from None


async def remove(cluster: Cluster, api_version: str, kind_name: str, query: ListQuery) -> None:
    """Delete the objects of a kind that a query finds."""
    kind = cluster.catalog.find_kind(api_version, kind_name)
    if kind is not None:
        await cluster.delete_collection(kind, query, DeleteOptions(_INSTALLER))


def without_values(text: str, obj: JsonObject) -> str:
    """Remove field values from a server message: it is logged, and specs of many kinds contain secrets."""
    parts = [value for name, value in obj.items() if name not in ("apiVersion", "kind", "metadata")]
    for value in sorted(set(_texts(parts)), key=len, reverse=True):
        for form in (value, json.dumps(value)[1:-1]):
            text = text.replace(form, _MASK)
    return text


def _texts(node: Any) -> Iterator[str]:
    """Collect every text in a document that is long enough to be searched for."""
    match node:
        case str() if len(node) >= _SHORTEST_VALUE:
            yield node
        case dict():
            yield from _texts(list(node.values()))
        case list():
            for child in node:
                yield from _texts(child)
        case _:
            return


def _objects(file: Path) -> list[JsonObject]:
    try:
        with file.open("rb") as opened:
            documents = read_all(opened.read(MAX_BYTES + 1), RULES)
    except OSError as problem:
        raise ManifestError(f"{file}: {problem.strerror}") from problem
    except YamlError as problem:
        raise ManifestError(f"{file}: not YAML: {problem}") from None
    return [obj for document in documents for obj in _objects_in(document, file)]


def _objects_in(document: Any, file: Path) -> Iterator[JsonObject]:
    match document:
        case None:
            return
        case {"kind": "List", "items": list(items)}:
            for item in items:
                yield from _objects_in(item, file)
        case {"kind": str(), "apiVersion": str(), "metadata": {"name": str()}}:
            yield document
        case _:
            raise ManifestError(f"{file}: a document lacks apiVersion, kind or metadata.name")
