"""Values that carry whole objects print none of them: an object may be a Secret, and a repr ends up anywhere."""

from __future__ import annotations

from typing import Any

import pytest

from kubebase.meta import ObjectKey, Page
from kuberun.cache import Change
from kuberun.watch import Applied, Deleted, Listed
from localkube.model import ListResult, WatchEvent, Written
from localkube.storage.records import Record

CANARY = "CANARY-8f3a"
SECRET: dict[str, Any] = {"kind": "Secret", "metadata": {"name": "s"}, "data": {"key": CANARY}}


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(Page([SECRET], "1"), id="a page of a list"),
        pytest.param(Listed([SECRET]), id="a list event"),
        pytest.param(Applied(SECRET), id="an applied event"),
        pytest.param(Deleted(SECRET), id="a deleted event"),
        pytest.param(Change(ObjectKey("n", "s"), SECRET, SECRET), id="a change in a store"),
        pytest.param(Record(1, "u", CANARY.encode()), id="a stored record"),
        pytest.param(ListResult([SECRET], "1"), id="a listed result"),
        pytest.param(WatchEvent("ADDED", SECRET), id="a watch frame"),
        pytest.param(Written(SECRET), id="a written object"),
    ],
)
def test_a_value_prints_no_object_it_carries(value: object) -> None:
    assert CANARY not in repr(value)
    assert CANARY not in f"{value}"
