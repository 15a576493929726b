"""YAML files as documents that know the line of each field.

Values are read by the dialect of Kubernetes tools (`eso_render.templates`), lines come from PyYAML's nodes.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import yaml

from eso_api.kinds import KINDS
from eso_render.templates import documents
from kubebase.hints import with_hint
from kubebase.yamlvalues import MAX_BYTES, YamlError, text_of
from localkube.schema.metadata import OBJECT_META

STDIN = "-"

Field = tuple[str | int, ...]
T = TypeVar("T")

_FIRST: Final = ("Namespace", "CustomResourceDefinition")
"""Kinds that other objects need, applied first."""
_SUFFIXES: Final = (".yaml", ".yml", ".json")
_STEP = re.compile(r"\.([A-Za-z0-9_]+)|\[([0-9]+)\]")


class InputError(Exception):
    """Files cannot be used. Each line of the message begins with the file, and with the line if there is one."""


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a file."""

    file: str
    content: Any = field(repr=False)
    node: yaml.Node = field(repr=False)

    def at(self, path: Field, template_line: int = 0) -> str:
        """Return `file:line` of the field, or of its deepest existing parent.

        `template_line` counts lines inside the text of the field, from 1.
        """
        node = _deepest(self.node, path)
        line = node.start_mark.line + 1
        if template_line and isinstance(node, yaml.ScalarNode) and node.style == "|":
            line += template_line
        return f"{self.file}:{line}"

    def at_key(self, path: Field) -> str:
        """Return `file:line` of the field's name, which may be on an earlier line than its value."""
        parent = _deepest(self.node, path[:-1])
        keys = [key for key, _ in parent.value if key.value == path[-1]] if isinstance(parent, yaml.MappingNode) else []
        return f"{self.file}:{(keys or [parent])[-1].start_mark.line + 1}"

    def has(self, path: Field) -> bool:
        return _found(self.node, path) is not None

    def written(self, path: Field) -> str:
        """Return the text of a scalar as written in the file: `5432` and `yes` are not read as a number or as true."""
        return str(_deepest(self.node, path).value)

    def problem(self, path: Field, message: str) -> InputError:
        return InputError(f"{self.at(path)}: {message}")


def named(path: str) -> str:
    """Return the name of the file for messages."""
    return "<stdin>" if path == STDIN else path


def read_documents(path: str) -> list[Document]:
    """Return all documents of a file that are not empty; `-` is standard input."""
    file = named(path)
    raw = _bytes(path, file)
    try:
        contents = documents(raw)
    except YamlError as error:
        raise InputError(f"{file}:{error.line or 1}: {error.problem}") from None
    # The dialect above has already rejected what PyYAML cannot handle: invalid text and deep nesting.
    nodes = yaml.compose_all(text_of(raw), Loader=yaml.CBaseLoader)
    return [Document(file, content, node) for content, node in zip(contents, nodes, strict=True) if content is not None]


def read_manifests(path: str) -> list[Document]:
    """Return all objects of a file, or of the files in a folder; a list of `kubectl get` counts as its items.

    In a folder, documents that are not objects are left out: it may also have values and settings of other tools.
    """
    if path == STDIN or not Path(path).is_dir():
        return [each for document in read_documents(path) for each in _spread(document)]
    try:
        files = manifest_files(Path(path))
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror}") from None
    found = [each for file in files for document in read_documents(str(file)) for each in _spread(document)]
    return [each for each in found if isinstance(each.content, dict) and "kind" in each.content]


def read_places(places: Sequence[Path]) -> tuple[list[Document], list[str]]:
    """Return the objects of files and folders, and one message for each file or place that cannot be used.

    A place without any object cannot be used either: most likely, the path is wrong.
    """
    found: list[Document] = []
    problems: list[str] = []
    for place in places:
        try:
            files = listed(place)
        except OSError as error:
            problems.append(f"{error.filename}: {error.strerror}")
            continue
        before = len(found) + len(problems)
        for file in files:
            try:
                found += read_manifests(str(file))
            except InputError as problem:
                problems.append(str(problem))
        if len(found) + len(problems) == before:
            problems.append(without_manifests(place))
    return found, problems


def missing(places: Sequence[Path]) -> Path | None:
    """Return the first place that does not exist; None if all exist."""
    return next((place for place in places if not place.exists()), None)


def rank(document: Document) -> int:
    """Return the place of an object in the order in which objects are applied."""
    kind = document.content.get("kind") if isinstance(document.content, dict) else None
    return _FIRST.index(kind) if kind in _FIRST else len(_FIRST)


def without_manifests(place: Path | str) -> str:
    """Return the message about a place that has no object."""
    return f"{named(str(place))}: holds no manifest; name a YAML or JSON file with objects, or a folder of such files"


def manifest_files(folder: Path) -> list[Path]:
    """Return the YAML and JSON files in a folder and below it, without hidden folders. Raises OSError."""
    found: list[Path] = []
    for place, folders, files in os.walk(folder, onerror=_raise):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        found += [Path(place, each) for each in sorted(files) if Path(each).suffix in _SUFFIXES]
    return [file for file in found if is_file(file)]


