"""Whether a reconcile goes on to read the backend: every policy, every state of the target, every objection."""

import dataclasses
import itertools
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from eso_api.common import KeyOutcome
from eso_api.externalsecret import FORBIDDEN_POLICIES, ExternalSecret
from eso_operator.controllers.externalsecret.checks import (
    CHECKS,
    Check,
    broken_rules,
    cluster_stores_disabled,
    feature_disabled,
    first_stop,
    other_controller,
    still_fresh,
    target_taken,
)
from eso_operator.controllers.externalsecret.snapshot import Rules, Snapshot
from eso_operator.controllers.externalsecret.status import Intact, Outcome, Stalled, refused_target
from eso_operator.controllers.outcomes import Ignored, Step
from eso_operator.controllers.refresh import LastSync, NotDue, current_version
from eso_operator.targets.metadata import GeneratedMark, controller_reference_of
from eso_operator.targets.target import Refusal, RefuseTarget, TargetState
from eso_testkit.operator.externalsecrets import ABSENT, edited, entry, external_secret, intact, snapshot, synced
from kubebase.clock import rfc3339
from kubebase.meta import Condition, OwnerReference
from kubebase.testing.clock import START

SOON, LATER = START + timedelta(minutes=10), START + timedelta(hours=2)
LOOKS = {"absent": ABSENT, "edited": edited(), "intact": intact()}
CREATION = ("Owner", "Orphan", "Merge", "CreateOrMerge", "None")
DELETION = ("Retain", "Delete", "Merge")
FORBIDDEN = {(deletion, creation) for deletion, creation, _ in FORBIDDEN_POLICIES}


def goes_on(refresh: str, creation: str, look: str, *, due: bool) -> bool:
    """Return whether the reconcile continues: a refresh is due, or the target changed since our last write."""
    if refresh == "Periodic" and due:
        return True
    if creation in ("Orphan", "None"):
        return False  # their drift is not reverted before the next refresh
    return look != "intact"


def matrix() -> Iterator[Any]:
    for refresh, creation, deletion in itertools.product(("Periodic", "OnChange", "CreatedOnce"), CREATION, DELETION):
        for look, due in itertools.product(LOOKS, (True, False)):
            name = f"{refresh} {creation} {deletion}, target {look}, {'interval passed' if due else 'fresh'}"
            yield pytest.param(refresh, (deletion, creation), look, due, id=name)


@pytest.mark.parametrize(("refresh", "policies", "look", "due"), list(matrix()))
def test_the_policy_matrix(refresh: str, policies: tuple[str, str], look: str, due: bool) -> None:
    """R42, R43, R44, R45, R47, R48, R52, R55: refresh x creation x deletion x state of the target."""
    deletion, creation = policies
    target = {"creationPolicy": creation, "deletionPolicy": deletion}
    es = synced(external_secret(refreshPolicy=refresh, target=target))

    stop = first_stop(snapshot(es, LATER if due else SOON, target=LOOKS[look]))

    if policies in FORBIDDEN:
        assert isinstance(stop, Stalled)
        assert f"deletionPolicy {deletion} cannot be combined with creationPolicy {creation}" in stop.detail
    elif goes_on(refresh, creation, look, due=due):
        assert stop is None
    else:
        assert isinstance(stop, NotDue)


def test_merge_waits_for_a_target_that_it_reported_as_missing() -> None:
    missing = Condition(type="Ready", status="True", reason="SecretMissing", message="")
    es = synced(external_secret(target={"creationPolicy": "Merge"}), conditions=[missing])

    assert isinstance(first_stop(snapshot(es, SOON, target=ABSENT)), NotDue)
    assert first_stop(snapshot(es, SOON, target=edited())) is None
    assert first_stop(snapshot(es, SOON, target=intact())) is None


BROKEN = Condition(type="Ready", status="False", reason="SecretSyncedError", message="")


