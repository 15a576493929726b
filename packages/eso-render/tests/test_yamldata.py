"""The YAML of rendered text: JSON values, flat maps as text. `kubebase` tests the reader."""

from __future__ import annotations

import pytest

from eso_render.templates import document, documents, flat_map
from kubebase.yamlvalues import YamlError


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


@pytest.mark.parametrize("text", [b"- hush", b"hush"], ids=["a list", "a scalar"])
def test_a_flat_map_must_be_a_map(text: bytes) -> None:
    with pytest.raises(YamlError, match="a YAML map of keys and values") as refused:
        flat_map(text)

    assert "hush" not in str(refused.value)


def test_a_document_refuses_numbers_that_json_cannot_hold() -> None:
    with pytest.raises(YamlError, match="JSON"):
        document(b"a: .inf")


def test_unknown_tags_are_ignored_as_in_go() -> None:
    assert document(b"a: !other 5") == {"a": "5"}


def test_keys_that_are_floats_are_squeezed_through_32_bits() -> None:
    assert document(b"{1.234567891: a, 1e300: b, .nan: c}") == {"1.2345679": "a", ".inf": "b", ".nan": "c"}


def test_a_document_is_the_first_and_documents_are_all() -> None:
    text = b"a: 1\n---\nb: 2"

    assert (document(text), documents(text)) == ({"a": 1}, [{"a": 1}, {"b": 2}])
