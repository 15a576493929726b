"""Similar names: found, bounded, and the same in any order."""

from __future__ import annotations

import pytest

from kubebase.hints import LONGEST_NAME, hint, similar, with_hint

KNOWN = ("vault-prod", "vault-dev", "aws", "Password")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("vault-prd", "did you mean vault-prod?", id="a missing letter"),
        pytest.param("pasword", "did you mean Password?", id="case does not matter"),
        pytest.param("PASSWORD", "did you mean Password?", id="only the case differs"),
        pytest.param("gitlab", "", id="nothing is similar"),
        pytest.param("aws", "", id="the name itself is no suggestion"),
        pytest.param("", "", id="no name"),
    ],
)
def test_a_hint_names_the_most_similar_name(name: str, expected: str) -> None:
    assert hint(name, KNOWN) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("vault-prd", "no store; did you mean vault-prod?", id="similar"),
        pytest.param("gitlab", "no store", id="not similar"),
    ],
)
def test_a_message_ends_with_the_hint_if_there_is_one(name: str, expected: str) -> None:
    assert with_hint("no store", name, KNOWN) == expected


def test_several_names_are_joined_best_first() -> None:
    assert hint("vault-prod2", KNOWN, count=2) == "did you mean vault-prod or vault-dev?"


def test_the_order_of_the_known_names_does_not_matter() -> None:
    names = [f"store-{number}" for number in range(300)] + ["store-A", "store-a"]

    assert similar("store-x", names, count=3) == similar("store-x", reversed(names), count=3)


def test_a_long_name_is_not_suggested() -> None:
    long = "a" * (LONGEST_NAME + 1)

    assert similar(long[1:], [long]) == []


def test_names_of_similar_length_are_compared_first() -> None:
    """The number of comparisons is bounded."""
    others = [f"{number:04}-something-quite-different" for number in range(5000)]

    assert similar("vualt", [*others, "vault"]) == ["vault"]
