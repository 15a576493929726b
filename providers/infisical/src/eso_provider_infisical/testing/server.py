"""A server that stands in for Infisical: logins, secrets of the APIs v4 and v3, projects by slug."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from eso_provider_infisical.store import InfisicalStore
from eso_sdk.testing import call_context
from eso_sdk.testing.standin import StandIn, StandinRequest, StandinResponse
from eso_wire.values import Context

# ---------------------------------------------------------------------------------------------------------------------
# The contents of the stand-in: projects with environments, folders, secrets and imports, and who may see them.


HIDDEN: Final = "<hidden-by-infisical>"
_REFERENCE: Final = re.compile(r"\$\{([A-Za-z0-9_]+)\}")


@dataclass(slots=True)
class StoredSecret:
    """All versions of one secret, the newest last."""

    key: str
    versions: list[str]

    @property
    def value(self) -> str:
        return self.versions[-1]


@dataclass(slots=True)
class Folder:
    """One folder of an environment."""

    secrets: dict[str, StoredSecret] = field(default_factory=dict)
    imports: list[str] = field(default_factory=list)
    """Paths of folders of the same environment."""


@dataclass(slots=True)
class Project:
    """One project; folders by environment and path."""

    id: str
    slug: str
    folders: dict[tuple[str, str], Folder] = field(default_factory=dict)
    protected: bool = False
    """Whether changes need an approval."""

    def folder(self, environment: str, path: str) -> Folder:
        """Return a folder, made if needed, with its environment."""
        self.folders.setdefault((environment, "/"), Folder())
        return self.folders.setdefault((environment, path), Folder())

    def put(self, path: str, value: str, environment: str = "dev") -> None:
        """Store a value at a path such as `/app/NAME`."""
        folder, _, name = path.rpartition("/")
        secrets = self.folder(environment, folder or "/").secrets
        if name in secrets:
            secrets[name].versions.append(value)
        else:
            secrets[name] = StoredSecret(name, [value])

    def find(self, path: str, environment: str = "dev") -> str | None:
        """Return the newest value at a path."""
        folder, _, name = path.rpartition("/")
        held = self.folders.get((environment, folder or "/"))
        return held.secrets[name].value if held is not None and name in held.secrets else None

    def remove(self, path: str, environment: str = "dev") -> None:
        folder, _, name = path.rpartition("/")
        self.folders[environment, folder or "/"].secrets.pop(name)

    def expanded(self, environment: str, path: str, value: str) -> str:
        """Replace references to secrets of the same folder."""
        secrets = self.folders[environment, path].secrets
        return _REFERENCE.sub(lambda found: secrets[found[1]].value if found[1] in secrets else "", value)


@dataclass(slots=True)
class Identity:
    """A machine identity and the names of secrets it may not see, not read, and whether it may list."""

    id: str
    projects: frozenset[str]
    unseen: frozenset[str] = frozenset()
    """Left out of lists; 403 if requested."""
    unread: frozenset[str] = frozenset()
    """A list with one of them is denied, as is the secret itself."""
    unwritten: frozenset[str] = frozenset()
    """Every change of them is denied, and of a batch with one of them."""
    masked: frozenset[str] = frozenset()
    """Shown with a placeholder instead of the value, as some versions of the server do."""


def described(project: Project, environment: str, path: str, secret: StoredSecret, value: str) -> dict[str, Any]:
    """Return a secret as the API gives it."""
    identifier = hashlib.sha256(f"{project.id}{environment}{path}{secret.key}".encode()).hexdigest()[:32]
    return {
        "id": identifier,
        "_id": identifier,
        "workspace": project.id,
        "environment": environment,
        "version": len(secret.versions),
        "type": "shared",
        "secretKey": secret.key,
        "secretValue": value,
        "secretComment": "",
        "secretPath": path,
        "secretValueHidden": value == HIDDEN,
        "createdAt": "2026-01-01T00:00:00.000Z",
        "updatedAt": "2026-01-01T00:00:00.000Z",
        "tags": [],
    }


def etag_of(body: Any) -> str:
    return f'"{hashlib.sha256(msgspec.json.encode(body)).hexdigest()}"'


# --- A server that stands in for Infisical ---------------------------------------------------------------------------


CLIENT_ID: Final = "11111111-1111-4111-8111-111111111111"
CLIENT_SECRET: Final = "client-secret-canary"  # noqa: S105 - of a test server
MAIN: Final = "shop"

_RAW: Final = ("api", "v3", "secrets", "raw")
_V4: Final = ("api", "v4", "secrets")


class RefusedError(Exception):
    """A response with an error, in the form of the API."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.response = StandinResponse(
            status, {"statusCode": status, "message": message, "error": "Error", "reqId": "req-1"}
        )


