"""The provider under test as seen by a case: a channel, and one kind with a working configuration.

Requests are built from the stubs directly, not with the codec that providers may share with the operator, so that a
defect of the codec cannot hide itself.
"""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
import msgspec
from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]  # the wheel carries no type information
from grpc import aio

from eso_conformance.cases import NotApplicable, Violation
from eso_conformance.fixture import KindFixture, KnownValue
from eso_wire._generated import provider_pb2 as pb
from eso_wire._generated import provider_pb2_grpc as stubs
from eso_wire.versions import SUPPORTED

# --- The service account token for providers that require one, read again for every call -----------------------------
#
# Tokens expire within the hour, so the file may be renewed during a run. Its content goes only into the metadata of
# calls.


_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,16384}")
_SUBJECT: Final = re.compile(r"system:serviceaccount:([a-z0-9-]{1,63}):[a-z0-9.-]{1,253}")


class TokenError(ValueError):
    """The file contains no usable token; the text says why, and never quotes it."""


def read_token(path: Path) -> str:
    """Read the current token from the file."""
    try:
        found = _TOKEN.fullmatch(path.read_bytes().decode("ascii", "replace").strip())
    except OSError as problem:
        raise TokenError(f"{path}: {problem.strerror}") from problem
    if found is None:
        raise TokenError(f"{path}: it holds no token")
    return found[0]


def namespace_of(token: str) -> str:
    """Return the namespace of the token's account; empty if the token does not name it. Nothing is verified."""
    try:
        payload = token.split(".")[1]
        claims = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), type=_Claims)
    except (IndexError, ValueError):
        return ""
    account = _SUBJECT.fullmatch(claims.sub)
    return "" if account is None else account[1]


def bearer(path: Path) -> grpc.CallCredentials:
    """Send the file's current token with every call."""
    return grpc.metadata_call_credentials(_Bearer(path))


class _Claims(msgspec.Struct):
    sub: str = ""


class _Bearer(grpc.AuthMetadataPlugin):
    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, _: grpc.AuthMetadataContext, callback: grpc.AuthMetadataPluginCallback) -> None:
        try:
            token = read_token(self._path)
        except TokenError as problem:
            callback((), problem)  # gRPC logs exceptions raised here with all their details
        else:
            callback((("authorization", f"Bearer {token}"),), None)


CALL_SECONDS = 10.0
MESSAGE_BYTES = 32 * 1024 * 1024
NAMESPACE = "conformance"
_MESSAGE_CHARS = 300
_SHORTEST = 4  # shorter texts may occur in any sentence by chance


@dataclass(frozen=True, slots=True)
class Identity:
    """A client's certificate and key, and the authorities it trusts, as PEM."""

    ca: bytes
    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Target:
    """The provider's address and our identity.

    `authority` holds the CA's own certificate and key, if available: with them the suite can issue certificates that
    must be refused.
    """

    address: str
    identity: Identity
    server_name: str = ""
    authority: tuple[bytes, bytes] | None = field(default=None, repr=False)
    token_file: Path | None = None
    """File with the service account token of calls, if the provider requires one."""


def read_identity(folder: Path) -> Identity:
    """Read ca.crt, tls.crt and tls.key from a folder."""
    return Identity(*((folder / name).read_bytes() for name in ("ca.crt", "tls.crt", "tls.key")))


@asynccontextmanager
async def channel_to(target: Target) -> AsyncIterator[aio.Channel]:
    """Open a connection for the duration of the block."""
    identity = target.identity
    credentials = grpc.ssl_channel_credentials(identity.ca, identity.key, identity.certificate)
    if target.token_file is not None:
        credentials = grpc.composite_channel_credentials(credentials, bearer(target.token_file))
    options: list[tuple[str, Any]] = [
        ("grpc.max_receive_message_length", MESSAGE_BYTES),
        ("grpc.max_send_message_length", MESSAGE_BYTES),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_retries", 0),
    ]
    if target.server_name:
        options.append(("grpc.ssl_target_name_override", target.server_name))
    async with aio.secure_channel(target.address, credentials, options=options) as channel:
        yield channel


