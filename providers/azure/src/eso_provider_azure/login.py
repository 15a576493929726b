"""The identity of a configuration.

| `authType` | identity |
|---|---|
| ServicePrincipal | an application, by a client secret or a certificate of a Secret |
| ManagedIdentity | the identity of the node, by its instance metadata |
| WorkloadIdentity with `serviceAccountRef` | an application that trusts a service account, by a token of the account |
| WorkloadIdentity without | that of the provider process, by the file that AZURE_FEDERATED_TOKEN_FILE names |
"""

from __future__ import annotations

import hashlib
import os
import ssl
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from azure.identity.aio import (
    CertificateCredential,
    ClientAssertionCredential,
    ClientSecretCredential,
    ManagedIdentityCredential,
    WorkloadIdentityCredential,
)
from yarl import URL

from eso_api.references import SecretKeySelector, ServiceAccountSelector
from eso_api.stores.azure import AzureProvider, AzureSecretRef
from eso_provider_azure.changes import FIELD, EventQueue
from eso_provider_azure.identities import (
    AUTHORITY_HOSTS,
    CUSTOM,
    VAULT_HOSTS,
    AccountIdentity,
    AccountToken,
    BoundIdentity,
    Cloud,
    Credential,
    Identity,
    KitTransport,
    Logins,
    cloud_of,
)
from eso_provider_azure.vault import Vault
from eso_sdk.addresses import AddressPolicy
from eso_sdk.backend import Backend
from eso_sdk.errors import credentials_not_found, invalid_config, unsupported
from eso_sdk.http import HttpClient, HttpSettings, tls_context
from eso_sdk.processwide import shared_table
from eso_wire.values import Token
from kubebase.clock import Clock

# --- State shared by all sessions of a provider process: identities, vaults, and the trusted authorities -------------


MAX_QUEUES: Final = 128
CONNECTIONS: Final = 64
"""The maximum number of connections to one vault as one identity, for all stores."""


