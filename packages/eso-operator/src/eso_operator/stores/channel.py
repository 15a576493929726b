"""Stage 9: with which certificates and which token the provider is called. It says nothing about the backend."""

from __future__ import annotations

from eso_api.v2.connection import ChannelAuth, ProviderConfig
from eso_operator.stores.classes import class_tls, managed_tls
from eso_operator.stores.discovery import Located
from eso_operator.stores.settings import ResolverSettings
from eso_operator.stores.store import Store
from eso_operator.stores.target import CallToken, Endpoint, Reason, ResolutionError, SecretTls, TlsSource

AUDIENCE = "external-secrets-provider"


def secure(store: Store, located: Located, settings: ResolverSettings) -> TlsSource:
    """The store's own certificates, else those of the class, else managed ones. There is no plain connection."""
    endpoint = located.endpoint
    auth = _auth(store)
    certificate = auth.client_certificate.secret_ref if auth and auth.client_certificate else None
    if certificate is not None:
        _check_own(store, certificate.namespace, "auth.clientCertificate.secretRef")
    if certificate is not None and endpoint.service not in settings.trusted:
        # The channel is the operator's: what a cluster-scoped store leaves out is in the operator's namespace.
        namespace = store.ref.namespace or certificate.namespace or settings.core_namespace
        return SecretTls(namespace, certificate.name)
    if located.provider_class is not None:
        return class_tls(located.provider_class, endpoint, settings)
    return managed_tls(endpoint, store.ref)


def call_token(store: Store, located: Located, auth_namespace: str) -> CallToken | None:
    """The service account whose token goes with every call, if the store names one.

    Without a namespace it is the caller's, and there is none while a cluster-scoped store is validated.
    """
    auth = _auth(store)
    account = auth.service_account_ref if auth else None
    if account is None or not account.name:
        return None
    _check_own(store, account.namespace, "auth.serviceAccountRef")
    namespace = store.ref.namespace or account.namespace or auth_namespace
    return CallToken(namespace, account.name, _audiences(store, tuple(account.audiences), located.endpoint))


def _audiences(store: Store, said: tuple[str, ...], endpoint: Endpoint) -> tuple[str, ...]:
    """Those that the store names; a tenant's provider only gets tokens that nobody else accepts."""
    if not endpoint.tenant:
        return said or (f"{AUDIENCE}/{endpoint.label}",)
    fixed = (f"{AUDIENCE}/{endpoint.service}",)
    if said not in ((), fixed):
        raise ResolutionError(
            Reason.INVALID_CONFIG,
            f"{store}: auth.serviceAccountRef.audiences cannot be chosen for Service {endpoint.service}, which is a"
            f" provider of the namespace itself: its tokens are for {fixed[0]}; remove audiences",
            subject=store.ref,
        )
    return fixed


def _auth(store: Store) -> ChannelAuth | None:
    return store.source.auth if isinstance(store.source, ProviderConfig) else None


def _check_own(store: Store, namespace: str, field: str) -> None:
    if store.namespaced and namespace not in ("", store.ref.namespace):
        raise ResolutionError(
            Reason.CROSS_NAMESPACE,
            f"{store}: {field} names namespace {namespace}; a namespaced object may only use its own namespace"
            f" {store.ref.namespace}",
            subject=store.ref,
        )
