"""Paths of printer columns: supported ones and refused ones."""

from __future__ import annotations

from typing import Any

import pytest

from kubebase.meta import JsonObject
from localkube.table import jsonpath_reader

OBJ: JsonObject = {
    "metadata": {"name": "n", "annotations": {"example.com/x": "ann", "plain": "p"}},
    "spec": {
        "items": [{"name": "a", "n": 1, "ok": True}, {"name": "b", "n": 2}, {"name": "c", "n": 3}],
        "words": ["x", "y", "z"],
        "nothing": None,
        "map": {"k": {"v": 1}},
    },
    "status": {"conditions": [{"type": "Synced", "status": "False"}, {"type": "Ready", "status": "True"}]},
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".metadata.name", "n"),
        (r".metadata.annotations.example\.com/x", "ann"),
        (".spec.words", ["x", "y", "z"]),
        (".spec.words[0]", "x"),
        (".spec.words[-1]", "z"),
        (".spec.words[9]", None),
        (".spec.words[*]", "x"),
        (".spec.items[*].name", "a"),
        (".*.words", ["x", "y", "z"]),
        (".*.annotations.plain", "p"),
        (".*.missing", None),
        (".spec.words.*", "x"),
        (".spec.map.k.v.*", None),
        (".spec.nothing", None),
        (".spec.nothing.below", None),
        (".spec.none[0]", None),
        (".spec.map[0]", None),
        ('.status.conditions[?(@.type=="Ready")].status', "True"),
        (".status.conditions[?(@.type=='Ready')].status", "True"),
        ('.status.conditions[?(@.type == "Ready")].status', "True"),
        ('.status.conditions[?(@.type!="Ready")].status', "False"),
        ('.status.conditions[?(@.type=="Gone")].status', None),
        ('.status.none[?(@.type=="Ready")].status', None),
        ('.spec.items[?(@.name==")")].name', None),
        ('.spec.map[?(@.v=="x")]', None),
    ],
)
def test_a_path_finds_the_first_value(path: str, expected: Any) -> None:
    assert jsonpath_reader(path)(OBJ) == expected


@pytest.mark.parametrize(
    "path",
    [
        ".spec.words[",
        ".spec.words[x]",
        ".spec.words[]",
        ".spec.words[1:]",
        ".spec.words[2,0]",
        "..v",
        ".spec.items[?(@.n>1)].name",
        '.status.conditions[?(@.type=="Ready")',
        '.status.conditions[?(@.type=~"Ready")].status',
        '.status.conditions[?(@.type=="Ready].status',
        "spec.words",
        ".spec}",
    ],
)
def test_a_path_that_is_not_supported_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        jsonpath_reader(path)
