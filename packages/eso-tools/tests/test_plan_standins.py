"""Stand-ins: equal for equal values, of the same shape, and without anything of the value."""

from __future__ import annotations

import base64
import json
import re

import pytest

from eso_tools.plan.standins import Digests, StandIns

CANARY = "CANARY-abc-123"


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        pytest.param(CANARY.encode(), r"standin-[0-9a-f]{32}", id="text"),
        pytest.param(b"5432", r"[0-9]{15}", id="digits"),
        pytest.param(base64.b64encode(CANARY.encode()), r"[0-9a-f]{32}", id="Base64"),
        pytest.param(b"\xff\xfe", r"standin-[0-9a-f]{32}", id="bytes"),
        pytest.param(b"", r"", id="nothing"),
        pytest.param(b"{not json", r"standin-[0-9a-f]{32}", id="a brace that is not JSON"),
        pytest.param(b"[" * 100_000, r"standin-[0-9a-f]{32}", id="JSON that is too deep"),
    ],
)
def test_a_stand_in_has_the_shape_of_its_value(value: bytes, shape: str) -> None:
    assert re.fullmatch(shape, StandIns().of(value).decode())


def test_json_keeps_its_structure_and_names() -> None:
    document = {"user": CANARY, "port": 5432, "on": True, "none": None, "hosts": [CANARY, ""], "nested": '{"a": "b"}'}

    found = json.loads(StandIns().of(json.dumps(document).encode()))

    assert list(found) == list(document)
    assert (found["on"], found["none"], found["hosts"][1]) == (True, None, "")
    assert isinstance(found["port"], int)
    assert found["port"] != 5432
    assert list(json.loads(found["nested"])) == ["a"]
    assert CANARY not in json.dumps(found)


def test_a_value_has_the_same_stand_in_wherever_it_is() -> None:
    standins = StandIns()

    whole = json.loads(standins.of(json.dumps({"user": CANARY, "port": 5432}).encode()))

    assert whole["user"].encode() == standins.of(CANARY.encode())
    assert str(whole["port"]).encode() == standins.of(b"5432")
    assert standins.of(b"other") != standins.of(CANARY.encode())


def test_two_recordings_have_different_stand_ins() -> None:
    assert StandIns().of(b"value") != StandIns().of(b"value")


def test_inline_values_of_a_configuration_have_stand_ins() -> None:
    spec = {"provider": {"fake": {"data": [{"key": "a", "value": CANARY, "valueMap": {"b": CANARY}}]}}}

    found = StandIns().of_configuration(spec)

    (entry,) = found["provider"]["fake"]["data"]
    assert entry["key"] == "a"
    assert list(entry["valueMap"]) == ["b"]
    assert CANARY not in json.dumps(found)


def test_digests_are_short_and_belong_to_one_run() -> None:
    first, second = Digests(), Digests()

    assert first.of(b"a") == first.of(b"a") != first.of(b"b")
    assert len(first.of(b"a")) == 6
    assert [first.of(bytes([n])) for n in range(8)] != [second.of(bytes([n])) for n in range(8)]
