"""toYaml and fromYaml, with outcomes seen in Go."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eso_render import render_text


def to_yaml(text: str) -> str:
    return render_text('{{ toYaml (dict "k" .x) }}', {"x": text.encode()}).decode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a\n", "k: |\n  a", id="one line break at the end"),
        pytest.param("a\n\n", "k: |+\n  a\n", id="two line breaks at the end are kept"),
        pytest.param("\n", "k: |2+\n", id="nothing but a line break"),
        pytest.param(" a\nb", "k: |2-\n   a\n  b", id="a leading space needs a hint"),
        pytest.param("a \nb", 'k: "a \\nb"', id="a space before a break needs quotes"),
        pytest.param("1:2", 'k: "1:2"', id="base 60 is quoted"),
        pytest.param("1:60", "k: 1:60", id="what is not base 60 is not"),
        pytest.param("2024-13-01", "k: 2024-13-01", id="a month that does not exist is no date"),
        pytest.param("\ufeffx", 'k: "\\uFEFF\\x78"', id="everything after a byte order mark is escaped"),
        pytest.param("a\x7fb", "", id="a control character fails, and failing is empty"),
        pytest.param("a\x85b", "k: a b", id="NEL is a line break"),
        pytest.param("word " * 20 + "end", "k: " + "word " * 15 + "word\n  " + "word " * 4 + "end", id="folded at 80"),
        pytest.param("'", "k: ''''", id="a quote in quotes"),
        pytest.param("0o8", "k: 0o8", id="not an octal number"),
    ],
)
def test_strings_are_written_as_go_writes_them(text: str, expected: str) -> None:
    assert to_yaml(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", "{}", id="empty"),
        pytest.param("# c\n", "{}", id="only a comment"),
        pytest.param("a: 1\na: 2", '{"a":2}', id="the last of two equal keys counts"),
        pytest.param("<<: {a: 1}\nb: 2", '{"a":1,"b":2}', id="merge key"),
        pytest.param("1.5: x", '{"1.5":"x"}', id="a number as a key"),
        pytest.param("a: !!str 5", '{"a":"5"}', id="a tag"),
        pytest.param("a: 1\nb", "line 3: could not find expected ':'", id="a line without a colon"),
        pytest.param("a: *x", "unknown anchor 'x' referenced", id="an unknown alias"),
        pytest.param("a: &x [*x]", "anchor 'x' value contains itself", id="an alias in itself"),
        pytest.param("? [a]\n: b", "invalid map key", id="a list as a key"),
        pytest.param("a: .inf", "unsupported value: +Inf", id="infinity is not JSON"),
        pytest.param("[" * 5000, "yaml: ", id="nesting without end"),
    ],
)
def test_documents_are_read_as_go_reads_them(text: str, expected: str) -> None:
    assert expected in render_text("{{ fromYaml .x | toRawJson }}", {"x": text.encode()}).decode()


def test_aliases_that_multiply_are_refused() -> None:
    levels = "\n".join(f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]" for n in range(9))

    output = render_text("{{ (fromYaml .x).Error }}", {"x": f"a: &a [x]\n{levels}".encode()})

    assert b"excessive aliasing" in output


printable = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\ufffe\uffff"))


keys = printable.filter(lambda key: key != "<<")  # written without quotes, as go-yaml does, and read as a merge


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(keys, printable.map(lambda text: text + "\n"), max_size=4))
def test_written_yaml_is_read_back(values: dict[str, str]) -> None:
    data = {key: value.encode() for key, value in values.items()}

    both = render_text('{{ toJson . }}\0{{ printf "%s\\n" (toYaml .) | fromYaml | toJson }}', data)

    before, after = both.split(b"\0")
    assert before == after


def test_very_deep_yaml_is_given_up_where_it_gets_too_deep() -> None:
    """At the limit, not at the end: libyaml would take minutes to get there."""
    output = render_text("{{ (fromYaml .y).Error }}", {"y": b"[" * 2_000 + b' "never closed'})

    assert output == b"error converting YAML to JSON: yaml: exceeded max depth"
