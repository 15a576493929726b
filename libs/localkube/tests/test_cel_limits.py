"""Limits of expressions: budgets, nesting, malformed sources."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubebase.meta import JsonObject, Resource
from localkube.schema.cel import BudgetError, CompileError, EvaluationError, compile_program
from localkube.schema.cel.types import DYN, escape
from localkube.schema.structural import StructuralSchema

SCOPE = {"self": DYN, "oldSelf": DYN}
FRAGMENTS = [
    "self",
    "oldSelf",
    "1",
    "1.5",
    "'a'",
    "null",
    "true",
    "[",
    "]",
    "{",
    "}",
    "(",
    ")",
    ".",
    ",",
    "?",
    ":",
    "&&",
]
FRAGMENTS += [
    "||",
    "==",
    "<",
    "+",
    "-",
    "!",
    "in",
    "all",
    "map",
    "has",
    "size",
    "x",
    ".?a",
    "matches",
    "optional.of",
    " ",
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def test_a_walk_within_walks_ends_when_the_budget_is_spent() -> None:
    program = compile_program("self.all(a, self.all(b, self.all(c, self.all(d, a + b + c + d >= 0))))", SCOPE)

    with pytest.raises(BudgetError, match="cost limit exceeded"):
        program.run({"self": list(range(200))})


def test_a_failing_operand_does_not_hide_a_spent_budget() -> None:
    program = compile_program("self.all(a, self.all(b, self.all(c, a + b + c >= 0 && a >= 0))) || true", SCOPE)

    with pytest.raises(BudgetError):
        program.run({"self": list(range(200))})


def test_an_object_that_is_too_costly_is_refused_and_says_why() -> None:
    rule = "self.all(a, self.all(b, self.all(c, a + b + c >= 0)))"
    numbers = {"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": [{"rule": rule}]}
    schema = StructuralSchema({"type": "object", "properties": {"spec": numbers}}, Resource("ex.io", "v1", "xs", "X"))
    obj = {"metadata": {"name": "x", "namespace": "n"}, "spec": list(range(300))}

    causes = schema.validate(obj, None)

    assert [cause.field for cause in causes] == ["spec"]
    assert "no further validation rules will be run due to call cost exceeds limit" in causes[0].message


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("(" * 500 + "1" + ")" * 500, id="parentheses"),
        pytest.param("[" * 500 + "]" * 500, id="lists"),
        pytest.param("1" + " + 1" * 500, id="sums"),
        pytest.param("!" * 5000 + "true", id="negations"),
        pytest.param("self" + ".a" * 5000, id="selections"),
        pytest.param("'" + "a" * 200_000 + "'", id="a very long text"),
    ],
)
def test_extreme_sources_are_refused_or_evaluated_but_never_crash(source: str) -> None:
    with contextlib.suppress(CompileError, EvaluationError):
        compile_program(source, SCOPE).run({"self": {}})


def test_long_chains_of_conditions_are_fine() -> None:
    source = " || ".join(f"self == {number}" for number in range(2000))

    assert compile_program(source, SCOPE).run({"self": 1999})[0] is True


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join), JSON)
def test_garbage_never_raises_anything_but_cel_errors(source: str, value: object) -> None:
    with contextlib.suppress(CompileError, EvaluationError):
        compile_program(source, SCOPE).run({"self": value, "oldSelf": value}, 10_000)


@given(st.text(max_size=20))
def test_any_text_compiles_or_is_refused_with_a_position(source: str) -> None:
    refusal = ""

    try:
        compile_program(source, SCOPE)
    except CompileError as failure:
        refusal = str(failure)

    assert not refusal or refusal.startswith("ERROR: <input>:")


@pytest.mark.parametrize(
    ("name", "spelled"),
    [
        pytest.param("plain", "plain", id="plain"),
        pytest.param("a-b", "a__dash__b", id="dash"),
        pytest.param("a.b", "a__dot__b", id="dot"),
        pytest.param("a/b", "a__slash__b", id="slash"),
        pytest.param("a__b", "a__underscores__b", id="underscores"),
        pytest.param("namespace", "__namespace__", id="keyword"),
        pytest.param("1a", None, id="digit first cannot be spelled"),
        pytest.param("a b", None, id="space cannot be spelled"),
    ],
)
def test_property_names_are_spelled_so_that_expressions_can_use_them(name: str, spelled: str | None) -> None:
    assert escape(name) == spelled


@given(JSON)
def test_no_value_crashes_a_schema(value: object) -> None:
    rule = {"rule": "self.a.size() > 1 || self.l.exists(x, x.n == 'a')"}
    spec: JsonObject = {
        "type": "object",
        "properties": {
            "a": {"type": "string", "default": "x", "pattern": "^a", "maxLength": 3},
            "l": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["n"],
                "items": {"type": "object", "properties": {"n": {"type": "string"}}, "required": ["n"]},
            },
            "o": {"x-kubernetes-preserve-unknown-fields": True},
            "n": {"type": "integer", "format": "int32", "minimum": 1, "multipleOf": 2},
        },
        "anyOf": [{"required": ["a"]}, {"properties": {"n": {"enum": [1]}}}],
        "x-kubernetes-validations": [rule],
    }
    schema = StructuralSchema({"type": "object", "properties": {"spec": spec}}, Resource("ex.io", "v1", "xs", "X"))
    obj = {"metadata": {"name": "x", "namespace": "n"}, "spec": value}

    schema.prune(obj)
    schema.default(obj)

    for cause in schema.validate(obj, obj):
        assert cause.message
