"""The gRPC service of Secret Manager on a free port, made of the vendor's message classes.

It verifies tokens, applies denials and quotas that a test sets, and counts calls.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from google.cloud.secretmanager_v1 import types
from google.protobuf import any_pb2, duration_pb2, empty_pb2
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped] # the wheel has no types

from eso_provider_gcp.errors import RIGHTS
from eso_provider_gcp.testing.model import Model, StatusError, plain

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
_WORD_START: Final = re.compile(r"(?<!^)(?=[A-Z])")


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
        method = getattr(self.model, _WORD_START.sub("_", operation).lower())

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
