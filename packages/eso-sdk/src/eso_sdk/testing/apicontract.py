"""What a backend's published API description says, for the tests of a provider and of its stand-in server.

    API = ApiContract(
        "/v1",
        Operation("GET", "/values/{name}", answers={200: Value}),
        Operation("PUT", "/values/{name}", body=NewValue, answers={204: None}),
        errors=Failure,
    )

    with Keep.started(contract=API) as keep:
        ...
    assert keep.violations == []

Types are those of msgspec: a Struct, `Literal` for an enumeration, `Annotated[str, Meta(pattern=...)]`. A Struct with
`forbid_unknown_fields` refuses members that the description does not have: use it for requests. Requests are checked if
the provider sent them (other clients of a test may use more of the API), answers if the stand-in itself gave them
(scripted ones are faults).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

OURS: Final = "external-secrets"
"""The user agent of providers."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: its path with `{parameters}`, the types of its bodies, and the names of its query parameters."""

    method: str
    path: str
    answers: Mapping[int, Any]
    """The type of the body of each status that is not an error; None if there is no body, bytes if it is not JSON."""
    body: Any = None
    """The type of the request's body; None if there is none."""
    is_body_optional: bool = False
    query: frozenset[str] = frozenset()
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Regular expressions of path parameters."""

    def fits(self, method: str, segments: tuple[str, ...]) -> bool:
        wanted = self.path.strip("/").split("/")
        return (
            method == self.method
            and len(wanted) == len(segments)
            and all(part.startswith("{") or part == found for part, found in zip(wanted, segments, strict=True))
        )


class ApiContract:
    """The operations of an API that a provider uses."""

    def __init__(self, prefix: str, *operations: Operation, errors: Any = Any) -> None:
        self._prefix = tuple(part for part in prefix.split("/") if part)
        self._operations = operations
        self._errors = errors

    def request_problems(
        self, method: str, segments: tuple[str, ...], query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> list[str]:
        """Return what the description does not allow in a request; nothing if a provider did not send it."""
        if headers.get("user-agent") != OURS:
            return []
        name = f"{method} /{'/'.join(segments)}"
        operation = self._operation(method, segments)
        if operation is None:
            return [f"{name}: no such operation"]
        problems = [f"{name}: no query parameter {each}" for each in sorted(set(query) - operation.query)]
        for part, found in zip(operation.path.strip("/").split("/"), segments[len(self._prefix) :], strict=True):
            if not re.fullmatch(operation.parameters.get(part.strip("{}"), ".+"), found):
                problems.append(f"{name}: {part} does not have the form of its description")
        if operation.body is None or (operation.is_body_optional and not body):
            return problems + ([f"{name}: the request has a body"] if body else [])
        return problems + [f"{name}: body: {each}" for each in _problems(body, operation.body)]

    def answer_problems(self, method: str, segments: tuple[str, ...], status: int, body: bytes) -> list[str]:
        """Return what the description does not allow in a response; nothing for operations that it does not have."""
        operation = self._operation(method, segments)
        if operation is None:
            return []
        name = f"{method} /{'/'.join(segments)}: answer {status}"
        if status >= 400:
            return [f"{name}: {each}" for each in _problems(body, self._errors)]
        if status not in operation.answers:
            return [f"{name}: no such status"]
        expected = operation.answers[status]
        if expected is None:
            return [f"{name} has a body"] if body else []
        return [] if expected is bytes else [f"{name}: {each}" for each in _problems(body, expected)]

    def _operation(self, method: str, segments: tuple[str, ...]) -> Operation | None:
        if segments[: len(self._prefix)] != self._prefix:
            return None
        rest = segments[len(self._prefix) :]
        fitting = [each for each in self._operations if each.fits(method, rest)]
        # A path without parameters comes first.
        return min(fitting, key=lambda each: each.path.count("{"), default=None)


def _problems(body: bytes, kind: Any) -> list[str]:
    """Return what is wrong with JSON. The text names members and types, never a value."""
    try:
        msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as problem:
        return [str(problem)]
    except msgspec.DecodeError:
        return ["not JSON"]
    return []
