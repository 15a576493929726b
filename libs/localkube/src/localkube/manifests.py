"""Objects from files, applied to the cluster at its start."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from kubebase.meta import JsonObject
from kubebase.yamlvalues import MAX_BYTES, YamlError, read_all
from localkube.access.rbac import MASTERS
from localkube.cluster import Cluster
from localkube.errors import StatusError
from localkube.model import DeleteOptions, ListQuery, ServedKind, User, WriteOptions
from localkube.wire.bodies import RULES

_SUFFIXES: Final = (".yaml", ".yml", ".json")
_INSTALLER: Final = User("system:apiserver", (MASTERS,))
_MANAGER: Final = "localkube"
_DEFINITION: Final = "CustomResourceDefinition"
_MASK: Final = "***"
_SHORTEST_VALUE: Final = 4
_ECHOES: Final = ("Invalid value", "Unsupported value", "Duplicate value", "Not found")
"""What the server repeats after these is a value, even if it is also a word of the schema."""


class ManifestError(ValueError):
    """A file cannot be read as Kubernetes objects, or one of them is refused; the message says which and why.

    `field` is the path of the first field that is wrong; empty if none is named.
    """

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


def load(paths: Iterable[Path]) -> list[JsonObject]:
    """Return every object in these files, and in the YAML and JSON files of these directories, in order."""
    objects: list[JsonObject] = []
    for path in paths:
        files = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES) if path.is_dir() else [path]
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
        raise refusal(kind, obj, problem) from None


def refusal(kind: ServedKind, obj: JsonObject, problem: StatusError) -> ManifestError:
    """Return why the API refused an object, without any of its values; of a Secret, the reason alone."""
    if problem.code == 507:  # the disk is full: the object is not to blame
        return ManifestError(f"{obj['kind']} {obj['metadata']['name']} was not stored: {problem.message}")
    secret = kind.storage_key == "secrets"
    why = problem.reason if secret else without_values(problem.message, obj, kind.schema.openapi)
    causes = problem.details.get("causes") or [{}]
    field = "" if secret else str(causes[0].get("field", ""))
    return ManifestError(f"{obj['kind']} {obj['metadata']['name']} was refused: {why}", field)


async def remove(cluster: Cluster, api_version: str, kind_name: str, query: ListQuery) -> None:
    """Delete the objects of a kind that a query finds."""
    kind = cluster.catalog.find_kind(api_version, kind_name)
    if kind is not None:
        await cluster.delete_collection(kind, query, DeleteOptions(_INSTALLER))


def without_values(text: str, obj: JsonObject, schema: JsonObject) -> str:
    """Remove field values from a server message: it is logged, and specs of many kinds contain secrets.

    Words of the schema stay: names of fields, and the values that a field may have. What was written in a field that
    allows only certain values stays too: it is a typing mistake, unless another field has the same text.
    """
    parts = {name: value for name, value in obj.items() if name not in ("apiVersion", "kind", "metadata")}
    values, chosen = set(_texts(parts, schema)), set(_texts(parts, schema, chosen=True))
    names = set(_schema_names(schema))
    named = _names_in(text, names)
    mistakes = [span for wrong in chosen - values for span in _spans(text, wrong)]
    masked: list[tuple[int, int]] = []
    for value in values:
        allowed = [*named, *mistakes] if value in names else named
        for form in {value, json.dumps(value)[1:-1]}:
            masked += [span for span in _spans(text, form) if not any(_is_within(span, each) for each in allowed)]
    return _with_masks(text, masked)


def _names_in(text: str, names: Iterable[str]) -> list[tuple[int, int]]:
    """Return where the text has whole names of the schema."""
    present = sorted((re.escape(name) for name in names if name and name in text), key=len, reverse=True)
    if not present:
        return []
    not_echoed = "".join(f'(?<!{echo}: ")' for echo in _ECHOES)
    pattern = re.compile(rf"{not_echoed}(?<![\w-])(?:{'|'.join(present)})(?![\w-])")
    return [match.span() for match in pattern.finditer(text)]


def _spans(text: str, form: str) -> Iterator[tuple[int, int]]:
    start = text.find(form)
    while start >= 0:
        yield start, start + len(form)
        start = text.find(form, start + 1)


def _is_within(span: tuple[int, int], outer: tuple[int, int]) -> bool:
    return outer[0] <= span[0] and span[1] <= outer[1]


def _with_masks(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Replace these parts of a text, which may overlap, by masks."""
    parts: list[str] = []
    position = 0
    for start, end in sorted(spans):
        if start >= position:
            parts += [text[position:start], _MASK]
        position = max(position, end)
    return "".join((*parts, text[position:]))


def _schema_names(schema: Any) -> Iterator[str]:
    """Yield the names of all fields, and the values of fields that allow only certain ones."""
    pending, visited = [schema], set()
    while pending:
        part = pending.pop()
        if not isinstance(part, dict) or id(part) in visited:
            continue
        visited.add(id(part))  # a schema may contain itself
        yield from (str(each) for each in part.get("enum") or ())
        properties = part.get("properties") or {}
        yield from properties
        pending += [*properties.values(), part.get("items"), part.get("additionalProperties")]


def _texts(node: Any, schema: Any, *, chosen: bool = False) -> Iterator[str]:
    """Collect every text in a document that is long enough to be searched for.

    Texts of fields that allow only certain values are left out; with `chosen`, only they are collected.
    """
    part = schema if isinstance(schema, dict) else {}
    match node:
        case str() if len(node) >= _SHORTEST_VALUE and ("enum" in part) is chosen:
            yield node
        case dict():
            properties, others = part.get("properties") or {}, part.get("additionalProperties")
            for name, value in node.items():
                yield from _texts(value, properties.get(name, others), chosen=chosen)
        case list():
            for child in node:
                yield from _texts(child, part.get("items"), chosen=chosen)
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
