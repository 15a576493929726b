"""Names and labels of metrics are the contract of dashboards; series follow objects and go with them."""

import asyncio
import re

import pytest

from eso_operator.telemetry.metrics import Metrics
from eso_operator.telemetry.settings import MetricsSettings
from eso_operator.telemetry.subsystems import Subsystem
from eso_testkit.operator.samples import samples_of
from kubebase.meta import Condition, ObjectKey, ObjectMeta
from kubebase.testing.clock import START, VirtualClock
from kuberun.controller import Backoff, Controller, Done, ReconcileContext, Requeue, Result
from kuberun.testing.builders import metadata
from kuberun.workqueue import ReconcileRequest

RECONCILES = "controller_runtime_reconcile_total"
PLAIN = {"name", "namespace"}
EXTENDED = {
    f"app_kubernetes_io_{part}" for part in ("name", "instance", "version", "component", "part_of", "managed_by")
}
UPSTREAM_SUBSYSTEMS = (
    "externalsecret",
    "pushsecret",
    "secretstore",
    "clustersecretstore",
    "clusterexternalsecret",
    "clusterpushsecret",
)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(MetricsSettings(), VirtualClock())


def series(metrics: Metrics, name: str) -> dict[frozenset[tuple[str, str]], float]:
    """The samples of one metric by their labels."""
    found = {}
    for line in metrics.exposition().decode().splitlines():
        if match := re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line):
            found[frozenset(re.findall(r'(\w+)="([^"]*)"', match[1] or ""))] = float(match[2])
    return found


def touch(metrics: Metrics, about: ObjectMeta) -> None:
    for subsystem in Subsystem:
        metrics.objects.conditions(subsystem, about, [Condition(type="Ready", status="True")])
        metrics.objects.reconciled(subsystem, about, 0.25)
    metrics.objects.synced(about)
    metrics.objects.failed(about)


@pytest.mark.parametrize("subsystem", UPSTREAM_SUBSYSTEMS)
def test_object_series_have_the_names_and_labels_of_the_contract(metrics: Metrics, subsystem: str) -> None:
    touch(metrics, metadata("db", "team"))

    conditions = series(metrics, f"{subsystem}_status_condition")
    durations = series(metrics, f"{subsystem}_reconcile_duration")

    assert [{name for name, _ in labels} for labels in conditions] == [PLAIN | {"condition", "status"}] * 2
    assert {dict(labels)["status"]: value for labels, value in conditions.items()} == {"True": 1.0, "False": 0.0}
    assert durations == {frozenset({("name", "db"), ("namespace", "team")}): 250_000_000.0}


@pytest.mark.parametrize("name", ["externalsecret_sync_calls_total", "externalsecret_sync_calls_error"])
def test_syncs_are_counted_for_each_external_secret(metrics: Metrics, name: str) -> None:
    touch(metrics, metadata("db", "team"))
    touch(metrics, metadata("db", "team"))

    assert series(metrics, name) == {frozenset({("name", "db"), ("namespace", "team")}): 2.0}


@pytest.mark.parametrize(
    "name",
    [
        "controller_runtime_reconcile_total",
        "controller_runtime_reconcile_errors_total",
        "controller_runtime_reconcile_time_seconds_bucket",
        "controller_runtime_active_workers",
        "controller_runtime_max_concurrent_reconciles",
        "workqueue_depth",
        "process_resident_memory_bytes",
    ],
)
async def test_metrics_that_dashboards_read_about_controllers_exist(metrics: Metrics, name: str) -> None:
    async def reconcile(_: ObjectKey, __: ReconcileContext) -> Result:
        return Backoff("no")

    controller = Controller("secretstore", reconcile, clock=VirtualClock(), workers=3)
    metrics.controllers.add(controller, 3)
    await metrics.controllers.timed("secretstore", reconcile)(ObjectKey("a", "b"), ReconcileContext(START))

    assert series(metrics, name)


