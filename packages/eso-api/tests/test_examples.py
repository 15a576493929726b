"""The examples: one of every kind, decodable, and without a violated rule."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from eso_api.externalsecret import ClusterExternalSecret, ExternalSecret
from eso_api.kinds import AnyKind, installed_kinds
from eso_api.pushsecret import ClusterPushSecret, PushSecret
from eso_api.validation import FieldError, external_secret_problems, push_secret_problems

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
KIND_OF: dict[tuple[str, str], AnyKind] = {
    (kind.resource(version).api_version, kind.name): kind for kind in installed_kinds() for version in kind.versions
}


def documents() -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in sorted(EXAMPLES.rglob("*.yaml")):
        for document in yaml.load_all(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader):
            yield path, document


OURS = [
    pytest.param(
        KIND_OF[document["apiVersion"], document["kind"]],
        document,
        id=f"{path.relative_to(EXAMPLES)} {document['kind']} {document['metadata']['name']}",
    )
    for path, document in documents()
    if (document["apiVersion"], document["kind"]) in KIND_OF
]


@pytest.mark.parametrize(("kind", "document"), OURS)
def test_an_example_decodes_without_losing_a_field(kind: AnyKind, document: dict[str, Any]) -> None:
    decoded = msgspec.json.decode(msgspec.json.encode(document), type=kind.type)

    assert decoded.metadata.name == document["metadata"]["name"]
    assert _unknown(document.get("spec", {}), msgspec.to_builtins(_complete(decoded.spec))) == []


@pytest.mark.parametrize(("kind", "document"), OURS)
def test_an_example_breaks_no_rule(kind: AnyKind, document: dict[str, Any]) -> None:
    assert problems(msgspec.convert(document, kind.type)) == []


def test_every_kind_has_an_example() -> None:
    shown = {(document["apiVersion"], document["kind"]) for _, document in documents()}
    stored = {(kind.resource().api_version, kind.name) for kind in installed_kinds()}

    assert stored - shown == set()


def test_no_two_examples_are_the_same_object() -> None:
    names = [
        (document["apiVersion"].partition("/")[0], document["kind"], document["metadata"].get("namespace"),
         document["metadata"]["name"])
        for _, document in documents()
    ]  # fmt: skip

    assert [name for name in set(names) if names.count(name) > 1] == []


def test_every_namespace_is_created_first() -> None:
    namespaces = {document["metadata"]["name"] for _, document in documents() if document["kind"] == "Namespace"}
    used = {document["metadata"].get("namespace", "default") for _, document in documents()}
    first = next(documents())[0].name

    assert used - namespaces == {"default"}
    assert first == "00-namespaces.yaml"


def problems(decoded: Any) -> list[FieldError]:
    match decoded:
        case ExternalSecret():
            return external_secret_problems(decoded.spec)
        case ClusterExternalSecret():
            return external_secret_problems(decoded.spec.external_secret_spec, "spec.externalSecretSpec")
        case PushSecret():
            return push_secret_problems(decoded.spec)
        case ClusterPushSecret():
            return push_secret_problems(decoded.spec.push_secret_spec, "spec.pushSecretSpec")
        case _:
            return []


def _complete(struct: Any) -> Any:
    """Return the struct as a plain map with its defaults, so that every decoded field is present."""
    match struct:
        case msgspec.Struct():
            fields = zip(struct.__struct_encode_fields__, struct.__struct_fields__, strict=True)
            return {encoded: _complete(getattr(struct, name)) for encoded, name in fields}
        case list():
            return [_complete(item) for item in struct]
        case dict():
            return {key: _complete(value) for key, value in struct.items()}
        case _:
            return struct


def _unknown(written: Any, decoded: Any, path: str = "spec") -> list[str]:
    """Return the paths that the manifest has and the decoded object lacks."""
    if isinstance(written, dict) and isinstance(decoded, dict):
        missing = [f"{path}.{key}" for key in written if key not in decoded]
        nested = [_unknown(value, decoded[key], f"{path}.{key}") for key, value in written.items() if key in decoded]
        return missing + [item for items in nested for item in items]
    if isinstance(written, list) and isinstance(decoded, list):
        pairs = zip(written, decoded, strict=True)
        return [item for index, (one, two) in enumerate(pairs) for item in _unknown(one, two, f"{path}[{index}]")]
    return [] if written == decoded else [f"{path} differs"]
