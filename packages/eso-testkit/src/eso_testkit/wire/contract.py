"""The shape of the contract as plain data, and which changes of it are breaking.

    describe()               fields, enum values and calls of the current provider.proto
    broken(golden, current)  what a peer that was built against `golden` would no longer understand

Additions are allowed; every other change is reported as a sentence.
"""

from __future__ import annotations

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, MethodDescriptor

from eso_wire._generated import provider_pb2 as pb

Shape = dict[str, dict[str, dict[str, str]]]
"""messages | enums | services -> name -> member -> description."""

_TYPE_NAMES = {
    getattr(FieldDescriptor, name): name.removeprefix("TYPE_").lower()
    for name in dir(FieldDescriptor)
    if name.startswith("TYPE_")
}


def describe() -> Shape:
    file = pb.DESCRIPTOR
    return {
        "messages": {name: _fields(message) for name, message in sorted(file.message_types_by_name.items())},
        "enums": {name: _values(enum) for name, enum in sorted(file.enum_types_by_name.items())},
        "services": {
            name: {method.name: _signature(method) for method in service.methods}
            for name, service in sorted(file.services_by_name.items())
        },
    }


def broken(golden: Shape, current: Shape) -> list[str]:
    """List the members of the golden contract that are missing or changed."""
    problems = []
    for section, types in golden.items():
        for name, members in types.items():
            now = current.get(section, {}).get(name)
            if now is None:
                problems.append(f"{name} is gone")
                continue
            for member, meaning in members.items():
                if member not in now:
                    problems.append(f"{name}: {member} ({meaning}) is gone")
                elif now[member] != meaning:
                    problems.append(f"{name}: {member} was {meaning} and is now {now[member]}")
    return problems


def _fields(message: Descriptor) -> dict[str, str]:
    """Return the fields by number, which is what the wire uses. The name counts too, for JSON and source code."""
    return {f"field {field.number}": _field(field) for field in message.fields}


def _field(field: FieldDescriptor) -> str:
    kind = _TYPE_NAMES[field.type]
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        entry = field.message_type.fields_by_name
        return f"{field.name}: map<{_type_name(entry['key'])}, {_type_name(entry['value'])}>"
    parts = ["repeated"] if field.is_repeated else []
    if field.containing_oneof is not None:
        parts.append(f"oneof {field.containing_oneof.name}")
    parts.append(_type_name(field) if kind in {"message", "enum"} else kind)
    return f"{field.name}: {' '.join(parts)}"


def _type_name(field: FieldDescriptor) -> str:
    if field.message_type is not None:
        return str(field.message_type.full_name)
    if field.enum_type is not None:
        return str(field.enum_type.full_name)
    return _TYPE_NAMES[field.type]


def _values(enum: EnumDescriptor) -> dict[str, str]:
    return {f"value {value.number}": value.name for value in enum.values}


def _signature(method: MethodDescriptor) -> str:
    request = ("stream " if method.client_streaming else "") + method.input_type.name
    response = ("stream " if method.server_streaming else "") + method.output_type.name
    return f"{request} -> {response}"