class Subject:
    """One kind of one provider, over one channel."""

    failure = aio.AioRpcError

    def __init__(
        self,
        target: Target,
        channel: aio.Channel,
        handshake: pb.HandshakeResponse,
        kind: pb.KindInfo,
        known: KindFixture,
    ) -> None:
        self.target = target
        self.channel = channel
        self.handshake = handshake
        self.kind = kind
        self.fixture = known
        self.namespace = _namespace(target)
        # The stubs support both kinds of channel; their types name only the blocking one.
        self.info = stubs.ProviderInfoStub(channel)
        self.stores = stubs.SecretStoreProviderStub(channel)
        self.generators = stubs.GeneratorProviderStub(channel)

    @property
    def name(self) -> str:
        return self.kind.gvk.kind

    def offers(self, *operations: pb.Operation.ValueType) -> bool:
        return set(operations) <= set(self.kind.operations)

    def need(self, *operations: pb.Operation.ValueType) -> None:
        """Skip the case unless the provider offers these operations."""
        missing = [pb.Operation.Name(one).removeprefix("OPERATION_") for one in operations if not self.offers(one)]
        if missing:
            raise NotApplicable(f"{self.name} does not offer {', '.join(missing)}")

    def context(self, **changes: Any) -> pb.RequestContext:
        """Build the envelope of a call; a test changes the fields it is about."""
        ref = pb.ObjectRef(
            api_version=f"{self.kind.gvk.group}/{self.kind.gvk.version}",
            kind=self.name,
            namespace=self.namespace,
            name="conformance",
            uid=f"conformance-{self.name}",
            generation=1,
        )
        config = pb.ProviderConfig(ref=ref, inline=self.inline(self.fixture.spec), kind=self.kind.gvk)
        values: dict[str, Any] = {
            "request_id": str(uuid.uuid4()),
            "protocol": self.handshake.selected,
            "caller": pb.ObjectRef(
                api_version="external-secrets.io/v1", kind="ExternalSecret", namespace=self.namespace, name="es"
            ),
            "store": ref,
            "config": config,
            "auth_namespace": self.namespace,
        }
        return pb.RequestContext(**{**values, **changes})

    def inline(self, spec: dict[str, Any]) -> pb.InlineConfig:
        """Build a configuration with its credentials."""
        resolved = [
            pb.ResolvedValue(json_pointer=pointer, secret_value=value.encode())
            for pointer, value in self.fixture.credentials.items()
        ]
        for pointer, token in self.fixture.tokens.items():
            account = pb.ServiceAccountToken(token=token, namespace=self.namespace, name="conformance")
            resolved.append(pb.ResolvedValue(json_pointer=pointer, service_account_token=account))
        return pb.InlineConfig(spec_json=msgspec.json.encode(spec), resolved=resolved)

    def with_spec(self, spec: dict[str, Any]) -> pb.RequestContext:
        """Build a call with another configuration."""
        context = self.context()
        context.config.inline.CopyFrom(self.inline(spec))
        context.config.ref.uid = f"conformance-{uuid.uuid4()}"
        return context

    async def get(self, items: Iterable[pb.GetItem], *, context: pb.RequestContext | None = None) -> list[pb.GetResult]:
        request = pb.GetSecretsRequest(context=context or self.context(), items=items)
        response: pb.GetSecretsResponse = await self.stores.GetSecrets(request, timeout=CALL_SECONDS)
        return list(response.results)

    async def get_one(self, key: str, *, version: str = "", prop: str = "") -> pb.GetResult:
        """Read one item and check its id."""
        prop = prop or self.written(key).property
        (result,) = await self.get([item("only", key, version=version, prop=prop)])
        if result.item_id != "only":
            raise Violation("a result does not carry the id of its item")
        return result

    async def push(self, key: str, value: bytes, **changes: Any) -> pb.PushResult:
        place = self.written(key)
        entry = pb.PushItem(item_id="only", remote=place, value=value, precondition=pb.PUSH_PRECONDITION_NONE)
        for name, change in changes.items():
            setattr(entry, name, change)
        request = pb.PushSecretsRequest(context=self.context(), items=[entry], idempotency_key=str(uuid.uuid4()))
        response: pb.PushSecretsResponse = await self.stores.PushSecrets(request, timeout=CALL_SECONDS)
        if [result.item_id for result in response.results] != ["only"]:
            raise Violation("a push of one item gives not exactly one result with its id")
        return response.results[0]

    async def delete(self, key: str, owner_token: str = "") -> pb.DeleteResult:
        entry = pb.DeleteItem(item_id="only", remote=self.written(key), owner_token=owner_token)
        request = pb.DeleteSecretsRequest(context=self.context(), items=[entry], idempotency_key=str(uuid.uuid4()))
        response: pb.DeleteSecretsResponse = await self.stores.DeleteSecrets(request, timeout=CALL_SECONDS)
        if [result.item_id for result in response.results] != ["only"]:
            raise Violation("a deletion of one item gives not exactly one result with its id")
        return response.results[0]

    def describe_error(self, detail: pb.ErrorDetail) -> str:
        """Describe a failure with the provider's message, without the credentials and values of the fixture."""
        message = detail.message
        for secret in sorted(self._secrets(), key=len, reverse=True):
            message = message.replace(secret, "…")
        return f"{reason_name(detail)}: {message[:_MESSAGE_CHARS]}" if message else reason_name(detail)

    def _secrets(self) -> list[str]:
        known = [*self.fixture.credentials.values(), *self.fixture.tokens.values()]
        known += [one.value for one in self.fixture.known]
        known += [value for one in self.fixture.maps for value in one.value.values()]
        return [value for value in known if len(value) >= _SHORTEST]

    def written(self, key: str) -> pb.RemoteRef:
        """Return the place where the value of a key is written."""
        fresh = key.startswith(self.fixture.writable)
        return remote(key, prop=self.fixture.property if fresh else "")

    def fresh_key(self) -> str:
        """Return an unused key under the writable prefix."""
        return f"{self.fixture.writable}{uuid.uuid4().hex}"

    async def known(self) -> KnownValue:
        """Return an existing value: from the fixture, or pushed now."""
        if self.fixture.known:
            return self.fixture.known[0]
        if not self.offers(pb.OPERATION_PUSH):
            raise NotApplicable("the fixture names no known value, and none can be pushed")
        place = self.fixture.property
        seeded = KnownValue(key=self.fresh_key(), value='{"user":"anna","port":5432}', property=place)
        result = await self.push(seeded.key, seeded.value.encode())
        if result.HasField("error"):
            raise Violation(f"a value cannot be pushed: {self.describe_error(result.error)}")
        return seeded