@dataclass(slots=True)
class InfisicalServer(StandIn):
    """Projects, identities and their tokens."""

    projects: dict[str, Project] = field(default_factory=dict, repr=False)
    logins: dict[str, Identity] = field(default_factory=dict, repr=False)
    """Identities by what proves them: client id and secret, or the method and the identity id."""
    tokens: dict[str, tuple[Identity, float]] = field(default_factory=dict, repr=False)
    """Identity and end of life of each token."""
    token_seconds: int = 7200
    has_v4: bool = True
    """Whether the server has the API v4, as newer ones do."""
    old_lookup: bool = False
    """Whether projects have the path of older servers."""

    def __post_init__(self) -> None:
        self.project(MAIN).folder("dev", "/")
        self.logins[f"{CLIENT_ID}:{CLIENT_SECRET}"] = Identity("identity-one", frozenset({MAIN}))

    def project(self, slug: str = MAIN) -> Project:
        return self.projects.setdefault(slug, Project(f"id-of-{slug}", slug))

    def token(self, identity: Identity | None = None) -> str:
        """Issue a token without a request: an access token made in the UI."""
        made = f"st.{secrets.token_hex(16)}"
        self.tokens[made] = (identity or Identity("identity-token", frozenset({MAIN})), float("inf"))
        return made

    def lists(self) -> list[StandinRequest]:
        """Return the lists of folders so far."""
        return [each for each in self.requests("GET *") if each.segments in (_RAW, _V4) and each.query]

    def singles(self) -> list[StandinRequest]:
        """Return the reads of single secrets so far."""
        return [each for each in self.requests("GET *") if each.segments[:-1] in (_RAW, _V4)]

    def writes(self) -> list[StandinRequest]:
        """Return the changes of secrets so far."""
        return [each for each in self.calls if each.method != "GET" and each.segments[:-1] in (_RAW, _V4)]

    async def respond(self, request: StandinRequest) -> StandinResponse:
        try:
            return self._respond(request)
        except RefusedError as refused:
            return refused.response

    # --- logins ------------------------------------------------------------------------------------------------------

    def _respond(self, request: StandinRequest) -> StandinResponse:
        match (request.method, *request.segments):
            case ("POST", "api", "v1", "auth", method, "login"):
                return self._login(method, request.json())
            case ("GET", "api", "v1", "projects", "slug", slug) if not self.old_lookup:
                return self._lookup(request, slug)
            case ("GET", "api", "v1", "workspace", "slug", slug) if self.old_lookup:
                return self._lookup(request, slug)
            case ("GET", *path) if self._is_api(path):
                return self._list(request)
            case (("POST" | "PATCH" | "DELETE") as method, *path, "batch") if self.has_v4 and tuple(path) == _V4:
                return self._change_all(request, method)
            case ("GET", *path, name) if self._is_api(path):
                return self._get(request, name)
            case (("POST" | "PATCH" | "DELETE") as method, *path, name) if tuple(path) == _RAW:
                return self._change(request, method, name)
            case _:
                message = f"Route {request.method}:{request.path} not found"
                return StandinResponse(404, {"message": message, "error": "Not Found", "statusCode": 404})

    def _is_api(self, path: Sequence[str]) -> bool:
        """Return whether a path is the one of the secrets, in a version of the API that the server has."""
        return tuple(path) == _RAW or (self.has_v4 and tuple(path) == _V4)

    def _login(self, method: str, body: Mapping[str, Any]) -> StandinResponse:
        proof = f"{method}:{body.get('identityId')}"
        if method == "universal-auth":
            proof = f"{body.get('clientId')}:{body.get('clientSecret')}"
        if proof not in self.logins:
            raise RefusedError(401, f"Invalid credentials {body.get('clientSecret') or body.get('jwt') or ''}")
        token = f"jwt.{secrets.token_hex(16)}"
        self.tokens[token] = (self.logins[proof], self.now() + self.token_seconds)
        response = {
            "accessToken": token,
            "expiresIn": self.token_seconds,
            "accessTokenMaxTTL": 10 * self.token_seconds,
            "tokenType": "Bearer",
        }
        return StandinResponse(200, response)

    def _identity(self, request: StandinRequest) -> Identity:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        identity, ends = self.tokens.get(token, (None, 0.0))
        if identity is None or ends <= self.now():
            raise RefusedError(401, f"Token {token} is missing or expired")
        return identity

    # --- reads -------------------------------------------------------------------------------------------------------

    def _lookup(self, request: StandinRequest, slug: str) -> StandinResponse:
        project = self._project(request, self._identity(request), slug)
        return StandinResponse(200, {"id": project.id, "_id": project.id, "slug": project.slug, "environments": []})

    def _requested_project(self, request: StandinRequest, identity: Identity) -> Project:
        """Return the project of a read: v4 takes only its id, v3 its slug."""
        query, known = request.query, {project.id: slug for slug, project in self.projects.items()}
        if request.segments[1] == "v3":
            return self._project(request, identity, query.get("workspaceSlug", ""))
        if not query.get("projectId") or not query.get("environment"):
            raise RefusedError(400, "Missing project id or environment")
        return self._project(request, identity, known.get(query["projectId"], ""))

    def _project(self, request: StandinRequest, identity: Identity, slug: str) -> Project:
        if slug not in self.projects:
            raise RefusedError(404, f"No project found with slug {slug}")
        if slug not in identity.projects:
            raise RefusedError(403, "You are not a member of this project")
        del request
        return self.projects[slug]

    def _folder(self, project: Project, environment: str, path: str) -> Folder:
        if (environment, path) not in project.folders:
            raise RefusedError(404, f"Folder with path '{path}' in environment '{environment}' was not found.")
        return project.folders[environment, path]

    def _list(self, request: StandinRequest) -> StandinResponse:
        identity, query = self._identity(request), request.query
        project = self._requested_project(request, identity)
        environment, path = query["environment"], query.get("secretPath", "/")
        self._folder(project, environment, path)
        below = path.rstrip("/") + "/"
        paths = [
            held
            for at, held in sorted(project.folders)
            if at == environment and (held == path or (query.get("recursive") == "true" and held.startswith(below)))
        ]
        body: dict[str, Any] = {
            "secrets": [each for held in paths for each in self._shown(identity, project, query, environment, held)]
        }
        if _includes_imports(request):
            body["imports"] = [
                {
                    "secretPath": source,
                    "environment": environment,
                    "secrets": self._shown(identity, project, query, environment, source),
                }
                for source in project.folders[environment, path].imports
            ]
        etag = etag_of(body)
        if request.headers.get("if-none-match") == etag:
            return StandinResponse(304, None, {"ETag": etag})
        return StandinResponse(200, body, {"ETag": etag})

    def _shown(
        self, identity: Identity, project: Project, query: Mapping[str, str], environment: str, path: str
    ) -> list[dict[str, Any]]:
        reads = query.get("viewSecretValue", "true") == "true"
        held = [each for each in project.folders[environment, path].secrets.values() if each.key not in identity.unseen]
        if reads and any(each.key in identity.unread for each in held):
            raise RefusedError(403, "You do not have permission to read a secret value")
        return [self._described(identity, project, query, environment, path, secret=each) for each in held]

    def _described(
        self,
        identity: Identity,
        project: Project,
        query: Mapping[str, str],
        environment: str,
        path: str,
        *,
        secret: StoredSecret,
    ) -> dict[str, Any]:
        value = secret.value
        if query.get("version"):
            value = secret.versions[int(query["version"]) - 1]
        if query.get("expandSecretReferences") == "true":
            value = project.expanded(environment, path, value)
        if query.get("viewSecretValue", "true") != "true" or secret.key in identity.masked:
            value = HIDDEN
        return described(project, environment, path, secret, value)

    def _get(self, request: StandinRequest, name: str) -> StandinResponse:
        identity, query = self._identity(request), request.query
        project = self._requested_project(request, identity)
        environment, path = query["environment"], query.get("secretPath", "/")
        folder = self._folder(project, environment, path)
        if name in identity.unseen | identity.unread:
            raise RefusedError(403, "You do not have permission to read this secret")
        places = [path]
        if _includes_imports(request):
            places += reversed(folder.imports)
        for place in places:
            secret = project.folders[environment, place].secrets.get(name)
            if secret is not None and int(query.get("version") or 1) <= len(secret.versions):
                shown = self._described(identity, project, query, environment, place, secret=secret)
                return StandinResponse(200, {"secret": shown})
        raise RefusedError(404, f"Secret with name '{name}' not found")

    # --- writes ------------------------------------------------------------------------------------------------------

    def _change(self, request: StandinRequest, method: str, name: str) -> StandinResponse:
        identity, body = self._identity(request), request.json()
        slugs = {project.id: slug for slug, project in self.projects.items()}
        slug = slugs.get(body.get("workspaceId", "")) or body.get("projectSlug", "")
        project = self._project(request, identity, slug)
        self._check(project, method, name, body, identity)
        if project.protected:
            return StandinResponse(200, {"approval": {"id": "approval-1", "status": "open"}})
        return StandinResponse(200, {"secret": self._changed(project, method, name, body, body.get("secretValue", ""))})

    def _change_all(self, request: StandinRequest, method: str) -> StandinResponse:
        """Make all changes of a batch, or none."""
        identity, body = self._identity(request), request.json()
        slugs = {project.id: slug for slug, project in self.projects.items()}
        project = self._project(request, identity, slugs.get(body["projectId"], ""))
        names = [each["secretKey"] for each in body["secrets"]]
        if not names or len(set(names)) != len(names):
            raise RefusedError(400, "A batch needs secrets, each once")
        for name in names:
            self._check(project, method, name, body, identity)
        if project.protected:
            return StandinResponse(200, {"approval": {"id": "approval-1", "status": "open"}})
        made = [
            self._changed(project, method, each["secretKey"], body, each.get("secretValue", ""))
            for each in body["secrets"]
        ]
        return StandinResponse(200, {"secrets": made})

    def _check(self, project: Project, method: str, name: str, body: Mapping[str, Any], identity: Identity) -> None:
        held = self._folder(project, body["environment"], body.get("secretPath", "/")).secrets
        if name in identity.unwritten:
            raise RefusedError(403, "You do not have permission to change this secret")
        if (name in held) is (method == "POST"):
            raise RefusedError(400 if method == "POST" else 404, "Secret already exists, or is not found")

    def _changed(self, project: Project, method: str, name: str, body: Mapping[str, Any], text: str) -> dict[str, Any]:
        environment, path = body["environment"], body.get("secretPath", "/")
        held = self._folder(project, environment, path).secrets
        place = f"{path.rstrip('/')}/{name}"
        secret = held.get(name) or StoredSecret(name, [""])
        if method == "DELETE":
            project.remove(place, environment)
        else:
            project.put(place, text.strip() + ("\n" if text.endswith("\n") else ""), environment)
            secret = held[name]
        return described(project, environment, path, secret, secret.value)


