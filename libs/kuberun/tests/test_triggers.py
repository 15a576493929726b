"""Predicates and mappings over one change."""

from collections.abc import Iterable

import pytest

from kubebase.meta import Malformed, Object, ObjectKey, ObjectMeta, OwnerReference
from kuberun.cache import Change, Origin
from kuberun.triggers import (
    EventHandler,
    Predicate,
    all_of,
    annotations_changed,
    any_of,
    created,
    deleted,
    deletion_started,
    generation_changed,
    itself,
    labels_changed,
    owner,
    resynced,
    when,
)
from kuberun.workqueue import Lane

KEY = ObjectKey("default", "a")


def thing(
    *,
    generation: int = 1,
    uid: str = "u",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    deleting: str | None = None,
    owners: Iterable[OwnerReference] = (),
) -> Object:
    return Object(
        metadata=ObjectMeta(
            name="a",
            namespace="default",
            uid=uid,
            generation=generation,
            labels=labels or {},
            annotations=annotations or {},
            deletion_timestamp=deleting,
            owner_references=[*owners],
        )
    )


OLD = thing()
MALFORMED = Malformed(thing(generation=2).metadata, "spec.x: expected an integer")


def change(new: Object | Malformed | None, old: Object | None = OLD, origin: Origin = Origin.WATCHED) -> Change[Object]:
    return Change(KEY, old, new, origin)


@pytest.mark.parametrize(
    ("predicate", "what", "expected"),
    [
        pytest.param(created, change(thing(), None), True, id="created: new object"),
        pytest.param(created, change(thing(uid="v")), True, id="created: another object under the name"),
        pytest.param(created, change(thing(generation=2)), False, id="created: not for a change"),
        pytest.param(deleted, change(None), True, id="deleted: gone"),
        pytest.param(
            deleted, change(thing(deleting="2030-01-01T00:00:00Z")), False, id="deleted: not while it lingers"
        ),
        pytest.param(generation_changed, change(thing(generation=2)), True, id="generation: spec changed"),
        pytest.param(generation_changed, change(thing(labels={"x": "y"})), False, id="generation: not for labels"),
        pytest.param(generation_changed, change(thing(), None), True, id="generation: new object"),
        pytest.param(generation_changed, change(MALFORMED), True, id="generation: became malformed"),
        pytest.param(labels_changed, change(thing(labels={"x": "y"})), True, id="labels: changed"),
        pytest.param(labels_changed, change(thing(annotations={"x": "y"})), False, id="labels: not for annotations"),
        pytest.param(annotations_changed, change(thing(annotations={"x": "y"})), True, id="annotations: changed"),
        pytest.param(annotations_changed, change(thing()), False, id="annotations: same"),
        pytest.param(deletion_started, change(thing(deleting="2030-01-01T00:00:00Z")), True, id="deletion: started"),
        pytest.param(deletion_started, change(None), False, id="deletion: not when it is over"),
        pytest.param(
            deletion_started,
            change(thing(deleting="2030-01-01T00:00:00Z"), thing(deleting="2030-01-01T00:00:00Z")),
            False,
            id="deletion: only when it starts",
        ),
        pytest.param(resynced, change(OLD, OLD, Origin.RESYNCED), True, id="resynced"),
        pytest.param(any_of(created, labels_changed), change(thing(labels={"x": "y"})), True, id="any of: one holds"),
        pytest.param(all_of(created, labels_changed), change(thing(labels={"x": "y"})), False, id="all of: one fails"),
    ],
)
def test_predicates(predicate: Predicate[Object], what: Change[Object], expected: bool) -> None:
    assert predicate(what) is expected


@pytest.mark.parametrize(
    ("what", "lane"),
    [
        pytest.param(change(thing(), None), Lane.FIRST_SYNC, id="a new object is synced first"),
        pytest.param(change(thing(generation=2)), Lane.SPEC_CHANGE, id="a spec change comes second"),
        pytest.param(change(thing(deleting="2030-01-01T00:00:00Z")), Lane.SPEC_CHANGE, id="a deletion likewise"),
        pytest.param(change(thing(labels={"x": "y"})), Lane.EVENT, id="other changes are events"),
        pytest.param(change(None), Lane.SPEC_CHANGE, id="an object that is gone"),
        pytest.param(
            change(thing(), None, Origin.LISTED), Lane.REFRESH, id="what was there at start lets new objects pass"
        ),
        pytest.param(change(OLD, OLD, Origin.RESYNCED), Lane.REFRESH, id="a resync is routine"),
    ],
)
def test_lanes_of_an_objects_own_changes(what: Change[Object], lane: Lane) -> None:
    [request] = itself()(what)

    assert (request.key, request.lane) == (KEY, lane)


def test_a_mapping_may_choose_its_own_lanes() -> None:
    mapping: EventHandler[Object] = itself(lambda _: Lane.EVENT)

    [request] = mapping(change(thing(), None, Origin.LISTED))

    assert request.lane is Lane.EVENT


def reference(name: str, *, kind: str = "Owner", group: str = "example.com", controller: bool = True) -> OwnerReference:
    return OwnerReference(api_version=f"{group}/v1", kind=kind, name=name, uid="o", controller=controller)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param([], [reference("x")], ["x"], id="the controlling owner"),
        pytest.param([reference("x")], [reference("y")], ["x", "y"], id="the former owner hears of it too"),
        pytest.param([], [reference("x", controller=False)], [], id="not an owner that does not control"),
        pytest.param([], [reference("x", kind="Other")], [], id="not an owner of another kind"),
        pytest.param([], [reference("x", group="other.org")], [], id="not a kind of the same name elsewhere"),
    ],
)
def test_owner(old: list[OwnerReference], new: list[OwnerReference], expected: list[str]) -> None:
    mapping = owner("Owner", group="example.com")

    requests = mapping(change(thing(owners=new), thing(owners=old)))

    assert [request.key for request in requests] == [ObjectKey("default", name) for name in expected]


def test_a_deleted_object_still_leads_to_its_owner() -> None:
    [request] = owner("Owner")(change(None, thing(owners=[reference("x")])))

    assert request.key == ObjectKey("default", "x")
    assert request.reason == "owned default/a deleted"


def test_when_lets_only_changes_through_that_matter() -> None:
    mapping = when(generation_changed, itself())

    assert list(mapping(change(thing(labels={"x": "y"})))) == []
    assert len(list(mapping(change(thing(generation=2))))) == 1
