"""What the conformance suite needs to try this provider: an organization with an App, and the cases that do not apply.

Most cases read values, or read back what they have pushed. A store that can only write offers neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from eso_provider_github.conformance import Installed, fixture
from eso_provider_github.testing.server import APP, INSTALLATION, KEY, ORGANIZATION, GitHubServer

WITHOUT: Final[Mapping[str, frozenset[str]]] = {
    "read": frozenset(
        {
            "concurrency: answers many calls at once, each with its own answer",
            "errors: never gives an error page of its backend as a value",
            "errors: refuses a configuration that is not JSON with CONFIG_INVALID",
            "errors: refuses a protocol version it does not speak with PROTOCOL_INCOMPATIBLE",
            "errors: shows no credential in an error",
            "errors: shows no value in an error",
            "find: ends the stream with `last`, in the last page and in no other",
            "find: finds nothing with a pattern that matches nothing, and still says `last`",
            "find: gives exactly the keys that match, each once",
            "find: keeps to the page size",
            "get map: gives all properties of a key",
            "get: accepts an empty batch",
            "get: answers every item of a batch once, under its id, whatever happened to the others",
            "get: gives every known value of the fixture",
            "get: gives the value of a key, byte for byte",
            "get: reports a missing key as SECRET_NOT_FOUND of that item, not as a failed call",
            "get: reports a missing property without giving the whole value instead",
            "get: reports a missing version as not found",
            "namespaces: refuses a reference of a namespaced configuration to another namespace",
            "namespaces: serves a namespaced store with what is of its own namespace only",
            "robustness: answers an empty message with an error that says what is missing",
            "robustness: goes on serving after calls were cancelled and deadlines passed",
            "robustness: refuses a batch above its own limit instead of dropping items",
            "robustness: refuses two items of one id",
        }
    ),
    "write": frozenset(
        {
            "delete: removes what was pushed",
            "ownership: deletes nothing that another owner pushed",
            "ownership: overwrites nothing that another owner pushed, and says OWNERSHIP_CONFLICT",
            "push: gives the same result when a push is repeated under its idempotency key",
            "push: leaves an existing value alone with IF_ABSENT, and says SKIPPED_EXISTS",
            "push: lets exactly one of many simultaneous IF_ABSENT pushes win",
            "push: stores a value byte for byte, also when it is no text",
        }
    ),
}
"""By profile: the cases that apply to none of the kinds."""


@contextmanager
def github_backend() -> Iterator[Mapping[str, Any]]:
    """Run GitHub; yield the fixture for it."""
    with GitHubServer.started() as github:
        github.reset()
        yield fixture(Installed(ORGANIZATION, APP, INSTALLATION, KEY, github.url, f"{github.url}/api/v3"))
