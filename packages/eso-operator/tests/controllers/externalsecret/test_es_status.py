"""The report of each outcome: condition, events, requeue, status. One table."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from eso_api.externalsecret import Binding, MadeManifest, SourceNames
from eso_operator.controllers.base import Report
from eso_operator.controllers.externalsecret.status import (
    TEMPLATE_ERROR,
    Failed,
    Intact,
    Outcome,
    Stalled,
    Synced,
    TargetUnread,
    Waiting,
    refused_target,
    report_of,
)
from eso_operator.controllers.outcomes import DELETED, MISSING, Conflicted, Ignored, Step
from eso_operator.controllers.refresh import FLUSH_SECONDS, LastSync, NotDue, current_version
from eso_operator.sources.fetch import Failure
from eso_operator.targets.target import Refusal, RefuseTarget
from eso_testkit.operator.externalsecrets import external_secret, intact, snapshot, synced
from eso_wire.errors import RetryClass
from kubebase.clock import rfc3339
from kubebase.meta import Condition, OwnerReference
from kubebase.testing.clock import START
from kuberun.controller import Backoff, Done, Requeue
from kuberun.workqueue import Lane

LATER = START + timedelta(hours=2)
MANIFEST = {"target": {"manifest": {"apiVersion": "v1", "kind": "ConfigMap"}}}
UPDATE = "could not update secret"
READY = Condition(type="Ready", status="True", reason="SecretSynced", message="secret synced")


def failure(path: str = "spec.data[0]", **fields: Any) -> Failure:
    return Failure(**{"path": path, "reason": "SecretNotFound", "message": f"{path} is not there", **fields})


def ready(report: Report) -> tuple[str, str, str]:
    [condition] = report.status.conditions
    return condition.status, condition.reason, condition.message


@pytest.mark.parametrize(
    ("spec", "outcome", "expected"),
    [
        pytest.param({}, Synced(), ("True", "SecretSynced", "secret synced"), id="synced"),
        pytest.param({}, Synced("gone", DELETED), ("True", "SecretDeleted", "gone"), id="deleted"),
        pytest.param({}, Synced("waits", MISSING), ("True", "SecretMissing", "waits"), id="missing"),
        pytest.param(
            {},
            Failed(Step.WRITE, "why"),
            ("False", "SecretSyncedError", "could not update secret: why"),
            id="failed",
        ),
        pytest.param(
            {},
            Stalled(Step.DELETE, "why"),
            ("False", "SecretSyncedError", "could not delete secret: why"),
            id="stalled",
        ),
        pytest.param(
            {}, Stalled(Step.WRITE), ("False", "SecretSyncedError", "could not update secret"), id="without a detail"
        ),
        pytest.param(
            {},
            refused_target(RefuseTarget(Refusal.CONTROLLED, "Deployment web")),
            ("False", "SecretSyncedError", "failed to take ownership of target secret: Deployment web"),
            id="refused",
        ),
        pytest.param(MANIFEST, Synced(), ("True", "ResourceSynced", "secret synced"), id="manifest synced"),
        pytest.param(MANIFEST, Synced("x", DELETED), ("True", "ResourceDeleted", "x"), id="manifest deleted"),
        pytest.param(MANIFEST, Synced("x", MISSING), ("True", "ResourceMissing", "x"), id="manifest missing"),
        pytest.param(
            MANIFEST,
            Failed(Step.RENDER, "y"),
            ("False", "ResourceSyncedError", "could not apply template to manifest: y"),
            id="manifest failed",
        ),
        pytest.param(
            MANIFEST,
            Stalled(Step.ALLOW_TARGET, "y"),
            ("False", "SecretSyncedError", "invalid generic target: y"),
            id="a manifest that is not allowed",
        ),
    ],
)
def test_conditions(spec: dict[str, Any], outcome: Outcome, expected: tuple[str, str, str]) -> None:
    assert ready(report_of(snapshot(external_secret(**spec)), outcome)) == expected


# --- a provider that starts -------------------------------------------------------------------------------------------

STARTING = Waiting(
    tuple(
        failure(f"spec.data[{index}]", reason="ProviderStarting", message="provider fake is starting", waits=waits)
        for index, waits in enumerate((40.0, 30.0))
    )
)


def test_a_new_object_says_once_and_without_an_event_that_its_provider_starts() -> None:
    es = external_secret()

    first = report_of(snapshot(es), STARTING)
    es.status = first.status
    again = report_of(snapshot(es, now=LATER), STARTING)

    assert ready(first) == ("Unknown", "SecretSyncedError", "waiting: ProviderStarting: provider fake is starting")
    assert [each.reason for each in first.status.outcomes] == ["ProviderStarting", "ProviderStarting"]
    assert first.events == again.events == ()
    assert not first.failed
    assert isinstance(first.result, Requeue)
    assert first.result.delay == 30.0
    assert again.status is es.status
    assert again.log is None


@pytest.mark.parametrize("status", ["True", "False"])
def test_an_object_whose_provider_starts_stays_as_it_was(status: str) -> None:
    es = external_secret()
    before = Condition(type="Ready", status=status, reason="SecretSynced", message="as it was")
    es.status = msgspec.structs.replace(es.status, conditions=[before])

    report = report_of(snapshot(es), STARTING)

    assert report.status is es.status
    assert (report.events, report.failed, report.log) == ((), False, None)


def test_an_object_whose_provider_did_not_start_in_time_fails_with_the_reason() -> None:
    es = external_secret()
    es.status = report_of(snapshot(es), STARTING).status

    report = report_of(snapshot(es), Failed(Step.FETCH, failures=(failure(reason="Refused"),)))

    assert ready(report)[:2] == ("False", "SecretSyncedError")
    assert "Refused" in ready(report)[2]
    assert [events.reason for events in report.events] == ["UpdateFailed"]


@pytest.mark.parametrize(
    ("spec", "outcome", "expected"),
    [
        pytest.param({}, Synced(binding="new"), Binding(name="new"), id="the Secret that was written"),
        pytest.param({}, Synced(), Binding(name="old"), id="one that was retained"),
        pytest.param(MANIFEST, Synced(), None, id="none, where another kind is written instead"),
    ],
)
def test_workloads_find_the_secret_that_is_kept_up_to_date(
    spec: dict[str, Any], outcome: Synced, expected: Binding | None
) -> None:
    es = synced(external_secret(**spec), binding=Binding(name="old"))

    assert report_of(snapshot(es, LATER), outcome).status.binding == expected


def test_an_intact_target_is_ready_and_keeps_its_refresh_time() -> None:
    broken = Condition(type="Ready", status="False", reason="SecretSyncedError", message="")
    es = synced(external_secret(refreshInterval=0), conditions=[broken])

    report = report_of(snapshot(es, LATER), Intact())

    assert ready(report) == ("True", "SecretSynced", "secret synced")
    assert report.status.refresh_time == es.status.refresh_time
    assert report.status.synced_resource_version == es.status.synced_resource_version
    assert (report.result, report.events, report.failed) == (Done(), (), False)


@pytest.mark.parametrize(
    ("spec", "owner", "expected"),
    [
        pytest.param({}, "uid-db", Binding(name="db"), id="its own Secret"),
        pytest.param({}, "uid-other", Binding(name="old"), id="not its own"),
        pytest.param(MANIFEST, "uid-db", None, id="no Secret"),
    ],
)
def test_an_intact_target_is_recorded_as_the_object_that_exists(
    spec: dict[str, Any], owner: str, expected: Binding | None
) -> None:
    made = MadeManifest(api_version="v1", kind="ConfigMap", name="old")
    es = synced(external_secret(**spec), binding=Binding(name="old"), conditions=[READY], manifests=[made])
    reference = OwnerReference(api_version="v1", kind="ExternalSecret", name="db", uid=owner, controller=True)
    reconciled = snapshot(es, LATER, target=intact(owner_references=[reference]))

    report = report_of(reconciled, Intact(5.0, manifests=()))

    assert (report.status.binding, report.status.manifests) == (expected, [])
    assert report.result == Requeue(5.0, "a refresh is due", Lane.REFRESH)


@pytest.mark.parametrize(
    ("manifests", "flush"), [(None, False), ((), True)], ids=["what was on record", "nothing on record any more"]
)
def test_a_removed_target_leaves_the_record_at_once(manifests: tuple[MadeManifest, ...] | None, flush: bool) -> None:
    made = MadeManifest(api_version="v1", kind="ConfigMap", name="old")
    es = synced(external_secret(), manifests=[made], conditions=[READY])

    report = report_of(snapshot(es), Synced(manifests=manifests))

    assert report.flush is flush
    assert report.status.manifests == ([] if flush else [made])


@pytest.mark.parametrize(
    "outcome", [NotDue("fresh", 5), Conflicted("x"), TargetUnread("x"), Ignored("x")], ids=lambda o: type(o).__name__
)
def test_outcomes_that_say_nothing_leave_the_status_alone(outcome: Outcome) -> None:
    es = synced(external_secret())

    report = report_of(snapshot(es), outcome)

    assert report.status is es.status
    assert report.events == ()


@pytest.mark.parametrize("outcome", [Synced(), Intact(), Failed(Step.WRITE), Stalled(Step.WRITE)], ids=repr)
@pytest.mark.parametrize(
    ("spec", "source", "interval"),
    [
        pytest.param({}, SourceNames(kind="SecretStore"), "1h0m0s", id="defaults"),
        pytest.param(
            {"secretStoreRef": {"name": "a", "kind": "SecretStore"}, "refreshInterval": "5m"},
            None,
            "",
            id="none needed",
        ),
    ],
)
def test_the_status_has_the_defaults_that_the_spec_leaves_out(
    spec: Any, source: SourceNames | None, interval: str, outcome: Outcome
) -> None:
    status = report_of(snapshot(external_secret(**spec)), outcome).status

    assert (status.secret_store_ref, status.refresh_interval) == (source, interval)


def test_missing_defaults_alone_cause_no_write() -> None:
    es = synced(external_secret(), conditions=[READY])

    assert not report_of(snapshot(es, START + timedelta(seconds=FLUSH_SECONDS - 1)), Synced()).flush


REFRESH = "a refresh is due"
AGAIN = "it may have been put right"


@pytest.mark.parametrize(
    ("spec", "outcome", "expected"),
    [
        pytest.param({}, Synced(), Requeue(3600, REFRESH, Lane.REFRESH), id="synced: at the interval"),
        pytest.param({"refreshInterval": "24h"}, Synced(), Requeue(86400, REFRESH, Lane.REFRESH), id="a long one"),
        pytest.param({"refreshInterval": 0}, Synced(), Done(), id="an interval of 0: never"),
        pytest.param({"refreshPolicy": "OnChange"}, Synced(), Done(), id="on change: never by time"),
        pytest.param({"refreshPolicy": "CreatedOnce"}, Synced(), Done(), id="created once: never"),
        pytest.param({}, Synced(refresh_within=60), Requeue(60, REFRESH, Lane.REFRESH), id="R24 before values expire"),
        pytest.param(
            {}, Synced(refresh_within=9999), Requeue(3600, REFRESH, Lane.REFRESH), id="not after the interval"
        ),
        pytest.param({}, NotDue("fresh", 5), Requeue(5, REFRESH, Lane.REFRESH), id="not due: when something is"),
        pytest.param({}, NotDue("once", None), Done(), id="not due: nothing ever is"),
        pytest.param({}, Failed(Step.WRITE), Backoff(UPDATE, 0, 3600), id="failed: back-off up to the interval"),
        pytest.param(
            {"refreshInterval": "24h"},
            Failed(Step.WRITE),
            Backoff(UPDATE, 0, 86400),
            id="catalogue R7 a long interval, few calls",
        ),
        pytest.param(
            {"refreshInterval": 0},
            Failed(Step.WRITE),
            Backoff(UPDATE, 0, 0),
            id="catalogue R4 an interval of 0 is retried too",
        ),
        pytest.param(
            {},
            Failed(Step.WRITE, failures=(failure(retry_after=9), failure())),
            Backoff(UPDATE, 9, 3600),
            id="not before told",
        ),
        pytest.param(
            {},
            Failed(Step.WRITE, failures=(failure(retry=RetryClass.NEVER),)),
            Requeue(3600, AGAIN, Lane.REFRESH),
            id="P24 never",
        ),
        pytest.param(
            {},
            Failed(Step.WRITE, failures=(failure(retry=RetryClass.NEVER), failure())),
            Backoff(UPDATE, 0, 3600),
            id="one that may heal is enough",
        ),
        pytest.param({}, Stalled(Step.WRITE), Requeue(3600, AGAIN, Lane.REFRESH), id="stalled: at the interval"),
        pytest.param({"refreshInterval": 0}, Stalled(Step.WRITE), Done(), id="stalled: on a change only"),
        pytest.param({}, Conflicted("x"), Backoff("x"), id="collided: soon"),
        pytest.param({}, TargetUnread("x"), Backoff("x", 0, 3600), id="unseen: back-off"),
        pytest.param({}, Ignored("x"), Done(), id="ignored: on a change"),
    ],
)
def test_the_time_of_the_next_reconcile(spec: dict[str, Any], outcome: Outcome, expected: Any) -> None:
    assert report_of(snapshot(external_secret(**spec)), outcome).result == expected


def test_a_sync_is_on_record_with_time_version_and_binding() -> None:
    es = external_secret(metadata={"generation": 3})

    status = report_of(snapshot(es, LATER), Synced(binding="db", changed=True)).status

    assert status.refresh_time == rfc3339(LATER)
    assert status.synced_resource_version == current_version(es)
    assert status.binding is not None
    assert status.binding.name == "db"


@pytest.mark.parametrize("outcome", [Failed(Step.WRITE), Stalled(Step.WRITE)], ids=["failed", "stalled"])
def test_a_failure_does_not_touch_the_last_sync(outcome: Outcome) -> None:
    es = synced(external_secret(), START)

    report = report_of(snapshot(es, LATER), outcome)

    assert report.failed
    assert report.status.refresh_time == es.status.refresh_time
    assert report.status.synced_resource_version == es.status.synced_resource_version


@pytest.mark.parametrize(
    ("seconds", "outcome", "flush"),
    [
        pytest.param(10, Synced(), False, id="nothing changed, and it was said a moment ago"),
        pytest.param(FLUSH_SECONDS, Synced(), True, id="it was said a while ago"),
        pytest.param(10, Synced(changed=True), True, id="the target was written"),
        pytest.param(10, Synced("other"), True, id="there is something else to say"),
        pytest.param(-10, Synced(), True, id="what was said lies in the future"),
    ],
)
def test_a_refresh_that_changed_nothing_is_written_now_and_then(seconds: float, outcome: Synced, flush: bool) -> None:
    es = synced(external_secret(), START, conditions=[READY])

    assert report_of(snapshot(es, START + timedelta(seconds=seconds)), outcome).flush is flush


def test_a_changed_object_is_always_on_record() -> None:
    before = synced(external_secret(), START, conditions=[READY])
    es = external_secret(metadata={"generation": 2}, status=before.status)

    assert report_of(snapshot(es, START + timedelta(seconds=1)), Synced()).flush


@pytest.mark.parametrize("outcome", [Failed(Step.WRITE), Stalled(Step.WRITE)], ids=["failed", "stalled"])
def test_an_unwritten_refresh_is_written_with_the_next_status_change(outcome: Outcome) -> None:
    """So that the printed time of the last sync is right."""
    es = synced(external_secret(), START, conditions=[READY])
    ends = START + timedelta(seconds=900)
    remembered = LastSync(START + timedelta(seconds=200), current_version(es), ends)

    report = report_of(snapshot(es, LATER, last=remembered), outcome)

    assert report.status.refresh_time == rfc3339(START + timedelta(seconds=200))
    assert report.status.renew_time == rfc3339(ends)


def test_every_failing_entry_is_listed_and_the_message_names_the_first() -> None:
    failures = tuple(failure(f"spec.data[{number}]", remote_key=f"k{number}") for number in range(60))

    status = report_of(snapshot(external_secret()), Failed(Step.FETCH, failures=failures)).status

    [condition] = status.conditions
    assert condition.message.startswith(
        "could not get secret data from provider: spec.data[0] (key: k0): SecretNotFound: "
    )
    assert condition.message.endswith("and 57 more")
    assert [outcome.path for outcome in status.outcomes] == [f"spec.data[{number}]" for number in range(50)]


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        pytest.param(
            Failed(Step.FETCH, failures=(failure(),)), ("Fetch", "spec.data[0]", "SecretNotFound"), id="an entry"
        ),
        pytest.param(Failed(Step.RENDER, "y"), ("Render", "spec.target", "ApiServer"), id="without a template"),
        pytest.param(Failed(Step.WRITE, "y"), ("Write", "spec.target", "ApiServer"), id="the API server refused"),
        pytest.param(
            Stalled(Step.VALIDATE, "y", failures=(failure("spec.data", reason="InvalidSpec"),)),
            ("Validate", "spec.data", "InvalidSpec"),
            id="a rule that is broken",
        ),
        pytest.param(
            refused_target(RefuseTarget(Refusal.IMMUTABLE)),
            ("Write", "spec.target", "TargetImmutable"),
            id="a target that must not be written",
        ),
    ],
)
def test_the_status_names_the_step_that_failed_and_its_field(outcome: Outcome, expected: tuple[str, str, str]) -> None:
    [said] = report_of(snapshot(external_secret()), outcome).status.outcomes

    assert (said.step, said.path, said.reason) == expected
    assert said.message
    assert said.since == rfc3339(START)


def test_a_template_that_fails_is_named() -> None:
    es = external_secret(target={"template": {"data": {"a": "x"}}})

    [said] = report_of(snapshot(es), Failed(Step.RENDER, "y", TEMPLATE_ERROR)).status.outcomes

    assert (said.step, said.path, said.reason) == ("Render", "spec.target.template", "TemplateError")


def test_an_entry_that_goes_on_failing_keeps_the_time_it_began() -> None:
    es = external_secret()
    first = report_of(snapshot(es, START), Failed(Step.WRITE, failures=(failure(),)))
    still = external_secret(status=first.status)

    again = report_of(snapshot(still, LATER), Failed(Step.WRITE, failures=(failure(), failure("spec.data[1]"))))

    assert [outcome.since for outcome in again.status.outcomes] == [rfc3339(START), rfc3339(LATER)]


@pytest.mark.parametrize(
    ("spec", "outcome", "within", "expected"),
    [
        pytest.param({}, Failed(Step.WRITE), 64.0, 64, id="the back-off's longest"),
        pytest.param({}, Failed(Step.WRITE), 8.0, None, id="soon: not worth a write each time"),
        pytest.param({}, Failed(Step.WRITE, failures=(failure(retry_after=90),)), 8.0, 90, id="as the provider asked"),
        pytest.param({}, Failed(Step.WRITE, failures=(failure(retry=RetryClass.NEVER),)), 64.0, 3600, id="hopeless"),
        pytest.param({}, Stalled(Step.WRITE), 64.0, 3600, id="stalled: at the interval"),
        pytest.param({"refreshInterval": 0}, Stalled(Step.WRITE), 64.0, None, id="stalled: only on a change"),
    ],
)
def test_after_a_failure_the_status_says_when_it_is_tried_again(
    spec: dict[str, Any], outcome: Outcome, within: float, expected: float | None
) -> None:
    status = report_of(snapshot(external_secret(**spec), retry_within=within), outcome).status

    wanted = None if expected is None else rfc3339(START + timedelta(seconds=expected))
    assert status.next_attempt_time == wanted


@pytest.mark.parametrize("outcome", [Synced(), Intact()], ids=["synced", "intact"])
def test_nothing_is_announced_once_it_works(outcome: Outcome) -> None:
    failed = report_of(snapshot(external_secret(), retry_within=64.0), Failed(Step.WRITE))

    again = report_of(snapshot(external_secret(status=failed.status)), outcome)

    assert failed.status.next_attempt_time is not None
    assert again.status.next_attempt_time is None


def test_a_success_clears_what_failed() -> None:
    failed = report_of(snapshot(external_secret()), Failed(Step.WRITE, failures=(failure(),)))

    assert report_of(snapshot(external_secret(status=failed.status)), Synced()).status.outcomes == []


def test_a_complaint_is_recorded_once_for_each_cause() -> None:
    first = report_of(snapshot(external_secret()), Failed(Step.WRITE, "why"))
    again = external_secret(status=first.status)

    assert [(events.reason, events.message) for events in first.events] == [("UpdateFailed", "why")]
    assert report_of(snapshot(again), Failed(Step.WRITE, "why")).events == ()
    assert len(report_of(snapshot(again), Failed(Step.WRITE, "another")).events) == 1


def test_likely_mistakes_are_in_the_condition_and_in_one_event() -> None:
    outcome = Synced(remarks=("spec.dataFrom[0].find: it matches no key",))

    es = external_secret()
    first = report_of(snapshot(es), outcome)
    again = report_of(snapshot(synced(es, conditions=first.status.conditions)), outcome)

    assert ready(first)[2] == "secret synced; spec.dataFrom[0].find: it matches no key"
    assert [events.reason for events in first.events] == ["Unexpected"]
    assert again.events == ()


# --- a provider that is away ------------------------------------------------------------------------------------------

UNREACHED = Failed(
    Step.FETCH, failures=(failure(reason="Refused", message="provider fake was not reached", unreachable=True),)
)


def test_an_outage_of_a_provider_is_written_once_however_often_it_is_found() -> None:
    """The return of the provider causes the next attempt, so the status has no time that every retry would change."""
    es = external_secret()

    first = report_of(snapshot(es), UNREACHED)
    es.status = first.status
    again = report_of(snapshot(es, now=LATER), UNREACHED)

    assert [events.reason for events in first.events] == ["UpdateFailed"]
    assert first.status.next_attempt_time is None
    assert again.status == first.status
    assert not again.events
    assert isinstance(again.result, Backoff)


def test_a_failure_beside_an_outage_says_when_it_is_tried_again() -> None:
    both = Failed(Step.FETCH, failures=(*UNREACHED.failures, failure("spec.data[1]")))

    assert report_of(replace(snapshot(external_secret()), retry_within=90.0), both).status.next_attempt_time is not None


@pytest.mark.parametrize(
    ("seconds", "outcome", "flush"),
    [
        pytest.param(FLUSH_SECONDS + 1, Synced(), False, id="nothing changed, and it was refreshed minutes ago"),
        pytest.param(3601.0, Synced(), True, id="its interval has passed as well"),
        pytest.param(1.0, Synced(changed=True), True, id="the value changed"),
    ],
)
def test_a_read_that_a_provider_caused_is_recorded_if_it_changed_something_or_at_the_interval(
    seconds: float, outcome: Synced, flush: bool
) -> None:
    es = synced(external_secret(refreshInterval="1h"), conditions=[READY])
    before = replace(snapshot(es, now=START + timedelta(seconds=seconds)), notified_at=1.0)

    assert report_of(before, outcome).flush is flush


@pytest.mark.parametrize(
    ("policy", "recorded"), [("Owner", "7"), ("Merge", ""), ("CreateOrMerge", ""), ("Orphan", ""), ("None", "")]
)
def test_the_version_of_a_target_is_recorded_if_only_we_write_it(policy: str, recorded: str) -> None:
    es = external_secret(target={"creationPolicy": policy})

    assert report_of(snapshot(es), Synced(target_version="7")).status.synced_target_version == recorded
