"""A server that answers like GitHub: Apps, their tokens, and secrets of Actions, which it opens and never returns."""

from __future__ import annotations

import base64
import binascii
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from msgspec import UNSET, Meta, UnsetType
from nacl.exceptions import CryptoError
from nacl.public import PrivateKey, SealedBox

from eso_sdk.testing.standin import ApiContract, Operation, StandIn, StandinRequest, StandinResponse
from kubebase.clock import Clock

# --- What GitHub's API description says about the operations that this provider uses ---------------------------------
#
# | | |
# |---|---|
# | source | `github/rest-api-description`, commit 5c88ff6bc3c36a12ccd69b8e0fee479b7202188a, `descriptions/ghes-3.6` |
# | its licence | MIT |
# | environments | the paths of API version 2022-11-28; their bodies are those of repositories |
#
# The facts are written anew as types, with the members that the description requires; no text of it is here.


Base64 = Annotated[str, Meta(pattern=r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$")]
Visibility = Literal["all", "private", "selected"]
Selection = Literal["all", "selected"]


class Secret(msgspec.Struct):
    """A secret of a repository or an environment."""

    name: str
    created_at: datetime
    updated_at: datetime


class OrganizationSecret(Secret):
    """A secret of an organization."""

    visibility: Visibility
    selected_repositories_url: str | UnsetType = UNSET


class Secrets(msgspec.Struct):
    """A page of secrets."""

    total_count: int
    secrets: list[Secret]


class OrganizationSecrets(msgspec.Struct):
    """A page of secrets of an organization."""

    total_count: int
    secrets: list[OrganizationSecret]


class PublicKey(msgspec.Struct):
    """The key that seals values."""

    key_id: str
    key: str


class NewSecret(msgspec.Struct, forbid_unknown_fields=True):
    """A value for a repository or an environment."""

    encrypted_value: Base64
    key_id: str


class NewOrganizationSecret(msgspec.Struct, forbid_unknown_fields=True):
    """A value for an organization."""

    encrypted_value: Base64
    key_id: str
    visibility: Visibility
    selected_repository_ids: list[int] | UnsetType = UNSET


class User(msgspec.Struct):
    """The owner of a repository."""

    login: str
    id: int
    node_id: str
    gravatar_id: str | None
    type: str
    site_admin: bool
    avatar_url: str
    url: str
    html_url: str
    followers_url: str
    following_url: str
    gists_url: str
    starred_url: str
    subscriptions_url: str
    organizations_url: str
    repos_url: str
    events_url: str
    received_events_url: str


LINKS: Final = (
    "archive", "assignees", "blobs", "branches", "collaborators", "comments", "commits", "compare", "contents",
    "contributors", "deployments", "downloads", "events", "forks", "git_commits", "git_refs", "git_tags", "hooks",
    "html", "issue_comment", "issue_events", "issues", "keys", "labels", "languages", "merges", "milestones",
    "notifications", "pulls", "releases", "stargazers", "statuses", "subscribers", "subscription", "tags",
    "teams", "trees",
)  # fmt: skip
"""The links that a repository has, each as a member NAME_url."""

Repository = msgspec.defstruct(
    "Repository",
    [
        ("id", int),
        ("node_id", str),
        ("name", str),
        ("full_name", str),
        ("private", bool),
        ("fork", bool),
        ("description", str | None),
        ("url", str),
        ("owner", User),
        *((f"{link}_url", str) for link in LINKS),
    ],
)


class SelectedRepositories(msgspec.Struct):
    """A page of repositories that may use a secret."""

    total_count: int
    repositories: list[Repository]  # type: ignore[valid-type] # made of the list of its links


class TokenLimits(msgspec.Struct, forbid_unknown_fields=True):
    """To what a token is limited."""

    repositories: list[str] | UnsetType = UNSET
    repository_ids: list[int] | UnsetType = UNSET
    permissions: dict[str, str] | UnsetType = UNSET


class Token(msgspec.Struct):
    """A token of an installation."""

    token: str
    expires_at: str
    permissions: dict[str, str] | UnsetType = UNSET
    repository_selection: Selection | UnsetType = UNSET


class Installation(msgspec.Struct):
    """An installation of an App."""

    id: int
    app_id: int
    app_slug: str
    target_id: int
    target_type: str
    account: Any
    repository_selection: Selection
    permissions: dict[str, str]
    events: list[str]
    single_file_name: str | None
    access_tokens_url: str
    repositories_url: str
    html_url: str
    created_at: datetime
    updated_at: datetime
    suspended_by: Any
    suspended_at: datetime | None


class Failure(msgspec.Struct):
    """An error."""

    message: str | UnsetType = UNSET
    documentation_url: str | UnsetType = UNSET
    status: str | UnsetType = UNSET


PAGES: Final = frozenset({"per_page", "page"})


def _secrets(place: str, listed: Any, shown: Any, new: Any) -> tuple[Operation, ...]:
    return (
        Operation("GET", place, {200: listed}, query=PAGES),
        Operation("GET", f"{place}/public-key", {200: PublicKey}),
        Operation("GET", f"{place}/{{secret_name}}", {200: shown}),
        Operation("PUT", f"{place}/{{secret_name}}", {201: dict[str, Any], 204: None}, body=new),
        Operation("DELETE", f"{place}/{{secret_name}}", {204: None}),
    )


API: Final = ApiContract(
    "/api/v3",
    Operation("GET", "/app/installations/{installation_id}", {200: Installation}),
    Operation(
        "POST",
        "/app/installations/{installation_id}/access_tokens",
        {201: Token},
        body=TokenLimits,
        is_body_optional=True,
    ),
    Operation("DELETE", "/installation/token", {204: None}),
    *_secrets("/orgs/{org}/actions/secrets", OrganizationSecrets, OrganizationSecret, NewOrganizationSecret),
    Operation(
        "GET", "/orgs/{org}/actions/secrets/{secret_name}/repositories", {200: SelectedRepositories}, query=PAGES
    ),
    *_secrets("/repos/{owner}/{repo}/actions/secrets", Secrets, Secret, NewSecret),
    *_secrets("/repos/{owner}/{repo}/environments/{environment_name}/secrets", Secrets, Secret, NewSecret),
    errors=Failure,
)


# --- A server that answers like GitHub -------------------------------------------------------------------------------


APP: Final = 1234
INSTALLATION: Final = 5678
ORGANIZATION: Final = "acme"
REPOSITORY: Final = "shop"
ENVIRONMENT: Final = "production/eu"
PREFIX: Final = ("api", "v3")
HOUR: Final = 3600.0
RIGHTS: Final = {"organization_secrets": "write", "secrets": "write", "environments": "write", "contents": "read"}

_NAME: Final = re.compile(r"(?!GITHUB_)[A-Z_][A-Z0-9_]*")
_RSA_KEY: Final = rsa.generate_private_key(public_exponent=65537, key_size=2048)

KEY: Final = _RSA_KEY.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()
"""The private key of the App, as GitHub offers it for download."""


@dataclass(slots=True)
class Entry:
    """A secret, with the value that the server has opened."""

    value: bytes = field(repr=False)
    created_at: str
    updated_at: str
    visibility: str = ""
    selected: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Shelf:
    """The secrets of an organization, a repository or an environment, and the key pair to seal them."""

    key_id: str
    key: PrivateKey = field(default_factory=PrivateKey.generate, repr=False)
    entries: dict[str, Entry] = field(default_factory=dict)

    def opened(self, body: Mapping[str, Any]) -> bytes | None:
        """Return the value of a push; None if it was not sealed for this place."""
        try:
            sealed = base64.b64decode(body["encrypted_value"], validate=True)
            return SealedBox(self.key).decrypt(sealed) if body["key_id"] == self.key_id else None
        except (KeyError, binascii.Error, CryptoError, ValueError):
            return None


@dataclass(slots=True)
class GitHubServer(StandIn):
    """GitHub, with one App that is installed in one organization."""

    clock: Clock | None = None
    """The clock of the test; None for the system's."""
    shelves: dict[tuple[str, ...], Shelf] = field(default_factory=dict)
    repositories: dict[str, int] = field(default_factory=dict)
    rights: dict[str, str] = field(default_factory=lambda: dict(RIGHTS))
    tokens: dict[str, float] = field(default_factory=dict, repr=False)
    """Valid tokens, and when they expire."""
    _ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def reset(self, clock: Clock | None = None) -> None:
        """Forget everything that a test made, and all calls; there is one repository with an environment."""
        for made in (self.shelves, self.repositories, self.tokens, self.calls, self.scripted, self.violations):
            made.clear()
        self.clock, self.rights, self.skew = clock, dict(RIGHTS), 0.0
        self.repositories[REPOSITORY] = next(self._ids)
        for place in ((), (REPOSITORY,), (REPOSITORY, ENVIRONMENT)):
            self.shelves[place] = Shelf(str(next(self._ids)))

    def values(self, *place: str) -> dict[str, bytes]:
        """Return the values in a place: none for the organization, or a repository, or it and an environment."""
        return {name: entry.value for name, entry in self.shelves[place].entries.items()}

    def now(self) -> float:
        return StandIn.now(self) if self.clock is None else self.clock.now().timestamp() + self.skew

    async def respond(self, asked: StandinRequest) -> StandinResponse:
        parts = asked.segments
        if parts[:2] != PREFIX:
            return _missing()
        token = asked.headers.get("authorization", "").partition(" ")[2]
        match (asked.method, *parts[2:]):
            case (method, "app", "installations", number, *rest):
                return self._as_app(asked, token) or self._installation(asked, method, number, rest)
            case _ if self.tokens.get(token, 0.0) <= self.now():
                return StandinResponse(401, {"message": "Bad credentials"})
            case ("DELETE", "installation", "token"):
                del self.tokens[token]
                return StandinResponse(204)
            case ("GET", "orgs", organization) if organization == ORGANIZATION:
                return StandinResponse(200, {"login": organization, "url": f"{self.url}/api/v3/orgs/{organization}"})
            case (_, "orgs", organization, "actions", "secrets", *rest) if organization == ORGANIZATION:
                return self._secrets(asked, (), tuple(rest), "organization_secrets")
            case (_, "repos", organization, repository, *rest) if organization == ORGANIZATION:
                return self._repository(asked, repository, tuple(rest))
            case _:
                return _missing()

    # --- the App -----------------------------------------------------------------------------------------------------

    def _as_app(self, asked: StandinRequest, token: str) -> StandinResponse | None:
        """Return the refusal of a JWT; None if it is good."""
        del asked
        try:
            claims = jwt.decode(
                token,
                _RSA_KEY.public_key(),
                algorithms=["RS256"],
                options={"verify_exp": False, "verify_iat": False, "require": ["iat", "exp", "iss"]},
            )
        except jwt.PyJWTError:
            return StandinResponse(401, {"message": "A JSON web token could not be decoded"})
        now = self.now()
        if str(claims["iss"]) != str(APP) or claims["iat"] > now or claims["exp"] <= now:
            return StandinResponse(401, {"message": "A JSON web token could not be decoded"})
        if claims["exp"] - now > 600:
            return StandinResponse(401, {"message": "'Expiration time' claim ('exp') is too far in the future"})
        return None

    def _installation(self, asked: StandinRequest, method: str, number: str, rest: list[str]) -> StandinResponse:
        if number != str(INSTALLATION):
            return _missing()
        if not rest and method == "GET":
            return StandinResponse(200, self._described())
        if rest != ["access_tokens"] or method != "POST":
            return _missing()
        body = asked.json() if asked.body else {}
        rights = body.get("permissions") or self.rights
        if not rights.items() <= self.rights.items() or not set(body.get("repositories", ())) <= set(self.repositories):
            return StandinResponse(422, {"message": "The permissions or repositories requested are not granted"})
        token = f"ghs_CANARY{next(self._ids)}"
        self.tokens[token] = self.now() + HOUR
        said = {"token": token, "expires_at": _time(self.now() + HOUR), "permissions": rights}
        return StandinResponse(201, said | {"repository_selection": "selected" if body.get("repositories") else "all"})

    def _described(self) -> dict[str, Any]:
        """Return the installation, as GitHub describes it."""
        address = f"{self.url}/api/v3/app/installations/{INSTALLATION}"
        links = {"access_tokens_url": f"{address}/access_tokens", "html_url": f"{self.url}/{ORGANIZATION}"}
        owner = {"target_id": 1, "target_type": "Organization", "account": _owner(self.url)}
        times = {"created_at": _time(0), "updated_at": _time(0), "suspended_at": None, "suspended_by": None}
        app = {"app_id": APP, "app_slug": "shop-app", "events": [], "permissions": self.rights}
        lists = {"repositories_url": f"{self.url}/api/v3/installation/repositories", "repository_selection": "all"}
        return {"id": INSTALLATION, "single_file_name": None, **app, **owner, **links, **lists, **times}

    # --- secrets -----------------------------------------------------------------------------------------------------

    def _repository(self, asked: StandinRequest, name: str, rest: tuple[str, ...]) -> StandinResponse:
        if name not in self.repositories:
            return _missing()
        match rest:
            case ():
                address = f"{self.url}/api/v3/repos/{ORGANIZATION}/{name}"
                return StandinResponse(200, {"id": self.repositories[name], "name": name, "url": address})
            case ("actions", "secrets", *more):
                return self._secrets(asked, (name,), tuple(more), "secrets")
            case ("environments", environment) if (name, environment) in self.shelves:
                encoded = environment.replace("/", "%2F")
                address = f"{self.url}/api/v3/repos/{ORGANIZATION}/{name}/environments/{encoded}"
                return StandinResponse(200, {"id": 1, "name": environment, "url": address})
            case ("environments", environment, "secrets", *more) if (name, environment) in self.shelves:
                return self._secrets(asked, (name, environment), tuple(more), "environments")
            case _:
                return _missing()

    def _secrets(
        self, asked: StandinRequest, place: tuple[str, ...], rest: tuple[str, ...], right: str
    ) -> StandinResponse:
        shelf, granted = self.shelves[place], self.rights.get(right, "")
        if not granted or (asked.method != "GET" and granted != "write"):
            return StandinResponse(403, {"message": "Resource not accessible by integration"})
        match (asked.method, *rest):
            case ("GET",):
                told = [_told(name, entry) for name, entry in shelf.entries.items()]
                return StandinResponse(200, {"total_count": len(told), "secrets": told})
            case ("GET", "public-key"):
                return StandinResponse(
                    200, {"key_id": shelf.key_id, "key": base64.b64encode(bytes(shelf.key.public_key)).decode()}
                )
            case ("PUT", name):
                return self._put(asked, shelf, name.upper(), of_organization=not place)
            case (_, name, *_) if name.upper() not in shelf.entries:
                return _missing()
            case ("GET", name):
                return StandinResponse(200, _told(name.upper(), shelf.entries[name.upper()]))
            case ("DELETE", name):
                del shelf.entries[name.upper()]
                return StandinResponse(204)
            case ("GET", name, "repositories") if not place:
                return self._selected(asked, shelf.entries[name.upper()])
            case _:
                return _missing()

    def _put(self, asked: StandinRequest, shelf: Shelf, name: str, *, of_organization: bool) -> StandinResponse:
        body = asked.json()
        value, visibility = shelf.opened(body), body.get("visibility", "")
        if value is None or not _NAME.fullmatch(name):
            return StandinResponse(422, {"message": "Bad request - key_id, encrypted_value or name"})
        if of_organization and visibility not in ("all", "private", "selected"):
            return StandinResponse(422, {"message": "visibility is missing"})
        now, former = _time(self.now()), shelf.entries.get(name)
        created = now if former is None else former.created_at
        # Repositories that a push leaves out lose access.
        shelf.entries[name] = Entry(value, created, now, visibility, body.get("selected_repository_ids", []))
        return StandinResponse(201, {}) if former is None else StandinResponse(204)

    def _selected(self, asked: StandinRequest, entry: Entry) -> StandinResponse:
        size, page = int(asked.query.get("per_page", 30)), int(asked.query.get("page", 1))
        ids = entry.selected[(page - 1) * size : page * size]
        headers = {}
        if page * size < len(entry.selected):
            path = asked.raw_path.partition("?")[0]
            headers["Link"] = f'<{self.url}{path}?per_page={size}&page={page + 1}>; rel="next"'
        repositories = [_repository(each, self.url) for each in ids]
        return StandinResponse(200, {"total_count": len(entry.selected), "repositories": repositories}, headers)


def _repository(number: int, url: str) -> dict[str, Any]:
    """Return a repository, as lists of GitHub describe it."""
    name = f"r{number}"
    address = f"{url}/api/v3/repos/{ORGANIZATION}/{name}"
    links = {f"{link}_url": f"{address}/{link}" for link in LINKS}
    names = {"id": number, "node_id": f"R_{number}", "name": name, "full_name": f"{ORGANIZATION}/{name}"}
    state = {"private": True, "fork": False, "description": None}
    return {**names, **state, **links, "url": address, "owner": _owner(url)}


def _owner(url: str) -> dict[str, Any]:
    """Return the organization, as GitHub describes owners."""
    address = f"{url}/api/v3/orgs/{ORGANIZATION}"
    links = {
        f"{link}_url": f"{address}/{link}"
        for link in ("avatar", "html", "followers", "following", "gists", "starred", "subscriptions", "organizations",
                     "repos", "events", "received_events")
    }  # fmt: skip
    names = {"login": ORGANIZATION, "id": 1, "node_id": "O_1", "gravatar_id": "", "type": "Organization"}
    return {**names, **links, "url": address, "site_admin": False}


def _told(name: str, entry: Entry) -> dict[str, Any]:
    told = {"name": name, "created_at": entry.created_at, "updated_at": entry.updated_at}
    return told | ({"visibility": entry.visibility} if entry.visibility else {})


def _missing() -> StandinResponse:
    return StandinResponse(404, {"message": "Not Found", "status": "404"})


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
