"""Calls to the kinds of this provider, as an operator makes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.cloud.secretmanager_v1 import SecretManagerServiceClient
from google.cloud.secretmanager_v1.services.secret_manager_service.transports import SecretManagerServiceGrpcTransport
from grpc import insecure_channel

from eso_api.values import SecretBytes
from eso_provider_gcp import identities as endpoints
from eso_provider_gcp.store import SecretManagerStore
from eso_provider_gcp.testing.secretmanager import Model, SecretManager
from eso_provider_gcp.testing.tokens import PubSub, Tokens
from eso_sdk.backend import Backend
from eso_sdk.testing import call_context
from eso_wire.values import Context, Token

# --- All services of Google that this provider calls, in one process -------------------------------------------------
#
# with Google.started() as google:
#     google.secrets.model ...        # what is stored
#     google.secrets.calls            # the received calls
#     os.environ |= google.environment


PROJECT: Final = "my-project-1"
OTHER_PROJECT: Final = "other-project"
EMAIL: Final = "app@my-project-1.iam.gserviceaccount.com"

_VARIABLES: Final = (endpoints.STS, endpoints.SECURE_TOKEN, endpoints.IAM_CREDENTIALS, endpoints.PUBSUB)


@dataclass(slots=True)
class Google:
    """The servers, and what a test needs to use them."""

    secrets: SecretManager
    tokens: Tokens
    pubsub: PubSub
    admin: SecretManagerServiceClient = field(init=False)
    """The vendor's client, with which tests prepare and inspect data."""
    token: str = field(init=False, repr=False)

    @classmethod
    @contextmanager
    def started(cls) -> Iterator[Google]:
        tokens = Tokens()
        pubsub = PubSub(lambda token: token in tokens.issued)
        secrets = SecretManager(Model((PROJECT, OTHER_PROJECT)), lambda token: token in tokens.issued)
        with tokens.serving(), secrets.serving(), insecure_channel(secrets.address) as channel:
            google = cls(secrets, tokens, pubsub)
            secrets.announce = pubsub.announce
            google.admin = SecretManagerServiceClient(transport=SecretManagerServiceGrpcTransport(channel=channel))
            google.reset()
            yield google

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the variables that lead a provider to these servers."""
        named = dict.fromkeys(_VARIABLES, self.tokens.url)
        host = self.tokens.url.removeprefix("http://")
        return {**named, endpoints.SECRET_MANAGER: f"http://{self.secrets.address}", endpoints.METADATA: host}

    def reset(self) -> None:
        """Forget everything except the secrets."""
        self.secrets.reset()
        self.tokens.reset()
        self.tokens.more = self.pubsub.respond
        self.pubsub.reset()
        self.token = self.tokens.issue("admin")

    @property
    def metadata(self) -> list[tuple[str, str]]:
        """Return the metadata of a call as the administrator."""
        return [("authorization", f"Bearer {self.token}")]

    def store(self, key: str, *values: bytes, location: str = "", **secret: object) -> str:
        """Create a secret with these versions; return its name."""
        parent = f"projects/{PROJECT}" + (f"/locations/{location}" if location else "")
        described = {**({} if location else {"replication": {"automatic": {}}}), **secret}
        request = {"parent": parent, "secret_id": key, "secret": described}
        made = self.admin.create_secret(request=request, metadata=self.metadata)
        for value in values:
            added = {"parent": made.name, "payload": {"data": value}}
            self.admin.add_secret_version(request=added, metadata=self.metadata)
        self.secrets.reset()
        return str(made.name)

    def value(self, key: str, location: str = "") -> bytes:
        """Return the latest value of a secret."""
        parent = f"projects/{PROJECT}" + (f"/locations/{location}" if location else "")
        request = {"name": f"{parent}/secrets/{key}/versions/latest"}
        return bytes(self.admin.access_secret_version(request=request, metadata=self.metadata).payload.data)

    def key(self, email: str = EMAIL, **changes: str) -> str:
        """Return the JSON key of a service account that these servers know."""
        private, public = _pair(email)
        self.tokens.public_keys[email] = public
        key = {
            "type": "service_account",
            "project_id": PROJECT,
            "client_email": email,
            "private_key": private.decode(),
            "private_key_id": "key-1",
            "token_uri": f"{self.tokens.url}/token",
        }
        return json.dumps(key | changes)


@cache
def _pair(email: str) -> tuple[bytes, bytes]:
    """Return the keys of an account; made once, because that takes a while."""
    del email
    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = serialization.Encoding.PEM
    private = made.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    public = made.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    return private, public


# --- Calls to the kinds of this provider, as an operator makes them --------------------------------------------------


AUTH: Final = {"secretRef": {"secretAccessKeySecretRef": {"name": "gcp", "key": "key.json"}}}
KEY: Final = "/auth/secretRef/secretAccessKeySecretRef"


def context(
    google: Google, backend: type[Backend[Any]] = SecretManagerStore, *, namespace: str = "team", **spec: Any
) -> Context:
    """Return the context of a call to a store or generator that has a service account key."""
    config = {"projectID": PROJECT, "auth": AUTH} | spec
    return call_context(backend, config, {KEY: google.key()}, namespace=namespace)


def account_token(text: str, *, audiences: tuple[str, ...] = (), annotations: Mapping[str, str] | None = None) -> Token:
    """Return a token of a Kubernetes service account."""
    return Token(
        SecretBytes(text.encode()),
        audiences=audiences,
        namespace="team",
        name="app",
        uid="uid-of-app",
        annotations=annotations or {},
    )
