"""OpenAPI schemas from types: what the API server checks, prunes and explains.

Reads the types of the kinds (`msgspec.inspect`), their shapes and rules, and the docstrings of their fields, and writes
structural schemas without references and defaults. It knows neither CRDs (`crd.py`) nor YAML.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect as types

from eso_api.shapes import Fragment, Rule

Schema = dict[str, Any]


class UnsupportedTypeError(TypeError):
    """The type of a field has no structural schema. Raised while generating, never at run time."""


def schema_of(struct: type[msgspec.Struct]) -> Schema:
    """Return the schema of one struct, as an object."""
    (schema,) = schemas_of([struct])
    return schema


def schemas_of(structs: Sequence[type[msgspec.Struct]]) -> list[Schema]:
    """Return the schema of each struct. Types that several of them have in common are inspected once."""
    writer = _Writer()
    # Copies, because shared parts would change together.
    return [msgspec.json.decode(msgspec.json.encode(schema)) for schema in writer.of_structs(structs)]


class _Writer:
    """Writes schemas, each struct's once."""

    def __init__(self) -> None:
        self._known: dict[type, Schema] = {}

    def of_structs(self, structs: Sequence[type[msgspec.Struct]]) -> Iterator[Schema]:
        for info in types.multi_type_info(structs):
            assert isinstance(info, types.StructType)  # noqa: S101 - what msgspec says of a struct
            yield self._of_struct(info)

    def _of(self, type_: types.Type) -> Schema:
        match type_:
            case types.Metadata():
                return self._of_annotated(type_)
            case types.StructType():
                return self._of_struct(type_)
            case types.StrType():
                return {"type": "string"}
            case types.IntType():
                return {"type": "integer"}
            case types.BoolType():
                return {"type": "boolean"}
            case types.FloatType():
                return {"type": "number"}
            case types.ListType(item_type=item):
                return {"type": "array", "items": self._of(item)}
            case types.DictType(value_type=types.AnyType()):
                return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            case types.DictType(value_type=value):
                return {"type": "object", "additionalProperties": self._of(value)}
            case types.AnyType():
                return {"x-kubernetes-preserve-unknown-fields": True}
            case types.UnionType(types=members):
                return self._of_union([member for member in members if not isinstance(member, types.NoneType)])
            case _:
                raise UnsupportedTypeError(f"no schema for {type_}")

    def _of_annotated(self, annotated: types.Metadata) -> Schema:
        fragment = (annotated.extra or {}).get("fragment")
        inner = self._of_fragment(fragment) if fragment else self._of(annotated.type)
        return {**inner, **(annotated.extra_json_schema or {})}

    def _of_fragment(self, fragment: type[msgspec.Struct]) -> Schema:
        return self._known.get(fragment) or next(self.of_structs([fragment]))

    def _of_union(self, members: list[types.Type]) -> Schema:
        if len(members) == 1:
            return self._of(members[0])
        if {type(member) for member in members} == {types.IntType, types.StrType}:
            return {"x-kubernetes-int-or-string": True}
        raise UnsupportedTypeError(f"no schema for a union of {members}")

    def _of_struct(self, info: types.StructType) -> Schema:
        if info.cls not in self._known:
            self._known[info.cls] = self._new_schema(info)
        return self._known[info.cls]

    def _new_schema(self, info: types.StructType) -> Schema:
        described = _field_docs(info.cls)
        properties = {}
        for field in sorted(info.fields, key=lambda field: field.encode_name):
            schema = self._of(field.type)
            if text := described.get(field.name) or schema.get("description"):
                schema = {"description": text, **{key: value for key, value in schema.items() if key != "description"}}
            properties[field.encode_name] = schema
        schema = {"description": _summary(info.cls), "type": "object"}
        if required := sorted(field.encode_name for field in info.fields if field.required):
            schema["required"] = required
        if properties:
            schema["properties"] = properties
        if issubclass(info.cls, Fragment):
            schema |= info.cls.SHAPE
            if info.cls.RULES:
                schema["x-kubernetes-validations"] = [_of_rule(rule) for rule in info.cls.RULES]
        return schema


def _of_rule(rule: Rule) -> Schema:
    schema = {"rule": rule.expression, "message": rule.message}
    if not rule.cases:
        return schema
    *others, last = rule.cases
    # Evaluated only when the rule is violated.
    texts = "".join(f"!({case.expression}) ? '{case.message}' : " for case in others)
    return {**schema, "messageExpression": f"{texts}'{last.message}'"}


def _summary(cls: type) -> str:
    return (inspect.getdoc(cls) or cls.__name__).split("\n\n")[0].replace("\n", " ")


def _field_docs(cls: type) -> dict[str, str]:
    """Return the docstrings of the fields, including those of base classes. Only the source has them."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        found |= _module_docs(base.__module__).get(base.__qualname__, {})
    return found


@cache
def _module_docs(module: str) -> dict[str, dict[str, str]]:
    source = getattr(sys.modules.get(module), "__file__", None)
    if source is None or not source.endswith(".py"):
        return {}
    tree = ast.parse(Path(source).read_text(encoding="utf-8"))
    return {node.name: _class_docs(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _class_docs(node: ast.ClassDef) -> dict[str, str]:
    docs = {}
    for statement, following in zip(node.body, node.body[1:], strict=False):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = " ".join(text.split())
            case _:
                pass
    return docs
