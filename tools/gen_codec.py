"""The codec of plain messages: eso_wire's values and the contract -> eso_wire/_generated/codec.py.

The fields of a value say how they travel (`eso_wire/wiretypes.py`); the contract says what kind of field it is.
Messages with rules of their own are in `eso_wire/codec.py`. `gen_codec.py` writes the file; `--check` fails when it is
stale.
"""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor

from eso_api.values import SecretBytes
from eso_wire import fields, kinds, values
from eso_wire._generated import provider_pb2 as pb
from eso_wire.errors import ProviderError, Subject
from eso_wire.versions import ProtocolVersion
from eso_wire.wiretypes import Drop, Known, OneOf, Renamed, Text, UpTo

TARGET: Final = Path(__file__).resolve().parents[1] / "packages/eso-wire/src/eso_wire/_generated/codec.py"
MESSAGES: Final[dict[type, str]] = {
    Subject: "ObjectRef",
    ProtocolVersion: "ProtocolVersion",
    kinds.KindId: "GroupVersionKind",
    kinds.Hello: "HandshakeRequest",
    kinds.SpecCondition: "SpecCondition",
    kinds.CallerDependence: "CallerDependence",
    kinds.AudienceRule: "AudienceRule",
    kinds.CredentialPath: "CredentialPath",
    kinds.KindInfo: "KindInfo",
    kinds.Limits: "Limits",
    kinds.Handshake: "HandshakeResponse",
    values.Token: "ServiceAccountToken",
    values.Credential: "ResolvedValue",
    values.ConditionReport: "ConditionReport",
    values.RemoteRef: "RemoteRef",
    values.GetItem: "GetItem",
    values.ValueMetadata: "ValueMetadata",
    values.Found: "FoundSecret",
    values.CheckResult: "CheckResult",
    values.PushItem: "PushItem",
    values.SourceSecret: "SourceSecret",
    values.DeleteItem: "DeleteItem",
    values.DeleteResult: "DeleteResult",
    values.WatchItem: "WatchItem",
    values.SubscribeUpdate: "SubscribeUpdate",
    values.ChangeEvent: "ChangeEvent",
}
"""Each value with the name of its message. A value follows those that it contains."""
HEADER: Final = '''"""The codec of plain messages. tools/gen_codec.py writes it from the values and the contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from eso_api.values import SecretBytes
from eso_wire import bounds, errors, kinds, values, versions
from eso_wire._generated import provider_pb2 as pb
'''


def main() -> int:
    body = "\n\n".join(part for value in MESSAGES for part in functions(value))
    names = re.findall(
        r"^(?:def |class )?([A-Za-z]\w*)(?:\(| = EnumTable)", Path(fields.__file__).read_text(), re.MULTILINE
    )
    helpers = sorted(name for name in set(names) if re.search(rf"(?<![.\w]){name}\b", body))
    text = formatted(f"{HEADER}from eso_wire.fields import {', '.join(helpers)}\n\n{body}")
    if "--check" in sys.argv[1:]:
        stale = not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text
        if stale:
            print(f"{TARGET.name} is not what the values of eso_wire say; run `make gen`")
        return 1 if stale else 0
    TARGET.write_text(text, encoding="utf-8")
    return 0


def formatted(text: str) -> str:
    ruff = [str(Path(sys.executable).parent / "ruff"), "format", "--quiet", "--stdin-filename", "text.py", "-"]
    return subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout


@dataclasses.dataclass(frozen=True)
class Field:
    """A field of a value. `kind` is its type without the annotations in `marks`, and without None."""

    name: str
    kind: Any
    optional: bool
    required: bool
    marks: tuple[Any, ...]
    wire: FieldDescriptor | None

    def mark(self, of: type) -> Any:
        return next((mark for mark in self.marks if isinstance(mark, of) or mark is of), None)

    @property
    def wire_name(self) -> str:
        return renamed.name if (renamed := self.mark(Renamed)) else self.name

    @property
    def limit(self) -> str:
        return f", bounds.{mark.bound}" if (mark := self.mark(UpTo)) else ""


