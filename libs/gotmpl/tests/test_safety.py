"""Every template ends within its limits, with text or with one of our errors, which quotes no data."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gotmpl.builtins import FUNCTIONS
from gotmpl.errors import LimitError, TemplateError
from gotmpl.functions import STRING, Func, LazyFunctions
from gotmpl.run import TemplateLimits
from gotmpl.sprig import families
from gotmpl.template import Engine
from gotmpl.values import StrMap

CANARY = "CANARY-5ecr3t/v4lue:%zz@#?[(*"
EVERYTHING = LazyFunctions([(" ".join(FUNCTIONS), lambda: FUNCTIONS), *families(lambda: 1_700_000_000 * 10**9)])
SLOW = {"bcrypt", "htpasswd", "derivePassword", "genPrivateKey", "genCA", "genSelfSignedCert", "genSignedCert"}
SLOW |= {f"{name}WithKey" for name in SLOW if name.startswith("gen")}
SMALL = TemplateLimits(output_bytes=2**16, steps=2000, depth=40)
ENGINE = Engine(EVERYTHING, SMALL)
DATA = StrMap({"a": CANARY, "b": "", "n": "42", "bin": "\udcff\udc80x", "j": '{"k": [1, {"x": null}], "s": "v"}'})

QUICK = sorted(set(EVERYTHING) - SLOW)
ATOMS = [
    ".a .b .n .bin .j . $ $x nil true 1 -1 0 2.5 1e3 0x1F 'c' 1i .nope 99999999999999999999 (fromJson .j) (list)",
    '"s" "" `raw` "%s" "2006-01-02" "[a-z" "1.2.3" "," "_0" (until 3) (list) (dict)',
]
WORDS = [word for line in ATOMS for word in line.split(" ")]
operands = st.sampled_from([*WORDS, '(dict "a" .a)', "(list .a .b)", '(toDate "2006" "2024")', '(split "," .a)'])
calls = st.builds(lambda name, args: " ".join([name, *args]), st.sampled_from(QUICK), st.lists(operands, max_size=4))
pipelines = st.lists(calls, min_size=1, max_size=3).map(" | ".join)


def bodies(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("{{{{ if {0} }}}}{1}{{{{ else }}}}{1}{{{{ end }}}}".format, pipelines, inner),
        st.builds("{{{{ range $i, $x := {0} }}}}{1}{{{{ end }}}}".format, operands, inner),
        st.builds("{{{{ with $x := {0} }}}}{1}{{{{ end }}}}".format, pipelines, inner),
        st.builds("{}{}".format, inner, inner),
    )


actions = st.builds("{{{{ $x := {0} }}}}{{{{ {1} }}}}".format, operands, pipelines)
templates = st.recursive(st.one_of(actions, st.text(max_size=5)), bodies, max_leaves=6)
soup = st.lists(
    st.one_of(
        st.sampled_from([*WORDS, *QUICK[:40], "{{", "}}", "{{-", "-}}", "|", "(", ")", ":=", "=", ",", "if", "end"]),
        st.sampled_from(["else", "range", "with", "define", "template", "block", "break", "/*", "*/", "\n", "$", "."]),
        st.text(max_size=4),
    ),
    max_size=14,
).map(" ".join)
lenient = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))


def render(text: str) -> str:
    """Return the output or the error's message; any other exception is a defect and propagates."""
    try:
        return ENGINE.render(text, DATA)
    except TemplateError as exc:
        message = str(exc)
        assert "internal error" not in message
        return ""


@lenient
@given(templates)
def test_any_template_ends_with_text_or_with_an_error_of_ours(text: str) -> None:
    assert len(render(text)) <= SMALL.output_bytes


@lenient
@given(soup)
def test_any_text_parses_or_is_refused(text: str) -> None:
    render(text)
    render("{{ " + text + " }}")


@pytest.mark.parametrize("name", QUICK)
def test_an_error_of_a_function_never_quotes_its_arguments(name: str) -> None:
    """The value is passed in every position of every function, beside arguments of every kind."""
    fillers = ["1", '"x"', "(list .a)", '(dict "k" .a)', ".a", "nil", '(toDate "2006" "2024")']
    for count in range(1, 5):
        for filler in fillers:
            for place in range(count):
                arguments = [".a" if position == place else filler for position in range(count)]
                _errors_are_clean("{{ " + " ".join([name, *arguments]) + " }}")
                _errors_are_clean("{{ .a | " + " ".join([name, *arguments[1:]]) + " }}")


