"""Stages 8 and 9: the namespace that credentials come from, and the certificates and token for calls to the provider.

| object | credentials from |
|---|---|
| namespaced | its own namespace |
| cluster-scoped v2, ProviderNamespace | the configuration's namespace; for a cluster-scoped kind, the provider's |
| cluster-scoped v2, ManifestNamespace | the caller's namespace |
| cluster-scoped kind of a provider without authenticationScope | as its class says, else the caller's namespace |
| v1 cluster store | the namespace that a reference names, else the caller's |
| v1alpha1 generator | the caller's namespace |

Stage 8 follows discovery, because two rows need the class or the location of the provider. Stage 9 secures the channel
between operator and provider; its certificates and token are separate from the credentials for the backend.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from eso_api.v2.connection import ChannelAuth, ProviderConfig
from eso_operator.stores.configuration import Configuration
from eso_operator.stores.discovery import Located, class_tls, managed_tls
from eso_operator.stores.loading import AuthScope, LoadedStore, auth_scope
from eso_operator.stores.resolved import (
    CallToken,
    Endpoint,
    Form,
    Reason,
    ResolutionError,
    ResolverSettings,
    SecretTls,
    TlsSource,
)
from eso_wire.kinds import ObjectRef


@dataclass(frozen=True, slots=True)
class Authentication:
    """The namespace of credentials. For `pinned` see `ResolvedStore.pinned`."""

    namespace: str
    pinned: bool


def authenticate(
    store: LoadedStore, caller: ObjectRef, configuration: Configuration, located: Located
) -> Authentication:
    """Return the namespace that this caller's credentials for this store come from."""
    if store.namespaced or store.form is Form.V1_GENERATOR:
        return Authentication(caller.namespace, pinned=False)
    scope = _scope(store, located)
    match scope:
        case AuthScope.PROVIDER_NAMESPACE:
            return Authentication(_provider_namespace(store, configuration, located), pinned=True)
        case AuthScope.MANIFEST_NAMESPACE | AuthScope.REFERENT | AuthScope.UNSET:
            return Authentication(caller.namespace, pinned=False)
        case _:
            assert_never(scope)


def _scope(store: LoadedStore, located: Located) -> AuthScope:
    if store.behaviour.auth_scope is AuthScope.UNSET and located.provider_class is not None:
        cls = located.provider_class
        return auth_scope(cls.spec.authentication_scope, cls.ref)
    return store.behaviour.auth_scope


def _provider_namespace(store: LoadedStore, configuration: Configuration, located: Located) -> str:
    service = located.endpoint.service
    namespace = configuration.ref.namespace or (service.namespace if service is not None else "")
    if not namespace:
        raise ResolutionError(
            Reason.CONFIG_NAMESPACE_REQUIRED,
            f"{store} takes credentials from its provider's namespace, and the provider's address names none: set"
            " spec.common.authenticationScope to ManifestNamespace",
            subject=store.ref,
        )
    return namespace


AUDIENCE = "external-secrets-provider"


def secure(store: LoadedStore, located: Located, settings: ResolverSettings) -> TlsSource:
    """Return the certificates of the store, else of the class, else managed ones: every connection uses TLS."""
    endpoint = located.endpoint
    auth = _auth(store)
    certificate = auth.client_certificate.secret_ref if auth and auth.client_certificate else None
    if certificate is not None:
        _check_own(store, certificate.namespace, "auth.clientCertificate.secretRef")
    if certificate is not None and endpoint.service not in settings.trusted:
        # The channel belongs to the operator, so the default namespace for a cluster-scoped store is the core one.
        namespace = store.ref.namespace or certificate.namespace or settings.core_namespace
        return SecretTls(namespace, certificate.name)
    if located.provider_class is not None:
        return class_tls(located.provider_class, endpoint, settings)
    return managed_tls(endpoint, store.ref)


def call_token(store: LoadedStore, located: Located, auth_namespace: str) -> CallToken | None:
    """Return the service account whose token is sent with every call; None if the store names none.

    Its default namespace is that of the caller, which is empty while a cluster-scoped store is validated.
    """
    auth = _auth(store)
    account = auth.service_account_ref if auth else None
    if account is None or not account.name:
        return None
    _check_own(store, account.namespace, "auth.serviceAccountRef")
    namespace = store.ref.namespace or account.namespace or auth_namespace
    return CallToken(namespace, account.name, _audiences(store, tuple(account.audiences), located.endpoint))


def _audiences(store: LoadedStore, given: tuple[str, ...], endpoint: Endpoint) -> tuple[str, ...]:
    """Return the audiences that the store names. Tokens for a tenant's provider always have its own audience only."""
    if not endpoint.tenant:
        return given or (f"{AUDIENCE}/{endpoint.label}",)
    fixed = (f"{AUDIENCE}/{endpoint.service}",)
    if given not in ((), fixed):
        raise ResolutionError(
            Reason.INVALID_CONFIG,
            f"{store}: auth.serviceAccountRef.audiences cannot be chosen for Service {endpoint.service}, which is a"
            f" provider of the namespace itself: its tokens are for {fixed[0]}; remove audiences",
            subject=store.ref,
        )
    return fixed


def _auth(store: LoadedStore) -> ChannelAuth | None:
    return store.source.auth if isinstance(store.source, ProviderConfig) else None


def _check_own(store: LoadedStore, namespace: str, field: str) -> None:
    if store.namespaced and namespace not in ("", store.ref.namespace):
        raise ResolutionError(
            Reason.CROSS_NAMESPACE,
            f"{store}: {field} names namespace {namespace}; a namespaced object may only use its own namespace"
            f" {store.ref.namespace}",
            subject=store.ref,
        )
