"""Requests and responses of the test server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

import msgspec


@dataclass(frozen=True, slots=True)
class Call:
    """One request, as a test reads it."""

    host: str
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(default=b"", repr=False)

    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode(self.body)
        return found

    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode()))


@dataclass(frozen=True, slots=True)
class Reply:
    """One response. `body` is JSON, unless it is bytes."""

    status: int
    body: Any = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)

    def raw(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else msgspec.json.encode(self.body)