class Runtime:
    """The state of one process."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.logins = Logins(clock)
        self._vaults: dict[Hashable, Vault] = {}
        self._queues: dict[Hashable, EventQueue] = {}

    @cached_property
    def tls(self) -> ssl.SSLContext:
        """Return the trust in the authorities of the system; reading them takes longer than a connection."""
        return tls_context()

    def http_client(self, subject: str, field: str, addresses: AddressPolicy) -> HttpClient:
        """Return a new client; its user closes it."""
        settings = HttpSettings(subject, field=field, tls=self.tls, connections=CONNECTIONS)
        return HttpClient(settings, policy=addresses, clock=self.clock)

    def join(self, url: str, credential: BoundIdentity, addresses: AddressPolicy) -> Vault:
        """Return the vault, as one identity; every `join` needs a `leave`."""
        key = (url, credential.identity.key, credential.scope, addresses)
        if key not in self._vaults:
            client = self.http_client(f"vault {url}", "/vaultUrl", addresses)
            self._vaults[key] = Vault(url, credential, client, self.clock)
        vault = self._vaults[key]
        vault.users += 1
        return vault

    async def leave(self, vault: Vault) -> None:
        """Release a vault; the last user closes its connections."""
        vault.users -= 1
        if vault.users == 0:
            for key in [key for key, each in self._vaults.items() if each is vault]:
                del self._vaults[key]
            await vault.close()

    def join_queue(self, url: str, credential: BoundIdentity, addresses: AddressPolicy) -> EventQueue:
        """Return a queue, as one identity; every call needs a `leave_queue`."""
        key = (url, credential.identity.key, addresses)
        if key not in self._queues:
            if len(self._queues) >= MAX_QUEUES:
                raise unsupported(f"this provider polls {MAX_QUEUES} queues already; let stores share queues")
            client = self.http_client(f"queue {url}", FIELD, addresses)
            self._queues[key] = EventQueue(url, credential, client, self.clock)
        queue = self._queues[key]
        queue.users += 1
        return queue

    async def leave_queue(self, queue: EventQueue) -> None:
        """Release a queue; the last user closes its connections."""
        queue.users -= 1
        if queue.users == 0:
            for key in [key for key, each in self._queues.items() if each is queue]:
                del self._queues[key]
            await queue.close()


def runtime_of(clock: Clock) -> Runtime:
    """Return the runtime that all sessions of the process share."""
    return shared_table("azure.runtime", clock, lambda: Runtime(clock))


# --- The identity of a configuration ---------------------------------------------------------------------------------


CLIENT_ANNOTATION: Final = "azure.workload.identity/client-id"
TENANT_ANNOTATION: Final = "azure.workload.identity/tenant-id"
_ENVIRONMENT: Final = ("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE")

Make = Callable[..., Any]


@dataclass(slots=True)
class Login:
    """An identity, and the token source that must live as long as its session."""

    identity: Identity
    token: AccountToken | None = None


def check_auth(config: AzureProvider) -> None:
    """Refuse settings that no login can use."""
    named = config.auth_secret_ref
    if config.auth_type != "ServicePrincipal":
        return
    if not config.tenant_id:
        raise invalid_config("/tenantId", "name the tenant of the service principal")
    if named is None or named.client_id is None:
        raise invalid_config("/authSecretRef/clientId", "name the key of a Secret with the client id")
    if (named.client_secret is None) == (named.client_certificate is None):
        raise invalid_config("/authSecretRef", "name either clientSecret or clientCertificate")


def log_in(backend: Backend[Any], runtime: Runtime, config: AzureProvider) -> Login:
    """Return the identity of a store, without a call."""
    named = config.auth_secret_ref or AzureSecretRef()
    where = _Where(backend, runtime, cloud_of(config), custom=config.environment_type == CUSTOM)
    match config.auth_type:
        case "ManagedIdentity":
            return Login(where.managed(config.identity_id, _vault_of(config)))
        case "WorkloadIdentity" if config.service_account_ref is not None:
            token = backend.token(config.service_account_ref)
            secret_id = where.text(named.client_id, "/authSecretRef/clientId")
            secret_tenant = where.text(named.tenant_id, "/authSecretRef/tenantId")
            client = _client_of(token, secret_id)
            return where.account(
                config.service_account_ref, client, _tenant_of(token, secret_tenant or config.tenant_id)
            )
        case "WorkloadIdentity":
            return Login(where.process(config.tenant_id, _vault_of(config)))
        case _:
            check_auth(config)
            client = where.text(named.client_id, "/authSecretRef/clientId")
            return Login(where.principal(config.tenant_id, client, named))


@dataclass(frozen=True, slots=True)
class Receiver:
    """The server that receives the tokens of an identity, and the fields of the spec that name it and the identity."""

    url: str
    field: str
    vendor: tuple[str, ...]
    """Hosts of the vendor."""
    auth: str


class _Where:
    """A cloud, and the runtime whose identities it shares."""

    def __init__(self, backend: Backend[Any], runtime: Runtime, cloud: Cloud, *, custom: bool) -> None:
        field = "/customCloudConfig/activeDirectoryEndpoint" if custom else "/environmentType"
        self._backend = backend
        self._runtime = runtime
        self._authority = cloud.authority
        self._entra = _Entra(runtime, cloud.authority, field, backend.addresses)

    def _use_process_identity(self, own: str, to: Receiver) -> None:
        instead = "use a service principal or a serviceAccountRef"
        self._backend.process_identity.use(own, field=to.auth, instead=instead)
        self._backend.process_identity.prove(own, URL(to.url), field=to.field, vendor=to.vendor)

    def principal(self, tenant: str, client: str, named: AzureSecretRef) -> Identity:
        """Return an application with a credential of its own."""
        if named.client_certificate is not None:
            pem = self.value(named.client_certificate, "/authSecretRef/clientCertificate")
            key = ("certificate", self._authority, tenant, client, hashlib.sha256(pem).digest())
            return self._shared(
                key, client, tenant, lambda **more: CertificateCredential(tenant, client, certificate_data=pem, **more)
            )
        return self.secret(tenant, client, self.text(named.client_secret, "/authSecretRef/clientSecret"))

    def secret(self, tenant: str, client: str, secret: str) -> Identity:
        """Return an application with a client secret."""
        key = ("secret", self._authority, tenant, client, hashlib.sha256(secret.encode()).digest())
        return self._shared(key, client, tenant, lambda **more: ClientSecretCredential(tenant, client, secret, **more))

    def managed(self, identity: str, to: Receiver) -> Identity:
        """Return the identity of the node: its only one, or one by client id or, with a slash, by resource id."""
        self._use_process_identity("managed identity", to)
        chosen: dict[str, Any] = {"client_id": identity or None}
        if "/" in identity:
            chosen = {"identity_config": {"msi_res_id": identity}}  # as instance metadata names it

        @asynccontextmanager
        async def opens() -> AsyncIterator[Credential]:
            # The file of a workload identity in the environment is not a managed identity.
            async with ManagedIdentityCredential(**chosen, _exclude_workload_identity_credential=True) as credential:
                yield credential

        subject = f'managed identity "{identity}"' if identity else "the managed identity of the node"
        return self._runtime.logins.shared(Identity(("managed", identity), subject, opens))

    def process(self, tenant: str, to: Receiver) -> Identity:
        """Return the workload identity of the provider process."""
        own = "workload identity"
        self._use_process_identity(own, to)
        # The token file goes to the authority, and its receiver could log in with it.
        self._backend.process_identity.prove(own, URL(self._authority), field=self._entra.field, vendor=AUTHORITY_HOSTS)
        client, own_tenant, path = (os.environ.get(name, "") for name in _ENVIRONMENT)
        if not client or not path or not (tenant or own_tenant):
            raise credentials_not_found(
                f"the provider process has no workload identity: {', '.join(_ENVIRONMENT)} are not all set; label its"
                " pod azure.workload.identity/use: true, or set serviceAccountRef"
            )
        tenant = tenant or own_tenant
        return self._shared(
            ("process", self._authority, tenant, client, path),
            client,
            tenant,
            lambda **more: WorkloadIdentityCredential(tenant_id=tenant, client_id=client, token_file_path=path, **more),
        )

    def account(self, reference: ServiceAccountSelector, client: str, tenant: str) -> Login:
        """Return an application that trusts a service account."""
        token = self._backend.token(reference)
        account = (token.namespace, token.name, token.uid, token.audiences)
        key = ("account", self._authority, tenant, client, account)
        subject = f'{_subject(client, tenant)} by service account "{token.namespace}/{token.name}"'

        entra = self._entra

        def opens(assertion: Callable[[], str]) -> Any:
            return entra.opened(lambda **more: ClientAssertionCredential(tenant, client, assertion, **more))

        found = self._runtime.logins.shared(AccountIdentity(key, subject, opens))
        source = AccountToken(lambda: self._backend.token(reference))
        if isinstance(found, AccountIdentity):
            found.add(source)
        return Login(found, source)

    def text(self, reference: SecretKeySelector | None, field: str) -> str:
        """Return the text of a reference; empty without one."""
        if reference is None:
            return ""
        try:
            return self.value(reference, field).decode("ascii").strip()  # editors often append a newline
        except UnicodeDecodeError:
            problem = "has characters that no credential of Azure has"
            raise credentials_not_found(
                f'{field}: key "{reference.key}" of Secret "{reference.name}" {problem}'
            ) from None

    def value(self, reference: SecretKeySelector, field: str) -> bytes:
        """Return the bytes of a reference."""
        found = self._backend.secret(reference).reveal()
        if not found.strip():
            raise credentials_not_found(f'{field}: key "{reference.key}" of Secret "{reference.name}" is empty')
        return found

    def _shared(self, key: tuple[Any, ...], client: str, tenant: str, make: Make) -> Identity:
        entra = self._entra
        return self._runtime.logins.shared(Identity(key, _subject(client, tenant), lambda: entra.opened(make)))


@dataclass(frozen=True, slots=True)
class _Entra:
    """The authority of a cloud. Identities outlive the session that made them, so they refer to this object only."""

    runtime: Runtime
    authority: str
    field: str
    addresses: AddressPolicy

    @asynccontextmanager
    async def opened(self, make: Make) -> AsyncIterator[Credential]:
        """Make a credential for one login, which is one connection an hour."""
        client = self.runtime.http_client(f"Entra ID at {self.authority}", self.field, self.addresses)
        try:
            yield make(transport=KitTransport(client), authority=self.authority, retry_total=0)
        finally:
            await client.close()


def _vault_of(config: AzureProvider) -> Receiver:
    field = "/vaultUrl" if config.environment_type != CUSTOM else "/customCloudConfig"
    return Receiver(config.vault_url, field, VAULT_HOSTS, "/authType")


def where(backend: Backend[Any], runtime: Runtime, cloud: Cloud) -> _Where:
    """Return the identities of one cloud, for a generator."""
    return _Where(backend, runtime, cloud, custom=False)


def _subject(client: str, tenant: str) -> str:
    return f'client "{client}" of tenant "{tenant}"'


def _client_of(token: Token, from_secret: str) -> str:
    """Return the client id: from a Secret, or from the annotation of the account, not from both."""
    annotated = token.annotations.get(CLIENT_ANNOTATION, "")
    account = f'service account "{token.namespace}/{token.name}"'
    if from_secret and annotated:
        problem = f"{account} has the annotation {CLIENT_ANNOTATION} too; remove one of them"
        raise invalid_config("/authSecretRef/clientId", problem)
    if not (from_secret or annotated):
        raise credentials_not_found(f"{account} has no annotation {CLIENT_ANNOTATION}; set it to the client id")
    return from_secret or annotated


def _tenant_of(token: Token, configured: str) -> str:
    """Return the tenant: from the store, or from the annotation of the account, not from both; else our own."""
    annotated = token.annotations.get(TENANT_ANNOTATION, "")
    account = f'service account "{token.namespace}/{token.name}"'
    if configured and annotated:
        raise invalid_config("/tenantId", f"{account} has the annotation {TENANT_ANNOTATION} too; remove one of them")
    found = configured or annotated or os.environ.get("AZURE_TENANT_ID", "")
    if not found:
        raise credentials_not_found(f"the tenant is unknown: set tenantId, or {TENANT_ANNOTATION} on {account}")
    return found
