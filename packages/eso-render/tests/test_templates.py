"""Rendering pieces into an object: targets, scopes, decoding, and errors with their path."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from eso_api.values import SecretBytes
from eso_render import render_text
from eso_render.errors import TargetError, TemplatePath
from eso_render.templates import Piece, RenderedObject, Scope, render_into

CANARY = "CANARY-7f3a"
VALUES = {"user": SecretBytes(b"ada"), "secret": SecretBytes(CANARY.encode()), "bin": SecretBytes(b"\xff\x00\xfe")}


class Page(RenderedObject):
    """An object that records writes."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}
        self._labels: dict[str, str] = {}
        self._annotations: dict[str, str] = {}
        self.other: list[tuple[str, Any]] = []

    @property
    def labels(self) -> dict[str, str]:
        return self._labels

    @property
    def annotations(self) -> dict[str, str]:
        return self._annotations

    def put_data(self, key: str, value: bytes, /) -> None:
        self.data[key] = value

    def put_at(self, target: str, _key: str, value: bytes, /) -> None:
        self.other.append((target, value))

    def put_document_at(self, target: str, content: Any, /) -> None:
        self.other.append((target, content))


def piece(text: str, *, target: str = "Data", scope: Scope = Scope.VALUES, decoding: str = "None") -> Piece:
    return Piece("key", text, target, scope, decoding, TemplatePath(("data", "key")))


def rendered(*pieces: Piece) -> Page:
    page = Page()
    render_into(page, pieces, values=VALUES, render=render_text)
    return page


@pytest.mark.parametrize("target", ["Data", "data", "DATA", pytest.param("", id="T15: an empty target means Data")])
def test_the_target_data_is_found_in_any_letter_case(target: str) -> None:
    assert rendered(piece("{{ .user }}", target=target)).data == {"key": b"ada"}


@pytest.mark.parametrize("target", ["Labels", "labels", "LABELS"])
def test_the_target_labels_is_found_in_any_letter_case(target: str) -> None:
    assert rendered(piece("{{ .user }}", target=target)).labels == {"key": "ada"}


@pytest.mark.parametrize("target", ["Annotations", pytest.param("annotations", id="T16: in lower case")])
def test_the_target_annotations_is_found_in_any_letter_case(target: str) -> None:
    assert rendered(piece("{{ .user }}", target=target)).annotations == {"key": "ada"}


def test_a_place_of_its_own_keeps_its_letter_case() -> None:
    page = rendered(
        piece("{{ .user }}", target="spec.userName"),
        piece("a: [{{ .user }}]", target="spec.userNames", scope=Scope.KEYS_AND_VALUES),
    )

    assert page.other == [("spec.userName", b"ada"), ("spec.userNames", {"a": ["ada"]})]


def test_binary_data_passes_through_unchanged() -> None:
    """T22."""
    assert rendered(piece("{{ .bin }}")).data == {"key": b"\xff\x00\xfe"}


@pytest.mark.parametrize(
    ("scope", "text", "expected"),
    [
        pytest.param(Scope.VALUES, "aGk=", {"key": b"hi"}, id="of a value"),
        pytest.param(
            Scope.KEYS_AND_VALUES, "aGk=: aGk=\nb: /w==", {"aGk=": b"hi", "b": b"\xff"}, id="of a map, not its keys"
        ),
    ],
)
def test_rendered_values_are_decoded(scope: Scope, text: str, expected: Mapping[str, bytes]) -> None:
    assert rendered(piece(text, scope=scope, decoding="Base64")).data == expected


def test_a_later_piece_wins() -> None:
    assert rendered(piece("first"), piece("second")).data == {"key": b"second"}


def test_an_empty_document_writes_nothing() -> None:
    assert rendered(piece("{{ if false }}a: 1{{ end }}", scope=Scope.KEYS_AND_VALUES)).data == {}


def test_other_delimiters_are_a_matter_of_the_renderer() -> None:
    """T26."""
    page = Page()

    render_into(page, [piece("[[ .user ]] {{ . }}")], values=VALUES, render=partial(render_text, left="[[", right="]]"))

    assert page.data == {"key": b"ada {{ . }}"}


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        pytest.param(piece("{{ .nope }}"), 'no entry for key "nope"', id="T5: an unknown value"),
        pytest.param(piece("{{ env .secret }}"), 'function "env" not defined', id="T6: an unknown function"),
        pytest.param(piece("{{ range .secret }}{{ end }}"), "range can't iterate over", id="a value that is no list"),
        pytest.param(
            piece("{{ .secret }}", decoding="Base64"), "template at key key", id="T13: a value that is not Base64"
        ),
        pytest.param(
            piece("inner: '{{ .secret }}'", scope=Scope.KEYS_AND_VALUES, decoding="Base64"),
            "key inner: ",
            id="T13: a value of a map that is not Base64",
        ),
        pytest.param(
            piece("{{ .secret }}", scope=Scope.KEYS_AND_VALUES), "a YAML map of keys", id="text instead of a map"
        ),
        pytest.param(piece("{{ .bin }}", scope=Scope.KEYS_AND_VALUES), "not UTF-8", id="binary data instead of a map"),
        pytest.param(piece("{{ .bin }}", target="Labels"), "label key would not be UTF-8", id="a binary label"),
        pytest.param(
            piece("{{ .bin }}", target="Annotations"), "annotation key would not be UTF-8", id="a binary annotation"
        ),
        pytest.param(
            piece("inner: {a: 1}", scope=Scope.KEYS_AND_VALUES),
            "key inner must be a single value",
            id="T11: a nested map",
        ),
        pytest.param(piece("inner: [a]", scope=Scope.KEYS_AND_VALUES), "key inner must be", id="a nested list"),
        pytest.param(
            piece("'{{ .secret }}': [a]", scope=Scope.KEYS_AND_VALUES),
            "key (made by the template) must be a single value",
            id="a list behind a key that is a value",
        ),
        pytest.param(
            piece("'{{ .secret }}': '-'", scope=Scope.KEYS_AND_VALUES, decoding="Base64"),
            "key (made by the template): ",
            id="no Base64 behind a key that is a value",
        ),
        pytest.param(
            piece("'{{ .secret }}': /w==", target="Labels", scope=Scope.KEYS_AND_VALUES, decoding="Base64"),
            "label (made by the template) would not be UTF-8",
            id="a binary label whose key is a value",
        ),
        pytest.param(piece("x", decoding="Rot13"), "Rot13 is not supported", id="an unknown strategy"),
    ],
)
def test_an_error_names_the_key_and_the_place_and_no_value(broken: Piece, message: str) -> None:
    with pytest.raises(TargetError) as refused:
        rendered(broken)

    assert message in str(refused.value)
    assert "key key" in str(refused.value)
    assert refused.value.path == broken.path
    assert CANARY not in str(refused.value)


def test_an_error_knows_the_line_of_the_template() -> None:
    with pytest.raises(TargetError) as refused:
        rendered(piece("one\ntwo\n{{ .nope }}"))

    assert (refused.value.line, refused.value.phase) == (3, "execute")
