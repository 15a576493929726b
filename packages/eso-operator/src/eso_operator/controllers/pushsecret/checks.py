"""Checks that can stop a reconcile before anything is written: pure, named, in order.

    before the source is read   still_fresh, data_to_unlisted_store, broken_rules
    before anything is pushed   stores_unknown, no_store_of_ours, data_to_without_store

Each check assumes that the checks before it did not stop. When a push is due:

    interval 0     once for each version of the object
    otherwise      and again when a source, a template or the set of stores changes, and after every interval
    either         when another PushSecret overwrote a value and no longer pushes there

A PushSecret that is not due waits for an exact timer or for a change, without polling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Final

from eso_api.common import READY
from eso_api.pushsecret import PushSecretSpec
from eso_api.references import SelectorError
from eso_api.validation import data_to_store_problems, push_secret_problems
from eso_operator.controllers.outcomes import Ignored, Step
from eso_operator.controllers.pushsecret.snapshot import (
    SOURCE_DELETED,
    PushSnapshot,
    PushStore,
    broken_selector,
    changed,
    refreshed_at,
    targets_store,
)
from eso_operator.controllers.pushsecret.status import PushFailed, PushOutcome
from eso_operator.controllers.refresh import Due, NotDue, interval_of, moment
from eso_operator.sources.fetch import Failure
from eso_wire.errors import RetryClass
from kuberun.status import ConditionStatus, find_condition

Check = Callable[[PushSnapshot], PushOutcome | None]


def first_stop(snapshot: PushSnapshot, checks: Iterable[Check]) -> PushOutcome | None:
    """Return the outcome of the first check that stops this reconcile; None to go on."""
    return next((stop for check in checks if (stop := check(snapshot)) is not None), None)


def still_fresh(snapshot: PushSnapshot) -> PushOutcome | None:
    """Stop if nothing changed and the next push is not due."""
    due = refresh_due(snapshot)
    return due if isinstance(due, NotDue) else None


def data_to_unlisted_store(snapshot: PushSnapshot) -> PushOutcome | None:
    """Stop if a dataTo names a store that is not one of the target stores."""
    wrong = next(iter(data_to_store_problems(snapshot.push.spec)), None)
    return None if wrong is None else _refused(Failure(wrong.path, "InvalidSpec", wrong.message))


def broken_rules(snapshot: PushSnapshot) -> PushOutcome | None:
    """Stop if the spec breaks a rule of our CRD: an API server with an older CRD stores it."""
    problems = push_secret_problems(snapshot.push.spec)
    failures = (Failure(each.path, "InvalidSpec", each.message, retry=RetryClass.NEVER) for each in problems)
    return PushFailed(Step.VALIDATE_PUSH, tuple(failures)) if problems else None


def stores_unknown(snapshot: PushSnapshot) -> PushOutcome | None:
    """Stop if a named store does not exist, or a selector is invalid."""
    return _refused(snapshot.stores) if isinstance(snapshot.stores, Failure) else None


def no_store_of_ours(snapshot: PushSnapshot) -> PushOutcome | None:
    """Stop if all stores belong to other operators or are being deleted."""
    return Ignored("no store of it is ours to push to") if not snapshot.stores else None


def data_to_without_store(snapshot: PushSnapshot) -> PushOutcome | None:
    """Stop if a dataTo selects stores by label and matches none of the target stores."""
    if isinstance(snapshot.stores, Failure):
        return None
    problem = unmatched_data_to(snapshot.push.spec, snapshot.stores)
    return _refused(problem) if problem is not None else None


BEFORE_SOURCE: Final[tuple[Check, ...]] = (still_fresh, data_to_unlisted_store, broken_rules)
BEFORE_PUSH: Final[tuple[Check, ...]] = (stores_unknown, no_store_of_ours, data_to_without_store)


def unmatched_data_to(spec: PushSecretSpec, stores: Iterable[PushStore]) -> Failure | None:
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
        if not any(targets_store(ref, store) for store in known):
            return Failure(path, "StoreNotFound", f"its labelSelector matches no {ref.kind} of spec.secretStoreRefs")
    return None


def _refused(problem: Failure) -> PushFailed:
    return PushFailed(Step.PUSH, (problem,))


# --- is a push due ----------------------------------------------------------------------------------------------------


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


def _difference(snapshot: PushSnapshot) -> str | None:
    """Return the first known difference since the last push."""
    push, remembered = snapshot.push, snapshot.remembered
    source = push.spec.selector.secret
    # A selector that matches nothing is not an error, so it counts only if something was pushed.
    if source is not None and not snapshot.sources and (source.name or push.status.synced_push_secrets):
        return "its source is gone"
    if remembered is None:
        written = refreshed_at(push)
        created = [each.created_at for each in snapshot.sources if each.created_at is not None]
        return "its source is a new one" if written and any(at > written for at in created) else None
    if source is not None and snapshot.source_marks != remembered.sources:
        return "its source changed"
    if snapshot.new_templates:
        return "a template changed"
    return "its stores changed" if snapshot.store_marks != remembered.stores else None


def _by_time(snapshot: PushSnapshot) -> Due | NotDue:
    now, remembered = snapshot.now, snapshot.remembered
    times = [refreshed_at(snapshot.push), remembered.at if remembered is not None else None]
    at = max((each for each in times if each is not None), default=None)
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
    """Return when generated values must be renewed: as remembered, or as recorded by an earlier process."""
    if snapshot.remembered is not None:
        return snapshot.remembered.renew_at
    return moment(snapshot.push.status.renew_time)
