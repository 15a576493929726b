"""The gRPC service of Secret Manager on a free port, made of the vendor's message classes.

It verifies tokens, applies denials and quotas that a test sets, and counts calls.
"""

from __future__ import annotations

import re
import secrets as random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NoReturn, TypeVar

import grpc
from google.cloud.secretmanager_v1 import types
from google.protobuf import any_pb2, duration_pb2, empty_pb2
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped] # the wheel has no types
from grpc import StatusCode

from eso_provider_gcp.api import RIGHTS

# ---------------------------------------------------------------------------------------------------------------------
# The secrets of the test server, with the rules of the service: versions, states, etags, labels, filters, pages.


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


# --- The gRPC service of Secret Manager on a free port, made of the vendor's message classes -------------------------


SERVICE: Final = "google.cloud.secretmanager.v1.SecretManagerService"
THREADS: Final = 64

_MESSAGES: Final[dict[str, tuple[Any, Any]]] = {
    "AccessSecretVersion": (types.AccessSecretVersionRequest, types.AccessSecretVersionResponse),
    "AddSecretVersion": (types.AddSecretVersionRequest, types.SecretVersion),
    "CreateSecret": (types.CreateSecretRequest, types.Secret),
    "DeleteSecret": (types.DeleteSecretRequest, None),
    "DestroySecretVersion": (types.DestroySecretVersionRequest, types.SecretVersion),
    "DisableSecretVersion": (types.DisableSecretVersionRequest, types.SecretVersion),
    "EnableSecretVersion": (types.EnableSecretVersionRequest, types.SecretVersion),
    "GetSecret": (types.GetSecretRequest, types.Secret),
    "GetSecretVersion": (types.GetSecretVersionRequest, types.SecretVersion),
    "ListSecretVersions": (types.ListSecretVersionsRequest, types.ListSecretVersionsResponse),
    "ListSecrets": (types.ListSecretsRequest, types.ListSecretsResponse),
    "UpdateSecret": (types.UpdateSecretRequest, types.Secret),
}
_CAPITAL: Final = re.compile(r"(?<!^)(?=[A-Z])")


@dataclass(slots=True)
class Limit:
    """A quota that some calls meet."""

    times: int
    seconds: float


@dataclass(slots=True)
class SecretManager:
    """The service, with what tests set and inspect."""

    model: Model
    known: Callable[[str], bool]
    """Tells whether an access token is valid."""
    address: str = ""
    calls: Counter[str] = field(default_factory=Counter)
    recorded: list[tuple[str, str]] = field(default_factory=list)
    """The operation and resource of every call."""
    tokens: list[str] = field(default_factory=list, repr=False)
    peers: set[str] = field(default_factory=set)
    """The connections of all calls."""
    denied: set[str] = field(default_factory=set)
    """Permissions that the caller lacks."""
    disabled: bool = False
    """Whether the project has not enabled the API."""
    limits: dict[str, Limit] = field(default_factory=dict)
    failing: dict[str, grpc.StatusCode] = field(default_factory=dict)
    """Codes with which operations fail."""
    latency: float = 0.0
    before: Callable[[str], None] = lambda _operation: None
    """Called before every operation, in its thread."""

    announce: Callable[[str, str], None] = lambda _operation, _name: None
    """Called after every operation, with the name of what it returned."""

    def reset(self) -> None:
        """Forget all calls, and everything that a test has set."""
        self.calls.clear()
        self.recorded.clear()
        self.tokens.clear()
        self.peers.clear()
        self.denied.clear()
        self.limits.clear()
        self.failing.clear()
        self.disabled, self.latency, self.before = False, 0.0, lambda _operation: None

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serve on a free port of the loopback interface."""
        with ThreadPoolExecutor(THREADS) as pool:
            server = grpc.server(pool)
            handlers = {name: self._handler(name) for name in _MESSAGES}
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
            self.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
            server.start()
            try:
                yield
            finally:
                server.stop(0).wait()

    def _handler(self, operation: str) -> Any:
        request, reply = _MESSAGES[operation]
        method = getattr(self.model, _CAPITAL.sub("_", operation).lower())

        def handle(message: Any, context: grpc.ServicerContext) -> Any:
            self._admit(operation, message, context)
            try:
                result = method(message)
            except StatusError as refused:
                context.abort(refused.code, str(refused))
            self.announce(operation, plain(message) if result is None else getattr(result, "name", ""))
            return result

        serialize = reply.serialize if reply is not None else lambda _: empty_pb2.Empty().SerializeToString()
        return grpc.unary_unary_rpc_method_handler(handle, request.deserialize, serialize)

    def _admit(self, operation: str, message: Any, context: grpc.ServicerContext) -> None:
        self.calls[operation] += 1
        self.recorded.append((operation, plain(message)))
        self.peers.add(context.peer())
        self.before(operation)
        if self.latency:
            time.sleep(self.latency)  # noqa: TID251 - the latency of a network
        sent = dict(context.invocation_metadata())
        token = str(sent.get("authorization", "")).removeprefix("Bearer ")
        self.tokens.append(token)
        if not self.known(token):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "Request had invalid authentication credentials.")
        if self.disabled:
            _abort(context, grpc.StatusCode.PERMISSION_DENIED, _info("SERVICE_DISABLED"))
        if RIGHTS.get(operation, ("", ""))[0] in self.denied:
            _abort(context, grpc.StatusCode.PERMISSION_DENIED, _info("IAM_PERMISSION_DENIED"))
        if operation in self.failing:
            context.abort(self.failing[operation], f"failed: {plain(message)} {token}")
        limit = self.limits.get(operation)
        if limit is not None and limit.times > 0:
            limit.times -= 1
            whole, part = divmod(limit.seconds, 1)
            delay = duration_pb2.Duration(seconds=int(whole), nanos=int(part * 1e9))
            _abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, error_details_pb2.RetryInfo(retry_delay=delay))


def _info(reason: str) -> Any:
    return error_details_pb2.ErrorInfo(reason=reason, domain="googleapis.com")


def _abort(context: grpc.ServicerContext, code: grpc.StatusCode, detail: Any) -> None:
    packed = any_pb2.Any()
    packed.Pack(detail)
    status = status_pb2.Status(code=code.value[0], message=f"refused: {code.name}", details=[packed])
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(code, status.message)
