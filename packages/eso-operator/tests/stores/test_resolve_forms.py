"""Every form of reference, in both scopes, resolves to one target (R95, R110, R111, R165, R174, R175, R180-R186)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eso_api.references import GeneratorRef, StoreRef
from eso_operator.stores.resolved import Form, Reason, ReferenceRule, ResolutionError, ResolvedStore, ServiceKey
from eso_testkit.operator.clusters import (
    CORE,
    obj,
    provider_service,
    ready,
)
from eso_testkit.operator.forms import (
    ADDRESS,
    CONFIG,
    CONFIGS,
    CORE_V1,
    FAKE,
    GENERATORS_V1,
    HERE,
    INLINE,
    MAKER_SERVICE,
    MAKERS,
    REFERRED,
    STORES_V2,
    THERE,
    V1_PASSWORD,
    generator_ref,
    resolved,
    store_ref,
)
from eso_wire.values import KindId, KindRole, Operation
from kubebase.meta import JsonObject

GENERATORS_V2 = "generator.external-secrets.io/v2alpha1"
CORE_ALPHA = "external-secrets.io/v1alpha1"
GENERATOR_CONFIGS = "provider.generator.external-secrets.io/v2alpha1"


FAR = {"address": ADDRESS, "providerRef": {"kind": "Fake", "name": "config", "namespace": "platform"}}
MANIFEST = {"authenticationScope": "ManifestNamespace"}

FAKE_SERVICE = provider_service("provider-fake", CORE, kinds=str(FAKE), v1_keys="fake")


def case(form: Form, ref: Any, *documents: JsonObject, auth: str, config: str, pinned: bool = False, id: str) -> Any:  # noqa: A002 - pytest's word
    return pytest.param(form, ref, documents, (auth, config, pinned), id=id)


STORE_CASES = [
    case(
        Form.V1,
        StoreRef(name="store"),
        obj(CORE_V1, "SecretStore", "store", "team-a", spec={"provider": {"fake": CONFIG}}, status=ready()),
        auth="team-a",
        config="team-a/store",
        id="v1 SecretStore, named by name alone",
    ),
    case(
        Form.V1,
        store_ref("external-secrets.io/v1beta1", "SecretStore"),
        obj(CORE_V1, "SecretStore", "store", "team-a", spec={"provider": {"fake": CONFIG}}, status=ready()),
        auth="team-a",
        config="team-a/store",
        id="v1beta1 SecretStore",
    ),
    case(
        Form.V1,
        store_ref("", "ClusterSecretStore"),
        obj(CORE_V1, "ClusterSecretStore", "store", spec={"provider": {"fake": CONFIG}}, status=ready()),
        auth="team-a",
        config="/store",
        id="v1 ClusterSecretStore",
    ),
    case(
        Form.V1_PLUGIN,
        store_ref(CORE_V1, "SecretStore"),
        obj(CORE_V1, "SecretStore", "store", "team-a", spec={"provider": {"plugin": REFERRED}}, status=ready()),
        auth="team-a",
        config="team-a/config",
        id="v1 plugin SecretStore (R133, R165)",
    ),
    case(
        Form.V1_PLUGIN,
        store_ref(CORE_V1, "SecretStore"),
        obj(CORE_V1, "SecretStore", "store", "team-a", spec={"provider": {"plugin": INLINE}}, status=ready()),
        auth="team-a",
        config="team-a/store",
        id="v1 plugin SecretStore with an inline configuration",
    ),
    case(
        Form.V1_PLUGIN,
        store_ref("", "ClusterSecretStore"),
        obj(CORE_V1, "ClusterSecretStore", "store", spec={"provider": {"plugin": REFERRED}}, status=ready()),
        auth="team-a",
        config="team-a/config",
        id="v1 plugin ClusterSecretStore, configuration of the caller",
    ),
    case(
        Form.V1_PLUGIN,
        store_ref("", "ClusterSecretStore"),
        obj(CORE_V1, "ClusterSecretStore", "store", spec={"provider": {"plugin": FAR}}, status=ready()),
        auth="team-a",
        config="platform/config",
        id="v1 plugin ClusterSecretStore, configuration of a namespace",
    ),
    case(
        Form.STORE,
        store_ref(STORES_V2, "SecretStore"),
        obj(STORES_V2, "SecretStore", "store", "team-a", spec={"providerConfig": REFERRED}),
        auth="team-a",
        config="team-a/config",
        id="v2 SecretStore (R95)",
    ),
    case(
        Form.STORE,
        store_ref(STORES_V2, "SecretStore"),
        obj(STORES_V2, "SecretStore", "store", "team-a", spec={"providerConfig": INLINE}),
        auth="team-a",
        config="team-a/store",
        id="v2 SecretStore with an inline configuration",
    ),
    case(
        Form.STORE,
        store_ref(STORES_V2, "ClusterSecretStore"),
        obj(STORES_V2, "ClusterSecretStore", "store", spec={"providerConfig": FAR}),
        auth="platform",
        config="platform/config",
        pinned=True,
        id="v2 ClusterSecretStore, ProviderNamespace (R89, R115)",
    ),
    case(
        Form.STORE,
        store_ref(STORES_V2, "ClusterSecretStore"),
        obj(STORES_V2, "ClusterSecretStore", "store", spec={"providerConfig": FAR, **MANIFEST}),
        auth="team-a",
        config="platform/config",
        id="v2 ClusterSecretStore, ManifestNamespace, configuration of a namespace (R89, R115)",
    ),
    case(
        Form.STORE,
        store_ref(STORES_V2, "ClusterSecretStore"),
        obj(STORES_V2, "ClusterSecretStore", "store", spec={"providerConfig": REFERRED, **MANIFEST}),
        auth="team-a",
        config="team-a/config",
        id="v2 ClusterSecretStore, ManifestNamespace, configuration of the caller",
    ),
    case(
        Form.STORE,
        store_ref(STORES_V2, "ClusterSecretStore"),
        obj(STORES_V2, "ClusterSecretStore", "store", spec={"providerConfig": INLINE, **MANIFEST}),
        auth="team-a",
        config="/store",
        id="v2 ClusterSecretStore, ManifestNamespace, inline",
    ),
    case(
        Form.PROVIDER,
        store_ref("", "Provider"),
        obj(CORE_ALPHA, "Provider", "store", "team-a", spec=REFERRED),
        auth="team-a",
        config="team-a/config",
        id="Provider by kind alone (R180)",
    ),
    case(
        Form.PROVIDER,
        store_ref("external-secrets.io/v1", "Provider"),
        obj(CORE_ALPHA, "Provider", "store", "team-a", spec={"config": REFERRED}),
        auth="team-a",
        config="team-a/config",
        id="Provider as the earlier draft spelled it",
    ),
    case(
        Form.PROVIDER,
        store_ref("", "ClusterProvider"),
        obj(CORE_ALPHA, "ClusterProvider", "store", spec=FAR),
        auth="platform",
        config="platform/config",
        pinned=True,
        id="ClusterProvider, ProviderNamespace, configuration of a namespaced kind (R181, R183)",
    ),
    case(
        Form.PROVIDER,
        store_ref("", "ClusterProvider"),
        obj(CORE_ALPHA, "ClusterProvider", "store", spec={**FAR, **MANIFEST}),
        auth="team-a",
        config="platform/config",
        id="ClusterProvider, ManifestNamespace (R183)",
    ),
    case(
        Form.DIRECT,
        store_ref(CONFIGS, "Fake"),
        obj(CONFIGS, "Fake", "store", "team-a", spec=CONFIG),
        auth="team-a",
        config="team-a/store",
        id="direct reference (R175, R184)",
    ),
    case(
        Form.DIRECT,
        store_ref(CONFIGS, "ClusterFake"),
        obj(CONFIGS, "ClusterFake", "store", spec=CONFIG),
        auth="team-a",
        config="/store",
        id="direct reference to the cluster-scoped twin, scope unsaid (R185)",
    ),
    case(
        Form.DIRECT,
        store_ref(CONFIGS, "ClusterFake"),
        obj(CONFIGS, "ClusterFake", "store", spec={**CONFIG, "common": {"authenticationScope": "ProviderNamespace"}}),
        auth=CORE,
        config="/store",
        pinned=True,
        id="direct reference to the cluster-scoped twin, ProviderNamespace (R186)",
    ),
]

GENERATOR_CASES = [
    case(
        Form.GENERATOR,
        generator_ref(GENERATORS_V2, "Generator"),
        obj(
            GENERATORS_V2,
            "Generator",
            "store",
            "team-a",
            spec={"providerConfig": {"providerRef": {"kind": "Password", "name": "config"}}},
        ),
        obj(GENERATOR_CONFIGS, "Password", "config", "team-a", spec={"digits": 5}),
        auth="team-a",
        config="team-a/config",
        id="v2 Generator (R92, R121)",
    ),
    case(
        Form.GENERATOR,
        generator_ref(GENERATORS_V2, "ClusterGenerator"),
        obj(
            GENERATORS_V2,
            "ClusterGenerator",
            "store",
            spec={
                "providerConfig": {"providerRef": {"kind": "Password", "name": "config", "namespace": "platform"}},
                "authenticationNamespace": "ManifestReference",
            },
        ),
        obj(GENERATOR_CONFIGS, "Password", "config", "platform", spec={"digits": 5}),
        auth="team-a",
        config="platform/config",
        id="v2 ClusterGenerator, ManifestReference (R94)",
    ),
    case(
        Form.GENERATOR,
        generator_ref(GENERATORS_V2, "ClusterGenerator"),
        obj(
            GENERATORS_V2,
            "ClusterGenerator",
            "store",
            spec={
                "providerConfig": {"providerRef": {"kind": "Password", "name": "config", "namespace": "platform"}},
                "authenticationNamespace": "ProviderReference",
            },
        ),
        obj(GENERATOR_CONFIGS, "Password", "config", "platform", spec={"digits": 5}),
        auth="platform",
        config="platform/config",
        pinned=True,
        id="v2 ClusterGenerator, ProviderReference (R94)",
    ),
    case(
        Form.DIRECT,
        generator_ref(GENERATOR_CONFIGS, "Password"),
        obj(GENERATOR_CONFIGS, "Password", "store", "team-a", spec={"digits": 5}),
        auth="team-a",
        config="team-a/store",
        id="direct reference to a provider's generator",
    ),
    case(
        Form.V1_GENERATOR,
        generator_ref(GENERATORS_V1, "Password"),
        obj(GENERATORS_V1, "Password", "store", "team-a", spec={"length": 8}),
        auth="team-a",
        config="team-a/store",
        id="v1alpha1 generator",
    ),
    case(
        Form.V1_GENERATOR,
        generator_ref(GENERATORS_V1, "ClusterGenerator"),
        obj(
            GENERATORS_V1,
            "ClusterGenerator",
            "store",
            spec={"kind": "Password", "generator": {"passwordSpec": {"length": 8}}},
        ),
        auth="team-a",
        config="team-a/store",
        id="v1alpha1 ClusterGenerator stands for a generator in the caller's namespace",
    ),
]


@pytest.mark.parametrize(("form", "ref", "documents", "expected"), STORE_CASES)
def test_every_form_of_store_resolves(
    form: Form, ref: StoreRef, documents: tuple[JsonObject, ...], expected: tuple[str, str, bool]
) -> None:
    """R178: namespaced and cluster-scoped alike."""
    target = resolved(ref, FAKE_SERVICE, HERE, THERE, *documents)

    assert target.form is form
    assert target.role is KindRole.STORE
    assert target.endpoint.service == ServiceKey(CORE, "provider-fake")
    assert target.endpoint.uri == f"dns:///provider-fake.{CORE}.svc:8080"
    assert target.config.kind == FAKE
    assert target.config.spec is not None
    assert b'"key":"k"' in target.config.spec
    assert found(target) == expected


@pytest.mark.parametrize(("form", "ref", "documents", "expected"), GENERATOR_CASES)
def test_every_form_of_generator_resolves(
    form: Form, ref: GeneratorRef, documents: tuple[JsonObject, ...], expected: tuple[str, str, bool]
) -> None:
    target = resolved(ref, MAKER_SERVICE, *documents, handshake=MAKERS)

    assert target.form is form
    assert target.role is KindRole.GENERATOR
    assert target.endpoint.service == ServiceKey(CORE, "provider-generators")
    assert found(target) == expected


def found(target: ResolvedStore) -> tuple[str, str, bool]:
    return target.auth_namespace, f"{target.config.ref.namespace}/{target.config.ref.name}", target.pinned


def test_a_virtual_generator_has_the_kind_and_spec_of_what_it_stands_for() -> None:
    spec = {"kind": "Password", "generator": {"passwordSpec": {"length": 8}}}

    target = resolved(
        generator_ref(GENERATORS_V1, "ClusterGenerator"),
        MAKER_SERVICE,
        obj(GENERATORS_V1, "ClusterGenerator", "store", spec=spec),
        handshake=MAKERS,
    )

    assert target.store.kind == "ClusterGenerator"
    assert (target.config.ref.kind, target.config.kind) == ("Password", V1_PASSWORD)
    assert target.config.spec == b'{"length":8}'
    assert target.config.rule is ReferenceRule.IGNORE_EXPLICIT


@pytest.mark.parametrize(
    ("ref", "hint"),
    [
        pytest.param(store_ref("", "Deployment"), "a store is a SecretStore", id="kind without apiVersion"),
        pytest.param(store_ref("v1", "Secret"), "cannot be used here", id="a Secret is no store"),
        pytest.param(store_ref("apps/v1", "Deployment"), "cannot be used here", id="a built-in kind is no store"),
        pytest.param(store_ref("rbac.authorization.k8s.io/v1", "Role"), "cannot be used here", id="nor is any other"),
        pytest.param(store_ref(GENERATORS_V1, "Password"), "a store is", id="a generator is no store"),
        pytest.param(store_ref(CORE_V1, "ExternalSecret"), "a store is", id="an ExternalSecret is no store"),
        pytest.param(generator_ref(CORE_V1, "SecretStore"), "a generator is", id="a store is no generator"),
        pytest.param(generator_ref(GENERATORS_V1, "Nonsense"), "a generator is", id="unknown generator"),
        pytest.param(store_ref("external-secrets.io/v7", "SecretStore"), "no SecretStore of version v7", id="version"),
        pytest.param(store_ref("a.example.com/v1", "Notes"), "install the provider", id="a provider's unknown kind"),
    ],
)
def test_a_reference_to_no_such_kind_says_what_to_write(ref: StoreRef | GeneratorRef, hint: str) -> None:
    documents = [obj("v1", "Secret", "store", "team-a"), obj("apps/v1", "Deployment", "store", "team-a")]

    with pytest.raises(ResolutionError, match=hint) as raised:
        resolved(ref, *documents)

    assert raised.value.reason is Reason.UNKNOWN_KIND


def test_a_kind_that_is_not_watched_is_named_so_that_it_can_be() -> None:
    with pytest.raises(ResolutionError) as raised:
        resolved(store_ref("a.example.com/v1", "Notes"))

    assert raised.value.unwatched == KindId("a.example.com", "v1", "Notes")


@pytest.mark.parametrize(
    "ref", [StoreRef(name="store"), store_ref("", "ClusterSecretStore"), store_ref("", "Provider")]
)
def test_a_missing_store_is_named(ref: StoreRef) -> None:
    with pytest.raises(ResolutionError, match=r"there is no .* store") as raised:
        resolved(ref)

    assert raised.value.reason is Reason.NOT_FOUND
    assert raised.value.subject.name == "store"


@pytest.mark.parametrize("there", [pytest.param(True, id="there is one"), pytest.param(False, id="there is none")])
def test_a_store_of_another_namespace_is_neither_used_nor_mentioned(*, there: bool) -> None:
    """A tenant must not learn what other namespaces have."""
    elsewhere = [obj(CORE_V1, "SecretStore", "store", "team-secret", spec={"provider": {"fake": {}}})] if there else []

    with pytest.raises(ResolutionError) as raised:
        resolved(StoreRef(name="store"), *elsewhere)

    assert str(raised.value) == (
        "there is no SecretStore store in namespace team-a: create it, or correct the reference (a SecretStore is only"
        " visible in its own namespace, use a ClusterSecretStore to share one)"
    )


@pytest.mark.parametrize(
    ("ref", "there", "hint"),
    [
        pytest.param(store_ref("", "SecretStore"), STORES_V2, f"set apiVersion {STORES_V2}", id="v1 meant, v2 there"),
        pytest.param(store_ref(STORES_V2, "SecretStore"), CORE_V1, f"set apiVersion {CORE_V1}", id="the other way"),
    ],
)
def test_a_store_of_the_other_generation_is_pointed_out(ref: StoreRef, there: str, hint: str) -> None:
    namesake = obj(there, "SecretStore", "store", "team-a", spec={"provider": {"fake": CONFIG}})

    with pytest.raises(ResolutionError) as raised:
        resolved(ref, namesake)

    assert raised.value.reason is Reason.NOT_FOUND
    assert hint in raised.value.message


def test_a_reference_without_a_name_is_refused() -> None:
    with pytest.raises(ResolutionError, match="has no name"):
        resolved(StoreRef())


def test_common_fields_become_the_policy_of_calls() -> None:
    """R78, R80, R81."""
    spec = {
        "providerConfig": REFERRED,
        "refreshInterval": "1m",
        "retrySettings": {"maxRetries": 3, "retryInterval": "10s"},
        "timeouts": {"connect": "2s", "call": "30s"},
        "gatingPolicy": "Disabled",
    }

    policy = resolved(
        store_ref(STORES_V2, "SecretStore"), HERE, obj(STORES_V2, "SecretStore", "store", "team-a", spec=spec)
    ).policy

    assert (policy.gated, policy.refresh_interval) == (False, 60.0)
    assert (policy.max_retries, policy.retry_interval) == (3, 10.0)
    assert (policy.connect_timeout, policy.call_timeout) == (2.0, 30.0)


@pytest.mark.parametrize(
    ("trigger", "listens"),
    [
        pytest.param({}, True, id="by default"),
        pytest.param({"refreshTrigger": "Auto"}, True, id="Auto"),
        pytest.param({"refreshTrigger": "Poll"}, False, id="Poll"),
        pytest.param({"refreshTrigger": "Poll", "timeouts": {"call": "30s"}}, False, id="Poll, with timeouts"),
    ],
)
def test_a_store_decides_whether_changes_are_listened_to(trigger: JsonObject, listens: bool) -> None:
    spec = {"providerConfig": REFERRED, **trigger}

    target = resolved(
        store_ref(STORES_V2, "SecretStore"), HERE, obj(STORES_V2, "SecretStore", "store", "team-a", spec=spec)
    )
    telling = replace(target, operations=target.operations | {Operation.SUBSCRIBE})

    assert telling.supports_watch is listens
    assert not replace(target, operations=target.operations - {Operation.SUBSCRIBE}).supports_watch


def test_a_timeout_of_nothing_is_the_operators_setting() -> None:
    spec = {"providerConfig": REFERRED, "timeouts": {"connect": "0s", "call": "0"}}

    policy = resolved(
        store_ref(STORES_V2, "SecretStore"), HERE, obj(STORES_V2, "SecretStore", "store", "team-a", spec=spec)
    ).policy

    assert (policy.connect_timeout, policy.call_timeout) == (None, None)


def test_a_configuration_never_shows_in_a_repr() -> None:
    target = resolved(
        StoreRef(name="store"),
        FAKE_SERVICE,
        obj(CORE_V1, "SecretStore", "store", "team-a", spec={"provider": {"fake": {"data": "CANARY"}}}, status=ready()),
    )

    assert "CANARY" not in repr(target)