def owned(name: str = "db") -> TargetState:
    owner = OwnerReference(
        api_version="external-secrets.io/v1", kind="ExternalSecret", name=name, uid=f"uid-{name}", controller=True
    )
    return intact(owner_references=[owner])


def test_an_object_with_a_reported_error_is_read_again_before_it_is_due() -> None:
    """A user may have corrected the target by hand; the condition must not stay as it is."""
    es = synced(external_secret(), conditions=[BROKEN])

    assert first_stop(snapshot(es, SOON, target=owned())) is None


@pytest.mark.parametrize(
    ("spec", "look", "stop"),
    [
        pytest.param({"refreshInterval": 0}, owned(), Intact(), id="R22 an interval of 0"),
        pytest.param({"refreshPolicy": "CreatedOnce"}, owned(), Intact(), id="R48 created once"),
        pytest.param({"refreshPolicy": "OnChange"}, owned(), Intact(), id="R47 on change"),
        pytest.param({"refreshInterval": 0, "target": {"creationPolicy": "Merge"}}, intact(), Intact(), id="merge"),
        pytest.param({"refreshInterval": 0, "target": {"creationPolicy": "Orphan"}}, ABSENT, Intact(), id="orphan"),
        pytest.param({"refreshInterval": 0}, edited(), None, id="not what was written"),
        pytest.param({"refreshInterval": 0}, intact(), None, id="another writer may have written it meanwhile"),
    ],
)
def test_an_object_that_is_read_once_is_not_read_again_after_an_error(
    spec: dict[str, Any], look: TargetState, stop: Outcome | None
) -> None:
    """A generator would otherwise make another password only because the spec was corrected."""
    es = synced(external_secret(**spec), conditions=[BROKEN])

    assert first_stop(snapshot(es, LATER, target=look)) == stop


def test_an_object_whose_feature_was_off_is_not_read_before_it_is_due() -> None:
    """R153: a generator would otherwise make another password only because a gate was off for a while."""
    off = KeyOutcome(path="spec", reason="FeatureDisabled")
    es = synced(external_secret(), conditions=[BROKEN], outcomes=[off])

    stop = first_stop(snapshot(es, SOON, target=owned()))

    assert isinstance(stop, Intact)
    assert stop.after == pytest.approx(3000.0)


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        pytest.param({"secretStoreRef": {"kind": "Provider", "name": "p"}}, "Provider p", id="the store"),
        pytest.param(
            {"data": [{**entry("a", "x"), "sourceRef": {"storeRef": {"kind": "ClusterProvider", "name": "c"}}}]},
            "ClusterProvider c",
            id="the store of an entry",
        ),
        pytest.param({}, "", id="v1 only"),
    ],
)
def test_an_object_of_a_kind_that_is_off_says_so_at_once(spec: dict[str, Any], named: str) -> None:
    es = synced(external_secret(**spec))

    stop = first_stop(snapshot(es, SOON, rules=Rules(v2_stores=False)))

    assert isinstance(stop, Stalled if named else NotDue)
    if isinstance(stop, Stalled):
        assert stop.detail.startswith(f"{named} is not read because the feature gate V2Stores is off")
        assert stop.cause == "FeatureDisabled"


@pytest.mark.parametrize(
    ("rules", "spec", "stopped"),
    [
        pytest.param(Rules(cluster_stores=False), {"kind": "ClusterSecretStore"}, True, id="a cluster store"),
        pytest.param(Rules(cluster_stores=False), {"kind": "SecretStore"}, False, id="a store of the namespace"),
        pytest.param(Rules(), {"kind": "ClusterSecretStore"}, False, id="they are not switched off"),
    ],
)
def test_cluster_stores_that_are_switched_off(rules: Rules, spec: dict[str, str], stopped: bool) -> None:
    """P21."""
    es = external_secret(secretStoreRef={"name": "store", **spec})

    assert isinstance(first_stop(snapshot(es, rules=rules)), Ignored) is stopped


