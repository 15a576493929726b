"""Which remote keys a find means, for backends that cannot search themselves."""

from __future__ import annotations

from collections.abc import Mapping

import re2

from eso_sdk.errors import invalid_request
from eso_wire.values import FindQuery

_OPTIONS = re2.Options()
_OPTIONS.max_mem = 8 * 1024 * 1024
_OPTIONS.log_errors = False


class Matcher:
    """A query, ready to be held against keys. Patterns are RE2, as in Go: no look-around, no catastrophic cases."""

    def __init__(self, query: FindQuery) -> None:
        try:
            self._name = re2.compile(query.name_regexp, _OPTIONS)
        except re2.error:
            raise invalid_request("the name pattern is no RE2 regular expression") from None
        self._path = query.path
        self._tags = query.tags

    def matches(self, key: str, tags: Mapping[str, str] | None = None) -> bool:
        """The path is a prefix, the pattern is found anywhere in the key, all tags have these values."""
        carried = tags or {}
        return (
            key.startswith(self._path)
            and self._name.search(key) is not None
            and all(carried.get(name) == value for name, value in self._tags.items())
        )
