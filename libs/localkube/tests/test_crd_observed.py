"""CustomResourceDefinitions are accepted and refused as a real kube-apiserver does it."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from kubebase.meta import JsonObject
from localkube.schema.builtin.apiextensions import definition_kinds
from localkube.schema.crd import prepare_crd

OBSERVED = Path(__file__).parent / "observed" / "definitions.json"


def rows() -> list[Any]:
    return [pytest.param(row, id=row["id"]) for row in json.loads(OBSERVED.read_text())]


@pytest.mark.parametrize("row", rows())
def test_a_new_definition_gets_the_answer_of_the_real_server(row: JsonObject) -> None:
    crd = copy.deepcopy(row["crd"])

    causes = [[cause.field, cause.message, cause.reason] for cause in prepare_crd(crd, None)]

    expected = row.get("causes", [])
    if row.get("own_words"):  # same place and reason; the real text lists further errors or Go internals
        assert [(field, reason) for field, _, reason in causes] == [(field, reason) for field, _, reason in expected]
    else:
        assert sorted(causes) == sorted(expected)
    if row["code"] == 201:
        assert crd["spec"] == row["spec"]


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=row["id"]) for row in json.loads((OBSERVED.parent / "definition_keywords.json").read_text())],
)
def test_keywords_that_schemas_do_not_have_are_dropped_and_named(row: JsonObject) -> None:
    (definitions,) = definition_kinds()
    crd = copy.deepcopy(row["object"])

    unreadable = definitions.schema.decode_error(crd)
    dropped = definitions.schema.prune(crd)

    assert unreadable is None
    assert dropped == row["dropped"]
    assert prepare_crd(crd, None) == []
