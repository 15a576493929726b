"""How this operator treats one flag of another command line, such as that of the existing operator. Pure.

The parser itself is asked, so that the answer cannot differ from what happens at start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from eso_operator.process.flags import WITHOUT_EFFECT, parse, parser
from eso_operator.process.settings import SettingsError

_DIFFERENT: Final = {
    "concurrent": "a number below 32 means 32",
}
"""Flags of the existing operator that act here, but in another way."""
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
    flag = f"--{name}"
    try:
        _, unknown = parser().parse_known_args(list(filter(None, [_word(name, value)])))
    except SettingsError as problem:
        return FlagVerdict(flag, Verdict.REFUSED, _without(value or "", str(problem)))
    if unknown:
        return FlagVerdict(flag, Verdict.UNKNOWN, "this operator has no such flag")
    if name in WITHOUT_EFFECT:
        return FlagVerdict(flag, Verdict.WITHOUT_EFFECT, WITHOUT_EFFECT[name])
    if name in _DIFFERENT:
        return FlagVerdict(flag, Verdict.DIFFERENT, _DIFFERENT[name])
    return FlagVerdict(flag, Verdict.ACCEPTED)


def contradiction(arguments: Sequence[str]) -> str:
    """Return why flags that are accepted one by one are refused together; empty if they are not."""
    judged = [word for name, value in flags_in(arguments) if (word := _word(name, value))]
    try:
        parse(judged, {"POD_NAMESPACE": "any"})
    except SettingsError as problem:
        return str(problem)
    return ""


def _word(name: str, value: str | None) -> str:
    """Return the flag as one word; empty if the kubelet replaces its value."""
    if value is None:
        return f"--{name}"
    return "" if _EXPANDED in value else f"--{name}={value}"


def _without(value: str, text: str) -> str:
    """Cut out the value as the parser quotes it."""
    return text.replace(repr(value), "its value").replace(f'"{value}"', "its value")
