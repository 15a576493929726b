"""Problems are grouped by what has to be repaired; references, reasons and conditions decide, never words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from eso_api.crd import CustomKind
from eso_api.externalsecret import CLUSTER_EXTERNAL_SECRET, EXTERNAL_SECRET
from eso_api.generators.generatorstate import GENERATOR_STATE
from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import CLUSTER_SECRET_STORE, SECRET_STORE
from eso_api.v2.providerclass import CLUSTER_PROVIDER_CLASS
from eso_api.v2.secretstore import SECRET_STORE_V2
from eso_tools.status.causes import MANY_ROOTS, causes_of
from eso_tools.status.overview import NO_STATUS, Gap, Health, Missing, Overview, Row, row_of
from kubebase.meta import Malformed, ObjectMeta

NOON = "2026-01-01T12:00:00Z"
LATER = "2026-01-01T12:30:00Z"

Kind = CustomKind[Any]


def ready(status: str, reason: str, message: str = "", since: str = NOON) -> list[dict[str, str]]:
    return [{"type": "Ready", "status": status, "reason": reason, "message": message, "lastTransitionTime": since}]


def row(kind: Kind, name: str, spec: Any, *, namespace: str = "team", **status: Any) -> Row:
    home = namespace if kind.namespaced else ""
    fields = {"metadata": {"name": name, "namespace": home}, "spec": spec, "status": status}
    return row_of(kind, msgspec.convert(fields, kind.type))


def store(name: str = "vault", kind: Kind = SECRET_STORE, namespace: str = "team", **condition: str) -> Row:
    conditions = ready(**condition) if condition else ready("True", "Valid")
    return row(kind, name, {"provider": {"fake": {"data": []}}}, namespace=namespace, conditions=conditions)


def secret(
    name: str = "db", *, reads: str = "vault", kind: str = "SecretStore", failed: bool = True, **status: Any
) -> Row:
    ref = {"name": reads, "kind": kind}
    conditions = ready("False", "SecretSyncedError", since=LATER) if failed else ready("True", "SecretSynced")
    spec = {"secretStoreRef": ref, "data": [{"secretKey": "k", "remoteRef": {"key": "r"}}]}
    return row(EXTERNAL_SECRET, name, spec, conditions=conditions, **status)


def missing(
    name: str,
    key: str = "db/pw",
    at: str = "vault",
    *,
    path: str = "spec.data[0]",
    reason: str = "SecretNotFound",
    more: Sequence[dict[str, str]] = (),
) -> Row:
    """Return an ExternalSecret with a failed entry, and a message that names it."""
    failed = {"path": path, "reason": reason, "remoteKey": key, "store": f"SecretStore {at}", "message": f"{key}: no"}
    return secret(name, reads=at, outcomes=[failed, *({**failed, **each} for each in more)])


def template(message: str) -> dict[str, str]:
    return {"path": "spec.target.template", "reason": "TemplateError", "message": message, "step": "Render"}


BROKEN: dict[str, Any] = {
    "status": "False",
    "reason": "InvalidProviderConfig",
    "message": "CredentialsRejected: the token expired",
}


def said(*rows: Row, gaps: tuple[Gap, ...] = (), left_out: int = 0) -> list[str]:
    return [cause.headline for cause in causes_of(Overview(rows, gaps, left_out))]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param([store(), secret(failed=False)], [], id="objects that are ready are no problem"),
        pytest.param(
            [store("prod", CLUSTER_SECRET_STORE, **BROKEN)]
            + [secret(f"s{n}", reads="prod", kind="ClusterSecretStore") for n in range(38)],
            ["38 ExternalSecrets wait for ClusterSecretStore prod: CredentialsRejected"],
            id="the users of a broken store are one problem, with the cause of the store",
        ),
        pytest.param(
            [store(**BROKEN), secret()],
            ["1 ExternalSecret waits for SecretStore team/vault: CredentialsRejected"],
            id="one user waits in the singular",
        ),
        pytest.param(
            [store(), secret(outcomes=[{"path": "spec.data[0]", "reason": "SecretNotFound", "store": "x"}])],
            ["ExternalSecret team/db: SecretNotFound"],
            id="a failed entry of a good store is a problem of the object, with the reason of the entry",
        ),
        pytest.param(
            [store(), *(secret(f"s{n}") for n in range(3))],
            ["3 ExternalSecrets: SecretSyncedError"],
            id="objects with equal problems of their own are one problem",
        ),
        pytest.param(
            [store(), store("two"), *(missing(f"s{n}", key=f"k{n}", at="vault" if n % 2 else "two") for n in range(4))],
            [f"ExternalSecret team/s{n}: SecretNotFound" for n in range(4)],
            id="each missing key is a problem of its own",
        ),
        pytest.param(
            [store(), *(missing(f"s{n}", path=f"spec.data[{n}]") for n in range(3))],
            ["3 ExternalSecrets: SecretNotFound"],
            id="objects that miss the same key of one store are one problem",
        ),
        pytest.param(
            [store(), store("two"), missing("a"), missing("b", at="two")],
            ["ExternalSecret team/a: SecretNotFound", "ExternalSecret team/b: SecretNotFound"],
            id="the same key of two stores is two problems",
        ),
        pytest.param(
            [store(), missing("a"), missing("b", more=[{"path": "spec.data[1]", "remoteKey": "other"}])],
            ["ExternalSecret team/a: SecretNotFound", "ExternalSecret team/b: SecretNotFound"],
            id="an object that misses one more key needs one more repair",
        ),
        pytest.param(
            [store(), *(missing(f"s{n}", key=f"k{n}", reason="BackendUnavailable") for n in range(3))],
            ["3 ExternalSecrets: BackendUnavailable"],
            id="a store that is down is one problem, whatever is read from it",
        ),
        pytest.param(
            [store(), *(secret(f"s{n}", outcomes=[template(f"line {n % 2}: no such function")]) for n in range(4))],
            ["2 ExternalSecrets: TemplateError", "2 ExternalSecrets: TemplateError"],
            id="objects with the same template error are one problem, and different errors are several",
        ),
        pytest.param([secret()], ["1 ExternalSecret waits for SecretStore team/vault: StoreNotFound"], id="no store"),
        pytest.param(
            [store(**BROKEN), store("other", namespace="other", **BROKEN), secret()],
            [
                "1 ExternalSecret waits for SecretStore team/vault: CredentialsRejected",
                "SecretStore other/other: CredentialsRejected",
            ],
            id="a store of the same reason in another namespace is another problem",
        ),
        pytest.param(
            [*(store(f"s{n}", **BROKEN) for n in range(MANY_ROOTS + 1)), secret(reads="s0")],
            [f"1 ExternalSecret waits for {MANY_ROOTS + 1} SecretStores: CredentialsRejected"],
            id="many stores with the same reason are one problem",
        ),
        pytest.param(
            [store(f"s{n}", **(BROKEN | {"message": f"CredentialsRejected: {n}"})) for n in range(MANY_ROOTS + 1)],
            [f"SecretStore team/s{n}: CredentialsRejected" for n in range(MANY_ROOTS + 1)],
            id="many stores with different messages are as many problems",
        ),
        pytest.param(
            [row(EXTERNAL_SECRET, "new", {}), row(EXTERNAL_SECRET, "newer", {})],
            ["2 ExternalSecrets: no operator has reported on them yet"],
            id="objects without a status are one problem",
        ),
        pytest.param(
            [row(GENERATOR_STATE, "state", {"resource": {}, "state": {}})],
            [],
            id="a generator state without a status is in use",
        ),
        pytest.param(
            [
                row(
                    CLUSTER_PROVIDER_CLASS,
                    "aws",
                    {"address": "grpc://a:1"},
                    conditions=ready("False", "Refused"),
                ),
                row(
                    SECRET_STORE_V2,
                    "aws",
                    {"providerConfig": {"classRef": {"name": "aws"}, "inline": {"kind": "Aws", "spec": {}}}},
                    conditions=ready("False", "ProviderNotConnected"),
                ),
                row(
                    EXTERNAL_SECRET,
                    "db",
                    {"dataFrom": [{"extract": {"key": "k"}, "sourceRef": {"storeRef": {
                        "name": "aws", "kind": "SecretStore",
                        "apiVersion": "secretstore.external-secrets.io/v2alpha1",
                    }}}]},
                    conditions=ready("False", "SecretSyncedError"),
                ),
            ],
            ["1 SecretStore and 1 ExternalSecret wait for ClusterProviderClass aws: Refused"],
            id="the provider is the cause of its stores and of their users",
        ),
        pytest.param(
            [store(**BROKEN), row(SECRET_STORE_V2, "vault", {"providerConfig": {}}, conditions=ready("True", "Valid"))],
            ["SecretStore team/vault: CredentialsRejected"],
            id="stores of both generations with one name are two stores",
        ),
        pytest.param(
            [
                store(**BROKEN),
                row(
                    PUSH_SECRET,
                    "push",
                    {"selector": {"secret": {"name": "s"}}, "secretStoreRefs": [{"name": "vault"}, {"name": "two"}]},
                    conditions=ready("False", "Errored"),
                    outcomes=[{"path": "spec.data[0]", "reason": "AlreadyExists", "store": "SecretStore/two"}],
                ),
                store("two"),
            ],
            ["PushSecret team/push: AlreadyExists", "SecretStore team/vault: CredentialsRejected"],
            id="a broken store that no failed entry names is not the cause",
        ),
        pytest.param(
            [
                row(
                    CLUSTER_EXTERNAL_SECRET,
                    "all",
                    {"externalSecretSpec": {"secretStoreRef": {"name": "vault"}}, "namespaces": ["a"]},
                    conditions=ready("False", "Errored"),
                )
            ],
            ["ClusterExternalSecret all: Errored"],
            id="the namespaced store of a fan-out is another one in each namespace and is not looked for",
        ),
    ],
)  # fmt: skip
def test_problems_are_grouped_by_cause(rows: list[Row], expected: list[str]) -> None:
    assert said(*rows) == expected


@pytest.mark.parametrize(
    "incomplete",
    [
        pytest.param({"gaps": (Gap(SECRET_STORE, Missing.FORBIDDEN),)}, id="stores that may not be listed"),
        pytest.param({"left_out": 1}, id="objects beyond the limit"),
    ],
)
def test_a_store_that_may_exist_is_not_reported_as_missing(incomplete: dict[str, Any]) -> None:
    assert said(secret(), **incomplete) == ["ExternalSecret team/db: SecretSyncedError"]


def test_a_cause_knows_its_time_its_next_attempt_and_who_is_at_risk() -> None:
    rows = (
        store(**BROKEN),
        secret("a", nextAttemptTime="2026-01-01T13:05:00Z"),
        secret("b", nextAttemptTime="2026-01-01T13:01:00Z"),
        secret("c", failed=False),
    )

    (cause,) = causes_of(Overview(rows))

    assert cause.since == NOON
    assert cause.next_attempt == "2026-01-01T13:01:00Z"
    assert (cause.affected, cause.at_risk) == (3, 1)
    assert cause.message == "CredentialsRejected: the token expired"


def test_the_different_messages_of_one_cause_are_all_known() -> None:
    rows = [
        row(
            EXTERNAL_SECRET,
            f"s{n}",
            {"secretStoreRef": {"name": "vault"}},
            conditions=ready("False", "SecretSyncedError", f"could not read key {n % 3}"),
            outcomes=[{"path": "spec", "reason": "BackendTimeout", "store": "SecretStore vault"}],
        )
        for n in range(6)
    ]

    (cause,) = causes_of(Overview((store(), *rows)))

    assert cause.messages == tuple(f"could not read key {n}" for n in range(3))
    assert cause.message == "could not read key 0"


def test_the_cause_of_most_objects_comes_first() -> None:
    few, many = store("few", **BROKEN), store("many", **BROKEN)
    users = [secret("x", reads="few"), secret("y", reads="many"), secret("z", reads="many")]

    assert [cause.roots[0].name for cause in causes_of(Overview((few, many, *users)))] == ["many", "few"]


def test_stores_that_name_each_other_do_not_loop() -> None:
    first, second = store("a", **BROKEN), store("b", **BROKEN)
    looped = [
        Row(first.id, SECRET_STORE, Health.BAD, "X", blamed=(second.id,)),
        Row(second.id, SECRET_STORE, Health.BAD, "X", blamed=(first.id,)),
    ]

    assert len(said(*looped)) == 2


def test_an_object_that_does_not_decode_is_a_problem_and_shows_no_value() -> None:
    found = row_of(SECRET_STORE, Malformed(ObjectMeta(name="odd", namespace="team"), "spec.provider: expected object"))

    assert (found.health, found.reason) == (Health.BAD, "StoreMalformed")


def test_what_waits_for_a_provider_that_starts_is_no_problem_and_not_ready() -> None:
    starting = store(status="Unknown", reason="ValidationUnknown", message="ProviderStarting: provider x is starting")
    waiting = row(
        EXTERNAL_SECRET,
        "new",
        {"secretStoreRef": {"name": "vault"}, "data": [{"secretKey": "k", "remoteRef": {"key": "r"}}]},
        conditions=ready("Unknown", "SecretSyncedError"),
        outcomes=[{"path": "spec.data[0]", "reason": "ProviderStarting", "store": "SecretStore vault"}],
    )

    assert [(each.health, each.reason) for each in (starting, waiting)] == [(Health.WAITING, "ProviderStarting")] * 2
    assert said(starting, waiting) == ["1 ExternalSecret waits for SecretStore team/vault: ProviderStarting"]


def contended(name: str, reason: str) -> Row:
    condition = {"type": "Contended", "status": "True", "reason": reason, "message": "why", "lastTransitionTime": LATER}
    return row(EXTERNAL_SECRET, name, {}, conditions=[*ready("True", "SecretSynced"), condition])


@pytest.mark.parametrize("reason", ["DifferentValues", "FeedsItself"])
def test_an_object_in_conflict_is_ready_and_a_problem(reason: str) -> None:
    found = contended("db", reason)

    (cause,) = causes_of(Overview((found, secret("fine", failed=False), store())))

    assert (found.health, found.ready, found.reason) == (Health.CONTENDED, True, "Contended")
    assert (cause.headline, cause.message, cause.since) == ("ExternalSecret team/db: Contended", "why", LATER)


def test_a_place_that_may_be_shared_by_intention_is_no_problem() -> None:
    assert said(contended("db", "SharedPlace")) == []


def test_an_unverified_store_of_its_users_credentials_is_good() -> None:
    found = store(status="Unknown", reason="ReferentAuthUnverified")

    assert found.health is Health.GOOD
    assert row(EXTERNAL_SECRET, "new", {}).reason == NO_STATUS
