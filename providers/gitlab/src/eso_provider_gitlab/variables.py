"""CI/CD variables, and which of them a key means.

    get:  project, then groups from last to first; in each the store's environment scope, then *
    find: groups from first to last, then the project over them; an exact scope over *

Both orders are those of the operator in Go. They differ if several groups have the same key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from eso_api.values import SecretBytes
from eso_sdk.errors import backend_error, invalid_request
from eso_sdk.extract import property_in
from eso_wire.values import RemoteRef

ANY: Final = "*"

_KEY: Final = re.compile(r"[A-Za-z0-9_]{1,255}")


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable in one environment scope."""

    key: str
    scope: str
    value: SecretBytes | None
    """None for a hidden variable, whose value GitLab never returns."""


def key_of(ref: RemoteRef) -> str:
    """Return the key of a variable: GitLab allows no dashes in keys, so references may use them for underscores."""
    return ref.key.replace("-", "_")


def is_possible(key: str) -> bool:
    """Return whether GitLab allows this key. A variable with any other key does not exist."""
    return _KEY.fullmatch(key) is not None


def chosen(candidates: Sequence[Variable], environment: str) -> Variable | None:
    """Return the variable of one place that a key means in an environment; None if there is none."""
    if not environment:
        if len(candidates) > 1:
            raise invalid_request(
                f'GitLab has several variables "{candidates[0].key}", in different environment scopes; set environment'
                " of the store"
            )
        return candidates[0] if candidates else None
    by_scope = {candidate.scope: candidate for candidate in candidates}
    return by_scope.get(environment) or by_scope.get(ANY)


def by_key(variables: Iterable[Variable]) -> Mapping[str, Sequence[Variable]]:
    found: dict[str, list[Variable]] = {}
    for variable in variables:
        found.setdefault(variable.key, []).append(variable)
    return found


def merged(
    groups: Iterable[Sequence[Variable]], project: Sequence[Variable], environment: str
) -> Mapping[str, Variable]:
    """Return one variable for each key of a find. Without an environment, variables of every scope take part."""
    found: dict[str, Variable] = {}
    for variables in groups:
        for variable in _in_scope(variables, environment):
            if variable.key not in found or variable.scope != ANY:
                found[variable.key] = variable
    exact: set[str] = set()
    for variable in _in_scope(project, environment):
        if variable.scope != ANY:
            exact.add(variable.key)
        elif variable.key in exact:
            continue
        found[variable.key] = variable
    return found


def _in_scope(variables: Iterable[Variable], environment: str) -> list[Variable]:
    anywhere = environment in ("", ANY)
    return [each for each in variables if anywhere or each.scope in (environment, ANY)]


async def value_in(variable: Variable, ref: RemoteRef) -> bytes:
    """Return the value of a variable, or a property of it. An empty value is an error, as in Go."""
    if variable.value is None:
        raise backend_error(
            f'variable "{variable.key}" is hidden, so GitLab never returns its value; create it again as masked or'
            " visible"
        )
    raw = variable.value.reveal()
    if not raw and not ref.property:
        raise backend_error(f'variable "{variable.key}" of GitLab is empty; set its value')
    return await property_in(raw, ref)
