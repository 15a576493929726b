"""Packed caches: they answer like plain ones, decode each key once while it is in use, and keep few objects decoded."""

import json
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubebase.meta import Malformed, Object, ObjectKey, ObjectMeta
from kuberun.cache import Cache, Change
from kuberun.packing import MAX_DECODED, PackedDict, Packing
from kuberun.watch import Applied, Deleted, Event, Listed


class Thing(Object, kw_only=True):
    spec: dict[str, Any] = msgspec.field(default_factory=dict)


def thing(name: str, version: int = 1, *, team: str = "", **spec: Any) -> Thing:
    labels = {"team": team} if team else {}
    metadata = ObjectMeta(name=name, namespace="default", resource_version=str(version), uid=name, labels=labels)
    return Thing(api_version="v1", kind="Thing", metadata=metadata, spec=spec)


def key(name: str) -> ObjectKey:
    return ObjectKey("default", name)


def by_team(obj: Thing) -> Iterable[str]:
    team = obj.metadata.labels.get("team")
    return [team] if team else []


class Counting(Packing[Thing]):
    """Counts what it does."""

    def __init__(self) -> None:
        super().__init__(Thing)
        self.packed = 0
        self.unpacked = 0

    def pack(self, obj: Thing) -> bytes | None:
        self.packed += 1
        return super().pack(obj)

    def unpack(self, packed: bytes) -> Thing:
        self.unpacked += 1
        return super().unpack(packed)


WIDTH = 4
"""Members of a collection. Without a limit most documents outgrow what hypothesis may draw, and it draws them again."""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=WIDTH) | st.dictionaries(st.text(), inner, max_size=WIDTH),
)


@given(st.lists(st.dictionaries(st.text(), JSON, max_size=WIDTH), min_size=1, max_size=WIDTH))
def test_an_object_that_was_packed_is_equal_to_the_decoded_one(specs: list[dict[str, Any]]) -> None:
    packing: Packing[Thing] = Packing(Thing)
    objects = [msgspec.json.decode(json.dumps({"metadata": {"name": "a"}, "spec": spec}), type=Thing) for spec in specs]

    for obj in objects:
        packed = packing.pack(obj)

        assert packed is not None
        assert packing.unpack(packed) == obj


@pytest.mark.parametrize("first", [1, 5000, 100_000], ids=["small", "longer than the window", "very long"])
@pytest.mark.parametrize("second", [1, 5000, 100_000], ids=["small", "longer than the window", "very long"])
def test_objects_of_any_length_serve_as_dictionary_and_are_packed_with_it(first: int, second: int) -> None:
    packing: Packing[Thing] = Packing(Thing)
    one = thing("one", text="".join(chr(97 + (number * number) % 23) for number in range(first)))
    other = thing("other", text="".join(chr(97 + (number * number) % 19) for number in range(second)))

    packed = packing.pack(one), packing.pack(other)

    assert [packing.unpack(each) for each in packed if each is not None] == [one, other]


def test_a_packed_object_is_a_fraction_of_its_json() -> None:
    packing: Packing[Thing] = Packing(Thing)
    packing.pack(thing("first", data=[{"secretKey": f"key-{each}", "remoteRef": {"key": "app"}} for each in range(9)]))
    later = thing("later", data=[{"secretKey": f"key-{each}", "remoteRef": {"key": "db"}} for each in range(9)])

    packed = packing.pack(later)

    assert packed is not None
    assert len(packed) < len(msgspec.json.encode(later)) / 3


def test_only_the_newest_objects_stay_decoded() -> None:
    packing = Counting()
    objects = PackedDict(packing, decoded=10)

    for number in range(100):
        objects[key(str(number))] = thing(str(number))

    assert packing.packed == 90
    assert objects[key("99")] is objects[key("99")]
    assert packing.unpacked == 0, "a new object is at hand"
    assert objects[key("0")] is objects[key("0")]
    assert packing.unpacked == 1, "a key in use is decoded once"


