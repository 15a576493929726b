"""Checks that can stop a reconcile before anything is written: pure, named, in order.

`BEFORE_SOURCE` come before the source is read, `BEFORE_PUSH` after it. Each assumes that those before it had no
objection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from eso_operator.pushsecret.outcome import Failed, Ignored, Outcome
from eso_operator.pushsecret.refresh import refresh_due
from eso_operator.pushsecret.snapshot import NoChoice, Snapshot
from eso_operator.pushsecret.stores import idle_data_to, wrong_data_to
from eso_operator.sync.due import NotDue
from eso_operator.sync.fetch import Failure

Check = Callable[[Snapshot], Outcome | None]

NOT_PUSHED: Final = "could not set secret"


def first_stop(snapshot: Snapshot, checks: Iterable[Check]) -> Outcome | None:
    """What ends this reconcile here; None to go on."""
    return next((stop for check in checks if (stop := check(snapshot)) is not None), None)


def still_fresh(snapshot: Snapshot) -> Outcome | None:
    """Nothing changed, and it is not time yet."""
    due = refresh_due(snapshot)
    return due if isinstance(due, NotDue) else None


def data_to_elsewhere(snapshot: Snapshot) -> Outcome | None:
    """A dataTo names a store that is not among those pushed to."""
    wrong = wrong_data_to(snapshot.push.spec)
    return refused(wrong) if wrong is not None else None


def stores_unknown(snapshot: Snapshot) -> Outcome | None:
    """A store that is named does not exist, or a selector cannot be read."""
    return refused(snapshot.stores) if isinstance(snapshot.stores, NoChoice) else None


def nothing_to_push_to(snapshot: Snapshot) -> Outcome | None:
    """All stores belong to other operators or are being deleted."""
    return Ignored("no store of it is ours to push to") if not snapshot.stores else None


def data_to_idle(snapshot: Snapshot) -> Outcome | None:
    """A dataTo selects stores by label, and there are none among those pushed to."""
    if isinstance(snapshot.stores, NoChoice):
        return None
    idle = idle_data_to(snapshot.push.spec, snapshot.stores)
    return refused(idle) if idle is not None else None


BEFORE_SOURCE: Final[tuple[Check, ...]] = (still_fresh, data_to_elsewhere)
BEFORE_PUSH: Final[tuple[Check, ...]] = (stores_unknown, nothing_to_push_to, data_to_idle)


def refused(problem: NoChoice) -> Failed:
    return Failed(NOT_PUSHED, (Failure(problem.path, problem.reason, problem.message),))
