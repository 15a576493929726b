"""Which earlier answers are kept, and for whom."""

from __future__ import annotations

from dataclasses import replace

import pytest
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from eso_sdk.http import HttpRequest, HttpResponse
from eso_sdk.rest import ETagCache, conditional

REQUEST = HttpRequest("GET", URL("https://example.com/a"), {"X": "1"}, b"body")


def answer(etag: str = '"1"', body: bytes = b"value") -> HttpResponse:
    return HttpResponse(200, CIMultiDictProxy(CIMultiDict({"ETag": etag} if etag else {})), body)


def test_an_answer_is_found_by_an_equal_request_which_then_is_conditional() -> None:
    unchanged = ETagCache()
    unchanged.store(REQUEST, answer())

    cached = unchanged.find(replace(REQUEST))

    assert cached is not None
    assert cached.body == b"value"
    assert conditional(REQUEST, cached).headers == {"X": "1", "If-None-Match": '"1"'}


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(replace(REQUEST, url=URL("https://example.com/b")), id="another address"),
        pytest.param(replace(REQUEST, headers={"X": "2"}), id="another header"),
        pytest.param(replace(REQUEST, headers={}), id="no header"),
        pytest.param(replace(REQUEST, body=b"other"), id="another body"),
        pytest.param(replace(REQUEST, method="POST"), id="another method"),
        pytest.param(replace(REQUEST, headers={"X": "1", "if-none-match": "2"}), id="a condition of its own"),
    ],
)
def test_another_request_does_not_find_it(other: HttpRequest) -> None:
    unchanged = ETagCache()
    unchanged.store(REQUEST, answer())

    assert unchanged.find(other) is None


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(answer(etag=""), id="no ETag"),
        pytest.param(answer(etag="x" * 257), id="an ETag that is too long"),
        pytest.param(answer(etag='"ä"'), id="an ETag that is not ASCII"),
        pytest.param(answer(body=b"x" * 300_000), id="an answer that is too large"),
    ],
)
def test_an_answer_that_cannot_be_kept_also_drops_the_earlier_one(given: HttpResponse) -> None:
    unchanged = ETagCache()
    unchanged.store(REQUEST, answer())

    unchanged.store(REQUEST, given)

    assert unchanged.find(REQUEST) is None


@pytest.mark.parametrize(
    ("bounds", "cached"),
    [
        pytest.param({"entries": 3}, [7, 8, 9], id="by number"),
        pytest.param({"size": 50}, [5, 6, 7, 8, 9], id="by bytes"),
    ],
)
def test_the_oldest_answers_go_first(bounds: dict[str, int], cached: list[int]) -> None:
    unchanged = ETagCache(**bounds)
    requests = [replace(REQUEST, body=str(number).encode()) for number in range(10)]

    for request in requests:
        unchanged.store(request, answer(body=b"x" * 10))

    assert [number for number, request in enumerate(requests) if unchanged.find(request)] == cached


def test_answers_print_no_value() -> None:
    unchanged = ETagCache()
    unchanged.store(REQUEST, answer(body=b"CANARY"))

    assert "CANARY" not in repr(unchanged.find(REQUEST))
