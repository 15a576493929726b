"""The secrets of the test server, with the rules of the service: versions, states, etags, labels, filters, pages."""

from __future__ import annotations

import re
import secrets as random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NoReturn, TypeVar

from google.cloud.secretmanager_v1 import types
from grpc import StatusCode

NUMBER: Final = "123456789012"
"""The number of every project; names in responses have it."""
MAX_PAYLOAD: Final = 64 * 1024

_NAME: Final = re.compile(
    r"projects/(?P<project>[^/]+)(?:/locations/(?P<location>[a-z0-9-]+))?"
    r"(?:/secrets/(?P<secret>[A-Za-z0-9_-]{1,255})(?:/versions/(?P<version>[A-Za-z0-9_-]+))?)?"
)
_LABEL_KEY: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE: Final = re.compile(r"[a-z0-9_-]{0,63}")
_TOPIC: Final = re.compile(r"projects/[^/]+/topics/[^/]+")

T = TypeVar("T")
State: Any = types.SecretVersion.State


class StatusError(Exception):
    """A call that the service refuses."""

    def __init__(self, code: StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(slots=True)
class Version:
    """One version of a secret."""

    number: int
    data: bytes = field(repr=False)
    created: datetime = field(default_factory=lambda: datetime.now(UTC))  # noqa: TID251 - as the service stamps it
    state: Any = State.ENABLED
    etag: str = ""


@dataclass(slots=True)
class StoredSecret:
    """One secret."""

    secret: types.Secret
    versions: list[Version] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Name:
    """A parsed resource name."""

    project: str
    location: str
    secret: str
    version: str

    @classmethod
    def of(cls, text: str) -> Name:
        found = _NAME.fullmatch(text)
        if found is None:
            _refuse(StatusCode.INVALID_ARGUMENT, f"The resource name [{text}] does not match a pattern.")
        return cls(*(part or "" for part in found.group("project", "location", "secret", "version")))

    @property
    def parent(self) -> str:
        """Return the name of the project or location, with the number of the project."""
        return f"projects/{NUMBER}" + (f"/locations/{self.location}" if self.location else "")

    @property
    def stored(self) -> str:
        return f"{self.parent}/secrets/{self.secret}"


class Model:
    """All secrets of the projects that exist."""

    def __init__(self, projects: Sequence[str]) -> None:
        self.projects = projects
        self.stored: dict[str, StoredSecret] = {}

    def create_secret(self, request: types.CreateSecretRequest) -> types.Secret:
        parent = self._name(request.parent)
        name = f"{parent.parent}/secrets/{request.secret_id}"
        Name.of(name)
        if name in self.stored:
            _refuse(StatusCode.ALREADY_EXISTS, f"Secret [{name}] already exists.")
        replicated = "automatic" in request.secret.replication or "user_managed" in request.secret.replication
        if replicated == bool(parent.location):
            _refuse(StatusCode.INVALID_ARGUMENT, "Replication is required for global secrets only.")
        made = types.Secret(request.secret)
        stamp: Any = datetime.now(UTC)  # noqa: TID251 - as the service stamps it
        made.name, made.etag, made.create_time = name, _etag(), stamp
        _check(made)
        self.stored[name] = StoredSecret(made)
        return made

    def get_secret(self, request: types.GetSecretRequest) -> types.Secret:
        return self._stored(request.name).secret

    def update_secret(self, request: types.UpdateSecretRequest) -> types.Secret:
        stored = self._stored(request.secret.name)
        _check_etag(request.secret.etag, stored.secret.etag)
        changed = types.Secret(stored.secret)
        for path in request.update_mask.paths:
            if path not in ("labels", "annotations", "topics", "version_aliases"):
                _refuse(StatusCode.INVALID_ARGUMENT, f"Field [{path}] cannot be updated.")
            setattr(changed, path, getattr(request.secret, path))
        changed.etag = _etag()
        _check(changed)
        stored.secret = changed
        return changed

    def delete_secret(self, request: types.DeleteSecretRequest) -> None:
        stored = self._stored(request.name)
        _check_etag(request.etag, stored.secret.etag)
        del self.stored[stored.secret.name]

    def list_secrets(self, request: types.ListSecretsRequest) -> types.ListSecretsResponse:
        parent = self._name(request.parent).parent
        found = [
            stored.secret
            for name, stored in sorted(self.stored.items(), reverse=True)
            if name.rpartition("/secrets/")[0] == parent and _matches(stored.secret, request.filter)
        ]
        page, token = _page(found, request.page_size, request.page_token)
        return types.ListSecretsResponse(secrets=page, next_page_token=token, total_size=len(found))

    def add_secret_version(self, request: types.AddSecretVersionRequest) -> types.SecretVersion:
        stored = self._stored(request.parent)
        data = request.payload.data
        if not data or len(data) > MAX_PAYLOAD:
            _refuse(StatusCode.INVALID_ARGUMENT, "Secret Payload cannot be empty, or larger than 65536 bytes.")
        stored.versions.append(Version(len(stored.versions) + 1, data, etag=_etag()))
        return _described(stored, stored.versions[-1])

    def get_secret_version(self, request: types.GetSecretVersionRequest) -> types.SecretVersion:
        return _described(*self._version(request.name))

    def list_secret_versions(self, request: types.ListSecretVersionsRequest) -> types.ListSecretVersionsResponse:
        stored = self._stored(request.parent)
        state = request.filter.partition("state:")[2]
        newest = [each for each in reversed(stored.versions) if not state or each.state.name == state]
        page, token = _page(newest, request.page_size, request.page_token)
        described = [_described(stored, each) for each in page]
        return types.ListSecretVersionsResponse(versions=described, next_page_token=token, total_size=len(newest))

    def access_secret_version(self, request: types.AccessSecretVersionRequest) -> types.AccessSecretVersionResponse:
        stored, version = self._version(request.name)
        if version.state is not State.ENABLED:
            state = version.state.name
            _refuse(StatusCode.FAILED_PRECONDITION, f"Secret Version [{request.name}] is in {state} state.")
        name = f"{stored.secret.name}/versions/{version.number}"
        return types.AccessSecretVersionResponse(name=name, payload=types.SecretPayload(data=version.data))

    def enable_secret_version(self, request: types.EnableSecretVersionRequest) -> types.SecretVersion:
        return self._moved(request.name, request.etag, State.ENABLED)

    def disable_secret_version(self, request: types.DisableSecretVersionRequest) -> types.SecretVersion:
        return self._moved(request.name, request.etag, State.DISABLED)

    def destroy_secret_version(self, request: types.DestroySecretVersionRequest) -> types.SecretVersion:
        return self._moved(request.name, request.etag, State.DESTROYED)

    def _moved(self, name: str, etag: str, state: Any) -> types.SecretVersion:
        stored, version = self._version(name)
        _check_etag(etag, version.etag)
        if version.state is State.DESTROYED:
            _refuse(StatusCode.FAILED_PRECONDITION, f"Secret Version [{name}] is in DESTROYED state.")
        version.state, version.etag = state, _etag()
        if state is State.DESTROYED:
            version.data = b""
        return _described(stored, version)

    def _name(self, text: str) -> Name:
        name = Name.of(text)
        if name.project not in (*self.projects, NUMBER):
            _refuse(StatusCode.NOT_FOUND, f"Project '{name.project}' not found or deleted.")
        return name

    def _stored(self, text: str) -> StoredSecret:
        name = self._name(text)
        if name.stored not in self.stored:
            _refuse(StatusCode.NOT_FOUND, f"Secret [{name.stored}] not found.")
        return self.stored[name.stored]

    def _version(self, text: str) -> tuple[StoredSecret, Version]:
        name = self._name(text)
        stored = self._stored(text)
        if not stored.versions:
            _refuse(StatusCode.NOT_FOUND, f"Secret [{name.stored}] not found or has no versions.")
        aliased = stored.secret.version_aliases.get(name.version, name.version)
        number = str(len(stored.versions)) if name.version == "latest" else str(aliased)
        found = [each for each in stored.versions if str(each.number) == number]
        if not found:
            _refuse(StatusCode.NOT_FOUND, f"Secret Version [{text}] not found.")
        return stored, found[0]


def _described(stored: StoredSecret, version: Version) -> types.SecretVersion:
    return types.SecretVersion(
        name=f"{stored.secret.name}/versions/{version.number}",
        create_time=version.created,
        state=version.state,
        etag=version.etag,
    )


def _matches(secret: types.Secret, text: str) -> bool:
    """Evaluate the part of the filter language that is used: `name:PART` and `labels.KEY=VALUE`, joined by blanks."""
    for term in text.split():
        if term.startswith("name:"):
            fits = term.removeprefix("name:").lower() in secret.name.rpartition("/")[2].lower()
        elif term.startswith("labels.") and "=" in term:
            key, _, value = term.removeprefix("labels.").partition("=")
            fits = secret.labels.get(key) == value
        else:
            _refuse(StatusCode.INVALID_ARGUMENT, f"Invalid filter [{text}].")
        if not fits:
            return False
    return True


def _page(found: Sequence[T], size: int, token: str) -> tuple[list[T], str]:
    """Return a page and the token of the next one. Tokens are numbers in disguise."""
    start = int(token.removeprefix("page-") or 0) if token else 0
    end = start + (size or 25_000)
    return list(found[start:end]), f"page-{end}" if end < len(found) else ""


def _check(secret: types.Secret) -> None:
    for key, value in dict(secret.labels).items():
        if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            _refuse(StatusCode.INVALID_ARGUMENT, "Labels have lower-case letters, digits, dashes and underscores.")
    if not all(_TOPIC.fullmatch(topic.name) for topic in secret.topics):
        _refuse(StatusCode.INVALID_ARGUMENT, "Topics are named projects/*/topics/*.")


def _check_etag(sent: str, current: str) -> None:
    if sent and sent != current:
        _refuse(StatusCode.FAILED_PRECONDITION, "The etag provided does not match the current one.")


def _etag() -> str:
    return f'"{random.token_hex(7)}"'


def _refuse(code: StatusCode, message: str) -> NoReturn:
    raise StatusError(code, message)


def plain(request: Any) -> str:
    """Return the resource that a request is about."""
    return str(getattr(request, "name", "") or getattr(request, "parent", "") or request.secret.name)