def _errors_are_clean(text: str) -> None:
    try:
        ENGINE.render(text, DATA)
    except TemplateError as exc:
        message = str(exc)
        assert "CANARY" not in message
        assert "5ecr3t" not in message
        assert "v4lue" not in message
        assert "internal error" not in message, text


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{{ range .a }}{{ end }}", id="range over a value"),
        pytest.param("{{ .a.b }}", id="a field of a value"),
        pytest.param("{{ urlParse .a }}", id="a URL that does not parse"),
        pytest.param('{{ regexFind .a "x" }}', id="a pattern that does not compile"),
        pytest.param('{{ urlJoin (dict "userinfo" .a) }}', id="userinfo that does not parse"),
        pytest.param('{{ mustToDate .a "x" }}', id="a layout"),
        pytest.param('{{ mustToDate "2006" .a }}', id="a date"),
        pytest.param('{{ semverCompare .a "1.2.3" }}', id="a constraint"),
        pytest.param('{{ mustDateModify .a (toDate "2006" "2024") }}', id="a duration"),
        pytest.param("{{ index (list 1) .a }}", id="an index"),
        pytest.param("{{ eq (list .a) (list .a) }}", id="values that cannot be compared"),
        pytest.param("{{ call .a }}", id="a value that is no function"),
        pytest.param("{{ .a | call }}", id="a piped value that is no function"),
    ],
)
def test_messages_that_quote_data_in_go_do_not_here(text: str) -> None:
    with pytest.raises(TemplateError) as caught:
        ENGINE.render(text, DATA)

    assert "CANARY" not in str(caught.value)
    assert "v4lue" not in str(caught.value)


def test_texts_of_the_template_itself_may_be_quoted() -> None:
    with pytest.raises(TemplateError, match=r"missing closing \]: `\[a-z`"):
        ENGINE.render('{{ regexFind "[a-z" .a }}', DATA)


BIG = Engine(EVERYTHING, TemplateLimits(seconds=5))
LETTERS = "}}{{ list " + " ".join(f'"{letter}"' for letter in sorted(set(CANARY)))
"""A literal for each letter of the value, in an action that follows."""


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{{ repeat 1000000000 "x" }}', id="repeat"),
        pytest.param("{{ until 1000000000 }}", id="until"),
        pytest.param("{{ seq 1 1000000000 }}", id="seq"),
        pytest.param("{{ range 1000000000 }}{{ end }}", id="range over a number"),
        pytest.param('{{ indent 1000000000 "x" }}', id="indent"),
        pytest.param("{{ randAlphaNum 1000000000 }}", id="random strings"),
        pytest.param("{{ randBytes 1000000000 }}", id="random bytes"),
        pytest.param('{{ printf "%1000000d%1000000d%1000000d%1000000d%1000000d" 1 2 3 4 5 }}', id="printf widths"),
        pytest.param('{{ printf "%1000000v" (until 1000) }}', id="a width for each item"),
        pytest.param('{{ $x := "aaaa" }}{{ range until 40 }}{{ $x = print $x $x }}{{ end }}', id="doubling text"),
        pytest.param("{{ $x := list 1 }}{{ range until 40 }}{{ $x = list $x $x }}{{ end }}{{ $x }}", id="nested lists"),
        pytest.param(
            '{{ $x := dict "k" 1 }}{{ range until 40 }}{{ $x = dict "a" $x "b" $x }}{{ end }}{{ toJson $x }}',
            id="nested maps as JSON",
        ),
        pytest.param('{{ $x := dict }}{{ $_ := set $x "self" $x }}{{ $x }}', id="a map that contains itself"),
        pytest.param('{{ $x := dict }}{{ $_ := set $x "self" $x }}{{ toJson $x }}', id="and as JSON"),
        pytest.param('{{ $x := dict }}{{ $_ := set $x "self" $x }}{{ deepCopy $x }}', id="and copied"),
        pytest.param('{{ regexReplaceAllLiteral "" (repeat 100000 "x") (repeat 100000 "y") }}', id="replacement"),
        pytest.param('{{ replace "" (repeat 100000 "y") (repeat 100000 "x") }}', id="replace"),
        pytest.param('{{ splitList "" (repeat 4000000 "x") }}', id="split into characters"),
        pytest.param('{{ range until 1000 }}{{ genPrivateKey "ecdsa" }}{{ end }}', id="private keys"),
        pytest.param('{{ range until 100000 }}{{ bcrypt "x" }}{{ end }}', id="bcrypt"),
        pytest.param('{{ define "x" }}{{ template "x" }}{{ end }}{{ template "x" }}', id="recursion"),
        pytest.param("{{ " + "(" * 500 + "1" + ")" * 500 + " }}", id="parentheses"),
        pytest.param("{{ if 1 }}" * 500 + "{{ end }}" * 500, id="nested branches"),
        pytest.param("{{ " + "9" * 6000 + " }}", id="a number with thousands of digits"),
    ],
)
def test_unbounded_growth_is_refused(text: str) -> None:
    with pytest.raises(TemplateError) as caught:
        BIG.render(text, DATA)

    assert "internal error" not in str(caught.value)


