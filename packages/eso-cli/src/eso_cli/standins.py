"""Stand-ins for a backend and a cluster, read from files: fetched values, and ConfigMaps and Secrets with templates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from eso_api.values import SecretBytes
from eso_render.templates import DecodingError, TemplateObjects, decode
from eso_tools.manifests import Document, Field, typed
from kubebase.meta import ObjectMeta

Values = dict[str, SecretBytes]


def values_of(documents: list[Document]) -> Values:
    """Return the values of a map: key to text as written, or to `{base64: …}` for bytes that are not text."""
    values: Values = {}
    for document in documents:
        if not isinstance(document.content, dict):
            raise document.problem((), "a map of keys and values is needed")
        values.update({key: _value(document, key, value) for key, value in document.content.items()})
    return values


def _value(document: Document, key: str, value: Any) -> SecretBytes:
    match value:
        case None:
            return SecretBytes(b"")
        case str():
            return SecretBytes(value.encode())
        case int() | float() if document.has((key,)):
            return SecretBytes(document.written((key,)).encode())
        case {"base64": str(encoded), **more} if not more:
            return SecretBytes(_decoded(document, (key, "base64"), encoded))
        case _:
            raise document.problem((key,), f"{key} must be text, or {{base64: …}} for bytes that are no text")


def _decoded(document: Document, path: Field, encoded: str) -> bytes:
    try:
        return decode("Base64", encoded.encode())
    except DecodingError as error:
        raise document.problem(path, f"{'.'.join(map(str, path))}: {error}") from None


@dataclass(frozen=True, slots=True)
class TemplateHolder:
    """A ConfigMap or Secret from a file."""

    document: Document
    kind: str
    namespace: str
    name: str
    entries: Mapping[str, SecretBytes] = field(repr=False)

    def serves(self, namespace: str) -> bool:
        """Return whether an object of that namespace can refer to it; files may omit namespaces."""
        return not namespace or self.namespace in {"", namespace}

    def locate(self, key: str, line: int) -> str | None:
        """Return the place of the template under the key. Lines inside a base64 text are not lines of the file."""
        if self.document.has(("stringData", key)):
            return self.document.at(("stringData", key), line)
        if self.document.has(("data", key)):
            return self.document.at(("data", key), line if self.kind == "ConfigMap" else 0)
        return None


class _Holder(msgspec.Struct, rename="camel"):
    """The fields that are read of a ConfigMap or Secret."""

    kind: str
    metadata: ObjectMeta
    data: dict[str, str] | None = None
    string_data: dict[str, str] | None = None


def template_holder(document: Document) -> TemplateHolder:
    holder = typed(document, _Holder)
    entries = {key: text.encode() for key, text in (holder.data or {}).items()}
    if holder.kind == "Secret":
        entries = {key: _decoded(document, ("data", key), text.decode()) for key, text in entries.items()}
        entries |= {key: text.encode() for key, text in (holder.string_data or {}).items()}
    secrets = {key: SecretBytes(value) for key, value in entries.items()}
    return TemplateHolder(document, holder.kind, holder.metadata.namespace, holder.metadata.name, secrets)


def template_objects(holders: list[TemplateHolder], namespace: str) -> TemplateObjects:
    """Return the ConfigMaps and Secrets that an object of that namespace can refer to."""
    serving = [holder for holder in holders if holder.serves(namespace)]
    return TemplateObjects(
        config_maps={
            holder.name: {key: value.reveal().decode() for key, value in holder.entries.items()}
            for holder in serving
            if holder.kind == "ConfigMap"
        },
        secrets={holder.name: holder.entries for holder in serving if holder.kind == "Secret"},
    )
