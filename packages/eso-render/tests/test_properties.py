"""Whatever a template produces or a target names: only our own errors, and values survive the way."""

from __future__ import annotations

import base64

from hypothesis import given
from hypothesis import strategies as st

from eso_api.externalsecret import Target
from eso_api.template import Template
from eso_api.values import SecretBytes
from eso_render import paths
from eso_render.decoding import DecodingError, decode
from eso_render.errors import TargetError
from eso_render.secret import render_secret
from eso_render.yamldata import YamlError, document, documents, flat_map
from kuberun.meta import ObjectMeta

YAML_LIKE = st.text("a:-[]{}&*!<>|?'\"\n #,019e.xob_+~yn%@\t", max_size=60)


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
def test_any_text_is_yaml_or_refused(raw: bytes) -> None:
    for read in (flat_map, document, documents):
        try:
            read(raw)
        except YamlError:
            continue


@given(st.binary(max_size=40))
def test_what_was_encoded_is_decoded(raw: bytes) -> None:
    assert decode("Base64", base64.b64encode(raw)) == raw
    assert decode("Base64URL", base64.urlsafe_b64encode(raw)) == raw


@given(st.binary(max_size=20))
def test_auto_never_fails_and_the_others_only_in_one_way(raw: bytes) -> None:
    decode("Auto", raw)
    for strategy in ("Base64", "Base64URL"):
        try:
            decode(strategy, raw)
        except DecodingError:
            continue


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
