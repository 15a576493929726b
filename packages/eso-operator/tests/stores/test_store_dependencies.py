"""Which objects a store depends on, and which store a reference means, by name alone; and pointers into JSON."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from eso_api.references import GeneratorRef, StoreRef
from eso_api.secretstore import SecretStore as V1SecretStore
from eso_api.v2.clustersecretstore import ClusterSecretStore
from eso_api.v2.provider import Provider
from eso_api.v2.secretstore import SecretStore
from eso_operator.stores import pointers
from eso_operator.stores.dependencies import ObjectId, needs_of, store_of
from eso_operator.testing.clusters import obj
from eso_wire.values import KindId

CORE_GROUP = "external-secrets.io"
V2_GROUP = "secretstore.external-secrets.io"
CONFIG_GROUP = "provider.secretstore.external-secrets.io"


@pytest.mark.parametrize(
    ("ref", "expected"),
    [
        pytest.param(StoreRef(name="s"), [(CORE_GROUP, "SecretStore", "team", "s")], id="v1 store"),
        pytest.param(
            StoreRef(kind="ClusterSecretStore", name="s"), [(CORE_GROUP, "ClusterSecretStore", "", "s")], id="cluster"
        ),
        pytest.param(StoreRef(kind="Provider", name="s"), [(CORE_GROUP, "Provider", "team", "s")], id="Provider"),
        pytest.param(
            StoreRef(api_version=f"{CONFIG_GROUP}/v2alpha1", kind="Fake", name="s"),
            [(CONFIG_GROUP, "Fake", "team", "s"), (CONFIG_GROUP, "Fake", "", "s")],
            id="a provider's own kind may have either scope",
        ),
        pytest.param(
            GeneratorRef(kind="Password", name="s"),
            [("generators.external-secrets.io", "Password", "team", "s")],
            id="generator",
        ),
        pytest.param(StoreRef(), [], id="no name"),
    ],
)
def test_the_store_a_reference_means(ref: StoreRef | GeneratorRef, expected: list[tuple[str, ...]]) -> None:
    assert store_of(ref, "team") == tuple(ObjectId(*parts) for parts in expected)


PROVIDER_REF = {"kind": "Fake", "name": "config"}


@pytest.mark.parametrize(
    ("type_", "group", "namespace", "spec", "expected"),
    [
        pytest.param(
            SecretStore,
            V2_GROUP,
            "team",
            {"providerConfig": {"classRef": {"name": "c"}, "providerRef": PROVIDER_REF}},
            [(CORE_GROUP, "ClusterProviderClass", "", "c"), (CONFIG_GROUP, "Fake", "team", "config")],
            id="v2 store",
        ),
        pytest.param(
            SecretStore,
            V2_GROUP,
            "team",
            {"providerConfig": {"classRef": {"name": "c", "kind": "ProviderClass"}}},
            [(CORE_GROUP, "ProviderClass", "team", "c")],
            id="namespaced class",
        ),
        pytest.param(
            ClusterSecretStore,
            V2_GROUP,
            "",
            {"providerConfig": {"providerRef": PROVIDER_REF}},
            [(CONFIG_GROUP, "Fake", "*", "config")],
            id="configuration of each user",
        ),
        pytest.param(
            Provider,
            CORE_GROUP,
            "team",
            {"address": "p:1", "providerRef": PROVIDER_REF},
            [(CONFIG_GROUP, "Fake", "team", "config")],
            id="Provider",
        ),
        pytest.param(
            V1SecretStore,
            CORE_GROUP,
            "team",
            {"provider": {"plugin": {"providerRef": PROVIDER_REF}}},
            [(CONFIG_GROUP, "Fake", "team", "config")],
            id="v1 plugin",
        ),
        pytest.param(V1SecretStore, CORE_GROUP, "team", {"provider": {"fake": {}}}, [], id="v1 store"),
        pytest.param(V1SecretStore, CORE_GROUP, "team", {"provider": {"plugin": {"address": 5}}}, [], id="broken"),
    ],
)
def test_what_a_store_needs(
    type_: type[Any], group: str, namespace: str, spec: dict[str, Any], expected: list[tuple[str, ...]]
) -> None:
    kind = KindId(group, "v1", type_.__name__)
    store = msgspec.convert(obj(kind.api_version, kind.kind, "store", namespace, spec=spec), type_)

    assert needs_of(kind, store) == tuple(ObjectId(*parts) for parts in expected)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        pytest.param("/a/b", ["/a/b"], id="member"),
        pytest.param("/list/*/x", ["/list/0/x", "/list/2/x"], id="every entry that has it"),
        pytest.param("/map/*", ["/map/p~1q", "/map/r~0s"], id="every member, escaped"),
        pytest.param("/map/p~1q", ["/map/p~1q"], id="escaped member"),
        pytest.param("/list/2/x", ["/list/2/x"], id="entry by number"),
        pytest.param("/null", [], id="null is absent"),
        pytest.param("/a/b/c", [], id="below a text is nothing"),
        pytest.param("/list/9/x", [], id="beyond the end is nothing"),
    ],
)
def test_patterns_of_pointers(pattern: str, found: list[str]) -> None:
    document = {
        "a": {"b": "text"},
        "list": [{"x": 1}, {}, {"x": 2}],
        "map": {"p/q": 1, "r~s": 2},
        "null": None,
    }

    assert [pointer for pointer, _ in pointers.expand(document, pattern)] == found
