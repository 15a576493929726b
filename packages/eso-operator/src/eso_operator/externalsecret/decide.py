"""Checks that can stop a reconcile before it reads a backend: pure, named, in order.

Each assumes that those before it had no objection:

    whose is it      cluster_stores_disabled, other_controller    nothing may be said about what is not ours
    may it be        generic_target_disabled, broken_rules        what can be said without looking at the target
    is it free       target_taken                                 before values are fetched, or made, for nothing
    is it due        still_fresh                                  the only one that ends in peace
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from eso_api.validation.externalsecret import external_secret_problems
from eso_operator.externalsecret.outcome import MISSING, Ignored, Intact, Outcome, Stalled
from eso_operator.externalsecret.refresh import refresh_due, refreshes_by_itself
from eso_operator.externalsecret.snapshot import Snapshot
from eso_operator.sync.due import NotDue
from eso_operator.sync.reporting import READY
from eso_operator.targets.marks import MERGE, NONE, ORPHAN, OWNER
from eso_operator.targets.plan import ownership_refusal
from eso_operator.targets.target import Absent, Present
from kuberun.conditions import find_condition, is_false
from kuberun.ownership import is_controlled_by

Check = Callable[[Snapshot], Outcome | None]


def first_stop(snapshot: Snapshot) -> Outcome | None:
    """What ends this reconcile here; None to go on."""
    return next((stop for check in CHECKS if (stop := check(snapshot)) is not None), None)


def cluster_stores_disabled(snapshot: Snapshot) -> Outcome | None:
    """The operator was told to leave cluster-scoped stores alone."""
    ref = snapshot.es.spec.secret_store_ref
    if ref is None or snapshot.rules.cluster_stores or ref.kind != "ClusterSecretStore":
        return None
    return Ignored("cluster-scoped stores are switched off")


def other_controller(snapshot: Snapshot) -> Outcome | None:
    """A store or generator of it belongs to another operator."""
    return Ignored(f"{snapshot.foreign_class} is of another class") if snapshot.foreign_class else None


def generic_target_disabled(snapshot: Snapshot) -> Outcome | None:
    """Kinds other than Secret must be allowed by the administrator."""
    manifest = snapshot.es.spec.target.manifest
    if manifest is None or (snapshot.rules.generic_targets and manifest.api_version and manifest.kind):
        return None
    return Stalled("invalid generic target", "targets that are no Secret need --unsafe-allow-generic-targets")


def broken_rules(snapshot: Snapshot) -> Outcome | None:
    """Rules that the API server checks too; the object may be older than they are."""
    problems = external_secret_problems(snapshot.es.spec)
    return Stalled("invalid ExternalSecret", "; ".join(map(str, problems))) if problems else None


def target_taken(snapshot: Snapshot) -> Outcome | None:
    """Somebody else controls the target."""
    if snapshot.es.spec.target.creation_policy == NONE or not isinstance(snapshot.look, Present):
        return None
    refusal = ownership_refusal(snapshot.es, snapshot.look.metadata)
    return None if refusal is None else Stalled(refusal.why.value, refusal.by)


def still_fresh(snapshot: Snapshot) -> Outcome | None:
    """Not due, and the target is as we left it.

    What is reported as broken may be right by now. What refreshes by itself is read again to find out; what was read,
    or generated, once for all is not: the target would get another password because somebody put a spec right.
    """
    due = refresh_due(snapshot)
    if not isinstance(due, NotDue) or not _is_valid(snapshot):
        return None
    if not is_false(snapshot.es.status.conditions, READY):
        return due
    return None if refreshes_by_itself(snapshot.es) or not _is_still_ours(snapshot) else Intact()


def repairs_drift(snapshot: Snapshot) -> bool:
    """Whether there is nothing to do but to undo what happened to the target."""
    return isinstance(refresh_due(snapshot), NotDue) and not _is_valid(snapshot)


CHECKS: Final[tuple[Check, ...]] = (
    cluster_stores_disabled,
    other_controller,
    generic_target_disabled,
    broken_rules,
    target_taken,
    still_fresh,
)


def _is_valid(snapshot: Snapshot) -> bool:
    """Under Orphan a target may be missing or changed until the next refresh; under None there is nothing of ours."""
    policy = snapshot.es.spec.target.creation_policy
    if policy in (ORPHAN, NONE):
        return True
    # Merge does not create: once that is said, a missing target is no reason to read the backend again, and one that
    # is there, whoever made it, was never merged into.
    ready = find_condition(snapshot.es.status.conditions, READY)
    said_missing = policy == MERGE and ready is not None and ready.reason.endswith(MISSING)
    match snapshot.look:
        case Absent():
            return said_missing
        case Present(valid=valid):
            return valid and not said_missing


def _is_still_ours(snapshot: Snapshot) -> bool:
    """A target that was in other hands meanwhile may hold what they wrote, hash and all."""
    if snapshot.es.spec.target.creation_policy != OWNER or not isinstance(snapshot.look, Present):
        return True
    return is_controlled_by(snapshot.look.metadata, snapshot.es.metadata.uid)