def listed(place: Path) -> list[Path]:
    """Return the manifests of a folder, or the named file itself. Raises OSError."""
    return manifest_files(place) if place.is_dir() else [place]


def is_file(file: Path) -> bool:
    """Return whether a regular file, or a link to one, can be read now."""
    try:
        return stat.S_ISREG(file.stat().st_mode)
    except OSError:  # deleted since the listing, or a dangling link
        return False


def _raise(problem: OSError) -> None:
    raise problem


def typed(document: Document, kind: type[T]) -> T:
    """Decode the document as that type; the error names an invalid field with its line."""
    try:
        return msgspec.convert(document.content, kind)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `")
        raise document.problem(
            path_of(where), f"{where.rstrip('`').removeprefix('$.') or 'manifest'}: {message}"
        ) from None


def path_of(field: str) -> Field:
    """Return the steps of a field such as `$.spec.data[0].secretKey`, or `spec.data[0].secretKey` of an API server."""
    return tuple(int(index) if index else name for name, index in _STEP.findall(f".{field.removeprefix('$.')}"))


def _spread(document: Document) -> Iterator[Document]:
    match document.content:
        case {"apiVersion": str(), "kind": str(kind), "items": list(items)} if kind.endswith("List"):
            for index, item in enumerate(items):
                yield from _spread(Document(document.file, item, _deepest(document.node, ("items", index))))
        case _:
            yield document


def _bytes(path: str, file: str) -> bytes:
    try:
        if path == STDIN:
            raw = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(path).open("rb") as opened:
                raw = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from None
    if len(raw) > MAX_BYTES:
        raise InputError(f"{file}: larger than {MAX_BYTES // 1024 // 1024} MiB")
    return raw


def _deepest(node: yaml.Node, path: Field) -> yaml.Node:
    for step in path:
        below = _found(node, (step,))
        if below is None:
            break
        node = below
    return node


def _found(node: yaml.Node, path: Field) -> yaml.Node | None:
    found: yaml.Node | None = node
    for step in path:
        if isinstance(found, yaml.MappingNode):
            found = next((value for key, value in reversed(found.value) if key.value == step), None)
        elif isinstance(found, yaml.SequenceNode) and isinstance(step, int) and step < len(found.value):
            found = found.value[step]
        else:
            return None
    return found


# --- fields ---------------------------------------------------------------------------------------------------------


Schema = dict[str, Any]

_MERGE: Final = "<<"
"""A map may take the fields of several others."""


def field_problems(document: Document, schema: Schema) -> list[str]:
    """Return `file:line: message` for each field that the schema of the object does not have, or that is set twice."""
    parts = {"apiVersion": {}, "kind": {}, **schema.get("properties", {}), "metadata": OBJECT_META}
    unknown = _unknown({**schema, "properties": parts}, document.content, ())
    twice = (f"{document.at_key(path)}: {_dotted(path)}: the field is set twice" for path in _twice(document.node, ()))
    return [*(f"{document.at_key(path)}: {_message(path, known)}" for path, known in unknown), *twice]


def schema_of(document: Document) -> Schema:
    """Return the schema of one of our kinds; an empty one, which has every field, for other kinds and versions."""
    api_version, name = str(document.content.get("apiVersion")), str(document.content.get("kind"))
    for kind in KINDS:
        if kind.name == name and api_version in {kind.resource(version).api_version for version in kind.versions}:
            versions: list[Schema] = kind.crd()["spec"]["versions"]
            (served,) = (each for each in versions if each["name"] == api_version.rpartition("/")[2])
            schema: Schema = served["schema"]["openAPIV3Schema"]
            return schema
    return {"x-kubernetes-preserve-unknown-fields": True}


def _unknown(schema: Schema, value: Any, path: Field) -> Iterator[tuple[Field, Schema]]:
    """Yield the path of each unknown field, with the fields that its parent may have."""
    match value:
        case dict():
            known, others = schema.get("properties"), schema.get("additionalProperties")
            for name, entry in value.items():
                part = (known or {}).get(name, others)
                if isinstance(part, dict):
                    yield from _unknown(part, entry, (*path, name))
                elif known is not None and not others and not schema.get("x-kubernetes-preserve-unknown-fields"):
                    yield (*path, name), known
        case list():
            for index, entry in enumerate(value):
                yield from _unknown(schema.get("items", {}), entry, (*path, index))
        case _:
            return


def _twice(node: yaml.Node, path: Field) -> Iterator[Field]:
    """Yield the path of each field that a map of the document has more than once."""
    match node:
        case yaml.MappingNode():
            names = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
            yield from ((*path, name) for name, count in names.items() if count > 1 and name != _MERGE)
            for key, entry in node.value:
                if isinstance(key, yaml.ScalarNode):
                    yield from _twice(entry, (*path, key.value))
        case yaml.SequenceNode():
            for index, entry in enumerate(node.value):
                yield from _twice(entry, (*path, index))
        case _:
            return


def _message(path: Field, known: Schema) -> str:
    return with_hint(f"{_dotted(path)}: there is no such field", str(path[-1]), known)


def _dotted(path: Field) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")