def test_a_burst_of_changes_packs_an_object_once() -> None:
    packing = Counting()
    objects = PackedDict(packing, decoded=10)

    for version in range(50):
        objects[key("busy")] = thing("busy", version)
    for number in range(10):
        objects[key(str(number))] = thing(str(number))

    assert packing.packed == 1
    assert objects[key("busy")] == thing("busy", 49)


def test_an_object_that_was_only_read_is_not_packed_again() -> None:
    packing = Counting()
    objects = PackedDict(packing, decoded=1)
    for number in range(3):
        objects[key(str(number))] = thing(str(number))
    before = packing.packed

    for number in (0, 1, 0, 1):
        assert objects[key(str(number))] == thing(str(number))

    assert packing.packed == before + 1, "object 2, which was not packed yet"


def test_a_walk_over_all_objects_leaves_the_decoded_ones_alone() -> None:
    packing = Counting()
    objects = PackedDict(packing, decoded=2)
    for number in range(5):
        objects[key(str(number))] = thing(str(number))
    newest = objects[key("4")]

    assert list(objects.values()) == [thing(str(number)) for number in range(5)]
    assert list(objects.items()) == [(key(str(number)), thing(str(number))) for number in range(5)]

    assert objects[key("4")] is newest


def test_a_deleted_object_is_gone_in_every_form() -> None:
    objects = PackedDict(Packing(Thing), decoded=1)
    for name in ("packed", "decoded", "new"):
        objects[key(name)] = thing(name)
    assert objects[key("decoded")] == thing("decoded")

    for name in ("packed", "decoded", "new"):
        del objects[key(name)]

        assert objects.get(key(name)) is None
        assert key(name) not in objects
    assert len(objects) == 0


def test_objects_that_cannot_be_packed_are_kept_as_they_are() -> None:
    objects = PackedDict(Packing(Thing), decoded=1)
    malformed = Malformed(thing("bad").metadata, "spec: expected an object")
    odd = thing("odd", number=object())

    objects[key("bad")] = malformed
    objects[key("odd")] = odd
    objects[key("last")] = thing("last")

    assert objects[key("bad")] is malformed
    assert objects[key("odd")] is odd


def test_plain_json_can_be_packed_too() -> None:
    store: Cache[dict[str, Any]] = Cache(None, Packing(dict[str, Any]))
    made = [
        {"metadata": {"name": str(number), "namespace": "default", "resourceVersion": "1"}, "data": 2**70}
        for number in range(MAX_DECODED + 1)
    ]

    store.apply(Listed(made))

    assert store.get(key("0")) == made[0]
    assert store.objects() == made


NAMES = st.sampled_from("abcdef")
THINGS = st.builds(thing, NAMES, st.integers(1, 9), team=st.sampled_from(["", "red", "blue"]))
BAD = st.builds(lambda obj: Malformed(obj.metadata, "spec: expected an object"), THINGS)
ANY = st.one_of(THINGS, THINGS, BAD)
EVENTS = st.one_of(
    st.builds(Applied, ANY),
    st.builds(Deleted, ANY),
    st.builds(Listed, st.lists(ANY, unique_by=lambda obj: obj.key)),
)


class _Small(Cache[Thing]):
    """A cache that keeps two objects decoded, so that few objects exercise every path."""

    def __init__(self) -> None:
        super().__init__({"team": by_team})
        self._objects = PackedDict(Packing(Thing), decoded=2)


@given(st.lists(EVENTS))
def test_a_packed_cache_answers_like_a_plain_one(events: list[Event[Thing]]) -> None:
    plain, packed = Cache({"team": by_team}), _Small()

    for event in events:
        told: list[list[Change[Thing]]] = [list(each.apply(event)) for each in (plain, packed)]
        assert told[0] == told[1]

        assert plain.keys() == packed.keys()
        assert plain.objects() == packed.objects()
        assert plain.malformed() == packed.malformed()
        for team in ("red", "blue"):
            assert plain.find("team", team) == packed.find("team", team)
            assert plain.find_keys("team", team) == packed.find_keys("team", team)
        for name in "abcdef":
            assert plain.get(key(name)) == packed.get(key(name))
