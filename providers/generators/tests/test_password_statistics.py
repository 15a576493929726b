"""Many passwords together: the counts of each are exact, and no character and no position is preferred.

Drawn as users get them, so a bound is set where chance goes beyond it less than once in a hundred million runs.
"""

from __future__ import annotations

import math
import random
import string
from collections import Counter
from collections.abc import Sequence

import pytest

from eso_api.generators.local import PasswordSpec
from eso_provider_generators import generators as module
from eso_provider_generators.generators import DEFAULT_SYMBOLS, password

MANY = 4000
DEVIATIONS = 7.0
LENGTH, DIGITS, SYMBOLS = 24, 6, 4


@pytest.fixture(scope="module", params=[False, True], ids=["each character once", "allowRepeat"])
def passwords(request: pytest.FixtureRequest) -> list[str]:
    spec = PasswordSpec(length=LENGTH, digits=DIGITS, symbols=SYMBOLS, allow_repeat=request.param)
    return [password(spec) for _ in range(MANY)]


def assert_even(counts: Counter[object], over: Sequence[object], draws: int) -> None:
    """So many draws, each of which falls on any of these with the same chance."""
    chance = 1 / len(over)
    expected, deviation = draws * chance, math.sqrt(draws * chance * (1 - chance))
    odd = {each: counts[each] for each in over if abs(counts[each] - expected) > DEVIATIONS * deviation}

    assert counts.total() == draws
    assert odd == {}, f"about {expected:.0f} of each are expected"


def test_every_password_has_exactly_the_characters_of_each_class(passwords: list[str]) -> None:
    """R18."""
    counts = {
        tuple(sum(one in characters for one in made) for characters in (string.digits, DEFAULT_SYMBOLS))
        for made in passwords
    }

    assert {len(made) for made in passwords} == {LENGTH}
    assert counts == {(DIGITS, SYMBOLS)}
    assert len(set(passwords)) == MANY


@pytest.mark.parametrize(
    ("characters", "each"),
    [
        pytest.param(string.digits, DIGITS, id="digits"),
        pytest.param(DEFAULT_SYMBOLS, SYMBOLS, id="symbols"),
        pytest.param(string.ascii_letters, LENGTH - DIGITS - SYMBOLS, id="letters"),
    ],
)
def test_no_character_is_preferred_and_none_is_left_out(passwords: list[str], characters: str, each: int) -> None:
    counts = Counter(one for made in passwords for one in made if one in characters)

    assert_even(Counter(counts), characters, MANY * each)


@pytest.mark.parametrize(
    ("characters", "each"),
    [pytest.param(string.digits, DIGITS, id="digits"), pytest.param(DEFAULT_SYMBOLS, SYMBOLS, id="symbols")],
)
def test_no_position_is_preferred(passwords: list[str], characters: str, each: int) -> None:
    places = Counter(place for made in passwords for place, one in enumerate(made) if one in characters)

    assert_even(Counter(places), range(LENGTH), MANY * each)


def test_chance_comes_from_the_operating_system() -> None:
    assert type(module._RANDOM) is random.SystemRandom


def test_the_bound_notices_a_preference() -> None:
    """One digit that comes a fifth more often than it should."""
    draws = MANY * DIGITS
    preferred = round(draws / 10 * 1.2)
    rest, over = divmod(draws - preferred, 9)
    counts = dict.fromkeys(string.digits, rest) | {"0": preferred, "1": rest + over}

    with pytest.raises(AssertionError, match="are expected"):
        assert_even(Counter(counts), string.digits, draws)
