"""Stores, generators and configurations that cannot be used say which field is wrong (R111)."""

from __future__ import annotations

import pytest

from eso_api.references import StoreRef
from eso_operator.stores.resolved import Reason, ResolutionError
from eso_testkit.operator.clusters import (
    obj,
    ready,
)
from eso_testkit.operator.forms import (
    ADDRESS,
    CONFIGS,
    CORE_V1,
    GENERATORS_V1,
    HERE,
    INLINE,
    MAKER_SERVICE,
    MAKERS,
    REFERRED,
    STORES_V2,
    THERE,
    generator_ref,
    resolved,
    store_ref,
)
from kubebase.meta import JsonObject


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        pytest.param({"provider": {}}, "exactly one provider, not 0", id="no provider"),
        pytest.param({"provider": {"fake": {}, "aws": {}}}, "exactly one provider, not 2", id="two providers"),
        pytest.param({"provider": {"fake": "x"}}, "must be an object", id="no block"),
        pytest.param({"provider": "fake"}, "cannot be used", id="no object"),
        pytest.param({"provider": {"fake": {}}, "refreshInterval": "soon"}, "invalid duration", id="interval"),
        pytest.param({"provider": {"fake": {}}, "refreshInterval": -5}, "must not be negative", id="negative"),
        pytest.param(
            {"provider": {"fake": {}}, "retrySettings": {"retryInterval": "x"}}, "retryInterval", id="retry interval"
        ),
        pytest.param({"provider": {"plugin": {"address": 5}}}, "cannot be used", id="plugin of another shape"),
    ],
)
def test_a_malformed_store_says_which_field(document: JsonObject, problem: str) -> None:
    store = obj(CORE_V1, "SecretStore", "store", "team-a", spec=document, status=ready())

    with pytest.raises(ResolutionError, match=problem) as raised:
        resolved(StoreRef(name="store"), store)

    assert raised.value.reason is Reason.MALFORMED


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"kind": "Password", "generator": {"uuidSpec": {}}}, id="another kind's spec"),
        pytest.param({"kind": "Password", "generator": {}}, id="no spec"),
        pytest.param({"kind": "Password", "generator": {"passwordSpec": {}, "uuidSpec": {}}}, id="two specs"),
        pytest.param({"kind": "Nonsense", "generator": {"passwordSpec": {}}}, id="unknown kind"),
        pytest.param({"generator": {"passwordSpec": {}}}, id="no kind"),
        pytest.param({"kind": "Password"}, id="no generator"),
    ],
)
def test_a_cluster_generator_needs_the_spec_of_its_kind(spec: JsonObject) -> None:
    with pytest.raises(ResolutionError) as raised:
        resolved(
            generator_ref(GENERATORS_V1, "ClusterGenerator"),
            MAKER_SERVICE,
            obj(GENERATORS_V1, "ClusterGenerator", "store", spec=spec),
            handshake=MAKERS,
        )

    assert raised.value.reason is Reason.MALFORMED


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        pytest.param({"address": ADDRESS}, "exactly one of providerRef, inline", id="neither providerRef nor inline"),
        pytest.param({**REFERRED, **INLINE}, "exactly one of providerRef, inline", id="both"),
        pytest.param({**REFERRED, "classRef": {"name": "x"}}, "at most one of address, classRef", id="two places"),
        pytest.param({**REFERRED, "address": "nowhere"}, "address", id="no address"),
        pytest.param(
            {"address": ADDRESS, "providerRef": {"apiVersion": "v1", "kind": "Secret", "name": "x"}},
            "is no kind of a provider",
            id="a Secret is no configuration",
        ),
        pytest.param(
            {"address": ADDRESS, "providerRef": {"apiVersion": STORES_V2, "kind": "SecretStore", "name": "store"}},
            "is no kind of a provider",
            id="a store is no configuration",
        ),
        pytest.param(
            {"address": ADDRESS, "providerRef": {"kind": "ClusterFake", "name": "shared"}},
            "cluster-scoped: refer to it directly",
            id="a cluster-scoped configuration is not wrapped, its conditions would be lost",
        ),
    ],
)
def test_an_invalid_provider_configuration_is_refused(config: JsonObject, problem: str) -> None:
    """R111."""
    store = obj(STORES_V2, "SecretStore", "store", "team-a", spec={"providerConfig": config})
    shared = obj(CONFIGS, "ClusterFake", "shared", spec={"common": {"conditions": [{"namespaces": ["other"]}]}})

    with pytest.raises(ResolutionError, match=problem) as raised:
        resolved(store_ref(STORES_V2, "SecretStore"), store, shared, HERE)

    assert raised.value.reason is Reason.INVALID_CONFIG


def test_a_missing_configuration_is_named() -> None:
    store = obj(STORES_V2, "SecretStore", "store", "team-a", spec={"providerConfig": REFERRED})

    with pytest.raises(ResolutionError, match="Fake team-a/config, which does not exist") as raised:
        resolved(store_ref(STORES_V2, "SecretStore"), store, THERE)

    assert raised.value.reason is Reason.CONFIG_NOT_FOUND
    assert raised.value.subject.name == "config"


def test_retry_settings_of_a_generator_decide_its_calls() -> None:
    """`VaultDynamicSecret` has them, as stores do."""
    document = obj(
        GENERATORS_V1, "Password", "store", "team-a", spec={"retrySettings": {"maxRetries": 5, "retryInterval": "2s"}}
    )

    found = resolved(generator_ref(GENERATORS_V1, "Password"), document, MAKER_SERVICE, handshake=MAKERS)

    assert (found.policy.max_retries, found.policy.retry_interval) == (5, 2.0)
    assert found.policy.refresh_interval is None


def test_retry_settings_of_a_generator_that_make_no_sense_are_named() -> None:
    document = obj(GENERATORS_V1, "Password", "store", "team-a", spec={"retrySettings": {"maxRetries": "many"}})

    with pytest.raises(ResolutionError, match=r"spec\.retrySettings") as caught:
        resolved(generator_ref(GENERATORS_V1, "Password"), document, MAKER_SERVICE, handshake=MAKERS)

    assert caught.value.reason is Reason.MALFORMED
