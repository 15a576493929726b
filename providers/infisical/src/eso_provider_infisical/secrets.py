"""The secrets of one environment of a project, over the API of Infisical.

| call | metric with v4 | with v3 |
|---|---|---|
| which version the server has, once in a while | `GetVersion` | `GetVersion` |
| list of a folder | `GetSecretsV4` | `GetSecretsV3` |
| one secret | `GetSecretByKeyV4` | `GetSecretByKeyV3` |
| create, update, delete | `CreateSecretsV4`, … for all secrets of a folder | `CreateSecretV3`, … for each secret |
| id of the project | `GetWorkspaceBySlug`, for reads and writes | `GetWorkspaceBySlug`, for writes |
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from posixpath import normpath
from typing import Any, Final

import msgspec
from yarl import URL

from eso_api.stores.infisical import InfisicalScope
from eso_sdk.errors import (
    backend_error,
    denied,
    error_for_status,
    invalid_config,
    invalid_request,
    not_found,
    version_not_found,
)
from eso_sdk.logins import digest
from eso_sdk.processwide import shared_table
from eso_sdk.rest import Rest, RestRequest, RestResponse, segments
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.bounded import ExpiringDict


@dataclass(frozen=True, slots=True)
class SecretLocation:
    """A secret: its folder, and its name there."""

    folder: str
    name: str


def location_of(key: str, scope_path: str) -> SecretLocation:
    """Return the location of a key.

    | key | folder |
    |---|---|
    | `NAME` | the scope's |
    | `/A/NAME` | `/A` |
    | `A/NAME` | `A` below the scope's |
    """
    folder, slash, name = key.rpartition("/")
    if not name or name in (".", ".."):
        raise invalid_request(
            f'"{key}" does not end with the name of a secret; write NAME, FOLDER/NAME or /FOLDER/NAME'
        )
    if not slash:
        return SecretLocation(folder_of(scope_path), name)
    return SecretLocation(folder_of(folder if key.startswith("/") else f"{scope_path}/{folder}"), name)


def folder_of(path: str) -> str:
    """Return a path with one slash before each folder, and none at its end."""
    return "/" + normpath(f"/{path}").strip("/")


def api_url(host: str) -> URL:
    """Return the base address of the API. Manifests name it with and without `/api`."""
    text = host.rstrip("/")
    try:
        return URL(text if text.endswith("/api") else f"{text}/api")
    except ValueError:
        raise invalid_config("/hostAPI", "must be a URL such as https://app.infisical.com") from None


PROVEN_SECONDS: Final = 600.0
"""For how long a response proves that the project and its environment exist."""

REQUESTED_SECONDS: Final = 3600.0
MAX_REQUESTED: Final = 256

V4_SECONDS: Final = 24 * 3600.0
V3_SECONDS: Final = 3600.0
"""How long a server's version of the API is remembered. An older server may be replaced by a newer one soon."""
MAX_SERVERS: Final = 1024
MAX_BATCH: Final = 100
MAX_BATCH_CHARS: Final = 256 * 1024
"""Secrets and characters of values in one request; the server takes bodies up to 1 MiB."""

_LOOKUPS: Final = ("v1/projects/slug", "v1/workspace/slug")
"""Newer and older servers have different paths for projects."""


@dataclass(frozen=True, slots=True)
class _Api:
    """One version of the API."""

    name: str
    path: str
    imports: str
    """The parameter for imported secrets."""
    batches: bool


_V4: Final = _Api("V4", "v4/secrets", "includeImports", batches=True)
_V3: Final = _Api("V3", "v3/secrets/raw", "include_imports", batches=False)


@dataclass(frozen=True, slots=True)
class Change:
    """A secret to create, to update, or, without a value, to delete."""

    location: SecretLocation
    key: str
    """The key, as the caller spells it."""
    value: str | None = field(default=None, repr=False)
    exists: bool = True

    @property
    def method(self) -> str:
        if self.value is None:
            return "DELETE"
        return "PATCH" if self.exists else "POST"

    @property
    def proof(self) -> bytes:
        """Return a digest of the change."""
        return digest(self.location.folder, self.location.name, *(() if self.value is None else (self.value,)))


_ABOUT_ONE: Final = frozenset({ErrorReason.PERMISSION_DENIED, ErrorReason.BACKEND_ERROR, ErrorReason.PAYLOAD_TOO_LARGE})
"""Refusals of a batch for which one of its secrets can be the reason."""
_VERBS: Final = {"POST": "Create", "PATCH": "Update", "DELETE": "Delete"}


