"""Bound targets for tests of calls: a test shows only the fields it is about."""

from __future__ import annotations

from eso_api.values import SecretBytes
from eso_operator.stores.resolved import (
    BoundStore,
    CallPolicy,
    ConfigBinding,
    Endpoint,
    EndpointSource,
    Form,
    ManagedTls,
    ReferenceRule,
    ResolvedStore,
    ServiceKey,
    TlsSource,
)
from eso_testkit.operator.providerhost import SERVER_NAME
from eso_wire.values import (
    Config,
    ConfigDelivery,
    Credential,
    GetItem,
    Handshake,
    KindId,
    KindRole,
    Limits,
    ObjectRef,
    Operation,
    RemoteRef,
)
from eso_wire.versions import CURRENT, SUPPORTED

KIND = KindId("provider.secretstore.external-secrets.io", "v2alpha1", "Scripted")
SERVICE = ServiceKey("eso", "provider")
TLS = ManagedTls(SERVICE)


def endpoint(resolved: str = "ipv4:127.0.0.1:1", *, label: str = "scripted") -> Endpoint:
    return Endpoint(resolved, SERVER_NAME, EndpointSource.EXPLICIT, label, SERVICE)


def bound_store(
    at: Endpoint | None = None,
    *,
    identity: str = "identity",
    policy: CallPolicy = CallPolicy(gated=False),  # noqa: B008 - a frozen value
    limits: Limits = Limits(),  # noqa: B008 - a frozen value
    credential: bytes = b"",
    spec: bytes = b"{}",
    tls: TlsSource = TLS,
    token: str = "",
) -> BoundStore:
    ref = ObjectRef("v1", "Scripted", "team", "config", "uid", 1)
    handshake = Handshake(CURRENT, SUPPORTED, "scripted", "1", "instance-1", (), limits=limits)
    resolved = ResolvedStore(
        form=Form.STORE,
        role=KindRole.STORE,
        store=ObjectRef("v1", "SecretStore", "team", "store", "uid", 1),
        caller=ObjectRef("v1", "ExternalSecret", "team", "caller", "uid", 1),
        endpoint=at or endpoint(),
        tls=tls,
        call_token=None,
        config=ConfigBinding(ref, KIND, ConfigDelivery.INLINE, spec, (), ReferenceRule.OWN_NAMESPACE),
        auth_namespace="team",
        pinned=False,
        policy=policy,
        handshake=handshake,
        operations=frozenset(Operation),
    )
    credentials = (Credential("/token", SecretBytes(credential)),) if credential else ()
    return BoundStore(resolved, Config(ref, KIND, SecretBytes(spec), credentials), identity, token=token)


def wanted(*keys: str) -> list[GetItem]:
    """Return items named after their keys."""
    return [GetItem(key, RemoteRef(key)) for key in keys]