def _includes_imports(request: StandinRequest) -> bool:
    """Return whether a read wants imported secrets: in v4 it does unless it says otherwise."""
    if request.segments[1] == "v4":
        return request.query.get("includeImports", "true") == "true"
    return request.query.get("include_imports") == "true"


# --- Calls to the kinds of this provider, as an operator makes them --------------------------------------------------


UNIVERSAL: Final = {
    "universalAuthCredentials": {
        "clientId": {"name": "infisical", "key": "id"},
        "clientSecret": {"name": "infisical", "key": "secret"},
    }
}
CREDENTIALS: Final = {
    "/auth/universalAuthCredentials/clientId": CLIENT_ID,
    "/auth/universalAuthCredentials/clientSecret": CLIENT_SECRET,
}


def spec_of(server: InfisicalServer, auth: Mapping[str, Any] = UNIVERSAL, **scope: Any) -> dict[str, Any]:
    """Return the block of a store of the main project."""
    return {
        "hostAPI": server.url,
        "auth": auth,
        "secretsScope": {"projectSlug": MAIN, "environmentSlug": "dev", **scope},
    }


def store(
    server: InfisicalServer,
    credentials: Mapping[str, Any] | None = None,
    *,
    auth: Mapping[str, Any] = UNIVERSAL,
    namespace: str = "team",
    **scope: Any,
) -> Context:
    """Return the context of a call to a store; without settings, it logs in with universal auth."""
    sent = CREDENTIALS if credentials is None else credentials
    return call_context(InfisicalStore, spec_of(server, auth, **scope), sent, namespace=namespace)
