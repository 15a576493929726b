"""A server that answers like GitLab: variables, groups of projects, deploy tokens, paging, roles, refusals."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from eso_sdk.testing.standin import StandIn, StandinRequest, StandinResponse

TOKEN: Final = "glpat-of-the-tests"  # noqa: S105 - of no real server
READER, EDITOR, GUEST = "read_api", "api", "guest"

DEFAULT_PAGE: Final = 20
MOST: Final = 100
PREFIX: Final = ("api", "v4")

_SCOPES: Final = frozenset(
    {"read_repository", "read_registry", "write_registry", "read_package_registry", "write_package_registry"}
)


@dataclass(slots=True)
class Owner:
    """A project or a group."""

    id: int
    path: str
    variables: list[dict[str, Any]] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    """For a project: the paths of the groups above it."""
    tokens: dict[int, dict[str, Any]] = field(default_factory=dict)

    def put(self, key: str, value: str | None, scope: str = "*") -> None:
        """Create or change a variable; None makes it a hidden one."""
        self.variables[:] = [one for one in self.variables if not _is(one, key, scope)]
        self.variables.append(_variable({"key": key, "value": value, "environment_scope": scope}, hidden=value is None))


@dataclass(slots=True)
class GitLabServer(StandIn):
    """GitLab. `access` maps a token to its right in each place; the token of the tests may do everything."""

    projects: dict[str, Owner] = field(default_factory=dict)
    groups: dict[str, Owner] = field(default_factory=dict)
    access: dict[str, dict[str, str]] = field(default_factory=dict)
    _ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def project(self, path: str = "shop/app", *groups: str) -> Owner:
        """Return a project, made at first use; its groups are made too."""
        if path not in self.projects:
            self.projects[path] = Owner(next(self._ids), path, groups=list(groups))
            for each in groups:
                self.group(each)
        return self.projects[path]

    def group(self, path: str) -> Owner:
        return self.groups.setdefault(path, Owner(next(self._ids), path))

    def reset(self) -> None:
        """Forget everything that a test made, and all calls."""
        for made in (self.projects, self.groups, self.access, self.calls, self.scripted):
            made.clear()
        self.delay = self.skew = 0.0

    async def respond(self, asked: StandinRequest) -> StandinResponse:
        parts = asked.segments
        if parts[:2] != PREFIX:
            return StandinResponse(404, {"error": "404 Not Found"})
        token = asked.headers.get("private-token") or asked.headers.get("authorization", "").removeprefix("Bearer ")
        if token != TOKEN and token not in self.access:
            return StandinResponse(401, {"message": "401 Unauthorized"})
        match parts[2:]:
            case ("projects" | "groups" as collection, name, *rest):
                owner = self._owner(collection, name)
                right = READER if owner is None else self._right(token, owner)
                missing = f"404 {collection.removesuffix('s').capitalize()} Not Found"
                if owner is None or not right:
                    return StandinResponse(404, {"message": missing})
                return self._of_owner(asked, owner, right, tuple(rest))
            case _:
                return StandinResponse(404, {"error": "404 Not Found"})

    def _owner(self, collection: str, name: str) -> Owner | None:
        among = self.projects if collection == "projects" else self.groups
        return among.get(name) or next((owner for owner in among.values() if str(owner.id) == name), None)

    def _right(self, token: str, owner: Owner) -> str:
        return EDITOR if token == TOKEN else self.access[token].get(owner.path, "")

    def _of_owner(self, asked: StandinRequest, owner: Owner, right: str, rest: tuple[str, ...]) -> StandinResponse:
        if rest == ():
            return StandinResponse(200, {"id": owner.id, "path_with_namespace": owner.path, "full_path": owner.path})
        if right == GUEST:
            return StandinResponse(403, {"message": "403 Forbidden"})
        if asked.method != "GET" and right != EDITOR:
            return StandinResponse(403, {"error": "insufficient_scope", "scope": "api"})
        match rest:
            case ("groups",):
                above = [self.groups[path] for path in owner.groups]
                return paged(asked, [{"id": each.id, "full_path": each.path} for each in above])
            case ("variables",):
                return self._create(asked, owner) if asked.method == "POST" else paged(asked, owner.variables)
            case ("variables", key):
                return _of_variable(asked, owner, key)
            case ("deploy_tokens",) if asked.method == "POST":
                return self._issue(asked, owner)
            case ("deploy_tokens",):
                return paged(asked, [_without_token(each) for each in owner.tokens.values()])
            case ("deploy_tokens", number):
                return _of_token(asked, owner, number)
            case _:
                return StandinResponse(404, {"error": "404 Not Found"})

    def _create(self, asked: StandinRequest, owner: Owner) -> StandinResponse:
        made = _variable(_given(asked))
        if any(_is(one, made["key"], made["environment_scope"]) for one in owner.variables):
            return StandinResponse(400, {"message": {"key": [f"({made['key']}) has already been taken"]}})
        owner.variables.append(made)
        return StandinResponse(201, made)

    def _issue(self, asked: StandinRequest, owner: Owner) -> StandinResponse:
        given = _given(asked)
        scopes = given.get("scopes", [])
        if not given.get("name") or not scopes or not set(scopes) <= _SCOPES:
            return StandinResponse(400, {"message": {"scopes": ["can't be blank"]}})
        number = next(self._ids)
        made = {
            "id": number,
            "name": given["name"],
            "username": given.get("username") or f"gitlab+deploy-token-{number}",
            "expires_at": given.get("expires_at"),
            "revoked": False,
            "expired": False,
            "scopes": scopes,
            "token": f"gldt-CANARY-{number}",
        }
        owner.tokens[number] = made
        return StandinResponse(201, made)


def paged(asked: StandinRequest, entries: list[dict[str, Any]]) -> StandinResponse:
    """Answer with one page, and the headers that tell about the others."""
    size = min(int(asked.query.get("per_page", DEFAULT_PAGE)), MOST)
    page = int(asked.query.get("page", 1))
    pages = max(-(-len(entries) // size), 1)
    headers = {
        "X-Total": str(len(entries)),
        "X-Total-Pages": str(pages),
        "X-Page": str(page),
        "X-Per-Page": str(size),
        "X-Next-Page": str(page + 1) if page < pages else "",
        "X-Prev-Page": str(page - 1) if page > 1 else "",
    }
    if page < pages:
        host, path = asked.headers["host"], asked.raw_path.partition("?")[0]
        headers["Link"] = f'<http://{host}{path}?page={page + 1}&per_page={size}>; rel="next"'
    return StandinResponse(200, entries[(page - 1) * size : page * size], headers)


def _of_variable(asked: StandinRequest, owner: Owner, key: str) -> StandinResponse:
    scope = asked.query.get("filter[environment_scope]")
    found = [one for one in owner.variables if one["key"] == key and scope in (None, one["environment_scope"])]
    if not found:
        return StandinResponse(404, {"message": "404 Variable Not Found"})
    if len(found) > 1:
        return StandinResponse(409, {"message": "There are multiple variables with provided parameters"})
    match asked.method:
        case "DELETE":
            owner.variables.remove(found[0])
            return StandinResponse(204)
        case "PUT":
            found[0].update(_given(asked))
    return StandinResponse(200, found[0])


def _of_token(asked: StandinRequest, owner: Owner, number: str) -> StandinResponse:
    made = owner.tokens.get(int(number))
    if made is None:
        return StandinResponse(404, {"message": "404 Deploy Token Not Found"})
    if asked.method == "DELETE":
        del owner.tokens[int(number)]
        return StandinResponse(204)
    return StandinResponse(200, _without_token(made))


def _without_token(made: dict[str, Any]) -> dict[str, Any]:
    """Leave out the token: GitLab tells it once, at creation."""
    return {name: value for name, value in made.items() if name != "token"}


def _given(asked: StandinRequest) -> dict[str, Any]:
    given: dict[str, Any] = asked.json() if asked.body[:1] == b"{" else asked.form()
    return given


def _variable(given: dict[str, Any], *, hidden: bool = False) -> dict[str, Any]:
    return {
        "variable_type": given.get("variable_type", "env_var"),
        "key": given["key"],
        "value": given["value"],
        "protected": False,
        "masked": hidden,
        "hidden": hidden,
        "raw": False,
        "environment_scope": given.get("environment_scope", "*"),
        "description": None,
    }


def _is(variable: dict[str, Any], key: str, scope: str) -> bool:
    return bool(variable["key"] == key and variable["environment_scope"] == scope)