def test_other_kinds_need_to_be_allowed() -> None:
    """G1."""
    es = external_secret(target={"manifest": {"apiVersion": "v1", "kind": "ConfigMap"}})

    stop = first_stop(snapshot(es))

    assert isinstance(stop, Stalled)
    assert stop.step is Step.ALLOW_TARGET
    assert first_stop(snapshot(es, rules=Rules(generic_targets=True))) is None


def controlled(kind: str, api_version: str = "apps/v1") -> TargetState:
    owner = OwnerReference(api_version=api_version, kind=kind, name="other", uid="u", controller=True)
    return intact(owner_references=[owner])


@pytest.mark.parametrize("policy", CREATION)
def test_values_are_not_fetched_for_a_target_that_is_taken(policy: str) -> None:
    """L29, L30."""
    es = external_secret(target={"creationPolicy": policy})
    of_external_secret = first_stop(snapshot(es, target=controlled("ExternalSecret", "external-secrets.io/v1")))
    of_deployment = first_stop(snapshot(es, target=controlled("Deployment")))

    remedy = "choose another spec.target.name, or"
    another = refused_target(
        RefuseTarget(Refusal.OWNED_BY_ANOTHER, f"ExternalSecret other; {remedy} delete that ExternalSecret")
    )
    assert of_external_secret == (None if policy == "None" else another)
    allow = f"{remedy} set spec.target.creationPolicy to Orphan or Merge to write into it"
    kind = refused_target(RefuseTarget(Refusal.CONTROLLED, f"Deployment other; {allow}"))
    assert of_deployment == (kind if policy == "Owner" else None)


@pytest.mark.parametrize(
    ("es", "words"),
    [
        pytest.param(external_secret(data=[]), "data or dataFrom", id="nothing to fetch"),
        pytest.param(external_secret(data=[entry("a", "x"), entry("a", "y")]), "twice", id="a key twice"),
        pytest.param(external_secret(dataFrom=[{}]), "extract, find", id="an empty entry"),
    ],
)
def test_a_spec_that_breaks_the_rules_says_which(es: ExternalSecret, words: str) -> None:
    stop = first_stop(snapshot(es))

    assert isinstance(stop, Stalled)
    assert words in stop.detail


# --- the order of the checks ------------------------------------------------------------------------------------------


def objections() -> dict[Check, Snapshot]:
    """For each check an object to which it objects, along with as many of the others as possible."""
    everything = {
        "rules": Rules(cluster_stores=False),
        "foreign_class": "SecretStore store",
        "target": controlled("ExternalSecret", "external-secrets.io/v1"),
    }
    cluster: dict[str, Any] = {"secretStoreRef": {"name": "store", "kind": "ClusterSecretStore"}}
    manifest: dict[str, Any] = {"target": {"manifest": {"apiVersion": "v1", "kind": "ConfigMap"}}}
    return {
        cluster_stores_disabled: snapshot(synced(external_secret(data=[], **cluster, **manifest)), SOON, **everything),
        other_controller: snapshot(synced(external_secret(data=[], **manifest)), SOON, **everything),
        feature_disabled: snapshot(
            synced(external_secret(data=[], **manifest)),
            SOON,
            target=controlled("ExternalSecret", "external-secrets.io/v1"),
        ),
        broken_rules: snapshot(
            synced(external_secret(data=[])), SOON, target=controlled("ExternalSecret", "external-secrets.io/v1")
        ),
        target_taken: snapshot(
            synced(external_secret()), SOON, target=controlled("ExternalSecret", "external-secrets.io/v1")
        ),
        still_fresh: snapshot(synced(external_secret()), SOON),
    }


def stops(checks: tuple[Check, ...]) -> list[Outcome | None]:
    return [
        next((stop for check in checks if (stop := check(about)) is not None), None) for about in objections().values()
    ]


def test_every_check_has_an_object_that_it_stops() -> None:
    found = objections()

    assert [check.__name__ for check in CHECKS if check not in found or check(found[check]) is None] == []


LEGAL = {
    # Neither says anything about the object, so their order does not matter.
    frozenset({cluster_stores_disabled, other_controller}),
}


