"""A peer of a newer minor sends fields that this version does not know: they are ignored (R140)."""

from __future__ import annotations

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from eso_testkit.wire.samples import Sample, samples

UNKNOWN = bytes.fromhex("c0bb0101" + "cabb0103616263")
"""Field 3000 with the number 1, and field 3001 with three bytes: no message has them."""


def with_unknown_fields(message: Message) -> int:
    """Add them to a message and to every message inside it; return their number."""
    added = 1
    for field, value in message.ListFields():
        if field.type != FieldDescriptor.TYPE_MESSAGE or field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            inside = [value[key] for key in value]
        else:
            inside = list(value) if field.is_repeated else [value]
        added += sum(with_unknown_fields(each) for each in inside if isinstance(each, Message))
    message.MergeFromString(UNKNOWN)
    return added


@pytest.mark.parametrize("sample", samples(), ids=lambda sample: sample.name)
def test_an_unknown_field_is_ignored(sample: Sample) -> None:
    known = sample.encode(sample.value)
    newer = type(known)()
    newer.CopyFrom(known)
    added = with_unknown_fields(newer)
    raw = newer.SerializeToString()

    decoded = sample.decode(type(known).FromString(raw))

    assert len(raw) > len(known.SerializeToString()) + (added - 1) * len(UNKNOWN)
    assert decoded == sample.value
