"""YAML as plain values: the scalars of go-yaml v2, bounds, dialects, and messages without content."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import Any

import pytest

from kubebase.yamlvalues import Rules, YamlBoundError, YamlError, read_all, read_first, read_one, text_scalar


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("1", 1, id="whole number"),
        pytest.param("+1", 1, id="sign"),
        pytest.param("1_000", 1000, id="underscores"),
        pytest.param("0777", 511, id="octal by leading zero"),
        pytest.param("0o17", 15, id="octal by letter"),
        pytest.param("0x1F", 31, id="hexadecimal"),
        pytest.param("-0b11", -3, id="binary"),
        pytest.param("08", 8.0, id="no octal number is a float"),
        pytest.param("18446744073709551615", 18446744073709551615, id="largest unsigned number"),
        pytest.param("18446744073709551616", 18446744073709551616.0, id="larger numbers are floats"),
        pytest.param("1.50", 1.5, id="float"),
        pytest.param("1e3", 1000.0, id="float by exponent alone"),
        pytest.param(".5", 0.5, id="float without leading zero"),
        pytest.param("1.", 1.0, id="float without fraction"),
        pytest.param("1e999", "1e999", id="a number beyond all bounds is text"),
        pytest.param("1" * 5000, "1" * 5000, id="and so is one of many digits"),
        pytest.param("1:30", "1:30", id="no base 60"),
        pytest.param("2024-01-01", "2024-01-01", id="a date is text"),
        pytest.param("y", True, id="y is true"),
        pytest.param("NO", False, id="NO is false"),
        pytest.param("yEs", "yEs", id="other capitals are text"),
        pytest.param("~", None, id="tilde is null"),
        pytest.param("", None, id="nothing is null"),
        pytest.param("'yes'", "yes", id="quotes make text"),
        pytest.param("!!str 5", "5", id="a tag makes text"),
        pytest.param("!!binary aGk=", "hi", id="binary is decoded"),
        pytest.param("!!float 5", 5.0, id="a tag makes a float"),
        pytest.param(".", ".", id="a dot is text"),
        pytest.param("-", [None], id="a dash is a list"),
        pytest.param("{1: p, yes: q, 1.5: r}", {"1": "p", "true": "q", "1.5": "r"}, id="keys become text"),
        pytest.param("a: 1\na: 2", {"a": 2}, id="the last of two keys counts"),
        pytest.param("a: &x [1]\nb: *x", {"a": [1], "b": [1]}, id="aliases"),
        pytest.param("b: &b {k: v}\nd:\n  <<: *b\n  k: w", {"b": {"k": "v"}, "d": {"k": "w"}}, id="merge keys"),
        pytest.param(
            "d: {<<: [{a: 1}, {a: 2, b: 3}]}", {"d": {"a": 1, "b": 3}}, id="the first of several merged maps wins"
        ),
        pytest.param("a: 1\n---\nb: 2", {"a": 1}, id="the first of several documents"),
    ],
)
def test_a_document_is_read_as_go_tools_read_it(text: str, expected: Any) -> None:
    value = read_first(text.encode())

    assert value == expected
    assert type(value) is type(expected)


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "\n".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 10)}]" for before, name in zip("abcdefg", "bcdefgh", strict=True)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(b"hush: [1", "did not find expected", id="broken YAML"),
        pytest.param(b"hush: a: b", "line 1", id="a map in a scalar"),
        pytest.param(b"a: \xffhush", "not UTF-8", id="binary data"),
        pytest.param(b"a: \x01hush", "control characters", id="control characters"),
        pytest.param(b"a: *hush", "alias without an anchor", id="an alias to nothing"),
        pytest.param(b"a: &x [*x, hush]", "alias without an anchor", id="an alias to itself"),
        pytest.param(b"? [hush]\n: 1", "a key must be", id="a list as key"),
        pytest.param(b"~: hush", "a key must be", id="null as key"),
        pytest.param(b"<<: hush", "only maps can be merged", id="text merged"),
        pytest.param(b"a: !!int hush", "does not fit its tag", id="a tag that does not fit"),
        pytest.param(b"a: !!binary =hush", "must be Base64", id="binary that is none"),
        pytest.param(b"a: !hush b", "an unknown tag", id="an unknown tag"),
        pytest.param(b"a: !!hush [b]", "an unknown tag", id="an unknown tag of a list"),
        pytest.param(BOMB.encode(), "more than", id="aliases that multiply"),
        pytest.param(b"[" * 102, "nested", id="deep nesting"),
        pytest.param(b"[" * 200_000, "", id="very deep nesting"),
    ],
)
def test_bad_yaml_is_refused_without_showing_it(text: bytes, message: str) -> None:
    with pytest.raises(YamlError) as refused:
        read_first(text)

    assert message in str(refused.value)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        pytest.param("a: 1\nb: [hush", (3, 1), id="broken YAML"),
        pytest.param("a: 1\nb: {c: *hush}", (2, 8), id="an alias to nothing"),
        pytest.param("a: 1\n  \nb: !!int hush", (3, 4), id="a tag that does not fit"),
        pytest.param("a: 1\n[hush]: 2", (2, 1), id="a list as key"),
        pytest.param("a:\n  <<: hush", (2, 3), id="text merged"),
    ],
)
def test_an_error_names_line_and_column(text: str, where: tuple[int, int]) -> None:
    with pytest.raises(YamlError) as refused:
        read_all(text.encode())

    assert (refused.value.line, refused.value.column) == where
    assert str(refused.value).startswith(f"line {where[0]}, column {where[1]}: ")


@pytest.mark.parametrize(
    ("text", "rules", "message"),
    [
        pytest.param("[[1]]", Rules(depth=1), "nested more than 1", id="depth"),
        pytest.param("[1, 2]", Rules(nodes=2), "more than 2 values", id="values"),
        pytest.param("a: &a [1]\nb: *a", Rules(nodes=6), "more than 6 values", id="values that aliases stand for"),
        pytest.param("a\n---\nb", Rules(nodes=1), "more than 1 values", id="values of all documents together"),
    ],
)
def test_bounds_are_parameters(text: str, rules: Rules, message: str) -> None:
    with pytest.raises(YamlBoundError, match=message):
        read_all(text.encode(), rules)


def test_a_text_within_its_bounds_is_read() -> None:
    text = b"a: &a [1]\nb: *a"

    assert read_one(text, Rules(size=len(text), depth=2, nodes=7)) == {"a": [1], "b": [1]}


def test_a_text_of_too_many_bytes_is_refused() -> None:
    with pytest.raises(YamlError, match="more than 4 bytes"):
        read_first(b"hush!", Rules(size=4))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("007", "007", id="digits stay text"),
        pytest.param("yes", "yes", id="words stay text"),
        pytest.param("1.50", "1.50", id="floats stay text"),
        pytest.param("~", None, id="null is null"),
        pytest.param("", None, id="nothing is null"),
        pytest.param("'~'", "~", id="unless it is quoted"),
        pytest.param("!!str ~", "~", id="or tagged as text"),
        pytest.param("{1: {<<: {a: 2}}}", {"1": {"a": "2"}}, id="keys and merged maps too"),
    ],
)
def test_scalars_can_stay_text(text: str, expected: Any) -> None:
    assert read_first(text.encode(), Rules(scalar=text_scalar)) == expected


@pytest.mark.parametrize(
    ("text", "key"),
    [
        pytest.param(b"1.5: x", "<1.5>", id="a float"),
        pytest.param(b"15: x", "15", id="but no whole number"),
    ],
)
def test_the_text_of_float_keys_is_a_parameter(text: bytes, key: str) -> None:
    assert read_first(text, Rules(float_key=lambda number: f"<{number}>")) == {key: "x"}


def test_keys_that_are_no_finite_number_keep_their_names() -> None:
    assert list(read_first(b"{.inf: 1, -.inf: 2, .nan: 3}")) == [".inf", "-.inf", ".nan"]


@pytest.mark.parametrize(
    "encoded",
    [
        pytest.param("a: \u00e9".encode(), id="UTF-8"),
        pytest.param("a: \u00e9".encode("utf-8-sig"), id="UTF-8 with a mark"),
        pytest.param(codecs.BOM_UTF16_LE + "a: \u00e9".encode("utf-16-le"), id="UTF-16"),
        pytest.param(codecs.BOM_UTF16_BE + "a: \u00e9".encode("utf-16-be"), id="UTF-16, big end first"),
    ],
)
def test_the_encodings_of_editors_are_read(encoded: bytes) -> None:
    assert read_first(encoded) == {"a": "\u00e9"}


def test_unknown_tags_can_be_ignored_as_go_does() -> None:
    rules = Rules(ignores_unknown_tags=True)

    assert read_first(b"{a: !x 5, b: !x [5], c: !!y {d: 5}}", rules) == {"a": "5", "b": [5], "c": {"d": 5}}


def test_tags_that_say_what_is_there_change_nothing() -> None:
    assert read_first(b"!!map {a: !!seq [!!str b, !!bool yes, ! 5]}") == {"a": ["b", True, "5"]}


def test_all_documents_of_a_file_are_read() -> None:
    assert read_all(b"a: 1\n---\n---\n- x\n...\n") == [{"a": 1}, None, ["x"]]
    assert read_all(b"# nothing") == []


@pytest.mark.parametrize("read", [read_first, read_one])
def test_a_text_without_a_document_is_none(read: Callable[[bytes], Any]) -> None:
    assert read(b"# nothing") is None


def test_a_second_document_is_refused_where_one_is_expected() -> None:
    with pytest.raises(YamlError, match="more than one document"):
        read_one(b"a: 1\n---\nb: 2")


def test_an_anchor_ends_with_its_document() -> None:
    with pytest.raises(YamlError, match="line 3, column 4: an alias"):
        read_all(b"a: &x 1\n---\nb: *x")
