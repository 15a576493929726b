"""How this operator treats one flag of another command line, such as that of the existing operator. Pure.

The parser itself is asked, so that the answer cannot differ from what happens at start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Final

from eso_operator.process.flags import WITHOUT_EFFECT, parser
from eso_operator.process.settings import SettingsError

_DIFFERENT: Final = frozenset({"concurrent"})
"""Flags of the existing operator that act here, but in another way; their help says how."""
_EXPANDED: Final = "$("
"""Begins a value that the kubelet replaces, so that its text says nothing."""


class Verdict(Enum):
    ACCEPTED = "accepted"
    DIFFERENT = "different"
    WITHOUT_EFFECT = "without effect"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class FlagVerdict:
    """`says` is the reason, for every verdict but `ACCEPTED`."""

    flag: str
    verdict: Verdict
    says: str = ""


def flags_in(arguments: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yield name and value of each flag, spelled `--name=value`, `--name value` or `--name`; skip other words."""
    for position, argument in enumerate(arguments):
        name, equals, value = argument.lstrip("-").partition("=")
        if not argument.startswith("-") or not name:
            continue
        following = arguments[position + 1 : position + 2]
        if not equals and following and not following[0].startswith("-"):
            yield name, following[0]
        else:
            yield name, value if equals else None


def examine(name: str, value: str | None) -> FlagVerdict:
    """Return what happens if the operator is started with this flag. The value is not repeated."""
    flag, usable = f"--{name}", value is None or _EXPANDED not in value
    try:
        _, unknown = parser().parse_known_args([flag if value is None else f"{flag}={value}"] if usable else [])
    except SettingsError as problem:
        return FlagVerdict(flag, Verdict.REFUSED, _without(value or "", str(problem)))
    if unknown:
        return FlagVerdict(flag, Verdict.UNKNOWN, "this operator has no such flag")
    if name in WITHOUT_EFFECT:
        return FlagVerdict(flag, Verdict.WITHOUT_EFFECT, WITHOUT_EFFECT[name])
    if name in _DIFFERENT:
        return FlagVerdict(flag, Verdict.DIFFERENT, _help()[flag])
    return FlagVerdict(flag, Verdict.ACCEPTED)


def _without(value: str, text: str) -> str:
    """Cut out the value as the parser quotes it."""
    return text.replace(repr(value), "its value").replace(f'"{value}"', "its value")


@cache
def _help() -> dict[str, str]:
    actions = parser()._actions  # noqa: SLF001 - argparse has no other way to list what was added
    return {option: action.help or "" for action in actions for option in action.option_strings}
