"""The YAML of rendered text: scalars as go-yaml v2 reads them, flat maps as text, bounds, and silence about content."""

from __future__ import annotations

from typing import Any

import pytest

from eso_render.yamldata import MAX_DEPTH, YamlError, document, documents, flat_map


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
        pytest.param("!other 5", "5", id="an unknown tag makes text"),
        pytest.param(".", ".", id="a dot is text"),
        pytest.param("-", [None], id="a dash is a list"),
        pytest.param("{1: p, yes: q, 1.5: r}", {"1": "p", "true": "q", "1.5": "r"}, id="keys become text"),
        pytest.param("a: 1\na: 2", {"a": 2}, id="the last of two keys counts"),
        pytest.param("a: &x [1]\nb: *x", {"a": [1], "b": [1]}, id="aliases"),
        pytest.param("b: &b {k: v}\nd:\n  <<: *b\n  k: w", {"b": {"k": "v"}, "d": {"k": "w"}}, id="merge keys"),
        pytest.param(
            "d: {<<: [{a: 1}, {a: 2, b: 3}]}", {"d": {"a": 1, "b": 3}}, id="the first of several merged maps wins"
        ),
        pytest.param("a: 1\n---\nb: 2", {"a": 1}, id="document reads the first of several"),
    ],
)
def test_a_document_is_read_as_go_tools_read_it(text: str, expected: Any) -> None:
    value = document(text.encode())

    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "a: 1\nb: yes\nc: 0777\nd: 1.50", {"a": "1", "b": "true", "c": "511", "d": "1.5"}, id="T10: the four"
        ),
        pytest.param(
            "a: 1.234567891\nb: 1234567.5\nc: 0.1\nd: 1e300\ne: 0.00001\nf: 0.0",
            {"a": "1.2345679", "b": "1.2345675e+06", "c": "0.1", "d": "+Inf", "e": "1e-05", "f": "0"},
            id="floats are squeezed through 32 bits",
        ),
        pytest.param("a: null\nb:", {"a": "", "b": ""}, id="null is empty"),
        pytest.param("a: .inf\nb: .nan", {"a": "+Inf", "b": "NaN"}, id="floats that are no numbers"),
        pytest.param("", {}, id="an empty text is an empty map"),
        pytest.param("# comment", {}, id="and so is a comment"),
        pytest.param("a: 12:30:45", {"a": "12:30:45"}, id="no base 60"),
    ],
)
def test_a_flat_map_is_read_as_text(text: str, expected: dict[str, str]) -> None:
    assert flat_map(text.encode()) == expected


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "\n".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 10)}]" for before, name in zip("abcdefg", "bcdefgh", strict=True)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(b"hush: [1", "did not find expected", id="broken YAML"),
        pytest.param(b"hush: a: b", "line 1", id="a map in a scalar"),
        pytest.param(b"- hush", "a YAML map of keys and values", id="a list"),
        pytest.param(b"hush", "a YAML map of keys and values", id="a scalar"),
        pytest.param(b"a: \xffhush", "not UTF-8", id="binary data"),
        pytest.param(b"a: \x01hush", "control characters", id="control characters"),
        pytest.param(b"a: *hush", "alias without an anchor", id="an alias to nothing"),
        pytest.param(b"a: &x [*x, hush]", "alias without an anchor", id="an alias to itself"),
        pytest.param(b"? [hush]\n: 1", "a key must be", id="a list as key"),
        pytest.param(b"~: hush", "a key must be", id="null as key"),
        pytest.param(b"<<: hush", "only maps can be merged", id="text merged"),
        pytest.param(b"a: !!int hush", "does not fit its tag", id="a tag that does not fit"),
        pytest.param(b"a: !!binary =hush", "must be Base64", id="binary that is none"),
        pytest.param(BOMB.encode(), "more than", id="aliases that multiply"),
        pytest.param(b"[" * (MAX_DEPTH + 2), "nested", id="deep nesting"),
        pytest.param(b"[" * 200_000, "", id="very deep nesting"),
    ],
)
def test_bad_yaml_is_refused_without_showing_it(text: bytes, message: str) -> None:
    with pytest.raises(YamlError) as refused:
        flat_map(text)

    assert message in str(refused.value)
    assert "hush" not in str(refused.value)


def test_a_document_refuses_numbers_that_json_cannot_hold() -> None:
    with pytest.raises(YamlError, match="JSON"):
        document(b"a: .inf")


def test_all_documents_of_a_file_are_read() -> None:
    assert documents(b"a: 1\n---\n---\n- x\n...\n") == [{"a": 1}, None, ["x"]]
    assert documents(b"# nothing") == []


def test_an_anchor_ends_with_its_document() -> None:
    with pytest.raises(YamlError, match="line 3: an alias"):
        documents(b"a: &x 1\n---\nb: *x")
