"""When a PushSecret pushes: on its own changes, on changes of its dependencies, after every interval. Pure.

    interval 0     once for each version of the object
    otherwise      and again when a source, a template or the set of stores changes, and after every interval
    either         when another PushSecret overwrote a value and no longer pushes there

A PushSecret that is not due waits for an exact timer or for a change, without polling.

Checks that can stop a reconcile before anything is written: pure, named, in order.

`BEFORE_SOURCE` come before the source is read, `BEFORE_PUSH` after it. Each assumes that those before it had no
objection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Final

from eso_api.common import READY
from eso_api.pushsecret import PushSecret, PushSecretSpec
from eso_api.references import SelectorError
from eso_api.validation import data_to_store_problems, push_secret_problems
from eso_operator.controllers.outcomes import Ignored, Step
from eso_operator.controllers.pushsecret.record import LastPush
from eso_operator.controllers.pushsecret.snapshot import (
    SOURCE_DELETED,
    Chosen,
    NoChoice,
    PushSnapshot,
    broken_selector,
    changed,
    interval_of,
    refreshed_at,
    targets_store,
)
from eso_operator.controllers.pushsecret.status import Failed, Outcome
from eso_operator.controllers.refresh import Due, NotDue, moment
from eso_operator.sources.fetch import Failure
from eso_wire.errors import RetryClass
from kuberun.status import ConditionStatus, find_condition


def wrong_data_to(spec: PushSecretSpec) -> NoChoice | None:
    """Return the first dataTo whose storeRef cannot match any of `secretStoreRefs`."""
    wrong = next(iter(data_to_store_problems(spec)), None)
    return None if wrong is None else NoChoice(wrong.path, "InvalidSpec", wrong.message)


def idle_data_to(spec: PushSecretSpec, stores: Iterable[Chosen]) -> NoChoice | None:
    """Return the first dataTo that selects stores by label and matches none."""
    known = tuple(stores)
    for index, rule in enumerate(spec.data_to):
        path, ref = f"spec.dataTo[{index}].storeRef", rule.store_ref
        if ref is None or ref.name or ref.label_selector is None:
            continue
        try:
            ref.label_selector.check()
        except SelectorError as error:
            return broken_selector(path, error)
        if any(targets_store(ref, store) for store in known):
            continue
        return NoChoice(path, "StoreNotFound", f"its labelSelector matches no {ref.kind} of spec.secretStoreRefs")
    return None


def refresh_due(snapshot: PushSnapshot) -> Due | NotDue:
    """Return why a push is due, or when it will be."""
    push = snapshot.push
    if changed(push):
        return Due("it changed")
    if snapshot.unrecorded:
        return Due("what it pushed is not on record")
    ready = find_condition(push.status.conditions, READY)
    if ready is not None and ready.status == ConditionStatus.FALSE:
        if ready.reason != SOURCE_DELETED:
            return Due("its last push failed")
        return Due("its source is back") if snapshot.sources else NotDue("its source is deleted", None)
    if snapshot.freed:
        return Due("a value that another PushSecret overwrote is free again")
    if interval_of(push) <= 0:
        return NotDue("an interval of 0 pushes once", None)
    if (why := _difference(snapshot)) is not None:
        return Due(why)
    return _by_time(snapshot)


def last_at(push: PushSecret, remembered: LastPush | None) -> datetime | None:
    """Return the later of the remembered and the recorded time."""
    times = [at for at in (refreshed_at(push), remembered.at if remembered else None) if at is not None]
    return max(times, default=None)


def _difference(snapshot: PushSnapshot) -> str | None:
    """Return the first known difference since the last push."""
    push, remembered = snapshot.push, snapshot.remembered
    source = push.spec.selector.secret
    # A selector that matches nothing is not an error, so it counts only if something was pushed.
    if source is not None and not snapshot.sources and (source.name or push.status.synced_push_secrets):
        return "its source is gone"
    if remembered is None:
        written = refreshed_at(push)
        born = [seen.created_at for seen in snapshot.sources if seen.created_at is not None]
        return "its source is a new one" if written and any(at > written for at in born) else None
    if source is not None and snapshot.source_marks != remembered.sources:
        return "its source changed"
    if snapshot.new_templates:
        return "a template changed"
    return "its stores changed" if snapshot.store_marks != remembered.stores else None


def _by_time(snapshot: PushSnapshot) -> Due | NotDue:
    at, now = last_at(snapshot.push, snapshot.remembered), snapshot.now
    if at is None:
        return Due("it never pushed")
    if at > now:
        return Due("its last push lies in the future")
    due = at + timedelta(seconds=interval_of(snapshot.push))
    if (renew_at := _renew_at(snapshot)) is not None:
        due = min(due, renew_at)
    if due > now:
        return NotDue("it is fresh", (due - now).total_seconds())
    return Due("its interval has passed")


def _renew_at(snapshot: PushSnapshot) -> datetime | None:
    """Return the time at which generated values must be renewed: remembered, or recorded by an earlier process."""
    if snapshot.remembered is not None:
        return snapshot.remembered.renew_at
    return moment(snapshot.push.status.renew_time)


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
