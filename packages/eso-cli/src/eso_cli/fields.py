"""Finds fields that are not in the schema of a kind, or set twice: typing mistakes that `kubectl apply` refuses too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import yaml

from eso_api.kinds import KINDS
from eso_cli.documents import Document, Field
from kubebase.hints import with_hint
from localkube.schema.metadata import OBJECT_META

Schema = dict[str, Any]

_MERGE: Final = "<<"
"""A map may take the fields of several others."""


def field_problems(document: Document, schema: Schema) -> list[str]:
    """Return `file:line: message` for each field that the schema of the object does not have, or that is set twice."""
    parts = {"apiVersion": {}, "kind": {}, **schema.get("properties", {}), "metadata": OBJECT_META}
    unknown = _unknown({**schema, "properties": parts}, document.content, ())
    twice = (f"{document.at_key(path)}: {_written(path)}: the field is set twice" for path in _twice(document.node, ()))
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
    return with_hint(f"{_written(path)}: there is no such field", str(path[-1]), known)


def _written(path: Field) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")