@pytest.mark.parametrize(
    ("outcome", "result"),
    [
        pytest.param(Done(), "success", id="done"),
        pytest.param(Requeue(5), "requeue_after", id="again later"),
        pytest.param(Backoff("no"), "error", id="failed"),
    ],
)
async def test_reconciles_are_counted_by_result(metrics: Metrics, outcome: Result, result: str) -> None:
    async def reconcile(_: ObjectKey, __: ReconcileContext) -> Result:
        return outcome

    await metrics.controllers.timed("secretstore", reconcile)(ObjectKey("a", "b"), ReconcileContext(START))

    counted = {dict(labels)["result"]: count for labels, count in series(metrics, RECONCILES).items()}
    assert counted == {"error": 0.0, "success": 0.0, "requeue": 0.0, "requeue_after": 0.0} | {result: 1.0}


def test_the_series_of_a_controller_begin_at_zero(metrics: Metrics) -> None:
    """Otherwise an alert on an increase would miss the first error."""

    async def reconcile(_: ObjectKey, __: ReconcileContext) -> Result:
        return Done()

    metrics.controllers.timed("secretstore", reconcile)
    metrics.controllers.add(Controller("secretstore", reconcile, clock=VirtualClock()), 1)

    assert set(series(metrics, RECONCILES).values()) == {0.0}
    for name in ("reconcile_errors", "reconcile_panics", "reconcile_timeouts", "terminal_reconcile_errors"):
        assert series(metrics, f"controller_runtime_{name}_total") == {frozenset({("controller", "secretstore")}): 0.0}


async def test_exceptions_and_exceeded_deadlines_are_counted(metrics: Metrics) -> None:
    clock = VirtualClock()

    async def reconcile(key: ObjectKey, _: ReconcileContext) -> Result:
        if key.name == "slow":
            await clock.sleep(1000.0)
        raise ValueError("broken")

    controller = Controller("secretstore", reconcile, clock=clock, deadline=10.0)
    metrics.controllers.add(controller, 4)
    controller.queue.add(ReconcileRequest(ObjectKey("a", "slow")))
    controller.queue.add(ReconcileRequest(ObjectKey("a", "broken")))
    async with asyncio.TaskGroup() as group:
        running = group.create_task(controller.run())
        await clock.advance(10.0)
        running.cancel()

    of = frozenset({("controller", "secretstore")})
    assert series(metrics, "controller_runtime_reconcile_timeouts_total") == {of: 1.0}
    assert series(metrics, "controller_runtime_reconcile_panics_total")[of] >= 1.0


async def test_a_queue_counts_its_requests_and_times_their_waits_and_runs(metrics: Metrics) -> None:
    clock = VirtualClock()

    async def reconcile(_: ObjectKey, __: ReconcileContext) -> Result:
        return Done()

    controller = Controller("secretstore", reconcile, clock=clock)
    metrics.controllers.add(controller, 1)
    queue, request = controller.queue, ReconcileRequest(ObjectKey("a", "b"))
    queue.add(request)
    await clock.advance(3.0)
    queue.take_now()
    await clock.advance(5.0)

    of = frozenset({("name", "secretstore"), ("controller", "secretstore")})
    assert series(metrics, "workqueue_unfinished_work_seconds") == {of: 5.0}
    assert series(metrics, "workqueue_longest_running_processor_seconds") == {of: 5.0}
    queue.done(request.key)
    queue.retry(request)

    assert series(metrics, "workqueue_queue_duration_seconds_sum") == {of: 3.0}
    assert series(metrics, "workqueue_work_duration_seconds_sum") == {of: 5.0}
    assert series(metrics, "workqueue_adds_total") == {of: 2.0}
    assert series(metrics, "workqueue_retries_total") == {of: 1.0}
    assert series(metrics, "workqueue_unfinished_work_seconds") == {of: 0.0}


def test_leadership_is_shown_only_where_there_is_an_election(metrics: Metrics) -> None:
    assert series(metrics, "leader_election_master_status") == {}

    metrics.process.elections({"lease": lambda: True})

    assert series(metrics, "leader_election_master_status") == {frozenset({("name", "lease")}): 1.0}


