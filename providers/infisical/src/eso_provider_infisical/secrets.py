"""The secrets of one environment of a project, over the API of Infisical.

| call | metric |
|---|---|
| list of a folder | `GetSecretsV3` |
| one secret | `GetSecretByKeyV3` |
| create, update, delete | `CreateSecretV3`, `UpdateSecretV3`, `DeleteSecretV3` |
| id of the project, which writes need | `GetWorkspaceBySlug` |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from eso_api.stores.infisical import InfisicalScope
from eso_provider_infisical.places import Place
from eso_sdk.authorization import digest
from eso_sdk.errors import backend_error, denied, invalid_config, not_found, version_not_found
from eso_sdk.rest import Rest, RestAnswer, RestRequest, segments
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.bounded import ExpiringDict

PROVEN_SECONDS: Final = 600.0
"""For how long an answer proves that the project and its environment exist."""

REQUESTED_SECONDS: Final = 3600.0
MAX_REQUESTED: Final = 256

_RAW: Final = "v3/secrets/raw"
_LOOKUPS: Final = ("v1/projects/slug", "v1/workspace/slug")
"""Newer and older servers look projects up in different places."""


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


class _UnapprovedError(Exception):
    """A policy of the project made a request for approval of a change."""


class Secrets:
    """Requests of one session."""

    def __init__(self, rest: Rest, scope: InfisicalScope) -> None:
        self._rest = rest
        self._scope = scope
        self._project = ""
        self._proven = float("-inf")
        self._requested: ExpiringDict[bytes, None] = ExpiringDict(MAX_REQUESTED, rest.clock)
        """Digests of changes that wait for approval."""

    async def folder(self, folder: str, *, recursive: bool = False) -> list[Secret] | None:
        """Return the secrets of a folder, its imports included; None if the identity may not list it.

        A missing folder is empty: keys in it do not exist.
        """
        answer = await self._list(folder, recursive=recursive)
        if answer.status == 403:
            return None
        if answer.status == 404:
            await self._prove()
            return []
        return list(_merged(answer.read(_Listed)))

    async def check(self, folder: str) -> None:
        """Raise unless this identity can list a folder."""
        answer = await self._list(folder, recursive=False)
        if answer.status == 403:
            words = f'Infisical denies the list of folder "{folder}" of {self._where}; give the identity a role there'
            raise ProviderError(ErrorReason.PERMISSION_DENIED, words, backend_code="403")
        if answer.status == 404:
            raise invalid_config("/secretsScope", f'there is no folder "{folder}" in {self._where}')

    async def one(self, place: Place, key: str, version: str = "") -> Secret:
        """Return one secret as readers see it; raise "not found" if the API says so."""
        query = self._query(place.folder, imports=True, expand=self._scope.expand_secret_references)
        if version:
            query["version"] = version
        answer = await self._asked(place, key, query)
        if answer is None:
            await self._prove()
            raise version_not_found(key, version) if version else not_found(key)
        return answer.read(_One).secret

    async def stored(self, place: Place, key: str) -> bytes | None:
        """Return the value as it is stored, references to other secrets not replaced; None if there is none."""
        answer = await self._asked(place, key, self._query(place.folder, imports=False, expand=False))
        return None if answer is None else answer.read(_One).secret.value(key)

    async def write(self, place: Place, key: str, value: str, *, exists: bool) -> None:
        """Create or update a secret. A change that waits for approval is not requested again for an hour."""
        proof = digest(place.folder, place.name, value)
        if proof in self._requested:
            raise _unapproved(key)
        body = {"secretValue": value, "type": "shared", "skipMultilineEncoding": True}
        method, call = ("PATCH", "UpdateSecretV3") if exists else ("POST", "CreateSecretV3")
        try:
            self._check_written(await self._change(method, call, place, body), key)
        except _UnapprovedError:
            self._requested.put(proof, None, REQUESTED_SECONDS)
            raise _unapproved(key) from None

    async def delete(self, place: Place, key: str) -> None:
        """Delete a secret. One that was deleted meanwhile is fine."""
        proof = digest(place.folder, place.name)
        if proof in self._requested:
            raise _unapproved(key)
        answer = await self._change("DELETE", "DeleteSecretV3", place, {"type": "shared"}, gone=True)
        try:
            if answer.status != 404:
                self._check_written(answer, key)
        except _UnapprovedError:
            self._requested.put(proof, None, REQUESTED_SECONDS)
            raise _unapproved(key) from None

    # --- inside ------------------------------------------------------------------------------------------------------

    @property
    def _where(self) -> str:
        return f'environment "{self._scope.environment_slug}" of project "{self._scope.project_slug}"'

    def _query(self, folder: str, *, imports: bool, expand: bool) -> dict[str, str]:
        return {
            "workspaceSlug": self._scope.project_slug,
            "environment": self._scope.environment_slug,
            "secretPath": folder,
            "include_imports": _flag(on=imports),
            "expandSecretReferences": _flag(on=expand),
        }

    async def _list(self, folder: str, *, recursive: bool) -> RestAnswer:
        query = self._query(folder, imports=True, expand=self._scope.expand_secret_references)
        query["recursive"] = _flag(on=recursive)
        answer = await self._rest.send(RestRequest("GET", _RAW, "GetSecretsV3", query, allowed=(403, 404)))
        if answer.status == 200:
            self._note()
        return answer

    async def _asked(self, place: Place, key: str, query: Mapping[str, str]) -> RestAnswer | None:
        path = f"{_RAW}/{segments(place.name)}"
        answer = await self._rest.send(
            RestRequest("GET", path, "GetSecretByKeyV3", {**query, "type": "shared"}, allowed=(403, 404))
        )
        if answer.status == 403:
            raise denied(key, backend_code="403")
        if answer.status == 404:
            return None
        self._note()
        return answer

    def _note(self) -> None:
        self._proven = self._rest.clock.monotonic()

    async def _prove(self) -> None:
        """Raise unless project and environment exist. Otherwise a wrong slug would look like a deleted secret."""
        if self._rest.clock.monotonic() - self._proven < PROVEN_SECONDS:
            return
        query = {**self._query("/", imports=False, expand=False), "viewSecretValue": "false"}
        answer = await self._rest.send(RestRequest("GET", _RAW, "GetSecretsV3", query, allowed=(404,)))
        if answer.status == 404:
            raise invalid_config("/secretsScope", f"there is no {self._where} that this identity can see")
        self._note()

    async def _change(
        self, method: str, call: str, place: Place, body: Mapping[str, Any], *, gone: bool = False
    ) -> RestAnswer:
        """Send a write. A 404 may mean that the project was made anew under its slug: then it has another id."""
        known = bool(self._project)
        answer = await self._sent(method, call, place, body, allowed=(403, 404) if known or gone else (403,))
        if answer.status == 404 and known:
            self._project = ""
            answer = await self._sent(method, call, place, body, allowed=(403, 404) if gone else (403,))
        if answer.status == 403:
            words = (
                f'Infisical denies the change of "{place.name}" in folder "{place.folder}"; give the identity a role'
            )
            raise ProviderError(ErrorReason.PERMISSION_DENIED, words, backend_code="403")
        return answer

    async def _sent(
        self, method: str, call: str, place: Place, body: Mapping[str, Any], *, allowed: tuple[int, ...]
    ) -> RestAnswer:
        whole = {
            "workspaceId": await self._project_id(),
            "environment": self._scope.environment_slug,
            "secretPath": place.folder,
            **body,
        }
        path = f"{_RAW}/{segments(place.name)}"
        return await self._rest.send(RestRequest(method, path, call, json=whole, allowed=allowed))

    def _check_written(self, answer: RestAnswer, key: str) -> None:
        """Raise unless the answer says that the change was made."""
        told = answer.json()
        if not isinstance(told, dict):
            raise backend_error(f'Infisical does not say whether "{key}" was changed')
        if "approval" in told and "secret" not in told:
            raise _UnapprovedError

    async def _project_id(self) -> str:
        if self._project:
            return self._project
        for lookup in _LOOKUPS:
            path = f"{lookup}/{segments(self._scope.project_slug)}"
            answer = await self._rest.send(RestRequest("GET", path, "GetWorkspaceBySlug", allowed=(404,)))
            if answer.status != 404:
                self._project = answer.read(_Project).id
                return self._project
        raise invalid_config(
            "/secretsScope/projectSlug", f'there is no project "{self._scope.project_slug}" that this identity can see'
        )


def _unapproved(key: str) -> ProviderError:
    words = (
        f'Infisical did not change "{key}" but opened a change request; approve it in Infisical, or take this identity'
        " out of the change policy"
    )
    return ProviderError(ErrorReason.PERMISSION_DENIED, words)


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
