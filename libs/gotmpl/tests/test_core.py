"""The language itself: parsing, evaluation and errors, with Go's results."""

from __future__ import annotations

import pytest

from gotmpl.builtins import FUNCTIONS
from gotmpl.errors import ExecError, LimitError, ParseError, TemplateError
from gotmpl.run import MissingKey, TemplateLimits
from gotmpl.template import Engine
from gotmpl.values import StrMap

DATA = StrMap({"user": "ada", "empty": "", "n": "42"})


def render(text: str, limits: TemplateLimits | None = None) -> str:
    return Engine(FUNCTIONS, limits).render(text, DATA)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("plain", "plain", id="text is copied"),
        pytest.param("{{ .user }}", "ada", id="a field prints its value"),
        pytest.param("a {{- /* c */ -}} b", "ab", id="trim markers eat white space around a comment"),
        pytest.param("{{ if .empty }}x{{ else if .user }}y{{ end }}", "y", id="an empty string is false"),
        pytest.param("{{ range $i, $c := 3 | print }}{{ end }}", None, id="a string cannot be ranged over"),
        pytest.param(
            "{{ range $k, $v := . }}{{ $k }}={{ $v }};{{ end }}", "empty=;n=42;user=ada;", id="maps are sorted"
        ),
        pytest.param('{{ define "x" }}[{{ . }}]{{ end }}{{ template "x" .user }}', "[ada]", id="templates nest"),
        pytest.param('{{ define "tpl" }}[{{ .user }}]{{ end }} \n', "[ada]", id="a text may define all that it is"),
        pytest.param('{{ define "tpl" }} {{ end }}x', "x", id="nothing under its own name changes nothing"),
        pytest.param(
            '{{ if ne (print .) "ada" }}<{{ template "tpl" .user }}>{{ else }}{{ . }}{{ end }}',
            "<ada>",
            id="a text includes itself",
        ),
        pytest.param('{{ printf "%05d|%-4s|%q" 42 "ab" "c" }}', '00042|ab  |"c"', id="printf pads and quotes"),
        pytest.param('{{ .user | printf "%s-%s" "x" }}', "x-ada", id="the piped value is the last argument"),
        pytest.param('{{ and .user .empty "z" }}|{{ or .empty "z" .nope }}', "|z", id="and, or stop early"),
    ],
)
def test_templates_render_as_go_renders_them(text: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(ExecError):
            render(text)
        return

    assert render(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("{{ end }}", "template: tpl:1: unexpected {{end}}", id="end without a beginning"),
        pytest.param("{{ .user-name }}", "template: tpl:1: bad character U+002D '-'", id="a dash in a field name"),
        pytest.param("\n{{ nosuch }}", 'template: tpl:2: function "nosuch" not defined', id="unknown function"),
        pytest.param("{{ (1 }}", "template: tpl:1: unclosed left paren", id="open parenthesis"),
        pytest.param(
            '{{ define "tpl" }}x{{ end }}\ny',
            'template: tpl:2: template: multiple definition of template "tpl"',
            id="a body, and a definition under the same name",
        ),
    ],
)
def test_parse_errors_have_gos_words(text: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        render(text)

    assert str(caught.value) == message


def test_a_missing_key_is_an_error_that_names_its_place() -> None:
    with pytest.raises(ExecError) as caught:
        render("é{{ .nope }}")

    assert str(caught.value) == 'template: tpl:1:5: executing "tpl" at <.nope>: map has no entry for key "nope"'
    assert (caught.value.line, caught.value.column) == (1, 5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "{{ .nope }}",
            'template: {0}:1:3: executing "{0}" at <.nope>: map has no entry for key "nope"',
            id="in the text itself",
        ),
        pytest.param(
            '{{ define "x" }}{{ .nope }}{{ end }}{{ template "x" . }}',
            'template: {0}:1:19: executing "x" at <.nope>: map has no entry for key "nope"',
            id="in a template it defines",
        ),
        pytest.param("{{ nosuch }}", 'template: {0}:1: function "nosuch" not defined', id="in parsing"),
        pytest.param(
            '{{ .user\n"', "template: {0}:2: unterminated quoted string in action started at {0}:1", id="twice"
        ),
    ],
)
def test_an_error_has_the_name_of_this_render_though_the_text_was_seen_under_another(text: str, message: str) -> None:
    engine = Engine(FUNCTIONS)

    for name in ("first", "second", "first"):
        with pytest.raises(TemplateError) as caught:
            engine.render(text, DATA, name=name)

        assert str(caught.value) == message.format(name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("{{ .no }}", "<no value>", id="it prints as no value"),
        pytest.param("{{ .no.such }}", "<no value>", id="nothing is below it"),
        pytest.param("{{ if .no }}x{{ else }}y{{ end }}", "y", id="it is false"),
        pytest.param('{{ printf "%v" .no }}', "<nil>", id="a function gets nil"),
        pytest.param('{{ index . "no" | printf "%q" }}', '""', id="index gives the zero value as ever"),
        pytest.param("{{ $x := . }}{{ $x.no }}", "<no value>", id="in a variable"),
        pytest.param("{{ .user }}", "ada", id="what is there prints as ever"),
    ],
)
def test_a_key_that_is_not_there_is_no_error_where_that_was_asked_for(text: str, expected: str) -> None:
    assert Engine(FUNCTIONS, missing=MissingKey.NOTHING).render(text, DATA) == expected


def test_an_endless_chain_of_conditions_is_refused_in_our_own_words() -> None:
    text = "{{ if .empty }}" + "{{ else if .empty }}" * 5_000 + "{{ end }}"

    with pytest.raises(ParseError, match="nested too deeply"):
        render(text)


@pytest.mark.parametrize(
    ("text", "limits", "part"),
    [
        pytest.param("{{ .user }}{{ .user }}", TemplateLimits(output_bytes=5), "larger than 5 bytes", id="output"),
        pytest.param("{{ range 100 }}{{ end }}", TemplateLimits(steps=10), "too long", id="steps"),
        pytest.param(
            '{{ define "x" }}{{ template "x" }}{{ end }}{{ template "x" }}', TemplateLimits(), "depth", id="depth"
        ),
    ],
)
def test_bounds_end_a_template_with_a_clear_error(text: str, limits: TemplateLimits, part: str) -> None:
    with pytest.raises(LimitError, match=part):
        render(text, limits)


def test_an_error_never_quotes_a_data_value() -> None:
    with pytest.raises(ExecError) as caught:
        render("{{ range .user }}{{ end }}")

    assert "ada" not in str(caught.value)
