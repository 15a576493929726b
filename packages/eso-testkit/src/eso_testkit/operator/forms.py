"""One store and one generator in every form of reference, for tests of the resolver."""

from __future__ import annotations

from eso_api.references import GeneratorRef, StoreRef
from eso_operator.stores.resolve import resolve
from eso_operator.stores.resolved import ResolvedStore
from eso_testkit.operator.clusters import (
    ANYTHING,
    CORE,
    SETTINGS,
    EveryConnection,
    caller,
    cluster,
    obj,
    provider_service,
    serving,
)
from eso_wire.values import Handshake, KindId, KindRole
from kubebase.meta import JsonObject

STORES_V2 = "secretstore.external-secrets.io/v2alpha1"
GENERATORS_V1 = "generators.external-secrets.io/v1alpha1"
CORE_V1 = "external-secrets.io/v1"
CONFIGS = "provider.secretstore.external-secrets.io/v2alpha1"
FAKE = KindId("provider.secretstore.external-secrets.io", "v2alpha1", "Fake")
PASSWORD = KindId("provider.generator.external-secrets.io", "v2alpha1", "Password")
V1_PASSWORD = KindId("generators.external-secrets.io", "v1alpha1", "Password")
ADDRESS = f"grpc://provider-fake.{CORE}.svc:8080"
CONFIG = {"data": [{"key": "k", "value": "v"}]}
REFERRED = {"address": ADDRESS, "providerRef": {"kind": "Fake", "name": "config"}}
INLINE = {"address": ADDRESS, "inline": {"kind": "Fake", "spec": CONFIG}}
HERE = obj(CONFIGS, "Fake", "config", "team-a", spec=CONFIG)
THERE = obj(CONFIGS, "Fake", "config", "platform", spec=CONFIG)
STORES = serving(FAKE, v1_key="fake")
MAKERS = serving(PASSWORD, V1_PASSWORD, role=KindRole.GENERATOR)
MAKER_SERVICE = provider_service("provider-generators", CORE, kinds=f"{PASSWORD},{V1_PASSWORD}")


def store_ref(api_version: str, kind: str) -> StoreRef:
    return StoreRef(api_version=api_version, kind=kind, name="store")


def generator_ref(api_version: str, kind: str) -> GeneratorRef:
    return GeneratorRef(api_version=api_version, kind=kind, name="store")


def resolved(ref: StoreRef | GeneratorRef, *documents: JsonObject, handshake: Handshake = STORES) -> ResolvedStore:
    view = cluster(*documents, handshakes=EveryConnection(handshake))
    return resolve(ref, caller(), need=ANYTHING, view=view, settings=SETTINGS)
