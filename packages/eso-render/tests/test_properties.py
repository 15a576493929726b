"""Whatever a template produces or a target names: only our own errors occur, and values survive unchanged."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, Final

from hypothesis import example, given
from hypothesis import strategies as st

from eso_api.externalsecret import Target
from eso_api.template import Template
from eso_api.values import SecretBytes
from eso_render import paths
from eso_render.errors import TargetError
from eso_render.secret import render_secret
from eso_render.templates import DecodingError, decode, document, documents, flat_map
from kubebase.meta import ObjectMeta
from kubebase.yamlvalues import YamlError

YAML_LIKE = st.text("a:-[]{}&*!<>|?'\"\n #,019e.xob_+~yn%@\t", max_size=60)
WORDS = st.text("ab01 :#-{}[]'\"\\\n", max_size=6)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)
REFUSED: Final = object()


@given(st.text("a[]0.9-x+_ ", max_size=20))
def test_a_path_is_refused_or_leads_to_what_was_put(text: str) -> None:
    root: dict[str, object] = {}
    try:
        path = paths.parse(text)
    except paths.PathError:
        return

    paths.put(root, path, 1)

    assert paths.get(root, path) == 1
    assert paths.parse(paths.text_of(path)) == path


@given(st.binary(max_size=60) | YAML_LIKE.map(str.encode))
@example(b"[.nan, -.inf]")
def test_any_text_is_refused_or_read_alike_by_every_reader(raw: bytes) -> None:
    every, first, flat = (outcome(read, raw) for read in (documents, document, flat_map))

    if first is REFUSED:
        assert every is REFUSED or not is_json(every[0])
    else:
        assert is_json(first)
        assert every is REFUSED or every[:1] == ([] if first is None and not every else [first])
    if first is not REFUSED and (first is None or isinstance(first, dict)):
        assert flat.keys() == (first or {}).keys()
        assert {key for key, text in flat.items() if text is None} == {
            key for key, value in (first or {}).items() if isinstance(value, dict | list)
        }


def outcome(read: Callable[[bytes], Any], raw: bytes) -> Any:
    try:
        return read(raw)
    except YamlError:
        return REFUSED


def is_json(value: Any) -> bool:
    try:
        return bool(json.loads(json.dumps(value, allow_nan=False)) == value)
    except ValueError:
        return False


@given(JSON)
def test_json_is_read_as_the_value_it_stands_for(value: Any) -> None:
    assert document(json.dumps(value).encode()) == value


@given(st.binary(max_size=40))
def test_an_encoded_value_is_decoded(raw: bytes) -> None:
    assert decode("Base64", base64.b64encode(raw)) == raw
    assert decode("Base64URL", base64.urlsafe_b64encode(raw)) == raw


@given(st.binary(max_size=20) | st.text("ab+-=\n", min_size=4, max_size=4).map(str.encode))
def test_auto_gives_what_the_first_strategy_gives_that_accepts_the_value(raw: bytes) -> None:
    accepted = []
    for strategy in ("Base64", "Base64URL"):
        try:
            accepted.append(decode(strategy, raw))
        except DecodingError as refused:
            assert str(refused) == f"the value is not valid {strategy}"  # noqa: PT017 - most values are accepted by one

    assert decode("Auto", raw) == [*accepted, raw][0]


@given(st.binary(max_size=200))
def test_any_bytes_pass_through_a_secret_unchanged(raw: bytes) -> None:
    """T22."""
    target = Target(template=Template(data={"k": "{{ .v }}"}))

    desired = render_secret(target, {"v": SecretBytes(raw)}, owner=ObjectMeta(name="db"))

    assert desired.data == {"k": SecretBytes(raw)}


@given(st.text("{}. |a\"'$()=:end range if with v\n", max_size=40))
def test_any_template_renders_or_is_refused_by_its_key_without_the_value(text: str) -> None:
    target = Target(template=Template(data={"the-key": text}))
    message = "the-key"
    try:
        render_secret(target, {"v": SecretBytes(b"CANARY")}, owner=ObjectMeta(name="db"))
    except TargetError as refused:
        message = str(refused)

    assert "the-key" in message
    assert "CANARY" not in message
