"""Objects from files, applied to the cluster at its start."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from kuberun.meta import JsonObject
from localkube.access.rbac import MASTERS
from localkube.cluster import Cluster
from localkube.errors import StatusError
from localkube.model import DeleteOptions, ListQuery, User, WriteOptions

_SUFFIXES: Final = (".yaml", ".yml", ".json")
_INSTALLER: Final = User("system:apiserver", (MASTERS,))
_MANAGER: Final = "localkube"
_MASK: Final = "***"
_SHORTEST_VALUE: Final = 4
_QUOTED: Final = re.compile(r"""'.{2,}'|".{2,}\"""", re.DOTALL)  # a single character says nothing


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
            why = problem.reason if kind.storage_key == "secrets" else _without_values(problem.message, obj)
            raise ManifestError(f"{obj['kind']} {metadata['name']} was refused: {why}") from None


async def remove(cluster: Cluster, api_version: str, kind_name: str, query: ListQuery) -> None:
    """Delete the objects of a kind that a query finds."""
    kind = cluster.catalog.find_kind(api_version, kind_name)
    if kind is not None:
        await cluster.delete_collection(kind, query, DeleteOptions(_INSTALLER))


def _without_values(text: str, obj: JsonObject) -> str:
    """The server's words without what fields hold: they end up in logs, and many kinds carry values in their specs."""
    parts = [value for name, value in obj.items() if name not in ("apiVersion", "kind", "metadata")]
    for value in sorted(set(_texts(parts)), key=len, reverse=True):
        for form in (value, json.dumps(value)[1:-1]):
            text = text.replace(form, _MASK)
    return text


def _texts(node: Any) -> Iterator[str]:
    """Every text in a document that is long enough to be told from an accident."""
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


def _said_of_yaml(problem: Exception) -> str:
    """Where and what, without the words that stand there: of `password: *hunter2` the parser quotes the password."""
    if not isinstance(problem, yaml.MarkedYAMLError):
        return "it is not UTF-8 text"
    line = "" if problem.problem_mark is None else f"line {problem.problem_mark.line + 1}: "
    return line + _QUOTED.sub(_MASK, problem.problem or "it cannot be read")


def _objects(file: Path) -> list[JsonObject]:
    try:
        documents = list(yaml.load_all(file.read_bytes(), Loader=yaml.CSafeLoader))
    except OSError as problem:
        raise ManifestError(f"{file}: {problem.strerror}") from problem
    except (yaml.YAMLError, UnicodeDecodeError) as problem:
        raise ManifestError(f"{file}: not YAML: {_said_of_yaml(problem)}") from None
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
