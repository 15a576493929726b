"""CI/CD variables: lists of projects and groups, and which variable a key means.

    get:  project, then groups from last to first; in each the store's environment scope, then *
    find: groups from first to last, then the project over them; an exact scope over *

Both orders are those of the operator in Go. They differ if several groups have the same key.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from eso_api.values import SecretBytes
from eso_provider_gitlab.connection import REFUSED, Place, refusal
from eso_sdk.errors import backend_error, invalid_request, unavailable
from eso_sdk.extract import property_in
from eso_sdk.rest import Rest, RestRequest, next_page
from eso_wire.values import RemoteRef

PAGE: Final = 100
"""The most that GitLab gives in a page."""
ANY: Final = "*"
RIGHTS: Final = "the scope read_api, and the role Maintainer (project) or Owner (group)"

_ATTEMPTS: Final = 3
_CALLS: Final = {"projects": "ProjectVariablesList", "groups": "GroupVariablesList"}

Accepts = Callable[[str], Awaitable[bool]]


class _Listed(msgspec.Struct, gc=False):
    key: str
    value: str | None = None
    environment_scope: str = ANY

    def __repr__(self) -> str:
        return "<variable>"


class _Group(msgspec.Struct, gc=False):
    id: int
    full_path: str = ""


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable in one environment scope."""

    key: str
    scope: str
    value: SecretBytes | None
    """None for a hidden variable, whose value GitLab never returns."""


async def listed(rest: Rest, place: Place, accepts: Accepts) -> list[Variable]:
    """List the variables of a place whose keys are accepted.

    If the number of variables changes between two pages, a variable may have moved to a page that was read before. So
    the list begins again: a variable that was overlooked would look deleted.
    """
    for _ in range(_ATTEMPTS):
        found: list[Variable] = []
        totals: set[str] = set()
        async for answer in rest.pages(_first_page(place, PAGE), next_page):
            if answer.status in REFUSED:
                raise refusal(answer.status, place, RIGHTS)
            totals.add(answer.headers.get("X-Total", ""))
            entries: list[_Listed] = answer.read(list[_Listed])
            found += [_variable(entry) for entry in entries if await accepts(entry.key)]
        if len(totals) == 1:
            return found
    raise unavailable(f"the variables of {place} at GitLab change while they are listed; they are listed again later")


async def probe(rest: Rest, place: Place) -> None:
    """Raise unless the variables of a place can be listed."""
    answer = await rest.send(_first_page(place, 1))
    if answer.status in REFUSED:
        raise refusal(answer.status, place, RIGHTS)


async def groups_above(rest: Rest, place: Place) -> list[str]:
    """Return the ids of the groups above a project, the outermost first."""
    request = RestRequest("GET", place.path("groups"), "ListProjectsGroups", {"per_page": str(PAGE)}, allowed=REFUSED)
    found: list[_Group] = []
    async for answer in rest.pages(request, next_page):
        if answer.status in REFUSED:
            raise refusal(answer.status, place, RIGHTS)
        entries: list[_Group] = answer.read(list[_Group])
        found += entries
    return [str(entry.id) for entry in sorted(found, key=lambda entry: len(entry.full_path))]


def _first_page(place: Place, size: int) -> RestRequest:
    query = {"per_page": str(size)}
    return RestRequest("GET", place.path("variables"), _CALLS[place.collection], query, allowed=REFUSED)


def _variable(entry: _Listed) -> Variable:
    value = None if entry.value is None else SecretBytes(entry.value.encode())
    return Variable(entry.key, entry.environment_scope, value)


# --- which variable ---------------------------------------------------------------------------------------------------


def key_of(ref: RemoteRef) -> str:
    """Return the key of a variable: GitLab allows no dashes in keys, so references may use them for underscores."""
    return ref.key.replace("-", "_")


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


def value_in(variable: Variable, ref: RemoteRef) -> bytes:
    """Return the value of a variable, or a property of it. An empty value is an error, as in Go."""
    if variable.value is None:
        raise backend_error(
            f'variable "{variable.key}" is hidden, so GitLab never returns its value; create it again as masked or'
            " visible"
        )
    raw = variable.value.reveal()
    if not raw and not ref.property:
        raise backend_error(f'variable "{variable.key}" of GitLab is empty; set its value')
    return property_in(raw, ref)
