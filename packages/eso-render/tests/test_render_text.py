"""render_text: bytes in, bytes out, one error."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eso_render
from eso_render import Renderer, RenderError, render_text
from gotmpl.run import TemplateLimits


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_come_through_unchanged(value: bytes) -> None:
    assert render_text("{{ .a }}", {"a": value}) == value
    assert render_text("{{ .a | b64enc | b64dec }}", {"a": value}) == value


def test_an_error_names_the_key_the_phase_and_the_place() -> None:
    with pytest.raises(RenderError) as caught:
        render_text("x\n{{ .nope }}", {}, name="tls.crt")

    assert str(caught.value) == (
        "unable to execute template at key tls.crt: template: tls.crt:2:3: "
        'executing "tls.crt" at <.nope>: map has no entry for key "nope"; there are no keys'
    )
    assert (caught.value.phase, caught.value.line, caught.value.column) == ("execute", 2, 3)


def test_a_text_that_is_no_template_says_so() -> None:
    with pytest.raises(RenderError, match="unable to parse template at key tpl: template: tpl:1: unclosed action"):
        render_text("{{ .a", {"a": b""})


def test_several_sets_of_values_have_names() -> None:
    groups = {"a": {"k": b"1"}, "b-c": {"k": b"\xff"}}

    assert Renderer().render_groups('{{ .a.k }}{{ index . "b-c" "k" }}', groups) == b"1\xff"
    with pytest.raises(RenderError, match=r'at key url: .*map has no entry for key "absent"'):
        Renderer().render_groups("{{ .a.absent }}", groups, name="url")


def test_delimiters_can_be_others() -> None:
    assert render_text("{{ [[ .a ]] }}", {"a": b"x"}, left="[[", right="]]") == b"{{ x }}"


def test_now_is_what_the_clock_says() -> None:
    renderer = Renderer(clock=lambda: 1_700_000_000 * 10**9)

    assert renderer.render('{{ now | date "2006-01-02" }} {{ now | unixEpoch }}', {}) == b"2023-11-14 1700000000"


def test_bounds_are_a_parameter_and_end_in_the_same_error() -> None:
    renderer = Renderer(limits=TemplateLimits(output_bytes=3))

    with pytest.raises(RenderError, match="output is larger than 3 bytes"):
        renderer.render("{{ .a }}", {"a": b"four"})


def test_the_door_is_small() -> None:
    assert eso_render.__all__ == ["RenderError", "Renderer", "render_text"]
