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
"""The number of every project; names in answers have it."""
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
class Kept:
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
    def kept(self) -> str:
        return f"{self.parent}/secrets/{self.secret}"


class Model:
    """All secrets of the projects that exist."""

    def __init__(self, projects: Sequence[str]) -> None:
        self.projects = projects
        self.kept: dict[str, Kept] = {}

    def create_secret(self, request: types.CreateSecretRequest) -> types.Secret:
        parent = self._name(request.parent)
        name = f"{parent.parent}/secrets/{request.secret_id}"
        Name.of(name)
        if name in self.kept:
            _refuse(StatusCode.ALREADY_EXISTS, f"Secret [{name}] already exists.")
        replicated = "automatic" in request.secret.replication or "user_managed" in request.secret.replication
        if replicated == bool(parent.location):
            _refuse(StatusCode.INVALID_ARGUMENT, "Replication is required for global secrets only.")
        made = types.Secret(request.secret)
        stamp: Any = datetime.now(UTC)  # noqa: TID251 - as the service stamps it
        made.name, made.etag, made.create_time = name, _etag(), stamp
        _check(made)
        self.kept[name] = Kept(made)
        return made

    def get_secret(self, request: types.GetSecretRequest) -> types.Secret:
        return self._kept(request.name).secret

    def update_secret(self, request: types.UpdateSecretRequest) -> types.Secret:
        kept = self._kept(request.secret.name)
        _check_etag(request.secret.etag, kept.secret.etag)
        changed = types.Secret(kept.secret)
        for path in request.update_mask.paths:
            if path not in ("labels", "annotations", "topics", "version_aliases"):
                _refuse(StatusCode.INVALID_ARGUMENT, f"Field [{path}] cannot be updated.")
            setattr(changed, path, getattr(request.secret, path))
        changed.etag = _etag()
        _check(changed)
        kept.secret = changed
        return changed

    def delete_secret(self, request: types.DeleteSecretRequest) -> None:
        kept = self._kept(request.name)
        _check_etag(request.etag, kept.secret.etag)
        del self.kept[kept.secret.name]

    def list_secrets(self, request: types.ListSecretsRequest) -> types.ListSecretsResponse:
        parent = self._name(request.parent).parent
        found = [
            kept.secret
            for name, kept in sorted(self.kept.items(), reverse=True)
            if name.rpartition("/secrets/")[0] == parent and _matches(kept.secret, request.filter)
        ]
        page, token = _page(found, request.page_size, request.page_token)
        return types.ListSecretsResponse(secrets=page, next_page_token=token, total_size=len(found))

    def add_secret_version(self, request: types.AddSecretVersionRequest) -> types.SecretVersion:
        kept = self._kept(request.parent)
        data = request.payload.data
        if not data or len(data) > MAX_PAYLOAD:
            _refuse(StatusCode.INVALID_ARGUMENT, "Secret Payload cannot be empty, or larger than 65536 bytes.")
        kept.versions.append(Version(len(kept.versions) + 1, data, etag=_etag()))
        return _described(kept, kept.versions[-1])

    def get_secret_version(self, request: types.GetSecretVersionRequest) -> types.SecretVersion:
        return _described(*self._version(request.name))

    def list_secret_versions(self, request: types.ListSecretVersionsRequest) -> types.ListSecretVersionsResponse:
        kept = self._kept(request.parent)
        wanted = request.filter.partition("state:")[2]
        newest = [each for each in reversed(kept.versions) if not wanted or each.state.name == wanted]
        page, token = _page(newest, request.page_size, request.page_token)
        told = [_described(kept, each) for each in page]
        return types.ListSecretVersionsResponse(versions=told, next_page_token=token, total_size=len(newest))

    def access_secret_version(self, request: types.AccessSecretVersionRequest) -> types.AccessSecretVersionResponse:
        kept, version = self._version(request.name)
        if version.state is not State.ENABLED:
            state = version.state.name
            _refuse(StatusCode.FAILED_PRECONDITION, f"Secret Version [{request.name}] is in {state} state.")
        name = f"{kept.secret.name}/versions/{version.number}"
        return types.AccessSecretVersionResponse(name=name, payload=types.SecretPayload(data=version.data))

    def enable_secret_version(self, request: types.EnableSecretVersionRequest) -> types.SecretVersion:
        return self._moved(request.name, request.etag, State.ENABLED)

    def disable_secret_version(self, request: types.DisableSecretVersionRequest) -> types.SecretVersion:
        return self._moved(request.name, request.etag, State.DISABLED)

    def destroy_secret_version(self, request: types.DestroySecretVersionRequest) -> types.SecretVersion:
        return self._moved(request.name, request.etag, State.DESTROYED)

    def _moved(self, name: str, etag: str, state: Any) -> types.SecretVersion:
        kept, version = self._version(name)
        _check_etag(etag, version.etag)
        if version.state is State.DESTROYED:
            _refuse(StatusCode.FAILED_PRECONDITION, f"Secret Version [{name}] is in DESTROYED state.")
        version.state, version.etag = state, _etag()
        if state is State.DESTROYED:
            version.data = b""
        return _described(kept, version)

    def _name(self, text: str) -> Name:
        name = Name.of(text)
        if name.project not in (*self.projects, NUMBER):
            _refuse(StatusCode.NOT_FOUND, f"Project '{name.project}' not found or deleted.")
        return name

    def _kept(self, text: str) -> Kept:
        name = self._name(text)
        if name.kept not in self.kept:
            _refuse(StatusCode.NOT_FOUND, f"Secret [{name.kept}] not found.")
        return self.kept[name.kept]

    def _version(self, text: str) -> tuple[Kept, Version]:
        name = self._name(text)
        kept = self._kept(text)
        if not kept.versions:
            _refuse(StatusCode.NOT_FOUND, f"Secret [{name.kept}] not found or has no versions.")
        aliased = kept.secret.version_aliases.get(name.version, name.version)
        number = str(len(kept.versions)) if name.version == "latest" else str(aliased)
        found = [each for each in kept.versions if str(each.number) == number]
        if not found:
            _refuse(StatusCode.NOT_FOUND, f"Secret Version [{text}] not found.")
        return kept, found[0]


def _described(kept: Kept, version: Version) -> types.SecretVersion:
    return types.SecretVersion(
        name=f"{kept.secret.name}/versions/{version.number}",
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
