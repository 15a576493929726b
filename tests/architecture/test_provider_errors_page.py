"""The page of errors says what the code does: every error, with its reason, cause, retry, store and deletion."""

import inspect
import re
from pathlib import Path

import pytest

from eso_operator.providers.errors import EFFECTS, LONGEST_WAIT, StoreHealth, cause_of
from eso_sdk import ProviderError, errors
from eso_wire.errors import ErrorReason, RetryClass

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/guides/provider-errors.md").read_text(encoding="utf-8")
STATUSES = {
    "2xx": range(200, 300),
    "401": (401,),
    "403": (403,),
    "404 and other 3xx, 4xx": (301, 400, 404, 405, 409, 422),
    "413": (413,),
    "429": (429,),
    "5xx": (500, 502, 503, 504),
}


def rows(heading: str) -> list[list[str]]:
    """The rows of the table that begins with this heading, without head and rule."""
    table = PAGE.partition(f"\n| {heading} |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()[2:]]


def every_error() -> dict[str, ProviderError]:
    """One error of each function, by the call as the page spells it."""
    made = {}
    for name, make in inspect.getmembers(errors, inspect.isfunction):
        if make.__module__ != errors.__name__ or make in (errors.error_for_status, errors.with_status):
            continue
        given = [one for one in inspect.signature(make).parameters.values() if one.kind is one.POSITIONAL_OR_KEYWORD]
        arguments = ["x" if one.default is one.empty else one.default for one in given]
        made[f"`{name}({', '.join(one.name for one in given)})`"] = make(*arguments)
    return made


def test_the_page_lists_every_error_with_what_the_operator_does() -> None:
    facts = {row[0]: row[2:] for row in rows("error")}

    assert facts == {
        call: [
            f"`{error.reason}`",
            f"`{cause_of(error)}`",
            f"`{error.retry}`",
            EFFECTS[error.reason].store_health.value,
            "yes" if error.reason is ErrorReason.SECRET_NOT_FOUND else "no",
        ]
        for call, error in every_error().items()
    }


def test_the_page_explains_every_word_of_its_columns() -> None:
    assert {row[0] for row in rows("retry")} == {f"`{one}`" for one in RetryClass} - {"`UNSPECIFIED`"}
    assert {row[0] for row in rows("store")} == {one.value for one in StoreHealth} - {StoreHealth.INCOMPATIBLE.value}
    assert ("one hour" in PAGE) == (LONGEST_WAIT == 3600)


@pytest.mark.parametrize(("status", "reason"), [pytest.param(*row, id=row[0]) for row in rows("status")])
def test_a_status_becomes_the_error_that_the_page_names(status: str, reason: str) -> None:
    for code in STATUSES[status]:
        error = errors.error_for_status(code, "the backend", retry_after=7.0)

        assert reason == ("none" if error is None else f"`{error.reason}`")
        assert error is None or error.retry_after == (7.0 if code == 429 else 0.0)


def test_the_page_knows_every_status_of_this_test() -> None:
    assert [row[0] for row in rows("status")] == list(STATUSES)


def test_the_guide_leads_to_the_page_and_its_names_exist() -> None:
    guide = (ROOT / "docs/guides/write-a-provider.md").read_text(encoding="utf-8")

    assert "(provider-errors.md)" in guide
    assert {name for name in re.findall(r"errors\.(\w+)\(", PAGE) if not hasattr(errors, name)} == set()
