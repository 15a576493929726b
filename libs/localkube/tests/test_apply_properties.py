"""Laws that hold for any object: of sets of fields, and of applying."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kubebase.meta import JsonObject
from localkube.patch import apply, track_update
from localkube.patch.fields import checked, difference, intersection, ordered, paths, union, without

NOW = "2026-01-01T00:00:00Z"
S = {"type": "string"}
SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "text": S,
                "map": {"type": "object", "additionalProperties": S},
                "deep": {"type": "object", "properties": {"a": S, "b": {"type": "object", "properties": {"c": S}}}},
                "set": {"type": "array", "items": S, "x-kubernetes-list-type": "set"},
                "keyed": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {"type": "object", "properties": {"name": S, "v": S}},
                },
                "atomic": {"type": "array", "items": S},
                "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        }
    },
}

text = st.sampled_from(["a", "b", "c", 'quo"te', "<&>"])
names = st.sampled_from("pqrs")
anything = st.recursive(
    st.one_of(st.booleans(), st.integers(0, 3), text),
    lambda inner: st.one_of(st.dictionaries(names, inner, max_size=3), st.lists(inner, max_size=2)),
    max_leaves=6,
)


def keyed_items(values: dict[str, str]) -> list[JsonObject]:
    return [{"name": name, "v": value} for name, value in values.items()]


specs = st.fixed_dictionaries(
    {},
    optional={
        "text": text,
        "map": st.dictionaries(names, text, min_size=1, max_size=3),
        "deep": st.fixed_dictionaries({"a": text}, optional={"b": st.fixed_dictionaries({"c": text})}),
        "set": st.lists(text, unique=True, min_size=1, max_size=3),
        "keyed": st.dictionaries(names, text, min_size=1, max_size=3).map(keyed_items),
        "atomic": st.lists(text, max_size=3),
        "any": st.dictionaries(names, anything, min_size=1, max_size=3),
    },
)
steps = st.one_of(st.sampled_from(["f:a", "f:b", "f:c"]), st.sampled_from(['k:{"name":"a"}', 'v:"x"', "v:1", "i:0"]))
nodes: st.SearchStrategy[JsonObject] = st.recursive(
    st.just({}), lambda inner: st.dictionaries(st.one_of(steps, st.just(".")), inner, max_size=3), max_leaves=8
)
field_sets = st.dictionaries(steps, nodes, max_size=3).map(checked)


def thing(spec: JsonObject) -> JsonObject:
    return {"apiVersion": "t.io/v1", "kind": "Thing", "metadata": {"name": "x", "uid": "u"}, "spec": spec}


def applied(live: JsonObject | None, spec: JsonObject, manager: str) -> JsonObject:
    return apply(
        live,
        thing(spec),
        manager=manager,
        force=True,
        schema=SCHEMA,
        now=NOW,
        subresource="",
        api_version="t.io/v1",
    )


def held_by(manager: str, obj: JsonObject) -> set[str]:
    entries = obj["metadata"].get("managedFields", [])
    return set().union(*(members(entry["fieldsV1"]) for entry in entries if entry["manager"] == manager))


def members(fields: JsonObject) -> set[str]:
    return set(paths(fields))


@given(field_sets)
def test_a_set_on_the_wire_reads_back_as_itself(fields: JsonObject) -> None:
    assert checked(ordered(fields)) == fields


@given(field_sets, field_sets)
def test_sets_of_fields_behave_as_sets_of_paths(left: JsonObject, right: JsonObject) -> None:
    assert members(union(left, right)) == members(left) | members(right)
    assert members(intersection(left, right)) == members(left) & members(right)
    assert members(difference(left, right)) == members(left) - members(right)


@given(field_sets, field_sets)
def test_taking_a_field_with_all_below_it_leaves_nothing_under_it(left: JsonObject, right: JsonObject) -> None:
    rest = members(without(left, right))

    assert rest <= members(left) - members(right)
    assert not any(path.startswith((gone + ".", gone + "[")) for path in rest for gone in members(right))


@given(specs, specs)
def test_applying_twice_is_applying_once(first: JsonObject, second: JsonObject) -> None:
    live = applied(applied(None, first, "one"), second, "two")

    assert applied(live, second, "two") is live


@given(specs, specs)
def test_an_applied_configuration_is_in_the_object(first: JsonObject, second: JsonObject) -> None:
    result = applied(applied(None, first, "one"), second, "two")

    assert covers(result["spec"], second)


@given(specs, specs, specs)
def test_an_applier_that_leaves_takes_only_its_own(first: JsonObject, second: JsonObject, third: JsonObject) -> None:
    """A manager that writes fields and drops them again leaves the other manager's fields unchanged."""
    live = applied(applied(None, first, "one"), second, "two")

    result = applied(applied(live, third, "two"), {}, "two")

    assert held_by("one", result) <= held_by("one", live)
    left = result["spec"] or {}
    assert all(key in first or left[key] in (None, [], {}) for key in left)


@given(specs, specs)
def test_after_an_update_every_change_has_an_owner(first: JsonObject, second: JsonObject) -> None:
    live = applied(None, {**first, "text": "held"}, "one")

    result = track_update(
        live,
        thing(second),
        manager="two",
        schema=SCHEMA,
        now=NOW,
        subresource="",
        api_version="t.io/v1",
    )

    fresh = track_update(
        None, thing(second), manager="all", schema=SCHEMA, now=NOW, subresource="", api_version="t.io/v1"
    )
    owned: set[str] = set()
    for entry in result["metadata"].get("managedFields", []):
        owned |= members(entry["fieldsV1"])
    everything = members(fresh["metadata"].get("managedFields", [{"fieldsV1": {}}])[0]["fieldsV1"])
    assert owned <= everything
    assert {path for path in everything - owned if not is_container(path, everything)} == set()


def is_container(path: str, everything: set[str]) -> bool:
    """Appliers hold what is in a map, not the map."""
    return any(other.startswith((path + ".", path + "[")) for other in everything) or path == ".spec"


def covers(found: Any, wanted: Any) -> bool:
    match wanted:
        case dict():
            return isinstance(found, dict) and all(key in found and covers(found[key], wanted[key]) for key in wanted)
        case list() if wanted and isinstance(wanted[0], dict) and "name" in wanted[0]:
            by_name = {item["name"]: item for item in found if isinstance(item, dict) and "name" in item}
            return all(covers(by_name.get(item["name"]), item) for item in wanted)
        case list():
            return all(item in found for item in wanted)
        case _:
            return bool(found == wanted)
