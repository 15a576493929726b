"""JSONPath: what a path finds, what cannot be read, and the bounds."""

from __future__ import annotations

from typing import Any

import pytest

from eso_provider_webhook import jsonpath
from eso_provider_webhook.jsonpath import MissingError, PathError, parsed

BOOKS: list[dict[str, Any]] = [
    {"title": "A", "price": 5, "tags": ["x"], "sold": True},
    {"title": "B", "price": 12.5, "isbn": "1-2", "sold": False},
    {"title": "C", "price": "12", "isbn": None},
]
DOCUMENT = {"store": {"books": BOOKS, "bicycle": {"price": 20}}, "limit": 10, "a b": 1, "it's": 2, "öl": 3}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        pytest.param("", DOCUMENT, id="nothing is the whole document"),
        pytest.param(" $ ", DOCUMENT, id="the root"),
        pytest.param("$.store.bicycle.price", 20, id="members"),
        pytest.param("$.store.books[-1].title", "C", id="an entry from the end"),
        pytest.param("$['a b']", 1, id="single quotes"),
        pytest.param('$[ "it\'s" ]', 2, id="double quotes"),
        pytest.param(r"$['it\'s']", 2, id="an escaped quote"),
        pytest.param("$.öl", 3, id="a name that is not ASCII"),
        pytest.param("$.store.books[*].title", ["A", "B", "C"], id="every entry"),
        pytest.param("$.store.books.*.title", ["A", "B", "C"], id="every entry, with a dot"),
        pytest.param("$.store.bicycle.*", [20], id="every member"),
        pytest.param("$..price", [5, 12.5, "12", 20], id="any depth"),
        pytest.param("$.store..[0].title", ["A"], id="any depth, with brackets"),
        pytest.param("$.store.bicycle..*", [20], id="everything below"),
        pytest.param("$.store.books[0,2].title", ["A", "C"], id="a union of entries"),
        pytest.param("$['limit','absent']", [10], id="a union leaves out absent members"),
        pytest.param("$.store.books[1:].title", ["B", "C"], id="a slice to the end"),
        pytest.param("$.store.books[:1].title", ["A"], id="a slice from the start"),
        pytest.param("$.store.books[::2].title", ["A", "C"], id="a slice with steps"),
        pytest.param("$.store.books[::-1].title", ["C", "B", "A"], id="a slice backwards"),
        pytest.param("$.limit[0:1]", [], id="a slice of a number"),
        pytest.param("$.store.books[*].absent", [], id="several places without the member"),
        pytest.param('$.store.books[?@.title=="B"].price', [12.5], id="a filter"),
        pytest.param("$.store.books[?(@.title == 'B')].price", [12.5], id="a filter in parentheses"),
        pytest.param("$.store.books[?@.price < $.limit].title", ["A"], id="a filter that looks at the document"),
        pytest.param("$.store.books[?@.price >= 12.5].title", ["B"], id="a number is never compared with a text"),
        pytest.param("$.store.books[?@.price != 5].title", ["B", "C"], id="a filter by difference"),
        pytest.param("$.store.books[?@.isbn == null].title", ["C"], id="null is a value, absence is not"),
        pytest.param("$.store.books[?@.sold].title", ["A"], id="a path alone holds if its value is true"),
        pytest.param("$.store.books[?!@.sold].title", ["B", "C"], id="negation"),
        pytest.param("$.store.books[?@.price==5 || @.title=='C'].title", ["A", "C"], id="or"),
        pytest.param("$.store.books[?@.price==5 && @.title=='C'].title", [], id="and"),
        pytest.param("$.store.books[?!(@.price==5 || @.title=='C')].title", ["B"], id="a negated group"),
        pytest.param("$.store.books[?@.tags[0]=='x'].title", ["A"], id="a path of several steps in a filter"),
        pytest.param("$.store.books[?@.sold == 1].title", [], id="true is not 1"),
        pytest.param("$.store[?@.price == 20]", [{"price": 20}], id="members of an object by their value"),
        pytest.param("$.store.books[?@.title > 'B' && @.title <= 'C'].title", ["C"], id="texts in order"),
        pytest.param("$.store.books[?@.price == 1.25e1].title", ["B"], id="a number with an exponent"),
    ],
)
def test_a_path_selects_these_values(path: str, found: object) -> None:
    assert parsed(path).select(DOCUMENT) == found


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("$.absent.below", "$['absent']"),
        ("$.store.books[3]", "$['store']['books'][3]"),
        ("$.limit.digits", "$['limit']['digits']"),
        ("$.store[0]", "$['store'][0]"),
        ("$.store.books['title']", "$['store']['books']['title']"),
    ],
)
def test_a_path_to_one_place_says_where_the_document_ends(path: str, where: str) -> None:
    with pytest.raises(MissingError) as caught:
        parsed(path).select(DOCUMENT)

    assert str(caught.value) == where


@pytest.mark.parametrize(
    ("path", "words"),
    [
        pytest.param("store", "must begin with $", id="no dollar sign"),
        pytest.param("$store", "character 2", id="no dot"),
        pytest.param("$.", "character 3", id="nothing after the dot"),
        pytest.param("$.a b", "character 4", id="a space"),
        pytest.param("$[", "character 3", id="an open bracket"),
        pytest.param("$[]", "character 3", id="empty brackets"),
        pytest.param("$['a", "character 3", id="an open quote"),
        pytest.param("$['a':2]", "character 6", id="a slice from a name"),
        pytest.param("$[::0]", "step of 0", id="a slice that never moves"),
        pytest.param("$[?]", "character 4", id="an empty filter"),
        pytest.param("$[?@.a ==]", "character 10", id="half a comparison"),
        pytest.param("$[?(@.a == 1]", "character 13", id="an open parenthesis"),
        pytest.param("$[1.5]", "character 3", id="a fraction as an index"),
        pytest.param("$" + ".a" * 65, "more than 64 steps", id="too many steps"),
        pytest.param("$[?" + "!" * 17 + "@.a]", "nested more than 16 times", id="too many negations"),
        pytest.param("$[?" + "(" * 17, "nested more than 16 times", id="too many parentheses"),
        pytest.param("$." + "a" * 4096, "more than 4096 characters", id="too long"),
    ],
)
def test_an_invalid_path_is_refused_with_its_place(path: str, words: str) -> None:
    with pytest.raises(PathError, match=words.replace("$", r"\$")):
        parsed(path)


@pytest.mark.parametrize("path", ["$..*..*..*", "$..*[?1==2]", "$[?$..a == 1]"])
def test_a_path_that_looks_at_too_much_fails_instead_of_running_on(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(jsonpath, "MAX_VISITED", 1000)
    document = [[{"a": number} for number in range(50)] for _ in range(20)]

    with pytest.raises(PathError, match="more than 1000 places"):
        parsed(path).select(document)


def test_only_a_path_of_names_and_numbers_leads_to_one_place() -> None:
    assert parsed("$.a['b'][0]").is_single
    assert not any(parsed(path).is_single for path in ("$.*", "$..a", "$[0,1]", "$[1:]", "$[?@.a]"))
