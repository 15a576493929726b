"""A provider that says it reads its configuration itself is sent none, and no credentials, however it was found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eso_api.references import GeneratorRef, StoreRef
from eso_operator.stores.credentials import bind
from eso_operator.stores.resolve import resolve
from eso_operator.stores.resolved import BoundStore, Reason, ResolutionError
from eso_testkit.operator.clusters import (
    ANYTHING,
    CORE,
    SETTINGS,
    EveryConnection,
    NotedReads,
    caller,
    cluster,
    obj,
    provider_service,
    ready,
    serving,
)
from eso_wire.values import ConfigDelivery, CredentialKind, CredentialPath, Handshake, KindId, KindRole
from kubebase.meta import JsonObject

CORE_V1 = "external-secrets.io/v1"
STORES = "secretstore.external-secrets.io/v2alpha1"
CONFIGS = "provider.secretstore.external-secrets.io/v2alpha1"
GENERATORS_V1 = "generators.external-secrets.io/v1alpha1"
GENERATORS = "generator.external-secrets.io/v2alpha1"
GENERATOR_CONFIGS = "provider.generator.external-secrets.io/v2alpha1"

SPEC = {"auth": {"name": "login", "key": "token"}}
PATH = CredentialPath("/auth", CredentialKind.SECRET_KEY)
KINDS = (
    KindId("provider.secretstore.external-secrets.io", "v2alpha1", "Fake"),
    KindId("provider.generator.external-secrets.io", "v2alpha1", "Maker"),
    KindId("generators.external-secrets.io", "v1alpha1", "Password"),
)
SERVICE = provider_service("provider-fake", CORE, kinds=",".join(map(str, KINDS)), v1_keys="fake")
CLASS = obj("external-secrets.io/v1alpha1", "ClusterProviderClass", "fakes", spec={"address": f"p.{CORE}.svc:1"})

NAMED = {"providerRef": {"kind": "Fake", "name": "config"}}
FAR = {"providerRef": {"kind": "Fake", "name": "config", "namespace": "team-a"}}
WRITTEN = {"inline": {"kind": "Fake", "spec": SPEC}}
ADDRESSED = {"address": f"p.{CORE}.svc:1"}
OWN = {"authenticationScope": "ManifestNamespace"}
CONFIG_OBJECT = obj(CONFIGS, "Fake", "config", "team-a", spec=SPEC)
MAKER_OBJECT = obj(GENERATOR_CONFIGS, "Maker", "config", "team-a", spec=SPEC)


def served(*deliveries: ConfigDelivery) -> Handshake:
    """A provider of all kinds above, each with a reference to a credential."""
    stores = serving(KINDS[0], v1_key="fake", credentials=(PATH,))
    makers = serving(*KINDS[1:], role=KindRole.GENERATOR, credentials=(PATH,))
    kinds = (replace(info, deliveries=frozenset(deliveries)) for info in (*stores.kinds, *makers.kinds))
    return replace(stores, kinds=tuple(kinds))


async def bound(
    ref: StoreRef | GeneratorRef,
    document: JsonObject,
    handshake: Handshake,
    reader: NotedReads,
) -> BoundStore:
    documents = (document, CONFIG_OBJECT, MAKER_OBJECT, SERVICE, CLASS)
    view = cluster(*documents, handshakes=EveryConnection(handshake))
    return await bind(resolve(ref, caller(), need=ANYTHING, view=view, settings=SETTINGS), reader)


def store(api_version: str, kind: str, spec: JsonObject) -> tuple[StoreRef, JsonObject]:
    namespace = "" if kind.startswith("Cluster") else "team-a"
    document = obj(api_version, kind, "store", namespace, spec=spec, status=ready())
    return StoreRef(api_version=api_version, kind=kind, name="store"), document


def maker(api_version: str, kind: str, spec: JsonObject) -> tuple[GeneratorRef, JsonObject]:
    namespace = "" if kind.startswith("Cluster") else "team-a"
    return GeneratorRef(api_version=api_version, kind=kind, name="store"), obj(
        api_version, kind, "store", namespace, spec=spec
    )


MAKER_REF = {"providerRef": {"kind": "Maker", "name": "config"}}
IS_AN_OBJECT = [
    pytest.param(store(CORE_V1, "SecretStore", {"provider": {"plugin": {**ADDRESSED, **NAMED}}}), id="v1 plugin"),
    pytest.param(store(STORES, "SecretStore", {"providerConfig": {**ADDRESSED, **NAMED}}), id="by address"),
    pytest.param(
        store(STORES, "SecretStore", {"providerConfig": {"classRef": {"name": "fakes"}, **NAMED}}), id="class"
    ),
    pytest.param(store(STORES, "SecretStore", {"providerConfig": NAMED}), id="without a class, found by kind"),
    pytest.param(store(STORES, "ClusterSecretStore", {"providerConfig": FAR, **OWN}), id="cluster store"),
    pytest.param(store(CONFIGS, "Fake", SPEC), id="direct"),
    pytest.param(store(CONFIGS, "ClusterFake", SPEC), id="direct, cluster-scoped twin"),
    pytest.param(maker(GENERATORS, "Generator", {"providerConfig": MAKER_REF}), id="generator"),
    pytest.param(maker(GENERATOR_CONFIGS, "Maker", SPEC), id="direct generator"),
    pytest.param(maker(GENERATORS_V1, "Password", SPEC), id="v1alpha1 generator"),
]
IS_A_PART = [
    pytest.param(store(CORE_V1, "SecretStore", {"provider": {"fake": SPEC}}), id="v1 bridge"),
    pytest.param(store(CORE_V1, "ClusterSecretStore", {"provider": {"fake": SPEC}}), id="v1 bridge, cluster store"),
    pytest.param(store(CORE_V1, "SecretStore", {"provider": {"plugin": {**ADDRESSED, **WRITTEN}}}), id="v1 plugin"),
    pytest.param(store(STORES, "SecretStore", {"providerConfig": {**ADDRESSED, **WRITTEN}}), id="written in the store"),
    pytest.param(
        maker(GENERATORS_V1, "ClusterGenerator", {"kind": "Password", "generator": {"passwordSpec": SPEC}}),
        id="v1alpha1 ClusterGenerator",
    ),
]
DELIVERIES = [
    pytest.param((ConfigDelivery.BY_REFERENCE,), id="by reference only"),
    pytest.param((), id="none that we know"),
]


@pytest.mark.parametrize("case", [*IS_AN_OBJECT, *IS_A_PART])
async def test_a_provider_that_takes_them_gets_configuration_and_credentials(
    case: tuple[StoreRef | GeneratorRef, JsonObject],
) -> None:
    reader = NotedReads()

    config = (await bound(*case, served(*ConfigDelivery), reader)).config

    assert config.spec_json is not None
    assert [each.pointer for each in config.credentials] == ["/auth"]
    assert [key.name for key in reader.secrets] == ["login"]


@pytest.mark.parametrize("deliveries", DELIVERIES)
@pytest.mark.parametrize("case", IS_AN_OBJECT)
async def test_a_provider_that_reads_the_object_gets_its_name_and_nothing_is_read_for_it(
    case: tuple[StoreRef | GeneratorRef, JsonObject], deliveries: tuple[ConfigDelivery, ...]
) -> None:
    reader = NotedReads()

    config = (await bound(*case, served(*deliveries), reader)).config

    assert config.ref.name in ("config", "store")
    assert (config.spec_json, config.credentials, reader.namespaces) == (None, (), set())


@pytest.mark.parametrize("deliveries", DELIVERIES)
@pytest.mark.parametrize("case", IS_A_PART)
async def test_an_embedded_configuration_is_not_sent_to_a_provider_that_reads_objects(
    case: tuple[StoreRef | GeneratorRef, JsonObject], deliveries: tuple[ConfigDelivery, ...]
) -> None:
    reader = NotedReads()

    with pytest.raises(ResolutionError, match="reads configurations itself") as raised:
        await bound(*case, served(*deliveries), reader)

    assert (raised.value.reason, reader.namespaces) == (Reason.UNSUPPORTED_KIND, set())
