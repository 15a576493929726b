"""CI/CD variables, and which of them a key means.

    get:  project, then groups from last to first; in each the store's environment scope, then *
    find: groups from first to last, then the project over them; an exact scope over *

Both orders are those of the operator in Go. They differ if several groups have the same key.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from yarl import URL

from eso_api.values import SecretBytes
from eso_sdk.backend import Backend
from eso_sdk.errors import backend_error, invalid_config, invalid_request, unavailable
from eso_sdk.extract import property_in
from eso_sdk.logins import FixedHeaders, header_text
from eso_sdk.rest import Rest, RestRequest, RestSettings, next_page, segments
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import RemoteRef

# --- Requests to one GitLab: its address, the access token, and the errors of projects and groups --------------------


DEFAULT_URL: Final = "https://gitlab.com"
REFUSED: Final = (403, 404)

_API: Final = "/api/v4"


@dataclass(frozen=True, slots=True)
class Place:
    """A project or a group, by id or path."""

    collection: str
    """`projects` or `groups`."""
    id: str

    def __str__(self) -> str:
        return f'{self.collection.removesuffix("s")} "{self.id}"'

    def path(self, *more: str) -> str:
        return segments(self.collection, self.id, *more)


def project(place: str) -> Place:
    return Place("projects", place)


def group(place: str) -> Place:
    return Place("groups", place)


def base_of(url: str) -> URL:
    """Return the address of the API. `url` may contain its path already, as GitLab's own clients accept it."""
    try:
        base = URL((url or DEFAULT_URL).rstrip("/").removesuffix(_API) + _API)
    except ValueError:
        raise invalid_config("/url", "must be a URL such as https://gitlab.example.com") from None
    if base.scheme not in ("http", "https") or not base.host:
        raise invalid_config("/url", "must be a URL such as https://gitlab.example.com")
    if base.user is not None or base.password is not None:
        raise invalid_config("/url", "must not contain a user or a password")
    return base


def connect(backend: Backend[Any], url: str, token: SecretBytes, *, field: str, ca: bytes = b"") -> Rest:
    """Open the connection of a session. `field` names the token in the configuration."""
    base = base_of(url)
    settings = RestSettings(f"GitLab {base.origin()}", base, ca=ca)
    return Rest(backend, settings, FixedHeaders({"PRIVATE-TOKEN": header_text(token, field)}))


def refusal(status: int, place: Place, rights: str) -> ProviderError:
    """Return the error for a project or group that answers 403 or 404: neither says that a variable is absent."""
    problem = (
        f"{place} denies access; the access token needs {rights}"
        if status == 403
        else f"{place} does not exist, or the access token may not see it; check its id, and grant {rights}"
    )
    return ProviderError(ErrorReason.PERMISSION_DENIED, f"GitLab: {problem}", backend_code=str(status))


# --- CI/CD variables, and which of them a key means ------------------------------------------------------------------


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


# --- The variables of projects and groups, as GitLab lists them or tells them one by one -----------------------------


PAGE: Final = 100
"""The most that GitLab gives in a page."""
RIGHTS: Final = "the scope read_api, and the role Maintainer (project) or Owner (group)"

_ATTEMPTS: Final = 3
_SEVERAL: Final = 409
_CALLS: Final = {"projects": "ProjectVariable", "groups": "GroupVariable"}

Accepts = Callable[[str], Awaitable[bool]]


class _VariableResponse(msgspec.Struct, gc=False):
    key: str
    value: str | None = None
    environment_scope: str = ANY

    def __repr__(self) -> str:
        return "<variable>"


class _Group(msgspec.Struct, gc=False):
    id: int
    full_path: str = ""


class Catalog:
    """The variables that one store may use, in its environment."""

    def __init__(self, rest: Rest, environment: str) -> None:
        self._rest = rest
        self._scopes = (environment, ANY) if environment not in ("", ANY) else (environment,)
        self._pages: dict[Place, int] = {}
        """How many pages the last list of a place had."""

    async def of_keys(self, place: Place, keys: Collection[str]) -> Mapping[str, Sequence[Variable]]:
        """Return the variables with these keys: from a list, or one by one if that takes fewer calls."""
        if self._pages.get(place, 1) <= len(keys) * len(self._scopes):
            return await self._listed(place, keys)
        found = {key: await self._one(place, key) for key in keys}
        if not all(found.values()):
            await self.probe(place)  # a missing project answers like a missing variable
        return {key: variables for key, variables in found.items() if variables}

    async def overlooked(self, place: Place, key: str) -> Sequence[Variable]:
        """Ask for one key that a list of several pages lacks: it may have moved to a page that was read before."""
        return await self._one(place, key) if self._pages.get(place, 1) > 1 else ()

    async def all(self, place: Place, accepts: Accepts) -> list[Variable]:
        """List the variables of a place whose keys are accepted.

        If the number of variables changes between two pages, the list begins again: a variable that was overlooked
        would look deleted.
        """
        for _ in range(_ATTEMPTS):
            found: list[Variable] = []
            totals: list[str] = []
            async for answer in self._rest.pages(_list(place, PAGE), next_page):
                if answer.status in REFUSED:
                    raise refusal(answer.status, place, RIGHTS)
                totals.append(answer.headers.get("X-Total", ""))
                found += [
                    _variable(response)
                    for response in answer.read(list[_VariableResponse])
                    if await accepts(response.key)
                ]
            self._pages[place] = len(totals)
            if len(set(totals)) == 1:
                return found
        raise unavailable(f"the variables of {place} at GitLab change while they are listed; try again later")

    async def probe(self, place: Place) -> None:
        """Raise unless the variables of a place can be listed."""
        answer = await self._rest.send(_list(place, 1))
        if answer.status in REFUSED:
            raise refusal(answer.status, place, RIGHTS)

    async def groups_above(self, place: Place) -> list[str]:
        """Return the ids of the groups above a project, the outermost first."""
        query = {"per_page": str(PAGE)}
        request = RestRequest("GET", place.path("groups"), "ListProjectsGroups", query, allowed=REFUSED)
        found: list[_Group] = []
        async for answer in self._rest.pages(request, next_page):
            if answer.status in REFUSED:
                raise refusal(answer.status, place, RIGHTS)
            found += answer.read(list[_Group])
        return [str(entry.id) for entry in sorted(found, key=lambda entry: len(entry.full_path))]

    async def _listed(self, place: Place, keys: Collection[str]) -> Mapping[str, Sequence[Variable]]:
        async def accepts(key: str) -> bool:
            return key in keys

        return by_key(await self.all(place, accepts))

    async def _one(self, place: Place, key: str) -> Sequence[Variable]:
        """Return the variable of a key in the first scope that has one."""
        call, path = f"{_CALLS[place.collection]}Get", place.path("variables", key)
        for scope in self._scopes:
            query = {"filter[environment_scope]": scope} if scope else {}
            answer = await self._rest.get(path, call=call, query=query, allowed=(*REFUSED, _SEVERAL))
            if answer.status == 403:
                raise refusal(answer.status, place, RIGHTS)
            if answer.status == _SEVERAL:
                return (await self._listed(place, {key})).get(key, ())
            if answer.status != 404:
                return [_variable(answer.read(_VariableResponse))]
        return ()


def _list(place: Place, size: int) -> RestRequest:
    call = f"{_CALLS[place.collection]}sList"
    return RestRequest("GET", place.path("variables"), call, {"per_page": str(size)}, allowed=REFUSED)


def _variable(found: _VariableResponse) -> Variable:
    return Variable(
        found.key,
        found.environment_scope,
        None if found.value is None else SecretBytes(found.value.encode()),
    )
