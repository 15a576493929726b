"""Prints rendered objects as YAML: values masked, or in the clear if the user asks for them.

A masked value shows its length and nothing else. Text that the manifest itself contains (a label without a template) is
not secret and stays.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import yaml

from eso_api.values import SecretBytes
from eso_render.manifest import DesiredManifest
from eso_render.secret import Desired

Json = dict[str, Any]


def mask(value: bytes) -> str:
    """Return a mask. It contains no digest, because the digest of a short value can be reversed by guessing."""
    return f"<masked, {len(value)} bytes>"


@dataclass(frozen=True, slots=True)
class Masked:
    """Prints no value; `public` are the texts that the manifest contains."""

    public: AbstractSet[str]

    def data(self, data: dict[str, SecretBytes]) -> Json:
        return {"data": {key: mask(value.reveal()) for key, value in data.items()}}

    def metadata(self, entries: dict[str, str]) -> dict[str, str]:
        return {
            key: value if value in self.public else mask(value.encode(errors="surrogateescape"))
            for key, value in entries.items()
        }

    def content(self, value: Any) -> Any:
        match value:
            case dict():
                return {key: self.content(entry) for key, entry in value.items()}
            case list():
                return [self.content(entry) for entry in value]
            case None:
                return None
            case str():
                return mask(value.encode())
            case _:
                return mask(json.dumps(value).encode())


class Clear:
    """Prints everything: text as text, other bytes in base64, so that the Secret can be applied as printed."""

    def data(self, data: dict[str, SecretBytes]) -> Json:
        texts: dict[str, str] = {}
        others: dict[str, str] = {}
        for key, value in data.items():
            try:
                texts[key] = value.reveal().decode()
            except UnicodeDecodeError:
                others[key] = base64.b64encode(value.reveal()).decode()
        return _filled({"data": others, "stringData": texts})

    def metadata(self, entries: dict[str, str]) -> dict[str, str]:
        return entries

    def content(self, value: Any) -> Any:
        return value


View = Masked | Clear


def secret_fields(desired: Desired, name: str, namespace: str, view: View) -> Json:
    """Return the fields of the Secret in the API."""
    metadata = {
        "name": name,
        "namespace": namespace,
        "labels": view.metadata(desired.labels),
        "annotations": view.metadata(desired.annotations),
        "finalizers": list(desired.finalizers),
    }
    fields = {"apiVersion": "v1", "kind": "Secret", "metadata": _filled(metadata), "type": desired.type}
    return _filled({**fields, "immutable": desired.immutable}) | view.data(dict(sorted(desired.data.items())))


def manifest_fields(desired: DesiredManifest, view: View) -> Json:
    """Return the object; the fields that identify it are never masked."""
    metadata = desired.content["metadata"]
    shown = {
        key: view.metadata(value) if key in {"labels", "annotations"} else value for key, value in metadata.items()
    }
    rest = {key: value for key, value in desired.content.items() if key not in {"apiVersion", "kind", "metadata"}}
    return {"apiVersion": desired.api_version, "kind": desired.kind, "metadata": shown} | {
        key: view.content(value) for key, value in rest.items()
    }


def as_yaml(objects: list[Json]) -> str:
    return "---\n".join(yaml.dump(fields, Dumper=_Readable, sort_keys=False, width=4096) for fields in objects)


def _filled(fields: Json) -> Json:
    return {key: value for key, value in fields.items() if value}


class _Readable(yaml.SafeDumper):
    """Prints texts of several lines as blocks, and uses no YAML references."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 the signature is PyYAML's
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Readable.add_representer(str, _text)
