"""The differences between the watched services."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from eso_provider_aws.changes.topics import Naming, Scope, State


@dataclass(frozen=True, slots=True)
class Source:
    """The listing call of one service and the parsing of its pages."""

    service: str
    operation: str
    about: str
    naming: Naming
    narrowed: Callable[[Scope], dict[str, Any]]
    """Returns the parameters of the listing call."""
    states: Callable[[dict[str, Any]], Iterator[tuple[str, State]]]
    """Returns the state of each name on a page."""
