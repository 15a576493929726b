"""Capabilities, dependencies and the finalizer: the values that a store controller uses."""

from typing import Any

import msgspec
import pytest

from eso_api.pushsecret import PushSecret
from eso_api.v2.policy import Policy
from eso_operator.controllers.secretstore.controller import interval_of
from eso_operator.controllers.secretstore.finalizer import FINALIZER, finalizer_patch, held, stores_named
from eso_operator.controllers.secretstore.kinds import CLUSTER_STORE, STORE, STORE_V2, StoreKind
from eso_operator.controllers.secretstore.status import capabilities_of
from eso_operator.dependencies import (
    ANY_PROVIDER,
    Dependant,
    Dependencies,
    OnLabel,
    on_connection,
    on_object,
)
from eso_operator.stores.resolved import Connection, Endpoint, EndpointSource, ManagedTls, ServiceKey
from eso_operator.telemetry.subsystems import Subsystem
from eso_operator.wiring_controllers import Memories
from eso_wire.values import ObjectRef, Operation
from kubebase.meta import ObjectKey
from kuberun.testing.builders import metadata


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        pytest.param({Operation.GET}, "ReadOnly", id="reads"),
        pytest.param({Operation.FIND_BY_TAGS}, "ReadOnly", id="finds"),
        pytest.param({Operation.PUSH, Operation.DELETE}, "WriteOnly", id="pushes"),
        pytest.param({Operation.GET, Operation.PUSH}, "ReadWrite", id="both"),
        pytest.param({Operation.GENERATE}, "", id="a generator does neither"),
        pytest.param({Operation.DELETE, Operation.EXISTS}, "", id="deleting alone is no capability"),
    ],
)
def test_capabilities_are_derived_from_operations(operations: set[Operation], expected: str) -> None:
    assert capabilities_of(operations) == expected


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        pytest.param("5m", 300.0, id="as it says"),
        pytest.param(30, 30.0, id="a number of seconds"),
        pytest.param("1ms", 1.0, id="all the time: a worker and the provider have other things to do"),
        pytest.param("0s", 77.0, id="nothing: as usual"),
        pytest.param("soon", 77.0, id="nonsense: as usual, and the verdict says so"),
    ],
)
def test_a_store_is_validated_at_its_interval_and_never_all_the_time(said: int | str, seconds: float) -> None:
    """R78."""
    assert interval_of(Policy(refresh_interval=said), 77.0) == seconds


# --- dependencies ----------------------------------------------------------------------------------------------------


AWS = Connection(
    Endpoint("dns:///aws.eso.svc:8080", "aws.eso.svc", EndpointSource.CLASS, "aws"),
    ManagedTls(ServiceKey("eso", "aws")),
)
STORE_A = Dependant(Subsystem.SECRET_STORE, ObjectKey("team", "vault"))
STORE_B = Dependant(Subsystem.CLUSTER_SECRET_STORE, ObjectKey("", "vault"))


def test_a_store_is_found_by_what_it_went_by_last_and_by_nothing_else() -> None:
    dependencies = Dependencies(Memories().by_controller)
    secret = on_object(ObjectRef(api_version="v1", kind="Secret", namespace="team", name="token"))

    dependencies.record(STORE_A, {secret, ANY_PROVIDER})
    waiting = dependencies.dependants(ANY_PROVIDER)
    dependencies.record(STORE_A, {secret, on_connection(AWS)})

    assert waiting == [STORE_A]
    assert dependencies.dependants(ANY_PROVIDER) == []
    assert dependencies.dependants(secret) == [STORE_A]
    assert dependencies.dependants(on_connection(AWS)) == [STORE_A]
    dependencies.record(STORE_A, ())
    assert dependencies.dependants(secret) == []
    assert dependencies._dependants == {}


def test_a_connection_is_free_when_its_last_user_lets_go() -> None:
    dependencies = Dependencies(Memories().by_controller)
    dependencies.record(STORE_A, {on_connection(AWS)})
    dependencies.record(STORE_B, {on_connection(AWS)})

    assert dependencies.record(STORE_A, ()) == []
    assert dependencies.record(STORE_B, {on_connection(AWS)}) == []
    assert dependencies.record(STORE_B, ()) == [AWS]


def test_a_label_that_reads_like_a_connection_is_another_dependency() -> None:
    dependencies = Dependencies(Memories().by_controller)
    dependencies.record(STORE_A, {OnLabel(AWS.key)})

    assert dependencies.dependants(on_connection(AWS)) == []


def test_two_versions_of_a_kind_are_one_dependency() -> None:
    one, two = (
        on_object(ObjectRef(api_version=f"g.example/{version}", kind="Fake", namespace="a", name="b"))
        for version in ("v1", "v2")
    )

    assert one == two


# --- the finalizer ---------------------------------------------------------------------------------------------------


