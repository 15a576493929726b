"""Findings of a structural check: a place below the checked value, and a text for the full path.

Checks run without paths, because nearly every value is valid; only a finding pays for naming its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from localkube.errors import Cause
from localkube.schema import causes

Step = str | int | tuple[str]
"""Into a property, an item, or (as a 1-tuple) the key of a map."""


@dataclass(slots=True)
class Problem:
    """One violation. `steps` leads from the innermost value outwards and grows while the finding travels up."""

    make_cause: Callable[[str], Cause]
    """Makes the cause from the path of the value that is wrong."""
    steps: list[Step]

    def path(self) -> str:
        return render(reversed(self.steps))

    def cause(self) -> Cause:
        return self.make_cause(self.path())


def below(step: Step, problems: list[Problem]) -> list[Problem]:
    for problem in problems:
        problem.steps.append(step)
    return problems


def render(steps: Iterable[Step]) -> str:
    """Return the dotted path, such as `spec.data[0].labels[app]`."""
    return "".join(_rendered(steps)).removeprefix(".")


def _rendered(steps: Iterable[Step]) -> Iterator[str]:
    for step in steps:
        match step:
            case str():
                yield f".{step}"
            case int():
                yield f"[{step}]"
            case (key,):
                yield f"[{key}]"


def child(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def shown(path: str) -> str:
    """Return the path as shown in a cause; the whole object has no path."""
    return path or causes.WHOLE_OBJECT
