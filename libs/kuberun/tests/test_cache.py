"""The cache: how events change it, which changes it reports, what its indexes find."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubebase.meta import Malformed, Object, ObjectKey, ObjectMeta
from kuberun.cache import Cache, Change, Origin
from kuberun.watch import Applied, Deleted, Event, Listed, PageListed, PagesEnded


def thing(name: str, version: int, *, uid: str = "", **labels: str) -> Object:
    metadata = ObjectMeta(
        name=name, namespace="default", resource_version=str(version), uid=uid or f"uid-{name}", labels=labels
    )
    return Object(metadata=metadata)


def key(name: str) -> ObjectKey:
    return ObjectKey("default", name)


def by_team(obj: Object) -> Iterable[str]:
    team = obj.metadata.labels.get("team")
    return [team] if team else []


def store_with(*objects: Object) -> Cache[Object]:
    store = Cache({"team": by_team})
    store.apply(Listed(objects))
    return store


def test_the_first_list_fills_the_store_and_reports_every_object_as_there_before() -> None:
    store: Cache[Object] = Cache()
    a, b = thing("a", 1), thing("b", 2)

    changes = store.apply(Listed([a, b]))

    assert changes == [Change(key("a"), None, a, Origin.LISTED), Change(key("b"), None, b, Origin.LISTED)]
    assert store.keys() == (key("a"), key("b"))
    assert len(store) == 2


def test_a_list_in_pages_fills_the_store_and_drops_what_was_on_no_page() -> None:
    same, old, gone = thing("same", 1), thing("changed", 2), thing("gone", 3)
    store = store_with(same, old, gone)
    new, fresh = thing("changed", 5), thing("fresh", 6)

    first = store.apply(PageListed([thing("same", 1), new]))
    second = store.apply(PageListed([fresh]))
    kept = store.get(key("gone"))
    end = store.apply(PagesEnded((frozenset({key("same"), key("changed")}), frozenset({key("fresh")}))))

    assert (first, second) == ([Change(key("changed"), old, new)], [Change(key("fresh"), None, fresh)])
    assert kept is gone, "it may be on a page that is still to come"
    assert end == [Change(key("gone"), gone, None)]
    assert store.keys() == (key("same"), key("changed"), key("fresh"))


def test_the_pages_of_the_first_list_report_objects_that_were_there_before() -> None:
    store: Cache[Object] = Cache()

    (change,) = store.apply(PageListed([thing("a", 1)]))
    store.apply(PagesEnded((frozenset({key("a")}),)))
    (later,) = store.apply(PageListed([thing("a", 2)]))

    assert (change.origin, later.origin) == (Origin.LISTED, Origin.WATCHED)


def test_a_later_list_reports_the_difference_only_and_what_vanished_as_deleted() -> None:
    same, old, gone = thing("same", 1), thing("changed", 2), thing("gone", 3)
    store = store_with(same, old, gone)
    new, fresh = thing("changed", 5), thing("fresh", 6)

    changes = store.apply(Listed([thing("same", 1), new, fresh]))

    assert changes == [
        Change(key("changed"), old, new),
        Change(key("fresh"), None, fresh),
        Change(key("gone"), gone, None),
    ]
    assert store.get(key("same")) is same, "the object at hand is kept, the copy is garbage"


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        pytest.param(Applied(thing("a", 2)), [Change(key("a"), thing("a", 1), thing("a", 2))], id="a change"),
        pytest.param(Applied(thing("a", 1)), [], id="a repetition changes nothing"),
        pytest.param(Applied(thing("b", 2)), [Change(key("b"), None, thing("b", 2))], id="a new object"),
        pytest.param(
            Deleted(thing("a", 2)), [Change(key("a"), thing("a", 2), None)], id="a removal, with the last state"
        ),
        pytest.param(Deleted(thing("b", 2)), [], id="the removal of something unknown"),
    ],
)
def test_events_of_a_stream(event: Event[Object], expected: list[Change[Object]]) -> None:
    store = store_with(thing("a", 1))

    assert list(store.apply(event)) == expected


def test_versions_are_compared_for_equality_only_so_delivery_order_decides() -> None:
    store = store_with(thing("a", 100))

    store.apply(Applied(thing("a", 9)))

    found = store.get(key("a"))
    assert isinstance(found, Object)
    assert found.metadata.resource_version == "9"


def test_another_object_under_the_same_name_counts_as_created() -> None:
    store = store_with(thing("a", 1, uid="one"))

    [change] = store.apply(Applied(thing("a", 5, uid="two")))

    assert change.created
    assert not change.deleted


def test_a_malformed_object_is_there_but_among_the_malformed() -> None:
    store = store_with(thing("a", 1, team="red"), thing("b", 2, team="red"))
    bad = Malformed(thing("a", 3).metadata, "spec.x: expected an integer")

    [change] = store.apply(Applied(bad))

    assert change.new is bad
    assert store.get(key("a")) is bad
    assert store.malformed() == [bad]
    assert [obj.key for obj in store.objects()] == [key("b")]
    assert store.find_keys("team", "red") == (key("b"),)


def test_indexes_follow_every_change() -> None:
    store = store_with(thing("a", 1, team="red"), thing("b", 2, team="red"), thing("c", 3))

    store.apply(Applied(thing("a", 4, team="blue")))
    store.apply(Deleted(thing("b", 5, team="red")))
    store.apply(Applied(thing("c", 6, team="blue")))

    assert store.find("team", "red") == []
    assert [obj.key.name for obj in store.find("team", "blue")] == ["a", "c"]


def test_an_index_that_cannot_read_an_object_makes_it_malformed_and_spares_the_others() -> None:
    def by_number(obj: Object) -> Iterable[int]:
        return [int(obj.metadata.labels["number"])]

    store = Cache({"team": by_team, "number": by_number})

    store.apply(Listed([thing("good", 1, number="7", team="red"), thing("bad", 2, number="CANARY", team="red")]))

    assert store.find_keys("number", 7) == (key("good"),)
    assert store.find_keys("team", "red") == (key("good"),)
    [bad] = store.malformed()
    assert bad.key == key("bad")
    assert "CANARY" not in bad.error


def test_objects_that_were_read_do_not_change_with_the_store() -> None:
    store = store_with(thing("a", 1, team="red"))
    keys, objects, found = store.keys(), store.objects(), store.find_keys("team", "red")

    store.apply(Listed([]))

    assert (len(keys), len(objects), len(found)) == (1, 1, 1)


def test_plain_dicts_are_objects_too() -> None:
    store: Cache[dict[str, Any]] = Cache({"kind": lambda obj: [obj["kind"]]})
    obj = {"kind": "Thing", "metadata": {"name": "a", "namespace": "default", "resourceVersion": "1", "labels": None}}

    store.apply(Applied(obj))

    assert store.get(key("a")) is obj
    assert store.find_keys("kind", "Thing") == (key("a"),)


NAMES = st.sampled_from("abcd")
THINGS = st.builds(
    lambda name, version, team: thing(name, version, **({"team": team} if team else {})),
    NAMES,
    st.integers(1, 50),
    st.sampled_from(["", "red", "blue"]),
)
EVENTS = st.one_of(
    st.builds(Applied, THINGS),
    st.builds(Deleted, THINGS),
    st.builds(Listed, st.lists(THINGS, unique_by=lambda obj: obj.key)),
    st.builds(PageListed, st.lists(THINGS, unique_by=lambda obj: obj.key)),
    st.builds(lambda names: PagesEnded((frozenset(map(key, names)),)), st.lists(NAMES)),
)


@given(st.lists(EVENTS))
def test_indexes_and_folded_changes_always_agree_with_the_store(events: list[Event[Object]]) -> None:
    store = Cache({"team": by_team})
    folded: dict[ObjectKey, Object | Malformed] = {}

    for event in events:
        for change in store.apply(event):
            if change.new is None:
                del folded[change.key]
            else:
                folded[change.key] = change.new

    keys = store.keys()
    assert {key: store.get(key) for key in keys} == folded
    for team in ("red", "blue"):
        expected = {obj.key for obj in store.objects() if obj.metadata.labels.get("team") == team}
        assert set(store.find_keys("team", team)) == expected
