"""Calls to the kinds of this provider, as an operator makes them."""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.request
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import botocore.session
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from eso_api.values import SecretBytes
from eso_provider_aws.provider import ParameterStore, SecretsManager
from eso_provider_aws.testing.front import ARN, Front, RecordedRequest, StubResponse, refused
from eso_sdk.backend import Backend
from eso_sdk.testing import InMemory, call_context
from eso_sdk.testing.moto import apart
from eso_sdk.testing.server import delete_parts, push_items
from eso_wire.errors import ProviderError
from eso_wire.values import (
    ChangeEvent,
    ChangeType,
    Context,
    GetItem,
    Heartbeat,
    PushItem,
    PushOutcome,
    PushResult,
    RemoteRef,
    SubscribeAck,
    SubscribeMessage,
    SubscribeOpen,
    SubscribeUpdate,
    Token,
    WatchItem,
)
from kubebase.testing.servers import Child, free_ports
from kubebase.testing.signer import UNTIL, key_pem, unsigned

# --- AWS for tests, a second opinion: ministack as a process of its own ----------------------------------------------


READY_SECONDS: Final = 60.0


@contextmanager
def ministack(folder: Path) -> Iterator[str]:
    """Run all services on one loopback port; yields its URL."""
    folder.mkdir(parents=True, exist_ok=True)
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    environment = {"PYTHONPATH": str(apart("ministack")), "BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port)}
    child = Child([sys.executable, "-m", "ministack"], folder / "ministack.log", environment)

    def ready() -> bool:
        try:
            urllib.request.urlopen(f"{url}/_ministack/health", timeout=1).close()  # noqa: S310 - loopback
        except OSError:
            return False
        return True

    try:
        child.wait_until(ready, seconds=READY_SECONDS)
        yield url
    finally:
        child.stop()


# --- Calls to the kinds of this provider, as an operator makes them --------------------------------------------------


REGION: Final = "eu-west-1"
KEYS: Final = ("AKIAIOSFODNN7EXAMPLE", "anything: it is verified only on request")
AUTH: Final = {
    "secretRef": {
        "accessKeyIDSecretRef": {"name": "aws", "key": "id"},
        "secretAccessKeySecretRef": {"name": "aws", "key": "key"},
    }
}


def context(backend: type[Backend[Any]], keys: tuple[str, str] = KEYS, **spec: Any) -> Context:
    """Return the context of a call to a store or generator that signs with these keys."""
    config = {"region": REGION, "auth": AUTH} | spec
    return call_context(backend, config, credentials(keys))


def credentials(keys: tuple[str, str] = KEYS) -> dict[str, Any]:
    """Return the credentials that the operator sends for `AUTH`."""
    return {"/auth/secretRef/accessKeyIDSecretRef": keys[0], "/auth/secretRef/secretAccessKeySecretRef": keys[1]}


async def read(provider: InMemory, call: Context, *refs: RemoteRef | str) -> list[bytes | ProviderError]:
    """Return one value or error for each reference; a string is a key."""
    items = [ref if isinstance(ref, RemoteRef) else RemoteRef(ref) for ref in refs]
    results = await provider.get(call, tuple(GetItem(str(number), ref) for number, ref in enumerate(items)))
    return [_plain(result.outcome) for result in results]


def _plain(outcome: Any) -> bytes | ProviderError:
    return outcome if isinstance(outcome, ProviderError) else outcome.reveal()


@lru_cache(maxsize=64)
def admin(service: str, url: str, keys: tuple[str, str] = KEYS, region: str = REGION) -> Any:
    """Return botocore's own client, to arrange and inspect.

    It is cached, because creating one reads megabytes of models.
    """
    session = botocore.session.get_session()
    return session.create_client(
        service, region, endpoint_url=url, aws_access_key_id=keys[0], aws_secret_access_key=keys[1]
    )


def tags(pairs: Mapping[str, str] | Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Convert the tag list of AWS to a mapping."""
    if isinstance(pairs, Mapping):
        return dict(pairs)
    return {pair["Key"]: pair["Value"] for pair in pairs}


# --- Pushes and deletions as an operator makes them ------------------------------------------------------------------


async def outcome(provider: InMemory, call: Context, one: PushItem, **more: Any) -> PushOutcome:
    """Return the outcome of one item that must not fail."""
    (result,) = await push_items(provider, call, one, **more)
    assert not isinstance(result.outcome, ProviderError), result.outcome.message  # noqa: S101 - for tests
    return result.outcome


async def refusal(provider: InMemory, call: Context, one: PushItem) -> ProviderError:
    """Return the error of one item that must fail."""
    (result,) = await push_items(provider, call, one)
    assert isinstance(result.outcome, ProviderError), "it was written"  # noqa: S101 - for tests
    return result.outcome


# --- Pushes to Parameter Store, made as by the operator, and their results -------------------------------------------


MARK: Final = {"managed-by": "external-secrets"}
OURS: Final = [{"Key": "managed-by", "Value": "external-secrets"}]


async def push_parameters(provider: InMemory, *items: PushItem, **spec: Any) -> list[PushResult]:
    return await push_items(provider, context(ParameterStore, **spec), *items)


async def parameter_outcome(provider: InMemory, one: PushItem) -> PushOutcome:
    return await outcome(provider, context(ParameterStore), one)


async def parameter_refusal(provider: InMemory, one: PushItem) -> ProviderError:
    return await refusal(provider, context(ParameterStore), one)


async def delete_parameter(provider: InMemory, key: str, *parts: str, **more: Any) -> list[bool]:
    return await delete_parts(provider, context(ParameterStore), key, *parts, **more)


def value_of(client: Any, key: str) -> str:
    return str(client.get_parameter(Name=key, WithDecryption=True)["Parameter"]["Value"])


def tags_at(client: Any, key: str) -> dict[str, str]:
    return tags(client.list_tags_for_resource(ResourceType="Parameter", ResourceId=key)["TagList"])


def described(client: Any, key: str) -> dict[str, Any]:
    filters = [{"Key": "Name", "Option": "Equals", "Values": [key]}]
    (found,) = client.describe_parameters(ParameterFilters=filters)["Parameters"]
    return dict(found)


def parameter_exists(client: Any, key: str) -> bool:
    return not client.get_parameters(Names=[key])["InvalidParameters"]


# --- Calls of stores that use every login method, and a service whose values show who signed the request -------------


TOKEN_POINTER: Final = "/auth/jwt/serviceAccountRef"  # noqa: S105 - a pointer
JWT: Final = {"jwt": {"serviceAccountRef": {"name": "app"}}}


def whoami(request: RecordedRequest) -> StubResponse:
    """Return a secret whose value is the id of the key that the request was signed with."""
    response = {"ARN": "arn", "Name": request.body["SecretId"], "SecretString": request.key_id, "VersionId": "1"}
    return StubResponse(200, json.dumps(response).encode())


def with_keys(keys: tuple[str, str] = KEYS, **spec: Any) -> Context:
    """Return a store that signs with keys of a Secret; `role` is completed to an ARN."""
    return call_context(SecretsManager, {"region": REGION, "auth": AUTH, **_roles(spec)}, credentials(keys))


def with_own(**spec: Any) -> Context:
    """Return a cluster-scoped store that uses the identity of the process."""
    return call_context(SecretsManager, {"region": REGION, **_roles(spec)}, cluster_scoped=True)


def with_token(token: Token, **spec: Any) -> Context:
    """Return a store that uses a service account."""
    return call_context(SecretsManager, {"region": REGION, "auth": JWT, **_roles(spec)}, {TOKEN_POINTER: token})


def token(
    text: str = "token-1",
    *,
    role: str = "app",
    expires_at: datetime | None = None,
    annotations: Mapping[str, str] | None = None,
    **more: Any,
) -> Token:
    """Return a token of service account team/app, which may assume `role`."""
    named = {"eks.amazonaws.com/role-arn": f"{ARN}{role}"} if annotations is None else annotations
    given = {"namespace": "team", "name": "app", "uid": "uid-of-app", "audiences": ("sts.amazonaws.com",)} | more
    return Token(SecretBytes(text.encode()), expires_at, annotations=named, **given)


def _roles(spec: dict[str, Any]) -> dict[str, Any]:
    whole = dict(spec)
    if "role" in spec:
        whole["role"] = f"{ARN}{spec['role']}"
    if "additionalRoles" in spec:
        whole["additionalRoles"] = [f"{ARN}{name}" for name in spec["additionalRoles"]]
    return whole


# --- Certificates for tests, and corrections of the test servers' deviations from Certificate Manager ----------------
#
# | behaviour of the service | moto | ministack |
# |---|---|---|
# | GetCertificate answers with the chain that was imported | adds a certificate to it | yes |
# | GetCertificate repeats a leaf that was imported alone | no | no |
# | an import under an ARN keeps its tags | no | yes |
# | GetResources finds certificates | yes | no |
# | ExportCertificate | yes | no |


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate with the chain above it."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)
    above: tuple[x509.Certificate, ...] = ()

    @property
    def certificates(self) -> bytes:
        return b"".join(each.public_bytes(Encoding.PEM) for each in (self.certificate, *self.above))

    @property
    def key_pem(self) -> bytes:
        return key_pem(self.key)

    @property
    def secret(self) -> dict[str, SecretBytes]:
        """Return the data of a kubernetes.io/tls Secret."""
        return {"tls.crt": SecretBytes(self.certificates), "tls.key": SecretBytes(self.key_pem)}


def issued(name: str, above: Issued | None = None, *, until: datetime = UNTIL) -> Issued:
    """Make a certificate, signed by the one above it or by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = unsigned(name, key, above.certificate if above else None, until=until)
    certificate = builder.sign(above.key if above else key, hashes.SHA256())
    return Issued(certificate, key, (above.certificate, *above.above) if above else ())


def correct_responses(front: Front, server: str) -> Any:
    """Let the front correct the wrong responses of the server behind it; return a client."""
    client = admin("acm", server)
    front.respond("GetCertificate", lambda request: _certificate(client, request))
    front.respond("GetResources", lambda request: json_response(_resources(client, request)))
    return client


def json_response(body: Any) -> StubResponse:
    """Return a response of the JSON protocol."""
    return StubResponse(200, json.dumps(body).encode(), {"Content-Type": "application/x-amz-json-1.1"})


def _certificate(client: Any, request: RecordedRequest) -> StubResponse:
    try:
        response = client.get_certificate(CertificateArn=request.body["CertificateArn"])
    except client.exceptions.ResourceNotFoundException:
        return refused("ResourceNotFoundException")
    chain = (
        x509.load_pem_x509_certificates(response["CertificateChain"].encode()) if response["CertificateChain"] else []
    )
    remaining = [each for each in chain if "OU=Server CA 1B" not in each.subject.rfc4514_string()]
    above = b"".join(each.public_bytes(Encoding.PEM) for each in remaining).decode()
    return json_response({"Certificate": response["Certificate"], "CertificateChain": above or response["Certificate"]})


def _resources(client: Any, request: RecordedRequest) -> dict[str, Any]:
    found = []
    for each in client.list_certificates(MaxItems=1000)["CertificateSummaryList"]:
        tags = client.list_tags_for_certificate(CertificateArn=each["CertificateArn"])["Tags"]
        mapping = {tag["Key"]: tag["Value"] for tag in tags}
        if all(mapping.get(tag_filter["Key"]) in tag_filter["Values"] for tag_filter in request.body["TagFilters"]):
            found.append({"ResourceARN": each["CertificateArn"], "Tags": tags})
    return {"ResourceTagMappingList": found, "PaginationToken": ""}


# ---------------------------------------------------------------------------------------------------------------------
# Subscriptions in tests: streams whose changes are taken one by one, and events as EventBridge sends them.


ACCOUNT: Final = "123456789012"
TIMEOUT_SECONDS: Final = 20.0


class Stream:
    """One subscription."""

    def __init__(self, events: Any, messages: asyncio.Queue[SubscribeMessage]) -> None:
        self._events = events
        self._messages = messages
        self.token = ""

    async def change(self) -> ChangeEvent:
        """Return the next change; heartbeats only update the token."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            async for event in self._events:
                self.token = event.resume_token or self.token
                if isinstance(event, ChangeEvent):
                    return event
        raise AssertionError("the stream ended")

    async def opened(self) -> None:
        """Wait until the provider has reported the start position."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            async for event in self._events:
                assert isinstance(event, Heartbeat), event  # noqa: S101 - of the test
                if event.resume_token:
                    self.token = event.resume_token
                    return

    def acknowledge(self) -> None:
        """Acknowledge everything up to here."""
        self._messages.put_nowait(SubscribeAck(self.token))

    def watch(self, *more: WatchItem) -> None:
        self._messages.put_nowait(SubscribeUpdate(more))


@asynccontextmanager
async def watching(provider: InMemory, context: Context, *items: WatchItem, resume: str = "") -> AsyncIterator[Stream]:
    """Keep a stream open inside the block."""
    outgoing: asyncio.Queue[SubscribeMessage] = asyncio.Queue()
    outgoing.put_nowait(SubscribeOpen(context, items, resume))

    async def messages() -> AsyncIterator[SubscribeMessage]:
        while True:
            yield await outgoing.get()

    async with aclosing(provider.subscribe(messages())) as events:
        yield Stream(events, outgoing)


def key(name: str, known_version: str = "", *, version: str = "") -> WatchItem:
    """Return a watch of one key, with the key as its id."""
    return WatchItem(name, RemoteRef(name, version), known_version=known_version)


def summary(event: ChangeEvent) -> tuple[ChangeType, tuple[str, ...]]:
    return event.type, event.watch_ids


def secret_arn(name: str) -> str:
    return f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:{name}-AbC123"


def secret_event(call: str, secret_id: str, *, kind: str = "AWS API Call via CloudTrail", **detail: Any) -> str:
    """Return the EventBridge event of a call to Secrets Manager."""
    about = {"requestParameters": {"secretId": secret_id}, "responseElements": None} | detail
    return _event("aws.secretsmanager", kind, {"eventName": call, **about})


def parameter_event(operation: str, name: str) -> str:
    """Return the EventBridge event of a parameter change."""
    return _event("aws.ssm", "Parameter Store Change", {"operation": operation, "name": name, "type": "String"})


def by_sns(event: str) -> str:
    """Return the event as delivered through an SNS topic."""
    return json.dumps({"Type": "Notification", "TopicArn": f"arn:aws:sns:{REGION}:{ACCOUNT}:t", "Message": event})


def _event(source: str, kind: str, detail: dict[str, Any]) -> str:
    return json.dumps(
        {
            "version": "0",
            "id": str(uuid.uuid4()),
            "detail-type": kind,
            "source": source,
            "account": ACCOUNT,
            "time": "2030-01-01T00:00:00Z",
            "region": REGION,
            "resources": [],
            "detail": detail,
        }
    )