def fields_of(value: type) -> Iterator[Field]:
    descriptor = pb.DESCRIPTOR.message_types_by_name[MESSAGES[value]]
    defaults = _defaults(value)
    for name, hint in typing.get_type_hints(value, include_extras=True).items():
        kind, marks, optional = hint, list[Any](), False
        if typing.get_origin(kind) is typing.Annotated:
            kind, *marks = typing.get_args(kind)
        if typing.get_origin(kind) in (typing.Union, types.UnionType) and type(None) in typing.get_args(kind):
            (kind,) = (each for each in typing.get_args(kind) if each is not type(None))
            optional = True
        field = Field(name, kind, optional, name not in defaults, tuple(marks), None)
        wire = descriptor.fields_by_name.get(field.wire_name)
        if wire is None and field.mark(OneOf) is None:
            if name == "resume_token":  # travels beside the event
                continue
            raise SystemExit(f"{value.__name__}.{name} is no field of {descriptor.name}")
        yield dataclasses.replace(field, wire=wire)


def _defaults(value: type) -> set[str]:
    if dataclasses.is_dataclass(value):
        missing = dataclasses.MISSING
        return {
            each.name
            for each in dataclasses.fields(value)
            if each.default is not missing or each.default_factory is not missing
        }
    found = getattr(value, "_field_defaults", None)
    if found is not None:
        return set(found)
    names: tuple[str, ...] = value.__struct_fields__  # type: ignore[attr-defined]  # a Struct
    return set(names[len(names) - len(value.__struct_defaults__) :])  # type: ignore[attr-defined]  # a Struct


def functions(value: type) -> Iterator[str]:
    """Yield the functions of one value."""
    members, message = list(fields_of(value)), f"pb.{MESSAGES[value]}"
    name, owner = _snake(value), f"{value.__module__.rpartition('.')[2]}.{value.__name__}"
    one_of = next((field for field in members if field.mark(OneOf)), None)
    keywords = ", ".join(
        f"{each.wire_name}={encoded(each, f'value.{each.name}')}" for each in members if each != one_of
    )
    if one_of is None:
        yield f"def encode_{name}(value: {owner}) -> {message}:\n    return {message}({keywords})"
    else:
        cases = "".join(_set_case(each, kind) for each, kind in one_of.mark(OneOf).members.items())
        yield (
            f"def encode_{name}(value: {owner}) -> {message}:\n    message = {message}({keywords})\n"
            f"    match value.{one_of.name}:\n{cases}        case _ as never:\n            assert_never(never)\n"
            "    return message"
        )
    dropped = next((field for field in members if field.mark(Drop)), None)
    arguments = ", ".join(
        f"{each.name}={'known' if each == dropped else _one_of_call(name, each) if each == one_of else decoded(each)}"
        for each in members
    )
    lines = [f"def decode_{name}(message: {message}) -> {owner}{' | None' if dropped else ''}:"]
    lines += [f'    required(message, "{each.wire_name}")' for each in members if each.required and _is_message(each)]
    if dropped is not None:
        lines += [f"    known = {_table(dropped.kind)}.of(message.{dropped.wire_name})", "    if known is None:"]
        lines += ["        return None"]
    yield "\n".join([*lines, f"    return {owner}({arguments})"])
    if one_of is not None:
        cases = "".join(
            f'        case "{each}":\n            return {_member_of(each, kind)}\n'
            for each, kind in one_of.mark(OneOf).members.items()
        )
        kinds_ = " | ".join(_annotation(kind) for kind in one_of.mark(OneOf).members.values())
        yield (
            f"def _{name}_{one_of.name}(message: {message}) -> {kinds_}:\n"
            f'    match message.WhichOneof("{one_of.name}"):\n{cases}'
            f'        case None:\n            raise Malformed("{one_of.name}", "is not set")\n'
            "        case _ as never:\n            assert_never(never)"
        )


def encoded(field: Field, value: str) -> str:
    """Return the expression for the argument of the message."""
    kind, origin = field.kind, typing.get_origin(field.kind)
    if kind is datetime:
        return f"to_timestamp({value})"
    if kind is float:
        return f"to_duration({value})"
    if (text := field.mark(Text)) is not None and text.encode:
        return f"{text.encode}({value})"
    if kind is str or kind in (int, bool) or _is_labels(kind) or kind == tuple[str, ...]:
        return value
    if origin is frozenset:
        return f"{_table(typing.get_args(kind)[0])}.numbers({value})"
    if origin is tuple:
        return f"[encode_{_snake(typing.get_args(kind)[0])}(each) for each in {value}]"
    plain = _encoded_one(field, value)
    if not field.optional:
        return plain
    absent = f"pb.{_table(kind)}_UNSPECIFIED" if _is_enum(kind) else "None"
    return f"{absent} if {value} is None else {plain}"


