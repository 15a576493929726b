"""A reference to a store that does not exist: the error suggests the one that may be meant."""

from __future__ import annotations

from typing import Any

import pytest

from eso_api.references import GeneratorRef, StoreRef
from eso_operator.stores.resolved import Reason, ResolutionError
from eso_testkit.operator.clusters import obj
from eso_testkit.operator.forms import CONFIG, CORE_V1, GENERATORS_V1, STORES_V2, resolved
from kubebase.meta import JsonObject

ELSEWHERE = [{"namespaces": ["team-b"]}]
HERE = [{"namespaces": ["team-a"]}]


def store(name: str, namespace: str = "team-a") -> JsonObject:
    return obj(CORE_V1, "SecretStore", name, namespace, spec={"provider": {"fake": CONFIG}})


def cluster_store(name: str, **spec: Any) -> JsonObject:
    return obj(CORE_V1, "ClusterSecretStore", name, spec={"provider": {"fake": CONFIG}, **spec})


def hint_of(ref: StoreRef | GeneratorRef, *documents: JsonObject) -> str:
    with pytest.raises(ResolutionError) as caught:
        resolved(ref, *documents)
    assert caught.value.reason is Reason.NOT_FOUND
    return caught.value.message.partition("; ")[2]


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        pytest.param([store("vault")], "did you mean SecretStore vault?", id="a similar name"),
        pytest.param([cluster_store("vault")], "did you mean ClusterSecretStore vault?", id="cluster-scoped"),
        pytest.param(
            [cluster_store("valt"), store("vault")],
            "did you mean ClusterSecretStore valt?",
            id="the same name of another kind comes before a similar one",
        ),
        pytest.param(
            [obj(STORES_V2, "SecretStore", "vault", "team-a", spec={})],
            "did you mean SecretStore vault of secretstore.external-secrets.io/v2alpha1?",
            id="of the other generation",
        ),
        pytest.param([store("vault", "team-b")], "", id="another namespace is not looked at"),
        pytest.param(
            [cluster_store("vault", conditions=ELSEWHERE)], "", id="a store of other namespaces is not disclosed"
        ),
        pytest.param(
            [cluster_store("vault", conditions=HERE)],
            "did you mean ClusterSecretStore vault?",
            id="a store of this namespace",
        ),
        pytest.param([store("gitlab")], "", id="nothing is similar"),
    ],
)
def test_a_missing_store_is_reported_with_a_suggestion(documents: list[JsonObject], expected: str) -> None:
    assert hint_of(StoreRef(name="valt"), *documents) == expected
    assert hint_of(StoreRef(name="valt"), *reversed(documents)) == expected


def test_a_missing_generator_is_reported_with_a_suggestion() -> None:
    ref = GeneratorRef(kind="Password", name="databse")

    hint = hint_of(ref, obj(GENERATORS_V1, "Password", "database", "team-a", spec={}))

    assert hint == "did you mean Password database?"