class Secret(msgspec.Struct, rename="camel", frozen=True):
    """One secret, as the API gives it."""

    secret_key: str
    secret_value: str = ""
    secret_path: str = ""
    secret_value_hidden: bool = False
    type: str = "shared"

    def value(self, key: str) -> bytes:
        """Return the value. A hidden one is a placeholder, which must never reach a Secret."""
        if self.secret_value_hidden:
            raise denied(key)
        return self.secret_value.encode()


class _Import(msgspec.Struct, rename="camel", frozen=True):
    secret_path: str = ""
    secrets: list[Secret] = []


class _Listed(msgspec.Struct, frozen=True):
    secrets: list[Secret]
    imports: list[_Import] | None = None


class _One(msgspec.Struct, frozen=True):
    secret: Secret


class _Project(msgspec.Struct, frozen=True):
    id: str


class MovedError(Exception):
    """The project was made anew under its slug: what was read before is about another one."""


class _NoProjectError(ProviderError):
    """There is no project with the slug of the scope that the identity can see."""


class Secrets:
    """Requests of one session."""

    def __init__(self, rest: Rest, scope: InfisicalScope) -> None:
        self._rest = rest
        self._scope = scope
        self._project = ""
        self._proven = float("-inf")
        self._meeting = asyncio.Lock()
        self._apis: ExpiringDict[str, _Api] = shared_table(
            "eso_provider_infisical.apis", rest.clock, lambda: ExpiringDict(MAX_SERVERS, rest.clock)
        )
        """The version of the API of each server."""
        self._requested: ExpiringDict[bytes, None] = ExpiringDict(MAX_REQUESTED, rest.clock)
        """Digests of changes that wait for approval."""

    # --- reads -------------------------------------------------------------------------------------------------------

    async def folder(self, folder: str, *, recursive: bool = False) -> list[Secret] | None:
        """Return the secrets of a folder, its imports included; None if the identity may not list it.

        A missing folder is empty: keys in it do not exist.
        """
        response = await self._list(folder, recursive=recursive)
        if response.status == 404 and await self._prove():
            response = await self._list(folder, recursive=recursive)
        if response.status == 403:
            return None
        return [] if response.status == 404 else list(_merged(response.read(_Listed)))

    async def check(self, folder: str) -> None:
        """Raise unless this identity can list a folder."""
        response = await self._list(folder, recursive=False)
        if response.status == 403:
            message = f'Infisical denies the list of folder "{folder}" of {self._where}; give the identity a role there'
            raise ProviderError(ErrorReason.PERMISSION_DENIED, message, backend_code="403")
        if response.status == 404:
            raise invalid_config("/secretsScope", f'there is no folder "{folder}" in {self._where}')

    async def one(self, location: SecretLocation, key: str, version: str = "") -> Secret:
        """Return one secret as readers get it; raise "not found" if the API reports it."""
        query = {"version": version} if version else {}
        expand = self._scope.expand_secret_references
        response = await self._read_one(location, key, query, imports=True, expand=expand)
        if response is None and await self._prove():
            response = await self._read_one(location, key, query, imports=True, expand=expand)
        if response is None:
            raise version_not_found(key, version) if version else not_found(key)
        return response.read(_One).secret

    async def stored(self, location: SecretLocation, key: str) -> bytes | None:
        """Return the value as it is stored, references to other secrets not replaced; None if there is none."""
        try:
            response = await self._read_one(location, key, {}, imports=False, expand=False)
        except _NoProjectError:
            return None
        return None if response is None else response.read(_One).secret.value(key)

    async def all_stored(self, folder: str) -> dict[str, Secret] | None:
        """Return the secrets of a folder as they are stored, by name; None if the identity may not list it."""
        try:
            response = await self._list(folder, recursive=False, stored=True)
        except _NoProjectError:
            return {}
        if response.status == 403:
            return None
        own = response.read(_Listed).secrets if response.status == 200 else []
        return {each.secret_key: each for each in own if each.type != "personal"}

    # --- writes ------------------------------------------------------------------------------------------------------

    async def change(self, changes: Sequence[Change]) -> list[ProviderError | None]:
        """Make changes of one folder that are all of one kind; return for each why it was not made.

        A change that waits for approval is not requested again for an hour.
        """
        unsent = [each for each in changes if each.proof not in self._requested]
        failed: dict[bytes, ProviderError | None] = {}
        api = await self._api() if unsent else _V3
        for batch in _batches(unsent) if api.batches else ([each] for each in unsent):
            failed |= await self._attempt(batch)
        return [failed[each.proof] if each.proof in failed else _unapproved(each.key) for each in changes]

    async def _attempt(self, batch: list[Change]) -> dict[bytes, ProviderError | None]:
        """Send changes together. If the server refuses that, one of them can be the reason: each is sent alone."""
        try:
            is_done = await self._change(batch)
        except ProviderError as refused:
            if len(batch) == 1 or refused.reason not in _ABOUT_ONE:
                return dict.fromkeys((each.proof for each in batch), refused)
            single = [await self._attempt([each]) for each in batch]
            return {proof: error for part in single for proof, error in part.items()}
        for each in () if is_done else batch:
            self._requested.put(each.proof, None, REQUESTED_SECONDS)
        return {each.proof: None if is_done else _unapproved(each.key) for each in batch}

    async def _change(self, batch: list[Change]) -> bool:
        """Make changes; return False if they wait for approval."""
        response = await self._sent(batch)
        if response.status == 404 and await self._has_moved():
            raise MovedError
        first, location = batch[0], batch[0].location
        match response.status:
            case 404 if first.method == "DELETE" and len(batch) == 1:
                return True  # deleted meanwhile
            case 400 if first.method == "POST" and len(batch) == 1:
                message = f'Infisical refuses to create "{first.key}": status 400; it may exist without being visible'
                raise backend_error(f"{message} to this identity, or its name is not allowed", backend_code="400")
            case 403:
                what = f'"{location.name}"' if len(batch) == 1 else f"{len(batch)} secrets"
                message = (
                    f'Infisical denies the change of {what} in folder "{location.folder}"; give the identity a role'
                )
                raise ProviderError(ErrorReason.PERMISSION_DENIED, message, backend_code="403")
        if (error := error_for_status(response.status, response.subject)) is not None:
            raise error
        document = response.json()
        if not isinstance(document, dict):
            raise backend_error(f'Infisical does not report whether "{first.key}" was changed')
        return not ("approval" in document and "secret" not in document and "secrets" not in document)

    async def _sent(self, batch: list[Change]) -> RestResponse:
        """Send changes: with v4 all together, with v3 one."""
        first, api = batch[0], await self._api()
        body: dict[str, Any] = {"environment": self._scope.environment_slug, "secretPath": first.location.folder}
        if api.batches:
            body |= {"projectId": await self._project_id(), "secrets": [_entry(each) for each in batch]}
            path, call = f"{api.path}/batch", f"{_VERBS[first.method]}Secrets{api.name}"
        else:
            body |= {"workspaceId": await self._project_id(), "type": "shared"}
            if first.value is not None:
                body |= {"secretValue": first.value, "skipMultilineEncoding": True}
            path, call = f"{api.path}/{segments(first.location.name)}", f"{_VERBS[first.method]}Secret{api.name}"
        request = RestRequest(first.method, path, call, json=body, allowed=(400, 403, 404))
        response = await self._rest.send(request)
        if api.batches and len(batch) == 1 and self._is_without_route(response):
            return await self._sent(batch)
        return response

    # --- inside ------------------------------------------------------------------------------------------------------

    @property
    def _where(self) -> str:
        return f'environment "{self._scope.environment_slug}" of project "{self._scope.project_slug}"'

    async def _api(self) -> _Api:
        """Return the version of the API to use: v4 if the server has it."""
        server = str(self._rest.settings.base)
        async with self._meeting:
            if (known := self._apis.get(server)) is not None:
                return known
            # Without parameters, a server with v4 refuses the request, and an older one does not know the path.
            request = RestRequest("GET", _V4.path, "GetVersion", allowed=(400, 403, 404, 422))
            response = await self._rest.send(request)
            api = _V3 if response.status == 404 else _V4
            self._apis.put(server, api, V4_SECONDS if api is _V4 else V3_SECONDS)
            return api

    def _is_without_route(self, response: RestResponse) -> bool:
        """Return whether the server has no v4 any more, because an older one replaced it. Then v3 is used."""
        if response.status != 404 or not _names_route(response):
            return False
        self._apis.put(str(self._rest.settings.base), _V3, V3_SECONDS)
        return True

    async def _query(self, api: _Api, folder: str, *, imports: bool, expand: bool) -> dict[str, str]:
        return {
            **({"projectId": await self._project_id()} if api is _V4 else {"workspaceSlug": self._scope.project_slug}),
            "environment": self._scope.environment_slug,
            "secretPath": folder,
            api.imports: _flag(on=imports),
            "expandSecretReferences": _flag(on=expand),
        }

    async def _list(self, folder: str, *, recursive: bool, stored: bool = False) -> RestResponse:
        expand = self._scope.expand_secret_references and not stored
        response = await self._read("", folder, {"recursive": _flag(on=recursive)}, imports=not stored, expand=expand)
        if response.status == 200:
            self._note()
        return response

    async def _read_one(
        self, location: SecretLocation, key: str, query: Mapping[str, str], *, imports: bool, expand: bool
    ) -> RestResponse | None:
        response = await self._read(
            location.name, location.folder, {**query, "type": "shared"}, imports=imports, expand=expand
        )
        if response.status == 403:
            raise denied(key, backend_code="403")
        if response.status == 404:
            return None
        self._note()
        return response

    async def _read(
        self, name: str, folder: str, query: Mapping[str, str], *, imports: bool, expand: bool
    ) -> RestResponse:
        """Read one secret, or the whole folder if no name is given."""
        api = await self._api()
        path, call = (f"{api.path}/{segments(name)}", "GetSecretByKey") if name else (api.path, "GetSecrets")
        whole = {**await self._query(api, folder, imports=imports, expand=expand), **query}
        response = await self._rest.send(RestRequest("GET", path, f"{call}{api.name}", whole, allowed=(403, 404)))
        if api is _V4 and self._is_without_route(response):
            return await self._read(name, folder, query, imports=imports, expand=expand)
        return response

    def _note(self) -> None:
        self._proven = self._rest.clock.monotonic()

    async def _prove(self) -> bool:
        """Raise unless project and environment exist. Otherwise a wrong slug would be taken for a deleted secret.

        Return whether the project has another id now: then the response was about a project that is gone.
        """
        if self._rest.clock.monotonic() - self._proven < PROVEN_SECONDS:
            return False
        has_moved = await self._has_moved()
        response = await self._read("", "/", {"viewSecretValue": "false"}, imports=False, expand=False)
        if response.status == 404:
            raise invalid_config("/secretsScope", f"there is no {self._where} that this identity can read")
        if (error := error_for_status(response.status, response.subject)) is not None:
            raise error
        self._note()
        return has_moved

    async def _has_moved(self) -> bool:
        """Look the project up again; return whether it was made anew under its slug and has another id now."""
        if not self._project:
            return False
        before, self._project = self._project, ""
        return await self._project_id() != before

    async def _project_id(self) -> str:
        async with self._meeting:
            if not self._project:
                self._project = await self._fetched_project()
            return self._project

    async def _fetched_project(self) -> str:
        slug = self._scope.project_slug
        for lookup in _LOOKUPS:
            request = RestRequest("GET", f"{lookup}/{segments(slug)}", "GetWorkspaceBySlug", allowed=(403, 404))
            response = await self._rest.send(request)
            if response.status == 403:
                message = f'Infisical denies project "{slug}" to this identity; give the identity a role there'
                raise ProviderError(ErrorReason.PERMISSION_DENIED, message, backend_code="403")
            if response.status != 404:
                return response.read(_Project).id
        message = f'/secretsScope/projectSlug: there is no project "{slug}" that this identity can read'
        raise _NoProjectError(ErrorReason.CONFIG_INVALID, message)