def _encoded_one(field: Field, value: str) -> str:
    kind = field.kind
    if kind is SecretBytes:
        return f"{value}.reveal()"
    if kind is ProviderError:
        return f"to_error({value})"
    if _is_enum(kind):
        return f"{_table(kind)}.to({value})"
    if kind == Mapping[str, Any]:
        return f"to_struct({value})"
    return f"encode_{_snake(kind)}({value})"


def decoded(field: Field) -> str:
    """Return the expression for the argument of the value."""
    name, kind, origin = field.wire_name, field.kind, typing.get_origin(field.kind)
    read = f"message.{name}"
    if field.optional and not _is_enum(kind):
        return f'{_decoded_one(field)} if message.HasField("{name}") else None'
    if (text := field.mark(Text)) is not None:
        return str(text.decode.format(name=name, read=read))
    if kind is str:
        return f'identifier("{name}", {read})'
    if kind in (int, bool):
        return read
    if kind is float:
        return f"seconds_of({read})"
    if _is_labels(kind):
        return f'labels("{name}", {read}{field.limit})'
    if kind == tuple[str, ...]:
        return f'identifiers("{name}", {read}{field.limit})'
    if origin is frozenset:
        return f"{_table(typing.get_args(kind)[0])}.known({read})"
    if origin is tuple:
        inner = typing.get_args(kind)[0]
        limit = field.limit or ", bounds.MAX_SHORT_LIST"
        each = f'each("{name}", {read}{limit}, decode_{_snake(inner)})'
        return f"tuple(found for found in {each} if found is not None)" if _is_dropped(inner) else each
    if _is_enum(kind):
        if field.optional:
            return f"{_table(kind)}.of({read})"
        if (known := field.mark(Known)) is not None:
            return f"{_table(kind)}.of({read}) or values.{kind.__name__}.{known.otherwise}"
        return f'{_table(kind)}.choice("{name}", {read})'
    return _decoded_one(field)


def _decoded_one(field: Field) -> str:
    name, kind, read = field.wire_name, field.kind, f"message.{field.wire_name}"
    if kind is datetime:
        return f'moment_of("{name}", {read})'
    if kind is SecretBytes:
        return f"SecretBytes({read})"
    if kind is ProviderError:
        return f"from_error({read})"
    if kind == Mapping[str, Any]:
        return f"decode_struct({read})"
    return f'part("{name}", {read}, decode_{_snake(kind)})'


def _set_case(name: str, kind: Any) -> str:
    if kind is SecretBytes:
        return f"        case SecretBytes() as one:\n            message.{name} = one.reveal()\n"
    if kind is values.SecretMap:
        data = "pb.SecretMap(data=revealed(one))"
        return f"        case Mapping() as one:\n            message.{name}.CopyFrom({data})\n"
    copied = f"message.{name}.CopyFrom(encode_{_snake(kind)}(one))"
    return f"        case values.{kind.__name__}() as one:\n            {copied}\n"


def _member_of(name: str, kind: Any) -> str:
    if kind is SecretBytes:
        return f"SecretBytes(message.{name})"
    if kind is values.SecretMap:
        return f'secret_map("{name}", message.{name}.data)'
    return f'part("{name}", message.{name}, decode_{_snake(kind)})'


def _one_of_call(name: str, field: Field) -> str:
    return f"_{name}_{field.name}(message)"


def _annotation(kind: Any) -> str:
    if kind is SecretBytes:
        return "SecretBytes"
    return "values.SecretMap" if kind is values.SecretMap else f"values.{kind.__name__}"


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, StrEnum)


def _is_labels(kind: Any) -> bool:
    return bool(kind == Mapping[str, str])


def _is_message(field: Field) -> bool:
    return field.kind in MESSAGES and not field.optional


def _is_dropped(value: type) -> bool:
    return any(field.mark(Drop) for field in fields_of(value))


def _table(kind: Any) -> str:
    return "".join(f"_{letter}" if letter.isupper() else letter for letter in kind.__name__).strip("_").upper()


def _snake(value: Any) -> str:
    return _table(value).lower()


if __name__ == "__main__":
    sys.exit(main())
