"""Rules do not compare messages: a message is for people, and a better wording must not change what is done.

An enumeration (`eso_operator/controllers/outcomes.py`) or a reason says what happened; those are compared instead.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGES = Path(__file__).parents[2] / "packages"
FOLDERS = (
    PACKAGES / "eso-operator/src/eso_operator/controllers",
    PACKAGES / "eso-tools/src/eso_tools",
    PACKAGES / "eso-cli/src/eso_cli",
)
PROSE = ("step", "message", "detail", "words", "why", "says", "said", "told")
"""Names of variables and fields that hold sentences, or did before `Step` replaced them."""
CHECKS = ("startswith", "endswith", "removeprefix", "removesuffix", "find", "index", "count", "partition", "split")


def comparisons(source: str) -> Iterator[int]:
    """The lines that compare prose with a literal, or search it for one."""
    module = ast.parse(source)
    constants = _constants(module)
    for node in ast.walk(module):
        match node:
            case ast.Compare():
                sides = [node.left, *node.comparators]
            case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in CHECKS:
                sides = [owner, *node.args]
            case ast.Match(subject=subject, cases=cases):
                sides = [subject, *(each.pattern.value for each in cases if isinstance(each.pattern, ast.MatchValue))]
            case _:
                continue
        if any(map(_is_prose, sides)) and any(_is_text(side, constants) for side in sides):
            yield node.lineno


def _constants(module: ast.Module) -> frozenset[str]:
    """The names of the module's constants that hold text."""
    return frozenset(
        target.id
        for node in module.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and _is_text(node.value, frozenset())
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    )


def _is_prose(node: ast.expr) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.strip("_") in PROSE
        case ast.Call(func=ast.Attribute(value=owner)):
            return _is_prose(owner)
        case _:
            return False


def _is_text(node: ast.expr, constants: frozenset[str]) -> bool:
    match node:
        case ast.Constant(value=str(text)):
            return bool(text)
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return any(_is_text(part, constants) for part in parts)
        case ast.JoinedStr():
            return True
        case ast.Name(id=name):
            return name in constants
        case ast.Subscript(value=value):
            return _is_text(value, constants)
        case _:
            return False


def test_no_rule_compares_a_message_with_a_literal() -> None:
    modules = [path for folder in FOLDERS for path in sorted(folder.rglob("*.py"))]
    found = {
        str(path.relative_to(PACKAGES)): lines for path in modules if (lines := list(comparisons(path.read_text())))
    }

    assert modules
    assert found == {}, "compare an enumeration or a reason; messages are for people"


@pytest.mark.parametrize(
    "line",
    [
        pytest.param('if outcome.step == "invalid generic target": pass', id="a step"),
        pytest.param('if message.startswith("could not"): pass', id="the beginning of a message"),
        pytest.param('if message.lower().startswith(("could not", "x")): pass', id="one of several beginnings"),
        pytest.param('if "template" in ready.message: pass', id="a word of a message"),
        pytest.param('_AT = ("could not",)\nif message.startswith(_AT): pass', id="a constant of the module"),
        pytest.param('_AT = ("could not",)\nif message.startswith(_AT[0]): pass', id="a part of a constant"),
        pytest.param('if detail.find("x") >= 0: pass', id="a search"),
        pytest.param('match said:\n    case "x":\n        pass', id="a match statement"),
    ],
)
def test_comparisons_with_messages_are_found(line: str) -> None:
    assert len(list(comparisons(line))) == 1


@pytest.mark.parametrize(
    "line",
    [
        pytest.param('if ready.reason == "Valid": pass', id="a reason"),
        pytest.param("if step is Step.FETCH: pass", id="a member of an enumeration"),
        pytest.param('if message == "": pass', id="an empty message"),
        pytest.param("if old.message == new.message: pass", id="two messages"),
    ],
)
def test_other_comparisons_are_allowed(line: str) -> None:
    assert list(comparisons(line)) == []
