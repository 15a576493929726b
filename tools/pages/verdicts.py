"""The conditions and events of each kind, found by running: every outcome goes through the controller's own table.

A new outcome that is not tried here is an error, so that the page cannot fall behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import UnionType
from typing import Any, Final, get_args

import msgspec

from eso_api.common import StoreStatus
from eso_api.v2.policy import ProviderStatus
from eso_api.v2.providerclass import ProviderClassSpec, ProviderClassStatus, ServedKind
from eso_operator.controllers.contention import DIFFERENT_VALUES, FEEDS_ITSELF, Contended
from eso_operator.controllers.externalsecret import status as of_external_secret
from eso_operator.controllers.fanout import status as of_fan_out
from eso_operator.controllers.fanout.kinds import CLUSTER_EXTERNAL_SECRETS, CLUSTER_PUSH_SECRETS, FanOut, Parent
from eso_operator.controllers.fanout.snapshot import Gaps
from eso_operator.controllers.fanout.status import Unready
from eso_operator.controllers.malformed import MALFORMED
from eso_operator.controllers.outcomes import DELETED, MISSING, SYNCED, Conflicted, Ignored, Step
from eso_operator.controllers.providerclass import status as of_class
from eso_operator.controllers.pushsecret import status as of_push_secret
from eso_operator.controllers.pushsecret.ownership import ValueConflict
from eso_operator.controllers.pushsecret.record import RemoteKey
from eso_operator.controllers.refresh import NotDue
from eso_operator.controllers.secretstore import status as of_store
from eso_operator.controllers.secretstore import status as verdict
from eso_operator.controllers.secretstore.kinds import STORE_KINDS, Generation
from eso_operator.sources.fetch import Failure
from eso_operator.stores.resolved import Reason
from eso_operator.targets.target import WriteKind
from eso_testkit.operator.clusters import serving
from eso_testkit.operator.externalsecrets import external_secret, snapshot
from eso_testkit.operator.pushsecrets import push_secret
from eso_wire.values import ConditionReport, KindId
from kubebase.meta import ObjectKey, ObjectMeta
from kubebase.testing.clock import START
from kuberun.events import EventType
from pages.causes import literals
from pages.markdown import DocsError

_REASONS: Final = (SYNCED, DELETED, MISSING)
CAUSE: Final = "CAUSE"
"""Stands for any of the causes."""
_STARTING: Final = Failure("path", Reason.STARTING.value, "message", waits=1.0)


@dataclass(frozen=True, slots=True)
class Facts:
    """Conditions as `Type Status Reason`; events by reason, with their type."""

    conditions: frozenset[str]
    events: Mapping[str, str]


def facts() -> dict[str, Facts]:
    """Return the facts by kind, as named in the page. An object of any kind may not fit its type."""
    found = {
        "ExternalSecret": _external_secret(),
        "PushSecret": _push_secret(),
        "ClusterExternalSecret and ClusterPushSecret": _fan_out(),
        "SecretStore and ClusterSecretStore, v1": _stores(Generation.V1),
        "Stores, Providers and Generators, v2alpha1": _stores(Generation.V2),
        "ProviderClass and ClusterProviderClass": _classes(),
        "GeneratorState": _generator_state(),
    }
    malformed = {MALFORMED: EventType.WARNING.value}
    return {kind: replace(known, events={**known.events, **malformed}) for kind, known in found.items()}


def _external_secret() -> Facts:
    outcomes: list[of_external_secret.Outcome] = [
        *(of_external_secret.Synced(reason=reason) for reason in _REASONS),
        of_external_secret.Synced(remarks=("why",)),
        of_external_secret.Waiting((_STARTING,)),
        of_external_secret.Failed(Step.WRITE),
        of_external_secret.Stalled(Step.WRITE),
        *(left(CAUSE) for left in (Conflicted, of_external_secret.TargetUnread, Ignored)),
        NotDue(CAUSE, None),
        of_external_secret.Intact(),
    ]
    _complete(of_external_secret.Outcome, outcomes)
    manifest = {"manifest": {"apiVersion": "v1", "kind": "ConfigMap"}}
    targets = [snapshot(external_secret()), snapshot(external_secret(target=manifest))]
    loops = [Contended(reason, "why") for reason in (DIFFERENT_VALUES, FEEDS_ITSELF)]
    found = _said(
        of_external_secret.report_of(target, outcome, loop)
        for target in targets
        for outcome in outcomes
        for loop in loops
    )
    written = [done.name.title() for done in WriteKind]
    noted = [*literals("controllers/externalsecret", "Event"), *written]
    return replace(found, events=dict.fromkeys(noted, EventType.NORMAL.value) | dict(found.events))


def _push_secret() -> Facts:
    outcomes: list[of_push_secret.PushOutcome] = [
        of_push_secret.Pushed(events=of_push_secret.orphaned(["one"])),
        of_push_secret.Pushed(events=of_push_secret.left_alone(["one"])),
        of_push_secret.Pushed(existing=("store: key",)),
        of_push_secret.SourceDeleted(),
        NotDue(CAUSE, None),
        of_push_secret.PushFailed(Step.PUSH, (Failure("path", CAUSE, "message"),)),
        of_push_secret.PushFailed(Step.PUSH, (_STARTING,)),
        Conflicted(CAUSE),
        Ignored(CAUSE),
    ]
    _complete(of_push_secret.PushOutcome, outcomes)
    push = push_secret()
    conflicts = [
        (ValueConflict(RemoteKey("store", "key", ""), (ObjectKey(namespace, "other"),)),)
        for namespace in (push.metadata.namespace, "elsewhere")
    ]
    reports = [
        of_push_secret.report_of(push, outcome, START, conflicts=each) for outcome in outcomes for each in conflicts
    ]
    looping = of_push_secret.report_of(push, outcomes[0], START, fed_by=(ObjectKey(push.metadata.namespace, "reader"),))
    return _said([*reports, looping])


def _fan_out() -> Facts:
    results = (of_fan_out.ChildBlocked("red", "why"), of_fan_out.ChildFailed("blue", "why"))
    fine = of_fan_out.Spread("name", (of_fan_out.ChildPresent("green"), of_fan_out.ChildGone()))
    _complete(of_fan_out.ChildResult, [*results, *fine.results])
    lacking = (Gaps(names=("grey",)), Gaps(selectors=("field",)), Gaps(nothing_chosen=True))
    came: tuple[of_fan_out.Spread | of_fan_out.Unreadable, ...] = (
        fine,
        replace(fine, unready=(Unready("green", "why"),)),
        *(replace(fine, gaps=gaps) for gaps in lacking),
        of_fan_out.Spread("name", results),
        of_fan_out.Unreadable("why"),
    )
    parents = ((CLUSTER_EXTERNAL_SECRETS, "externalSecretSpec"), (CLUSTER_PUSH_SECRETS, "pushSecretSpec"))
    return _said(
        of_fan_out.report_of(fan_out, _parent(fan_out, spec), each, START) for fan_out, spec in parents for each in came
    )


def _parent(fan_out: FanOut, spec: str) -> Parent:
    parent: Parent = msgspec.convert({"metadata": {"name": "any"}, "spec": {spec: {}}}, fan_out.parent.type)
    return parent


def _stores(generation: Generation) -> Facts:
    own = (ConditionReport(type="NAME", status="True", reason="REASON", message=""),)
    fine = verdict.ProviderFacts(frozenset(), conditions=own, warnings=("one",))
    verdicts: list[verdict.Verdict] = [
        *(verdict.Valid(replace(fine, maintenance=state)) for state in ("unmaintained", "deprecated")),
        verdict.PerCaller(fine, ""),
        verdict.Unverified(fine, ""),
        verdict.Broken(CAUSE, ""),
        verdict.Throttled("", 1.0),
        verdict.Starting(Reason.STARTING.value, "", 1.0),
    ]
    _complete(verdict.Verdict, verdicts)
    kind = next(kind for kind in STORE_KINDS if kind.generation is generation)
    status = StoreStatus() if generation is Generation.V1 else ProviderStatus()
    before = of_store.Before(kind, ObjectMeta(name="any"), status, 300.0, START)
    deaf = of_store.report_of(replace(before, stream_trouble="why", unanchored=("any",)), verdicts[0])
    restored = of_store.report_of(replace(before, status=deaf.status), verdicts[0])
    return _said((*(of_store.report_of(before, each) for each in verdicts), deaf, restored))


def _classes() -> Facts:
    kind = KindId("example.com", "v1", "Any")
    answered = of_class.Connected(serving(kind))
    spec = ProviderClassSpec(address="grpc://any.any.svc:8080")
    more = msgspec.structs.replace(spec, serves=[ServedKind(group="example.com", version="v1", kind="Other")])
    unanswered = of_class.NotConnected(CAUSE, "")
    tried: list[tuple[ProviderClassSpec, of_class.CheckResult]] = [
        (spec, answered),
        (more, answered),
        (spec, unanswered),
    ]
    tried.append((spec, replace(unanswered, starts_within=1.0)))
    _complete(of_class.CheckResult, [result for _, result in tried])
    status = ProviderClassStatus()
    return _said(of_class.report_of(wanted, status, came, now=START, interval=1.0) for wanted, came in tried)


def _generator_state() -> Facts:
    """Return the events of a GeneratorState. It has no conditions, because only the operator reads it."""
    warning = EventType.WARNING.value
    return Facts(frozenset(), dict.fromkeys(literals("controllers/generatorstate", "Event"), warning))


def _complete(union: UnionType, tried: Iterable[object]) -> None:
    if missing := set(get_args(union)) - {type(each) for each in tried}:
        names = ", ".join(sorted(f"{each.__module__}.{each.__name__}" for each in missing))
        raise DocsError(f"pages/verdicts.py does not try {names}")


def _said(reports: Iterable[Any]) -> Facts:
    conditions: set[str] = set()
    events: dict[str, str] = {}
    for report in reports:
        for condition in report.status.conditions:
            conditions.add(f"{condition.type} {condition.status} {condition.reason}")
        events |= {events.reason: events.type.value for events in report.events}
    return Facts(frozenset(conditions), events)
