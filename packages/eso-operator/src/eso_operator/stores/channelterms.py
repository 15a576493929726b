"""Stage 9: the certificates and the token for calls to the provider. Backend credentials are separate."""

from __future__ import annotations

from eso_api.v2.connection import ChannelAuth, ProviderConfig
from eso_operator.stores.classes import class_tls, managed_tls
from eso_operator.stores.discovery import Located
from eso_operator.stores.referent import Referent
from eso_operator.stores.resolved import CallToken, Endpoint, Reason, ResolutionError, SecretTls, TlsSource
from eso_operator.stores.settings import ResolverSettings

AUDIENCE = "external-secrets-provider"


def secure(store: Referent, located: Located, settings: ResolverSettings) -> TlsSource:
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


def call_token(store: Referent, located: Located, auth_namespace: str) -> CallToken | None:
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


def _audiences(store: Referent, said: tuple[str, ...], endpoint: Endpoint) -> tuple[str, ...]:
    """Return the audiences that the store names. Tokens for a tenant's provider always have its own audience only."""
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


def _auth(store: Referent) -> ChannelAuth | None:
    return store.source.auth if isinstance(store.source, ProviderConfig) else None


def _check_own(store: Referent, namespace: str, field: str) -> None:
    if store.namespaced and namespace not in ("", store.ref.namespace):
        raise ResolutionError(
            Reason.CROSS_NAMESPACE,
            f"{store}: {field} names namespace {namespace}; a namespaced object may only use its own namespace"
            f" {store.ref.namespace}",
            subject=store.ref,
        )
