"""Selectors match as kube-apiserver's do and refuse bad text in its words (all messages observed)."""

from __future__ import annotations

import pytest

from kubebase.meta import JsonObject, Resource
from localkube.errors import StatusError
from localkube.model import ServedKind
from localkube.selectors import Selector, parse_field_selector, parse_label_selector

NAME_PART = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
LABEL = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
KIND = ServedKind(
    resource=Resource("t.io", "v1", "things", "Thing"),
    schema=None,  # type: ignore[arg-type] # not looked at
    singular="thing",
    list_kind="ThingList",
    storage_version="v1",
    selectable={"spec.text": "spec.text", "spec.count": ".spec.count", "spec.flag": "spec.flag", "type": "type"},
)


def labelled(**labels: str) -> JsonObject:
    return {"metadata": {"name": "x", "labels": labels}}


@pytest.mark.parametrize(
    ("text", "labels", "expected"),
    [
        pytest.param("", {"a": "b"}, True, id="nothing asked"),
        pytest.param("  ", {}, True, id="only blanks"),
        pytest.param("a=b", {"a": "b"}, True, id="equal"),
        pytest.param("a=b", {"a": "c"}, False, id="not equal"),
        pytest.param("a=b", {}, False, id="absent is not equal"),
        pytest.param("a==b", {"a": "b"}, True, id="two signs mean the same"),
        pytest.param("a=", {"a": ""}, True, id="the empty value"),
        pytest.param("a!=b", {"a": "c"}, True, id="unequal"),
        pytest.param("a!=b", {}, True, id="absent is unequal"),
        pytest.param("a in (b,c)", {"a": "c"}, True, id="in"),
        pytest.param("a in (b,)", {"a": ""}, True, id="a comma with nothing after it means the empty value"),
        pytest.param("a in (,b)", {"a": ""}, True, id="so does one with nothing before it"),
        pytest.param("a in ()", {"a": ""}, True, id="and so does nothing at all"),
        pytest.param("a notin (b,c)", {"a": "c"}, False, id="notin"),
        pytest.param("a notin (b)", {}, True, id="absent is not in"),
        pytest.param("a", {"a": ""}, True, id="exists"),
        pytest.param("a", {}, False, id="does not exist"),
        pytest.param("!a", {}, True, id="must not exist"),
        pytest.param("a>1", {"a": "2"}, True, id="greater"),
        pytest.param("a<2", {"a": "x"}, False, id="text is no number"),
        pytest.param("a = b , x.io/c", {"a": "b", "x.io/c": "1"}, True, id="blanks and several requirements"),
        pytest.param("a,b in (c),!d", {"a": "1", "b": "c", "d": ""}, False, id="all must hold"),
        pytest.param("in in (in),notin=notin", {"in": "in", "notin": "notin"}, True, id="keywords as names"),
    ],
)
def test_labels_match(text: str, labels: dict[str, str], expected: bool) -> None:
    assert parse_label_selector(text).matches(labelled(**labels)) is expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in", "unable to parse requirement: found '' expected: '('"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
        ("a in ((b)", "unable to parse requirement: found '(', expected: ',', ')' or identifier"),
        ("a=b,", "found '', expected: identifier after ','"),
        ("a=b,,c", "found ',', expected: identifier after ','"),
        (",a", "found ',', expected: !, identifier, or 'end of string'"),
        ("=b", "found '=', expected: !, identifier, or 'end of string'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a!b", "unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a===b", "unable to parse requirement: found '=', expected: identifier"),
        ("a=(b)", "unable to parse requirement: found '(', expected: identifier"),
        ("-a", f'unable to parse requirement: <nil>: Invalid value: "-a": {NAME_PART}'),
        ("a=-b", f'unable to parse requirement: values[0][a]: Invalid value: "-b": {LABEL}'),
        (
            "a<x",
            (
                "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, "
                "the value must be an integer"
            ),
        ),
    ],
)
def test_label_selectors_that_make_no_sense(text: str, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        parse_label_selector(text)

    assert (caught.value.code, caught.value.reason, caught.value.message) == (400, "BadRequest", message)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("metadata.name=x", True, id="name"),
        pytest.param("metadata.name==x,metadata.namespace=n", True, id="several"),
        pytest.param("metadata.name!=x", False, id="unequal"),
        pytest.param("spec.text=hello", True, id="text"),
        pytest.param("spec.count=3", True, id="a number as text"),
        pytest.param("spec.flag=true", True, id="a boolean as text"),
        pytest.param("type=", True, id="what is absent is empty"),
        pytest.param("metadata.name=x,", True, id="a comma too many"),
        pytest.param("spec.text=a\\,b", False, id="an escaped comma"),
    ],
)
def test_fields_match(text: str, expected: bool) -> None:
    obj = {"metadata": {"name": "x", "namespace": "n"}, "spec": {"text": "hello", "count": 3, "flag": True}}

    assert parse_field_selector(text, KIND).matches(obj) is expected


def test_an_escaped_value_is_compared_without_its_escapes() -> None:
    selector = parse_field_selector("spec.text=a\\,b\\=c\\\\d", KIND)

    assert selector.matches({"metadata": {}, "spec": {"text": "a,b=c\\d"}})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("foo=bar", "field label not supported: foo"),
        ("spec.text=a,foo=b,bar=c", "field label not supported: bar"),
        ("=a", "field label not supported: "),
        (" metadata.name=a", "field label not supported:  metadata.name"),
        (".spec.text=b", "field label not supported: .spec.text"),
        ("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
        ("metadata.name in (a)", "invalid selector: 'metadata.name in (a)'; can't understand 'metadata.name in (a)'"),
        ("metadata.name=a\\x", "invalid field selector: invalid escape sequence: \\x"),
        ("metadata.name=a\\", "invalid field selector: invalid escape sequence: \\"),
        ("metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
    ],
)
def test_field_selectors_that_make_no_sense(text: str, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        parse_field_selector(text, KIND)

    assert (caught.value.code, caught.value.message) == (400, message)


def test_selectors_combine() -> None:
    both = parse_label_selector("a=b") & parse_field_selector("metadata.name=x", KIND)

    assert both.matches(labelled(a="b"))
    assert not both.matches(labelled(a="c"))
    assert not both.everything
    assert Selector().everything
    assert parse_field_selector(",", KIND).everything
