"""The variables of projects and groups, as GitLab lists them or tells them one by one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final

import msgspec

from eso_api.values import SecretBytes
from eso_provider_gitlab.connection import REFUSED, Place, refusal
from eso_provider_gitlab.variables import ANY, Variable, by_key
from eso_sdk.errors import unavailable
from eso_sdk.rest import Rest, RestRequest, next_page

PAGE: Final = 100
"""The most that GitLab gives in a page."""
RIGHTS: Final = "the scope read_api, and the role Maintainer (project) or Owner (group)"

_ATTEMPTS: Final = 3
_SEVERAL: Final = 409
_CALLS: Final = {"projects": "ProjectVariable", "groups": "GroupVariable"}

Accepts = Callable[[str], Awaitable[bool]]


class _Told(msgspec.Struct, gc=False):
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
                found += [_variable(told) for told in answer.read(list[_Told]) if await accepts(told.key)]
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
                return [_variable(answer.read(_Told))]
        return ()


def _list(place: Place, size: int) -> RestRequest:
    call = f"{_CALLS[place.collection]}sList"
    return RestRequest("GET", place.path("variables"), call, {"per_page": str(size)}, allowed=REFUSED)


def _variable(told: _Told) -> Variable:
    return Variable(told.key, told.environment_scope, None if told.value is None else SecretBytes(told.value.encode()))