def _namespace(target: Target) -> str:
    """Return the namespace of this run's store, which must be that of the token's account."""
    if target.token_file is None:
        return NAMESPACE
    return namespace_of(read_token(target.token_file)) or NAMESPACE


def item(
    item_id: str, key: str, *, version: str = "", prop: str = "", shape: pb.ValueShape.ValueType = pb.VALUE_SHAPE_SINGLE
) -> pb.GetItem:
    return pb.GetItem(item_id=item_id, ref=remote(key, version=version, prop=prop), shape=shape)


def remote(key: str, *, version: str = "", prop: str = "") -> pb.RemoteRef:
    return pb.RemoteRef(key=key, version=version, property=prop, metadata_policy=pb.METADATA_POLICY_NONE)


def reason_name(detail: pb.ErrorDetail) -> str:
    """Return a reason as the documentation spells it, or the number if it is unknown."""
    try:
        return pb.ErrorReason.Name(detail.reason).removeprefix("ERROR_REASON_")
    except ValueError:
        return f"reason {detail.reason}"


def detail_of(error: aio.AioRpcError) -> pb.ErrorDetail | None:
    """Return the structured part of a failed call."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin" and isinstance(value, bytes):
            return _detail_in(value)
    return None


def _detail_in(packed: bytes) -> pb.ErrorDetail | None:
    try:
        details = Status.FromString(packed).details
    except DecodeError:
        return None
    for entry in details:
        detail = pb.ErrorDetail()
        if entry.Unpack(detail):
            return detail
    return None


async def shake_hands(channel: aio.Channel, versions: Iterable[tuple[int, int]] = SUPPORTED) -> pb.HandshakeResponse:
    """Perform a handshake with the provider."""
    request = pb.HandshakeRequest(
        core_version="conformance",
        supported=[pb.ProtocolVersion(major=major, minor=minor) for major, minor in versions],
    )
    response: pb.HandshakeResponse = await stubs.ProviderInfoStub(channel).Handshake(request, timeout=CALL_SECONDS)
    return response
