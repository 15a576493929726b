"""Every series that dashboards of the existing operator query is in a scrape of a running operator."""

from __future__ import annotations

from dataclasses import replace

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_operator.settings import LeaderSettings
from eso_testkit.operator.operators import Bench, scripted
from eso_testkit.operator.scenes import FAKE_STORE

CONTROLLER = frozenset({"controller"})
QUEUE = frozenset({"name", "controller"})
OBJECT = frozenset({"name", "namespace"})
CONDITION = OBJECT | {"condition", "status"}
SERIES = {
    "externalsecret_status_condition": CONDITION,
    "externalsecret_reconcile_duration": OBJECT,
    "externalsecret_sync_calls_total": OBJECT,
    "externalsecret_sync_calls_error": OBJECT,
    "secretstore_status_condition": CONDITION,
    "secretstore_reconcile_duration": OBJECT,
    "controller_runtime_reconcile_total": CONTROLLER | {"result"},
    "controller_runtime_reconcile_errors_total": CONTROLLER,
    "controller_runtime_terminal_reconcile_errors_total": CONTROLLER,
    "controller_runtime_reconcile_panics_total": CONTROLLER,
    "controller_runtime_reconcile_timeouts_total": CONTROLLER,
    "controller_runtime_reconcile_time_seconds_bucket": CONTROLLER | {"le"},
    "controller_runtime_reconcile_time_seconds_count": CONTROLLER,
    "controller_runtime_reconcile_time_seconds_sum": CONTROLLER,
    "controller_runtime_max_concurrent_reconciles": CONTROLLER,
    "controller_runtime_active_workers": CONTROLLER,
    "workqueue_depth": QUEUE | {"priority"},
    "workqueue_adds_total": QUEUE,
    "workqueue_retries_total": QUEUE,
    "workqueue_queue_duration_seconds_bucket": QUEUE | {"le"},
    "workqueue_work_duration_seconds_bucket": QUEUE | {"le"},
    "workqueue_unfinished_work_seconds": QUEUE,
    "workqueue_longest_running_processor_seconds": QUEUE,
    "rest_client_requests_total": frozenset({"code", "method", "host"}),
    "leader_election_master_status": frozenset({"name"}),
    "process_resident_memory_bytes": frozenset[str](),
    "eso_build_info": frozenset({"version", "commit"}),
}
"""The labels of each series. Those of calls to backends are in providers, those of the webhook nowhere."""
CONTROLLERS = {
    "externalsecret",
    "secretstore",
    "clustersecretstore",
    "clusterexternalsecret",
    "pushsecret",
    "clusterpushsecret",
    "generatorstate",
}
ENTRY = {"secretKey": "password", "remoteRef": {"key": "db"}}


async def scraped(port: int) -> str:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as answer:
        return await answer.text()


@pytest.mark.live
async def test_a_scrape_after_a_sync_has_every_series_that_dashboards_query(bench: Bench) -> None:
    stores, secrets = SECRET_STORE.resource(), EXTERNAL_SECRET.resource()
    elected = replace(bench.settings, leader=LeaderSettings(enabled=True, lease=f"lease-{bench.namespace}"))
    async with bench.operator(elected) as operator:
        await bench.install(scripted(data={"db": b"v1"}), provider_v1_keys="fake")
        await bench.create(stores, "store", spec=FAKE_STORE)
        await bench.create(secrets, "db", spec={"secretStoreRef": {"name": "store"}, "data": [ENTRY]})
        await bench.ready(secrets, "db", lambda condition: condition.status == "True")
        text = await scraped(await operator.metrics_server.wait_listening())

    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    labels = {sample.name: frozenset(sample.labels) for sample in samples}
    assert {name: labels.get(name) for name in SERIES} == SERIES
    active = {each.labels["controller"] for each in samples if each.name == "controller_runtime_active_workers"}
    assert active >= CONTROLLERS
    codes = {each.labels["code"] for each in samples if each.name == "rest_client_requests_total"}
    assert codes >= {"200", "201"}
    (leads,) = [each.value for each in samples if each.name == "leader_election_master_status"]
    assert leads == 1.0
