"""Values read a moment ago answer requests that are older, and no others."""

from __future__ import annotations

import pytest

from eso_api.values import SecretBytes
from eso_operator.providers.batching import RecentReads
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import GetResult, NotModified


def recent(**changes: float) -> RecentReads:
    limits: dict[str, float] = {"seconds": 10.0, "items": 3, "size": 100}
    return RecentReads(**{**limits, **changes})  # type: ignore[arg-type]  # a table of limits


def value(text: str = "v") -> GetResult:
    return GetResult("id", SecretBytes(text.encode()))


@pytest.mark.parametrize(
    ("requested_at", "now", "answered"),
    [
        pytest.param(5.0, 6.0, True, id="asked before it was read"),
        pytest.param(6.0, 6.0, True, id="asked at the moment it was read"),
        pytest.param(6.5, 7.0, False, id="asked after it was read"),
        pytest.param(5.0, 16.5, False, id="read too long ago"),
    ],
)
def test_a_value_answers_questions_that_are_older_than_it(requested_at: float, now: float, answered: bool) -> None:
    reads = recent()
    reads.store("request", value(), read_at=6.0)

    assert (reads.find("request", requested_at, now) is not None) is answered


@pytest.mark.parametrize(
    ("outcome", "kept"),
    [
        pytest.param(SecretBytes(b"v"), True, id="a value"),
        pytest.param({"k": SecretBytes(b"v")}, True, id="a map"),
        pytest.param(ProviderError(ErrorReason.SECRET_NOT_FOUND, "gone"), True, id="that there is none"),
        pytest.param(ProviderError(ErrorReason.BACKEND_UNAVAILABLE, "down"), False, id="a failure is no answer"),
        pytest.param(ProviderError(ErrorReason.PERMISSION_DENIED, "no"), False, id="a refusal is no answer"),
        pytest.param(NotModified(), False, id="what was not sent"),
        pytest.param(SecretBytes(b"x" * 30), False, id="a value too large to keep"),
    ],
)
def test_only_answers_of_the_backend_are_kept(outcome: object, kept: bool) -> None:
    reads = recent()

    reads.store("request", GetResult("id", outcome), read_at=1.0)  # type: ignore[arg-type]  # a table of outcomes

    assert (reads.find("request", 0.0, 1.0) is not None) is kept


def test_the_oldest_goes_when_there_are_too_many_or_too_large() -> None:
    many, large = recent(), recent(size=80)
    for number in range(4):
        many.store(number, value(), read_at=float(number))
    for number in range(5):
        large.store(number, value("x" * 20), read_at=float(number))

    assert [many.find(number, 0.0, 4.0) is not None for number in range(4)] == [False, True, True, True]
    assert [large.find(number, 0.0, 4.0) is not None for number in range(5)] == [False, False, True, True, True]


def test_old_entries_are_dropped() -> None:
    reads = recent()
    reads.store("old", value(), read_at=1.0)
    reads.store("new", value(), read_at=8.0)

    reads.expire(12.0)

    assert len(reads) == 1
