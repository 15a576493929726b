"""The entries for one store: data and dataTo over the values of one source (contract 1.6; seeds 11, 12)."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from eso_api.values import SecretBytes
from eso_operator.controllers.pushsecret.selection import (
    EntryError,
    deliveries,
    read_key,
    read_keys,
    select,
    select_all,
    selection_for,
    selections,
)
from eso_operator.controllers.pushsecret.snapshot import PushSource
from eso_operator.sources.shape import ShapeError
from eso_testkit.operator.pushsecrets import bulk, chosen, entry, push_secret, revealed, values
from eso_wire.values import SourceSecret

SOURCE = values(user="u", password="p", host="h")
ESCAPED = values(db_U002f_user="u", plain="x")
STORE = chosen("store", team="a")


def selected(source: Any, *data: Any, **spec: Any) -> dict[str, Any]:
    """Payloads by `secretKey -> remoteKey[#property]`."""
    entries = select(selection_for(STORE, push_secret(*data, **spec).spec, source))
    found = {}
    for each in entries:
        place = each.remote.key + (f"#{each.remote.property}" if each.remote.property else "")
        found[f"{each.data.match.secret_key} -> {place}"] = revealed(each.payload)
    assert len(found) == len(entries)
    return found


@pytest.mark.parametrize(
    ("data", "spec", "expected"),
    [
        pytest.param([entry("user", "r")], {}, {"user -> r": "u"}, id="one key"),
        pytest.param([entry("user", "r", "p")], {}, {"user -> r#p": "u"}, id="one key to a property, R14"),
        pytest.param(
            [entry("user", "r", "a"), entry("host", "r", "b")],
            {},
            {"user -> r#a": "u", "host -> r#b": "h"},
            id="two properties of one remote key, R15",
        ),
        pytest.param(
            [entry("", "r")], {}, {" -> r": {"user": "u", "password": "p", "host": "h"}}, id="the whole Secret"
        ),
        pytest.param(
            [],
            {"dataTo": [bulk()]},
            {"user -> user": "u", "password -> password": "p", "host -> host": "h"},
            id="dataTo takes every key",
        ),
        pytest.param(
            [], {"dataTo": [bulk(regexp="ss")]}, {"password -> password": "p"}, id="a match is looked for anywhere"
        ),
        pytest.param([], {"dataTo": [bulk(regexp="^none$")]}, {}, id="a match that finds nothing is no error"),
        pytest.param(
            [],
            {"dataTo": [bulk(regexp="^us", rewrite=[{"regexp": {"source": "^(.*)$", "target": "app/$1"}}])]},
            {"user -> app/user": "u"},
            id="rewrite by expression",
        ),
        pytest.param(
            [],
            {"dataTo": [bulk(regexp="host", rewrite=[{"transform": {"template": "{{ .value | upper }}"}}])]},
            {"host -> HOST": "h"},
            id="rewrite by template",
        ),
        pytest.param(
            [],
            {
                "dataTo": [
                    bulk(regexp="host", rewrite=[{"transform": {"template": '{{ .value }}{{ default "x" .y }}'}}])
                ]
            },
            {"host -> hostx": "h"},
            id="rewrite by template with a field that is not there",
        ),
        pytest.param(
            [],
            {
                "dataTo": [
                    bulk(
                        regexp="host",
                        rewrite=[
                            {"regexp": {"source": "o", "target": "0"}},
                            {"transform": {"template": "x-{{ .value }}"}},
                        ],
                    )
                ]
            },
            {"host -> x-h0st": "h"},
            id="rewrites come one after the other",
        ),
        pytest.param(
            [],
            {"dataTo": [bulk(remoteKey="all")]},
            {" -> all": {"user": "u", "password": "p", "host": "h"}},
            id="a bundle of everything",
        ),
        pytest.param(
            [],
            {"dataTo": [bulk(remoteKey="some", regexp="^(user|host)$")]},
            {" -> some": {"user": "u", "host": "h"}},
            id="a bundle of what matches",
        ),
        pytest.param(
            [],
            {"dataTo": [bulk(remoteKey="all", regexp="user"), bulk(regexp="host")]},
            {" -> all": {"user": "u"}, "host -> host": "h"},
            id="a bundle beside single keys",
        ),
        pytest.param(
            [entry("user", "mine")],
            {"dataTo": [bulk(regexp="user|host")]},
            {"host -> host": "h", "user -> mine": "u"},
            id="data wins over dataTo for the same source key",
        ),
        pytest.param(
            [entry("user", "mine")],
            {"dataTo": [bulk(remoteKey="all", regexp="user")]},
            {" -> all": {"user": "u"}, "user -> mine": "u"},
            id="a single key of data stays in a bundle",
        ),
        pytest.param(
            [entry("", "mine")],
            {"dataTo": [bulk(remoteKey="all")]},
            {" -> mine": {"user": "u", "password": "p", "host": "h"}},
            id="a whole Secret in data displaces a bundle",
        ),
        pytest.param([], {"dataTo": [bulk("elsewhere")]}, {}, id="dataTo of another store is not ours"),
        pytest.param(
            [],
            {"dataTo": [bulk(storeRef={"labelSelector": {"matchLabels": {"team": "a"}}}, regexp="user")]},
            {"user -> user": "u"},
            id="dataTo finds its store by label",
        ),
        pytest.param(
            [],
            {"dataTo": [bulk(storeRef={"labelSelector": {"matchLabels": {"team": "b"}}})]},
            {},
            id="labels of another store do not match",
        ),
        pytest.param(
            [],
            {"dataTo": [bulk(storeRef={"name": "store", "kind": "ClusterSecretStore"})]},
            {},
            id="a store of the same name and another kind is another store",
        ),
    ],
)
def test_entries_of_a_store(data: list[Any], spec: dict[str, Any], expected: dict[str, Any]) -> None:
    assert selected(SOURCE, *data, **spec) == expected


@pytest.mark.parametrize(
    ("data", "spec", "expected"),
    [
        pytest.param(
            [entry("db/user", "r", conversionStrategy="ReverseUnicode")],
            {},
            {"db/user -> r": "u"},
            id="data names keys as they read",
        ),
        pytest.param(
            [entry("", "r", conversionStrategy="ReverseUnicode")],
            {},
            {" -> r": {"db/user": "u", "plain": "x"}},
            id="a whole Secret has its keys as they read",
        ),
        pytest.param(
            [],
            {"dataTo": [bulk(regexp="/", conversionStrategy="ReverseUnicode")]},
            {"db_U002f_user -> db/user": "u"},
            id="dataTo matches keys as they read, and records them as they are",
        ),
        pytest.param(
            [entry("db/user", "mine", conversionStrategy="ReverseUnicode")],
            {"dataTo": [bulk()]},
            {"plain -> plain": "x", "db/user -> mine": "u"},
            id="the same source key is recognised in either spelling",
        ),
    ],
)
def test_escaped_keys(data: list[Any], spec: dict[str, Any], expected: dict[str, Any]) -> None:
    assert selected(ESCAPED, *data, **spec) == expected


@pytest.mark.parametrize(
    ("source", "data", "spec", "path", "words"),
    [
        pytest.param(SOURCE, [entry("no", "r")], {}, "spec.data[0]", 'no key "no"', id="a missing key, E11"),
        pytest.param(
            SOURCE,
            [entry("user", "r"), entry("host", "r")],
            {},
            "spec.data[1]",
            "same place",
            id="two entries of data for one place",
        ),
        pytest.param(
            SOURCE,
            [entry("user", "host")],
            {"dataTo": [bulk(regexp="host")]},
            "spec.data[0]",
            "same place",
            id="data and dataTo for one place",
        ),
        pytest.param(
            SOURCE,
            [],
            {"dataTo": [bulk(rewrite=[{"regexp": {"source": ".*", "target": "one"}}])]},
            "spec.dataTo[0]",
            "same remote key",
            id="two keys that are rewritten into one",
        ),
        pytest.param(
            SOURCE,
            [],
            {"dataTo": [bulk(regexp="user"), bulk(regexp="user")]},
            "spec.dataTo[1]",
            "same remote key",
            id="two rules for one remote key",
        ),
        pytest.param(SOURCE, [], {"dataTo": [bulk(regexp="(")]}, "spec.dataTo[0]", "RE2", id="no expression"),
        pytest.param(
            SOURCE,
            [],
            {"dataTo": [bulk(rewrite=[{"regexp": {"source": "(", "target": ""}}])]},
            "spec.dataTo[0]",
            "rewrite[0]",
            id="no expression in a rewrite",
        ),
        pytest.param(
            SOURCE,
            [],
            {"dataTo": [bulk(rewrite=[{"transform": {"template": "{{ .value | nope }}"}}])]},
            "spec.dataTo[0]",
            "rewrite[0]",
            id="no template in a rewrite",
        ),
        pytest.param(
            SOURCE,
            [],
            {"dataTo": [bulk(rewrite=[{"regexp": {"source": ".*", "target": ""}}])]},
            "spec.dataTo[0]",
            "empty remote key",
            id="a key that is rewritten into nothing",
        ),
        pytest.param(
            values(**{"a_U002f_": "1", "a/": "2"}),
            [],
            {"dataTo": [bulk(conversionStrategy="ReverseUnicode")]},
            "spec.dataTo[0]",
            "both read as",
            id="two keys that read the same",
        ),
        pytest.param(
            SOURCE, [entry("user", "r", metadata="text")], {}, "spec.data[0]", "object", id="metadata that is no object"
        ),
    ],
)
def test_an_entry_that_cannot_be_pushed_is_refused_by_its_path_without_a_value(
    source: Any, data: Any, spec: Any, path: str, words: str
) -> None:
    """E10, E11: the entry is named, no value is."""
    with pytest.raises(EntryError) as refusal:
        select(selection_for(STORE, push_secret(*data, **spec).spec, source))

    assert refusal.value.path == path
    assert words in str(refusal.value)


def test_values_that_are_equal_are_all_pushed() -> None:
    """Seed 12: keys are distinguished, not values."""
    assert selected(values(one="same", two="same"), dataTo=[bulk()]) == {"one -> one": "same", "two -> two": "same"}


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        pytest.param("a_U002f_b", "a/b", id="four digits"),
        pytest.param("_U1f600_", "\U0001f600", id="five digits"),
        pytest.param("_U1F600_", "\U0001f600", id="upper case"),
        pytest.param("_U002_", "_U002_", id="too few digits"),
        pytest.param("_U002f", "_U002f", id="no end"),
        pytest.param("_Ud800_", "\ufffd", id="half a pair is no character"),
        pytest.param("_U002f__U002f_", "//", id="two in a row"),
    ],
)
def test_escapes_become_characters(key: str, expected: str) -> None:
    assert read_key(key, "ReverseUnicode") == expected
    assert read_key(key, "None") == key


def test_keys_that_read_the_same_are_refused() -> None:
    with pytest.raises(ShapeError, match="both read as"):
        read_keys({"_U002f_": 1, "/": 2}, "ReverseUnicode")


class Counted(dict[str, SecretBytes]):
    """A source that counts how often its keys are gone through."""

    rounds = 0

    def __iter__(self) -> Iterator[str]:
        self.rounds += 1
        return super().__iter__()


def test_the_keys_of_a_source_are_read_once_however_many_entries_take_from_it() -> None:
    """A thousand entries of a thousand keys held up every other object for a second, for each store."""
    few, many = Counted(values(user="u")), Counted(values(user="u"))

    select(selection_for(STORE, push_secret(entry("user", "r")).spec, few))
    select(selection_for(STORE, push_secret(*(entry("user", f"r{number}") for number in range(50))).spec, many))

    assert many.rounds == few.rounds


def test_templates_that_rename_keys_are_rendered_by_whoever_bounds_their_time() -> None:
    """Otherwise each has two seconds in the event loop: a slow one stopped the operator."""
    push = push_secret(dataTo=[bulk(rewrite=[{"transform": {"template": "{{ .value }}"}}])])
    rendered: list[tuple[str, str]] = []

    def render(template: str, values: Mapping[str, bytes], *, name: str) -> bytes:
        rendered.append((name, template))
        return b"app/" + values["value"]

    source = PushSource("source", "mark", SourceSecret(), values(user="u"))
    selected = select_all(selections(push, [STORE], [source]), render=render)
    (delivery,) = deliveries(push, [STORE], sources=[source], known={}, selected=selected)

    assert [each.remote.key for each in delivery.entries] == ["app/user"]
    assert rendered == [("transform", "{{ .value }}")]