async def test_the_depth_of_a_queue_is_what_is_due(metrics: Metrics) -> None:
    async def reconcile(_: ObjectKey, __: ReconcileContext) -> Result:
        return Done()

    controller = Controller("secretstore", reconcile, clock=VirtualClock())
    metrics.controllers.add(controller, 1)
    controller.queue.add(ReconcileRequest(ObjectKey("a", "now")))
    controller.queue.add(ReconcileRequest(ObjectKey("a", "later")), after=60)

    of = frozenset({("name", "secretstore"), ("controller", "secretstore"), ("priority", "")})
    assert series(metrics, "workqueue_depth") == {of: 1.0}


def test_series_of_a_deleted_object_are_gone(metrics: Metrics) -> None:
    touch(metrics, metadata("db", "team"))

    for subsystem in Subsystem:
        metrics.objects.forget(subsystem, ObjectKey("team", "db"))

    assert 'name="db"' not in metrics.exposition().decode()


def test_a_condition_that_turned_unknown_is_neither_true_nor_false(metrics: Metrics) -> None:
    about = metadata("db", "team")
    metrics.objects.conditions(Subsystem.SECRET_STORE, about, [Condition(type="Ready", status="Unknown")])

    by_status = {
        dict(labels)["status"]: value for labels, value in series(metrics, "secretstore_status_condition").items()
    }

    assert by_status == {"True": 0.0, "False": 0.0, "Unknown": 1.0}


def test_extended_labels_come_from_the_object_and_leave_no_second_series() -> None:
    metrics = Metrics(MetricsSettings(extended_labels=True), VirtualClock())
    labels = {"app.kubernetes.io/part-of": "shop", "app.kubernetes.io/name": "old", "team": "x", "name": "spoof"}
    touch(metrics, metadata("db", "team", labels=labels))
    touch(metrics, metadata("db", "team", labels={**labels, "app.kubernetes.io/name": "new"}))

    (found,) = series(metrics, "secretstore_reconcile_duration")

    assert {name for name, _ in found} == PLAIN | EXTENDED
    assert dict(found)["app_kubernetes_io_part_of"] == "shop"
    assert dict(found)["app_kubernetes_io_name"] == "new"
    assert dict(found)["app_kubernetes_io_version"] == ""
    assert dict(found)["name"] == "db"


def test_two_stores_of_one_name_in_two_generations_do_not_share_a_series(metrics: Metrics) -> None:
    about = metadata("db", "team")
    metrics.objects.conditions(Subsystem.SECRET_STORE, about, [Condition(type="Ready", status="True")])
    metrics.objects.conditions(Subsystem.SECRET_STORE_V2, about, [Condition(type="Ready", status="False")])

    lines = [line for line in metrics.exposition().decode().splitlines() if 'name="db"' in line]

    assert len(lines) == len({line.rpartition(" ")[0] for line in lines})


def test_no_page_has_more_than_some_hundred_objects(metrics: Metrics) -> None:
    names = [f"object-{number}" for number in range(1000)]
    for name in names:
        touch(metrics, metadata(name, "team"))

    pages = list(metrics.objects.pages())

    lines = b"".join(pages).decode().splitlines()
    synced = [line for line in lines if line.startswith("externalsecret_sync_calls_total{")]
    assert [re.findall('name="([^"]*)"', line)[0] for line in synced] == names
    assert max(page.count(b"\n") for page in pages) <= 500


def test_objects_may_come_and_go_while_pages_are_rendered(metrics: Metrics) -> None:
    for number in range(600):
        touch(metrics, metadata(f"object-{number}", "team"))

    rendered = b""
    for number, page in enumerate(metrics.objects.pages()):
        rendered += page
        touch(metrics, metadata(f"new-{number}", "team"))
        metrics.objects.forget(Subsystem.EXTERNAL_SECRET, ObjectKey("team", f"object-{number}"))

    heads = [line for line in rendered.decode().splitlines() if line.startswith("# TYPE")]
    assert len(heads) == len(set(heads)) == 2 * len(Subsystem) + 2
    assert b'externalsecret_status_condition{condition="Ready",name="object-599"' in rendered


def test_special_characters_of_a_condition_are_escaped(metrics: Metrics) -> None:
    odd = 'a"b\\c\nd'
    metrics.objects.conditions(Subsystem.SECRET_STORE, metadata("db", "team"), [Condition(type=odd, status="True")])

    found = {each.labels["condition"] for each in samples_of(metrics.objects.pages())}

    assert found == {odd}