def test_only_checks_that_say_nothing_may_change_places() -> None:
    """All orders are tried: every other change of the order changes what users see."""
    expected = [type(stop) for stop in stops(CHECKS)]
    for order in itertools.permutations(CHECKS):
        moved = {
            frozenset({one, other})
            for one, other in itertools.combinations(CHECKS, 2)
            if order.index(one) > order.index(other)
        }
        same_words = stops(order) == stops(CHECKS)
        if moved <= LEGAL:
            assert [type(stop) for stop in stops(order)] == expected
        else:
            assert not same_words, [check.__name__ for check in order]


# --- generated values whose status was lost ---------------------------------------------------------------------------

MARK = GeneratedMark(time=rfc3339(START), version="1-abc")


def lost(es: ExternalSecret, **fields: Any) -> Snapshot:
    """The target has values that were generated for it, and no status says so."""
    made = {"generated": MARK, "unreported": True, "last": LastSync(START, current_version(es))}
    return snapshot(es, SOON, **{"target": ours(es), **made, **fields})


def ours(es: ExternalSecret) -> TargetState:
    return intact(owner_references=(controller_reference_of(es),))


@pytest.mark.parametrize("policy", ["Owner", "Orphan", "Merge", "CreateOrMerge"])
@pytest.mark.parametrize(
    ("refresh", "after"),
    [
        pytest.param({"refreshInterval": "0"}, None, id="interval 0"),
        pytest.param({"refreshPolicy": "CreatedOnce"}, None, id="created once"),
        pytest.param({"refreshPolicy": "OnChange"}, None, id="on change"),
        pytest.param({"refreshInterval": "1h"}, 3000.0, id="periodic"),
    ],
)
def test_a_lost_status_of_generated_values_is_written_again(
    policy: str, refresh: dict[str, str], after: float | None
) -> None:
    es = external_secret(target={"creationPolicy": policy}, **refresh)

    assert still_fresh(lost(es)) == Intact(after)


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        pytest.param({"refreshInterval": "0"}, {"target": ABSENT}, id="the target is gone"),
        pytest.param({"refreshInterval": "0"}, {"target": edited()}, id="the target was edited"),
        pytest.param({"refreshInterval": "0"}, {"target": intact()}, id="somebody else controls the target"),
        pytest.param({"refreshInterval": "1h"}, {"last": LastSync(START, "0-before")}, id="the object was edited"),
        pytest.param({"refreshInterval": "1h"}, {"now": LATER}, id="the interval has passed"),
    ],
)
def test_a_lost_status_does_not_hide_that_new_values_are_due(spec: dict[str, str], fields: dict[str, Any]) -> None:
    es = external_secret(**spec)

    assert still_fresh(dataclasses.replace(lost(es), **fields)) is None


def test_a_target_that_appeared_after_it_was_reported_missing_is_not_written_twice() -> None:
    """The status that says that it is missing is older than the values in it."""
    es = external_secret(refreshInterval="0", target={"creationPolicy": "Merge"})
    missing = Condition(type="Ready", status="True", reason="SecretMissing")

    assert isinstance(still_fresh(lost(synced(es, conditions=[missing]))), Intact)


@pytest.mark.parametrize(
    ("generated", "expected"),
    [
        pytest.param(MARK, Intact(3000.0), id="generated values stay while their former target is removed"),
        pytest.param(None, None, id="other values are read again"),
    ],
)
def test_a_former_target_that_stays_does_not_cost_new_generated_values(
    generated: GeneratedMark | None, expected: Outcome | None
) -> None:
    failed = Condition(type="Ready", status="False", reason="SecretSyncedError")
    left = KeyOutcome(path="spec.target", reason="ApiServer", step=Step.REMOVE_FORMER.code)
    es = synced(external_secret(refreshInterval="1h"), conditions=[failed], outcomes=[left])

    assert still_fresh(snapshot(es, SOON, target=ours(es), generated=generated)) == expected