def test_a_render_that_takes_too_long_is_ended() -> None:
    ticks = iter(range(10**6))
    engine = Engine(EVERYTHING, TemplateLimits(seconds=3, clock=lambda: float(next(ticks))))

    with pytest.raises(LimitError, match="took longer than 3 seconds"):
        engine.render("{{ range until 1000 }}x{{ end }}", DATA)


def test_a_function_that_takes_its_time_is_called_a_few_times_at_most() -> None:
    """Checking the clock only after many calls would be too late: each may work on megabytes."""
    calls: list[str] = []

    def slow(text: str) -> str:
        calls.append(text)
        return text

    engine = Engine(
        {"upper": Func("upper", slow, (STRING,)), "until": EVERYTHING["until"]},
        TemplateLimits(seconds=3, clock=lambda: float(len(calls))),
    )

    with pytest.raises(LimitError, match="took longer than 3 seconds"):
        engine.render("{{ range until 1000 }}{{ upper `x` }}{{ end }}", DATA)

    assert len(calls) < 10


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        pytest.param('fail "set the host first"', "set the host first", id="words of the template"),
        pytest.param('fail (printf "the host %s is bad" .a)', "the host <redacted> is bad", id="a value"),
        pytest.param("fail (upper .a)", "<redacted>", id="a value in another spelling"),
        pytest.param(
            'fail (printf "%q is missing: %s." "the key" .a)', "<redacted> is missing: <redacted>.", id="marks"
        ),
        pytest.param('fail (join " " (splitList "" .a))', "<redacted>", id="a value in pieces"),
        pytest.param("fail (b64enc .a)", "<redacted>", id="a value in another encoding"),
        pytest.param("fail (substr 0 9 .a)", "<redacted>", id="a part of a value"),
        pytest.param("fail .n", "<redacted>", id="a short value"),
        pytest.param('fail (print "the host is bad: " .a)', "the host is bad: <redacted>", id="concatenation"),
        pytest.param('fail (print .a " is a bad host")', "<redacted> is a bad host", id="a value first"),
        pytest.param('printf "bad host %s" .a | fail', "bad host <redacted>", id="a pipeline"),
        pytest.param('fail (join " x " (splitList "" .a))', "<redacted>", id="letters among words of the template"),
        pytest.param(f'fail (join " " (splitList "" .a)) {LETTERS}', "<redacted>", id="letters as literals"),
        pytest.param(f'fail (printf "%s%s" (substr 0 1 .a) (substr 1 2 .a)) {LETTERS}', "<redacted>", id="two letters"),
    ],
)
def test_fail_says_what_its_author_wrote_and_nothing_that_was_made_from_data(call: str, shown: str) -> None:
    with pytest.raises(TemplateError) as failed:
        ENGINE.render(f"{{{{ {call} }}}}", DATA)

    assert str(failed.value).endswith(f"error calling fail: {shown}")


def test_an_error_does_not_spell_a_value_with_the_literals_of_the_template() -> None:
    with pytest.raises(TemplateError) as failed:
        ENGINE.render(f'{{{{ eq (splitList "" .a) (splitList "" .a) {LETTERS} }}}}', DATA)

    assert str(failed.value).endswith("error calling eq: non-comparable type <redacted>: []string")