def push(namespace: str = "team", policy: str = "Delete", synced: tuple[str, ...] = (), **ref: Any) -> PushSecret:
    document = {
        "metadata": {"name": "push", "namespace": namespace},
        "spec": {
            "secretStoreRefs": [ref] if ref else [],
            "selector": {"secret": {"name": "source"}},
            "deletionPolicy": policy,
        },
        "status": {"syncedPushSecrets": {key: {} for key in synced}},
    }
    return msgspec.convert(document, PushSecret)


V2_REF: dict[str, Any] = {"apiVersion": "secretstore.external-secrets.io/v2alpha1", "kind": "SecretStore"}


@pytest.mark.parametrize(
    ("kind", "push_secret", "expected"),
    [
        pytest.param(STORE, push(name="vault"), True, id="named"),
        pytest.param(STORE, push(name="other"), False, id="another one is named"),
        pytest.param(STORE, push(name="vault", policy="None"), False, id="nothing will be deleted"),
        pytest.param(STORE, push("elsewhere", name="vault"), False, id="a namespaced store of another namespace"),
        pytest.param(STORE, push(name="vault", kind="ClusterSecretStore"), False, id="another kind"),
        pytest.param(STORE, push(labelSelector={"matchLabels": {"a": "b"}}), True, id="selected by label"),
        pytest.param(STORE, push(labelSelector={"matchLabels": {"a": "c"}}), False, id="not selected"),
        pytest.param(
            STORE,
            push(labelSelector={"matchExpressions": [{"key": "a", "operator": "Is"}]}),
            False,
            id="a selector that is none",
        ),
        pytest.param(STORE, push(synced=("SecretStore/vault",)), True, id="pushed before"),
        pytest.param(STORE, push(synced=("ClusterSecretStore/vault",)), False, id="pushed to another kind"),
        pytest.param(
            CLUSTER_STORE,
            push("elsewhere", synced=("ClusterSecretStore/vault",)),
            True,
            id="cluster store, pushed to from a namespace that it permits",
        ),
        pytest.param(
            CLUSTER_STORE,
            push("denied", synced=("ClusterSecretStore/vault",)),
            False,
            id="cluster store, pushed to from a namespace that it does not permit any more",
        ),
        pytest.param(
            CLUSTER_STORE,
            push("elsewhere", name="vault", kind="ClusterSecretStore"),
            False,
            id="cluster store, only named",
        ),
        pytest.param(
            CLUSTER_STORE,
            push("elsewhere", labelSelector={}, kind="ClusterSecretStore"),
            False,
            id="cluster store, only selected",
        ),
        pytest.param(STORE_V2, push(name="vault"), False, id="a v1 reference does not hold a v2 store"),
        pytest.param(STORE_V2, push(name="vault", **V2_REF), True, id="a v2 reference does"),
        pytest.param(
            STORE_V2,
            push(synced=("secretstore.external-secrets.io/SecretStore/vault",)),
            True,
            id="pushed to v2 before",
        ),
    ],
)
def test_a_store_is_held_by_push_secrets_that_will_delete(
    kind: StoreKind, push_secret: PushSecret, expected: bool
) -> None:
    namespace = "team" if kind.resource.namespaced else ""

    store = metadata("vault", namespace, labels={"a": "b"})

    assert held(kind, store, [push_secret], lambda namespace: namespace != "denied") is expected


@pytest.mark.parametrize(
    ("finalizers", "deleting", "holding", "expected"),
    [
        pytest.param([], False, True, [FINALIZER], id="added when needed"),
        pytest.param([FINALIZER], False, True, None, id="kept while needed"),
        pytest.param([FINALIZER, "x"], False, False, ["x"], id="removed when not needed, others stay"),
        pytest.param([FINALIZER], True, True, None, id="a deletion waits"),
        pytest.param([FINALIZER], True, False, [], id="a deletion goes on"),
        pytest.param([], True, True, None, id="too late to add"),
    ],
)
def test_the_finalizer_is_there_while_the_store_is_held(
    finalizers: list[str], deleting: bool, holding: bool, expected: list[str] | None
) -> None:
    about = metadata(
        "vault", "team", finalizers=finalizers, deletion_timestamp="2030-01-01T00:00:00Z" if deleting else None
    )

    patch = finalizer_patch(about, holding=holding)

    assert (None if patch is None else patch["metadata"]["finalizers"] or []) == expected


def test_the_stores_a_push_secret_names_are_those_to_look_at() -> None:
    push_secret = push(synced=("SecretStore/old", "ClusterSecretStore/c"), name="vault")

    assert stores_named(STORE, push_secret) == {ObjectKey("team", "old"), ObjectKey("team", "vault")}
    assert stores_named(CLUSTER_STORE, push_secret) == {ObjectKey("", "c")}
