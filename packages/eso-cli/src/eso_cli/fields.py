"""Finds fields that are not in the schema of a kind. Most are typing mistakes, and the API server would reject them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from eso_api.kinds import KINDS
from eso_cli.documents import Document, Field

Schema = dict[str, Any]


def unknown_fields(document: Document) -> list[str]:
    """Return `file:line: message` for each unknown field; nothing for kinds or versions that are not ours."""
    schema = _schema(str(document.content.get("apiVersion")), str(document.content.get("kind")))
    return [
        f"{document.at_key(path)}: {_written(path)}: there is no such field"
        for name, part in schema.get("properties", {}).items()
        for path in _unknown(part, document.content.get(name), (name,))
    ]


def _schema(api_version: str, name: str) -> Schema:
    for kind in KINDS:
        if kind.name == name and api_version in {kind.resource(version).api_version for version in kind.versions}:
            versions: list[Schema] = kind.crd()["spec"]["versions"]
            (served,) = (each for each in versions if each["name"] == api_version.rpartition("/")[2])
            schema: Schema = served["schema"]["openAPIV3Schema"]
            return schema
    return {}


def _unknown(schema: Schema, value: Any, path: Field) -> Iterator[Field]:
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    match value:
        case dict():
            known, others = schema.get("properties"), schema.get("additionalProperties")
            for name, entry in value.items():
                if known is not None and name not in known:
                    yield (*path, name)
                elif (part := (known or {}).get(name, others)) and isinstance(part, dict):
                    yield from _unknown(part, entry, (*path, name))
        case list():
            for index, entry in enumerate(value):
                yield from _unknown(schema.get("items", {}), entry, (*path, index))
        case _:
            return


def _written(path: Field) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")
