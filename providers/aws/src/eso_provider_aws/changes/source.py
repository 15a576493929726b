"""What differs between services that are watched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from eso_provider_aws.changes.topics import Naming, Scope, State


@dataclass(frozen=True, slots=True)
class Source:
    """How the names of one service are listed and read."""

    service: str
    operation: str
    about: str
    naming: Naming
    narrowed: Callable[[Scope], dict[str, Any]]
    """Parameters of the call that lists them."""
    states: Callable[[dict[str, Any]], Iterator[tuple[str, State]]]
    """What a page says about each name."""
