"""Checks that can stop a reconcile before it reads a backend: pure, named, in order.

Each assumes that those before it had no objection. `still_fresh` is last: it is the only one that ends in peace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from eso_operator.externalsecret.outcome import Ignored, Outcome, Skipped, Stalled
from eso_operator.externalsecret.refresh import NotDue, refresh_due
from eso_operator.externalsecret.snapshot import Snapshot
from eso_operator.targets.marks import ORPHAN
from eso_operator.targets.target import Absent, Present

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


def still_fresh(snapshot: Snapshot) -> Outcome | None:
    """Not due, and the target is as we left it."""
    due = refresh_due(snapshot.es, snapshot.last, snapshot.now)
    if isinstance(due, NotDue) and _is_valid(snapshot):
        return Skipped(due.why, due.after)
    return None


CHECKS: Final[tuple[Check, ...]] = (cluster_stores_disabled, other_controller, generic_target_disabled, still_fresh)


def _is_valid(snapshot: Snapshot) -> bool:
    """Under Orphan a target may be missing or changed until the next refresh; under None there is nothing of ours."""
    policy = snapshot.es.spec.target.creation_policy
    if policy in (ORPHAN, "None"):
        return True
    match snapshot.look:
        case Absent():
            # Merge does not create, so a missing target is no reason to read the backend before it is due.
            return policy == "Merge"
        case Present(valid=valid):
            return valid
