"""Checks that can stop a reconcile before it reads a backend: pure, named, in order.

Each check assumes that the checks before it did not stop:

    whose is it      cluster_stores_disabled, other_controller    objects of other operators get no report
    is it valid      feature_disabled, broken_rules               needs the object alone, not its target
    is it free       target_taken                                 stops before values are fetched or generated
    is it due        still_fresh                                  the only stop that is not a problem
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from eso_api.common import READY
from eso_api.validation import external_secret_problems
from eso_operator.controllers.externalsecret.snapshot import LONGEST_SPREAD, Snapshot
from eso_operator.controllers.externalsecret.status import (
    FEATURE_DISABLED,
    INVALID_SPEC,
    Intact,
    Outcome,
    Stalled,
    refused_target,
)
from eso_operator.controllers.externalsecret.windows import may_refresh, next_change
from eso_operator.controllers.outcomes import MISSING, Ignored, Step
from eso_operator.controllers.refresh import Due, NotDue, current_version, interval_of, refreshes_by_itself
from eso_operator.sources.entries import references_of
from eso_operator.sources.fetch import Failure
from eso_operator.stores.loading import check_gate, normalise
from eso_operator.stores.resolved import Reason, ResolutionError
from eso_operator.targets.metadata import MERGE, NONE, ORPHAN, OWNER
from eso_operator.targets.target import Absent, Present, ownership_refusal
from eso_wire.values import ObjectRef
from kuberun.ownership import is_controlled_by
from kuberun.status import find_condition, is_false

_LONGEST_SLOT: Final = timedelta(seconds=LONGEST_SPREAD)

Check = Callable[[Snapshot], Outcome | None]


def first_stop(snapshot: Snapshot) -> Outcome | None:
    """Return the outcome of the first check that stops this reconcile; None to continue."""
    return next((stop for check in CHECKS if (stop := check(snapshot)) is not None), None)


def cluster_stores_disabled(snapshot: Snapshot) -> Outcome | None:
    """Stop if the object uses a cluster-scoped store and the administrator disabled them."""
    ref = snapshot.es.spec.secret_store_ref
    if ref is None or snapshot.rules.cluster_stores or ref.kind != "ClusterSecretStore":
        return None
    return Ignored("cluster-scoped stores are switched off")


def other_controller(snapshot: Snapshot) -> Outcome | None:
    """Stop if another operator handles one of its stores or generators."""
    return Ignored(f"{snapshot.foreign_class} is of another class") if snapshot.foreign_class else None


def feature_disabled(snapshot: Snapshot) -> Outcome | None:
    """Stop if the object needs what the administrator turned off or did not turn on."""
    return _generic_target_disabled(snapshot) or _v2_disabled(snapshot)


def _generic_target_disabled(snapshot: Snapshot) -> Outcome | None:
    """Stop if the target is not a Secret and the administrator did not allow such targets."""
    manifest = snapshot.es.spec.target.manifest
    if manifest is None or (snapshot.rules.generic_targets and manifest.api_version and manifest.kind):
        return None
    why = "targets that are no Secret need --unsafe-allow-generic-targets"
    return Stalled(Step.ALLOW_TARGET, why, FEATURE_DISABLED)


def _v2_disabled(snapshot: Snapshot) -> Outcome | None:
    """Stop if the object uses a v2 store or generator and the gate is off. Its target stays as it is."""
    caller = ObjectRef(namespace=snapshot.es.metadata.namespace)
    for ref in references_of(snapshot.es.spec):
        try:
            check_gate(normalise(ref, caller), v2_stores=snapshot.rules.v2_stores)
        except ResolutionError as error:
            if error.reason is Reason.FEATURE_DISABLED:
                return Stalled(Step.FETCH, error.message, FEATURE_DISABLED)
    return None


def broken_rules(snapshot: Snapshot) -> Outcome | None:
    """Stop if the spec breaks a rule of the CRD: the object may be older than the rule."""
    problems = external_secret_problems(snapshot.es.spec)
    if not problems:
        return None
    failures = tuple(Failure(each.path, INVALID_SPEC, each.message) for each in problems)
    return Stalled(Step.VALIDATE, "; ".join(map(str, problems)), failures=failures)


def target_taken(snapshot: Snapshot) -> Outcome | None:
    """Stop if another controller owns the target."""
    if snapshot.es.spec.target.creation_policy == NONE or not isinstance(snapshot.target, Present):
        return None
    refusal = ownership_refusal(snapshot.es, snapshot.target.metadata)
    return None if refusal is None else refused_target(refusal)


def still_fresh(snapshot: Snapshot) -> Outcome | None:
    """Stop if no refresh is due and the target is unchanged since our last write.

    A reported error may be fixed by now. An object that refreshes by itself is read again to find out. An object that
    is read or generated only once is not: a corrected spec would otherwise put a new password into the target. The same
    holds for an object whose only error is a feature that was off: its values are as fresh as before. If the status of
    generated values was lost, it is written again, and nothing is read or generated for it.
    """
    due = refresh_due(snapshot)
    if not isinstance(due, NotDue) or not _is_valid(snapshot):
        return None
    if not snapshot.unreported and not is_false(snapshot.es.status.conditions, READY):
        return due
    return Intact(due.after) if _is_still_ours(snapshot) and not _reads_again(snapshot) else None


def _reads_again(snapshot: Snapshot) -> bool:
    """Return whether a reported error is a reason to read the backend, although no refresh is due."""
    if snapshot.unreported or not refreshes_by_itself(snapshot.es):
        return False
    outcomes = snapshot.es.status.outcomes
    was_disabled = bool(outcomes) and all(each.reason == FEATURE_DISABLED for each in outcomes)
    # After generated values were written, only their former target is left to remove: that needs no new ones.
    left = bool(outcomes) and all(each.step == Step.REMOVE_FORMER.code for each in outcomes)
    return not was_disabled and not (left and snapshot.generated is not None)


def repairs_drift(snapshot: Snapshot) -> bool:
    """Return whether the only work is to revert a change of the target."""
    return isinstance(refresh_due(snapshot), NotDue) and not _is_valid(snapshot)


CHECKS: Final[tuple[Check, ...]] = (
    cluster_stores_disabled,
    other_controller,
    feature_disabled,
    broken_rules,
    target_taken,
    still_fresh,
)


def _is_valid(snapshot: Snapshot) -> bool:
    """Return whether the target needs no write.

    Under Orphan it may be missing or changed until the next refresh; under None there is no target.
    """
    policy = snapshot.es.spec.target.creation_policy
    if policy in (ORPHAN, NONE):
        return True
    # Merge does not create a target. Once SecretMissing is reported, a missing target does not cause another read. A
    # target that exists by then was created by another writer, and our keys were never merged into it.
    ready = find_condition(snapshot.es.status.conditions, READY)
    reported_missing = (
        policy == MERGE and ready is not None and ready.reason.endswith(MISSING) and not snapshot.unreported
    )
    match snapshot.target:
        case Absent():
            return reported_missing
        case Present(valid=valid):
            return valid and not reported_missing


def _is_still_ours(snapshot: Snapshot) -> bool:
    """Return whether we still own the target. Another owner may have changed both data and hash."""
    if snapshot.es.spec.target.creation_policy != OWNER or not isinstance(snapshot.target, Present):
        return True
    return is_controlled_by(snapshot.target.metadata, snapshot.es.metadata.uid)


# --- is a refresh due -------------------------------------------------------------------------------------------------


def refresh_due(snapshot: Snapshot) -> Due | NotDue:
    """Return whether the backend must be read now.

        CreatedOnce    until it has synced once
        OnChange       and again when the object, or a ConfigMap or Secret with its templates, changes
        Periodic       and again after every interval, before values expire, or after a notification; in its windows

    An object that is not due waits for an exact timer or for a change; nothing polls. Values are not stored, so a
    changed template is rendered after a read of the backend: it counts as a change of the object. An object in a loop
    (`loops.py`) waits longer.
    """
    es, last = snapshot.es, snapshot.last
    if not last.version or last.at is None:
        return Due("it never synced")
    match es.spec.refresh_policy:
        case "CreatedOnce":
            return NotDue("it is created once", None)
        case "OnChange":
            return _changed(snapshot) or NotDue("it did not change", None)
        case _:
            return _periodic(snapshot, last.at)


def _changed(snapshot: Snapshot) -> Due | None:
    if snapshot.last.version != current_version(snapshot.es):
        return Due("it changed")
    return Due("a template changed") if snapshot.new_templates else None


def _periodic(snapshot: Snapshot, at: datetime) -> Due | NotDue:
    es, now, interval = snapshot.es, snapshot.now, interval_of(snapshot.es)
    if interval <= 0:
        return NotDue("an interval of 0 reads once", None)
    if (changed := _changed(snapshot)) is not None:
        return changed
    if at > now:
        return Due("its last refresh lies in the future")
    due = at + timedelta(seconds=interval * snapshot.interval_factor)
    if snapshot.last.renew_at is not None:
        due = min(due, snapshot.last.renew_at)
    if (
        snapshot.restart_slot is not None and snapshot.restart_slot - now <= _LONGEST_SLOT
    ):  # else the clock was set back
        due = max(due, snapshot.restart_slot)
    if snapshot.notified_at is not None:
        due = now
    if snapshot.held_until is not None and snapshot.held_until - now <= _LONGEST_SLOT:
        due = max(due, snapshot.held_until)
    if due > now:
        return NotDue("it is fresh", (due - now).total_seconds())
    if not may_refresh(es.spec.sync_windows, now):
        opens = next_change(es.spec.sync_windows, now)
        return NotDue("its sync windows are closed", (opens - now).total_seconds() if opens is not None else None)
    return Due("its interval has passed" if snapshot.notified_at is None else "its backend changed")
