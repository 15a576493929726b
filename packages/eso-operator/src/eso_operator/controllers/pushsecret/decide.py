"""Checks that can stop a reconcile before anything is written: pure, named, in order.

`BEFORE_SOURCE` come before the source is read, `BEFORE_PUSH` after it. Each assumes that those before it had no
objection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from eso_api.validation.pushsecret import push_secret_problems
from eso_operator.controllers.due import NotDue
from eso_operator.controllers.pushsecret.outcome import Failed, Ignored, Outcome
from eso_operator.controllers.pushsecret.refresh import refresh_due
from eso_operator.controllers.pushsecret.snapshot import NoChoice, PushSnapshot
from eso_operator.controllers.pushsecret.stores import idle_data_to, wrong_data_to
from eso_operator.report.steps import Step
from eso_operator.sources.results import Failure
from eso_wire.errors import RetryClass

Check = Callable[[PushSnapshot], Outcome | None]


def first_stop(snapshot: PushSnapshot, checks: Iterable[Check]) -> Outcome | None:
    """Return the first outcome that stops this reconcile; None to go on."""
    return next((stop for check in checks if (stop := check(snapshot)) is not None), None)


def still_fresh(snapshot: PushSnapshot) -> Outcome | None:
    """Stop if nothing changed and the next push is not due."""
    due = refresh_due(snapshot)
    return due if isinstance(due, NotDue) else None


def data_to_elsewhere(snapshot: PushSnapshot) -> Outcome | None:
    """Stop if a dataTo names a store that is not one of the target stores."""
    wrong = wrong_data_to(snapshot.push.spec)
    return refused(wrong) if wrong is not None else None


def broken_rules(snapshot: PushSnapshot) -> Outcome | None:
    """Refuse a spec that our CRD rejects: an API server with an older CRD stores it."""
    problems = push_secret_problems(snapshot.push.spec)
    if not problems:
        return None
    return Failed(
        Step.VALIDATE_PUSH,
        tuple(Failure(each.path, "InvalidSpec", each.message, retry=RetryClass.NEVER) for each in problems),
    )


def stores_unknown(snapshot: PushSnapshot) -> Outcome | None:
    """Stop if a named store does not exist, or a selector is invalid."""
    return refused(snapshot.stores) if isinstance(snapshot.stores, NoChoice) else None


def nothing_to_push_to(snapshot: PushSnapshot) -> Outcome | None:
    """Stop if all stores belong to other operators or are being deleted."""
    return Ignored("no store of it is ours to push to") if not snapshot.stores else None


def data_to_idle(snapshot: PushSnapshot) -> Outcome | None:
    """Stop if a dataTo selects stores by label and matches none of the target stores."""
    if isinstance(snapshot.stores, NoChoice):
        return None
    idle = idle_data_to(snapshot.push.spec, snapshot.stores)
    return refused(idle) if idle is not None else None


BEFORE_SOURCE: Final[tuple[Check, ...]] = (still_fresh, data_to_elsewhere, broken_rules)
BEFORE_PUSH: Final[tuple[Check, ...]] = (stores_unknown, nothing_to_push_to, data_to_idle)


def refused(problem: NoChoice) -> Failed:
    return Failed(Step.PUSH, (Failure(problem.path, problem.reason, problem.message),))
