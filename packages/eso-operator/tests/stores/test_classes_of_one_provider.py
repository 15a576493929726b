"""Several classes with the address of one provider: each for some of its kinds, or for some namespaces (R176)."""

from __future__ import annotations

from typing import Any

import pytest

from eso_api.references import StoreRef
from eso_operator.stores.resolve import resolve
from eso_operator.stores.resolved import Reason, ResolutionError, ResolvedStore
from eso_testkit.operator.clusters import (
    ANYTHING,
    CORE,
    SETTINGS,
    EveryConnection,
    caller,
    cluster,
    obj,
    ready,
    serving,
)
from eso_wire.values import KindId
from kubebase.meta import JsonObject

STORES_V2 = "secretstore.external-secrets.io/v2alpha1"
FAKE = KindId("provider.secretstore.external-secrets.io", "v2alpha1", "Fake")

STORE_REF = StoreRef(api_version=STORES_V2, kind="SecretStore", name="store")
V1_REF = StoreRef(name="store")
HERE = [
    obj("v1", "Namespace", "team-a"),
    obj(STORES_V2, "SecretStore", "store", "team-a", spec={"providerConfig": {"inline": {"kind": "Fake", "spec": {}}}}),
    obj("external-secrets.io/v1", "SecretStore", "store", "team-a", spec={"provider": {"fake": {}}}, status=ready()),
]


def provider_class(name: str, *, kind: str = "Fake", key: str = "fake", **fields: Any) -> JsonObject:
    spec = {
        "address": f"provider.{CORE}.svc:8080",
        "serves": [{"group": FAKE.group, "version": FAKE.version, "kind": kind}],
        "v1ProviderKeys": [key],
        **fields.pop("spec", {}),
    }
    return obj("external-secrets.io/v1alpha1", "ClusterProviderClass", name, spec=spec, **fields)


OURS = provider_class("ours")
OTHER_KIND = provider_class("other-kind", kind="Other", key="other")
OTHER_NAMESPACE = provider_class("other-namespace", spec={"allowedNamespaces": [{"namespaces": ["team-b"]}]})
MARKED = provider_class("marked", annotations={"external-secrets.io/provider-default": "true"})


def resolved(ref: StoreRef, *classes: JsonObject) -> ResolvedStore:
    handshakes = EveryConnection(serving(FAKE, v1_key="fake"))
    view = cluster(*HERE, *classes, handshakes=handshakes)
    return resolve(ref, caller(), need=ANYTHING, view=view, settings=SETTINGS)


@pytest.mark.parametrize(
    ("classes", "chosen"),
    [
        pytest.param([OTHER_KIND, OURS], "ours", id="one is for another kind"),
        pytest.param([OURS, OTHER_KIND], "ours", id="one is for another kind, and was written later"),
        pytest.param([OTHER_NAMESPACE, OURS], "ours", id="one is for another namespace"),
        pytest.param([OURS, OTHER_NAMESPACE], "ours", id="one is for another namespace, and was written later"),
        pytest.param([OURS, MARKED], "marked", id="one is the default"),
    ],
)
@pytest.mark.parametrize("ref", [pytest.param(STORE_REF, id="v2"), pytest.param(V1_REF, id="v1")])
def test_the_class_that_is_for_a_store_is_found(ref: StoreRef, classes: list[JsonObject], chosen: str) -> None:
    assert resolved(ref, *classes).endpoint.label == chosen


def test_a_namespace_that_none_of_them_is_for_is_refused() -> None:
    with pytest.raises(ResolutionError) as raised:
        resolved(STORE_REF, OTHER_NAMESPACE, OTHER_KIND)

    assert raised.value.reason is Reason.NAMESPACE_DENIED
