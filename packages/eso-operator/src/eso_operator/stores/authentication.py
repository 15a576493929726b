"""Stage 8: the namespace that credentials come from.

| object | credentials from |
|---|---|
| namespaced | its own namespace |
| cluster-scoped v2, ProviderNamespace | the configuration's namespace; for a cluster-scoped kind, the provider's |
| cluster-scoped v2, ManifestNamespace | the caller's namespace |
| cluster-scoped kind of a provider without authenticationScope | as its class says, else the caller's namespace |
| v1 cluster store | the namespace that a reference names, else the caller's |
| v1alpha1 generator | the caller's namespace |

This stage follows discovery, because two rows need the class or the location of the provider.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from eso_operator.stores.configuration import Configuration
from eso_operator.stores.discovery import Located
from eso_operator.stores.loading import auth_scope
from eso_operator.stores.referent import AuthScope, Referent
from eso_operator.stores.resolved import Form, Reason, ResolutionError
from eso_wire.kinds import ObjectRef


@dataclass(frozen=True, slots=True)
class Authentication:
    """The namespace of credentials. For `pinned` see `ResolvedStore.pinned`."""

    namespace: str
    pinned: bool


def authenticate(store: Referent, caller: ObjectRef, configuration: Configuration, located: Located) -> Authentication:
    """Return the namespace that this caller's credentials for this store come from."""
    if store.namespaced or store.form is Form.V1_GENERATOR:
        return Authentication(caller.namespace, pinned=False)
    scope = _scope(store, located)
    match scope:
        case AuthScope.PROVIDER_NAMESPACE:
            return Authentication(_provider_namespace(store, configuration, located), pinned=True)
        case AuthScope.MANIFEST_NAMESPACE | AuthScope.REFERENT | AuthScope.UNSAID:
            return Authentication(caller.namespace, pinned=False)
        case _:
            assert_never(scope)


def _scope(store: Referent, located: Located) -> AuthScope:
    if store.behaviour.auth_scope is AuthScope.UNSAID and located.provider_class is not None:
        cls = located.provider_class
        return auth_scope(cls.spec.authentication_scope, cls.ref)
    return store.behaviour.auth_scope


def _provider_namespace(store: Referent, configuration: Configuration, located: Located) -> str:
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
