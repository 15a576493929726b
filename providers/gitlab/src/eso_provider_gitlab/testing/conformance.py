"""What the conformance suite needs to try this provider: a project with three variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from eso_provider_gitlab.conformance import fixture
from eso_provider_gitlab.testing.server import TOKEN, GitLabServer

_VARIABLES: Final = {"GREETING": "hello", "LOGIN": '{"user":"anna","realm":"test"}', "OTHER": "x"}
_KNOWN: Final[Mapping[str, Any]] = {
    "known": [{"key": "GREETING", "value": "hello"}, {"key": "LOGIN", "value": "anna", "property": "user"}],
    "maps": [{"key": "LOGIN", "value": {"user": "anna", "realm": "test"}}],
    "find": {"name": "^(GREETING|LOGIN)$", "keys": ["GREETING", "LOGIN"]},
}


@contextmanager
def gitlab_backend() -> Iterator[Mapping[str, Any]]:
    """Run GitLab; yield the fixture for it."""
    with GitLabServer.started() as gitlab:
        for key, value in _VARIABLES.items():
            gitlab.project().put(key, value)
        yield fixture(gitlab.url, "shop/app", TOKEN, **_KNOWN)