def _entry(change: Change) -> dict[str, Any]:
    """Return a change as an entry of a batch."""
    if change.value is None:
        return {"secretKey": change.location.name, "type": "shared"}
    return {"secretKey": change.location.name, "secretValue": change.value, "skipMultilineEncoding": True}


def _batches(changes: Sequence[Change]) -> Iterator[list[Change]]:
    """Yield the changes in parts that the server takes in one request."""
    batch: list[Change] = []
    chars = 0
    for change in changes:
        size = len(change.value or "")
        if batch and (len(batch) >= MAX_BATCH or chars + size > MAX_BATCH_CHARS):
            yield batch
            batch, chars = [], 0
        batch.append(change)
        chars += size
    if batch:
        yield batch


def _names_route(response: RestResponse) -> bool:
    """Return whether a 404 is about the path of the API and not about a project, folder or secret."""
    try:
        document = msgspec.json.decode(response.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    message = document.get("message") if isinstance(document, dict) else None
    return isinstance(message, str) and message.startswith("Route ")


def _unapproved(key: str) -> ProviderError:
    message = (
        f'Infisical did not change "{key}" but opened a change request; approve it in Infisical, or take this identity'
        " out of the change policy"
    )
    return ProviderError(ErrorReason.PERMISSION_DENIED, message)


def _merged(listed: _Listed) -> Iterator[Secret]:
    """Yield each name and folder once: own secrets first, then the last import that has the name, as the API does."""
    own = [each for each in listed.secrets if each.type != "personal"]
    names = {each.secret_key for each in own}
    yield from own
    for block in reversed(listed.imports or []):
        for each in block.secrets:
            if each.secret_key not in names:
                names.add(each.secret_key)
                yield each if each.secret_path else msgspec.structs.replace(each, secret_path=block.secret_path)


def _flag(*, on: bool) -> str:
    return "true" if on else "false"
