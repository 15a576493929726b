"""Watching: from any version, without gaps, through selectors, bounded, and across restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kubebase.clock import SystemClock
from kubebase.testing.clock import VirtualClock
from localkube.cluster import Cluster
from localkube.cluster import watches as watches_module
from localkube.testing.verbs import Verbs, config_map, refusal, take


def seen(events: list[Any]) -> list[tuple[str, str]]:
    return [(event.type, event.object["metadata"].get("name", "")) for event in events]


async def version(verbs: Verbs) -> str:
    return (await verbs.list("configmaps")).resource_version


async def test_changes_arrive_in_order(verbs: Verbs) -> None:
    watch = verbs.watch("configmaps", resource_version=await version(verbs))

    await verbs.create("configmaps", config_map("a"))
    await verbs.patch("configmaps", "a", {"data": {"x": "2"}})
    await verbs.delete("configmaps", "a")

    events = await take(watch, 3)
    assert seen(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    versions = [int(event.object["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(versions)
    watch.close()


async def test_a_change_between_list_and_watch_is_not_missed(verbs: Verbs) -> None:
    start = await version(verbs)
    await verbs.create("configmaps", config_map("between"))

    watch = verbs.watch("configmaps", resource_version=start)
    first = await take(watch, 1)
    await verbs.create("configmaps", config_map("after"))
    second = await take(watch, 1)

    assert seen(first + second) == [("ADDED", "between"), ("ADDED", "after")]
    watch.close()


@pytest.mark.parametrize("start", ["", "0"])
async def test_without_a_version_the_present_comes_first(verbs: Verbs, start: str) -> None:
    await verbs.create("configmaps", config_map("b"))
    await verbs.create("configmaps", config_map("a"))

    watch = verbs.watch("configmaps", resource_version=start)
    present = await take(watch, 2)
    await verbs.delete("configmaps", "a")

    assert seen(present + await take(watch, 1)) == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")]
    watch.close()


async def test_initial_events_end_with_a_bookmark(verbs: Verbs) -> None:
    await verbs.create("configmaps", config_map("a"))

    watch = verbs.watch(
        "configmaps", send_initial_events=True, allow_bookmarks=True, resource_version_match="NotOlderThan"
    )
    events = await take(watch, 2)

    assert seen(events) == [("ADDED", "a"), ("BOOKMARK", "")]
    metadata = events[1].object["metadata"]
    assert metadata["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert metadata["resourceVersion"] == await version(verbs)
    watch.close()


async def test_initial_events_of_a_version_from_the_future_are_refused(verbs: Verbs) -> None:
    watch = verbs.watch(
        "configmaps", send_initial_events=True, resource_version_match="NotOlderThan", resource_version="100000"
    )

    error = await refusal(anext(watch))

    assert error.code == 504


async def test_declined_initial_events_start_with_news(verbs: Verbs) -> None:
    await verbs.create("configmaps", config_map("old"))
    watch = verbs.watch("configmaps", resource_version_match="NotOlderThan")
    pending = asyncio.ensure_future(take(watch, 1))
    await asyncio.wait([pending], timeout=0)

    await verbs.create("configmaps", config_map("new"))

    assert seen(await pending) == [("ADDED", "new")]
    watch.close()


async def test_other_namespaces_and_resources_are_not_seen(verbs: Verbs) -> None:
    watch = verbs.watch("configmaps", resource_version=await version(verbs))

    await Verbs(verbs.cluster, "kube-system").create("configmaps", config_map("elsewhere"))
    await verbs.create("secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "other"}})
    await verbs.create("configmaps", config_map("here"))

    assert seen(await take(watch, 1)) == [("ADDED", "here")]
    watch.close()


@pytest.mark.parametrize("mode", ["live", "replayed"])
async def test_a_selector_turns_changes_into_arrivals_and_departures(verbs: Verbs, mode: str) -> None:
    start = await version(verbs)
    watch = verbs.watch("configmaps", resource_version=start, label_selector="on=yes")
    if mode == "live":
        pending = asyncio.ensure_future(anext(watch))
        await asyncio.wait([pending], timeout=0)
    await verbs.create("configmaps", config_map("a", labels={"on": "no"}))
    await verbs.patch("configmaps", "a", {"metadata": {"labels": {"on": "yes"}}})
    await verbs.patch("configmaps", "a", {"data": {"x": "2"}})
    left = await verbs.patch("configmaps", "a", {"metadata": {"labels": {"on": "no"}}, "data": {"x": "3"}})
    await verbs.delete("configmaps", "a")
    await verbs.create("configmaps", config_map("b", labels={"on": "yes"}))

    events = [await pending, *await take(watch, 3)] if mode == "live" else await take(watch, 4)

    assert seen(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "b")]
    assert events[2].object["data"] == {"x": "2"}  # as it was last seen
    assert events[2].object["metadata"]["resourceVersion"] == left.object["metadata"]["resourceVersion"]
    watch.close()


async def test_a_compacted_version_has_expired(verbs: Verbs) -> None:
    start = await version(verbs)
    await verbs.create("configmaps", config_map("a"))
    await verbs.create("configmaps", config_map("b"))
    await verbs.cluster.store.compact(verbs.cluster.store.revision - 1)

    error = await refusal(anext(verbs.watch("configmaps", resource_version=start)))

    assert (error.code, error.reason) == (410, "Expired")
    assert error.message.startswith(f"too old resource version: {start} (")


async def test_a_running_watch_is_not_bothered_by_compaction(verbs: Verbs) -> None:
    watch = verbs.watch("configmaps", resource_version=await version(verbs))
    await verbs.create("configmaps", config_map("a"))
    first = await take(watch, 1)

    await verbs.cluster.store.compact(verbs.cluster.store.revision)
    await verbs.create("configmaps", config_map("b"))

    assert seen(first + await take(watch, 1)) == [("ADDED", "a"), ("ADDED", "b")]
    watch.close()


@pytest.mark.parametrize("query", [{"resource_version": "x"}, {"label_selector": "a=b=c"}])
async def test_bad_options_are_refused_before_anything_is_sent(verbs: Verbs, query: dict[str, str]) -> None:
    async def open_it() -> None:
        verbs.watch("configmaps", **query)

    error = await refusal(open_it())

    assert error.code in {400, 500}


async def test_only_the_slow_watcher_is_disconnected(verbs: Verbs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches_module, "BUFFER", 5)
    start = await version(verbs)
    slow, fast = (verbs.watch("configmaps", resource_version=start) for _ in range(2))
    await verbs.create("configmaps", config_map("first"))
    await take(slow, 1)
    received = await take(fast, 1)

    for index in range(8):
        await verbs.create("configmaps", config_map(f"n{index}"))
        received += await take(fast, 1)

    with pytest.raises(StopAsyncIteration):
        await anext(slow)
    assert len(received) == 9
    fast.close()


async def test_closing_ends_a_waiting_iteration(verbs: Verbs) -> None:
    watch = verbs.watch("configmaps", resource_version=await version(verbs))
    waiting = asyncio.ensure_future(refusal_of_end(watch))
    await asyncio.wait([waiting], timeout=0)

    watch.close()

    assert await waiting
    assert verbs.cluster._watches._by_resource["configmaps"] == {}


async def refusal_of_end(watch: Any) -> bool:
    async for _ in watch:
        return False
    return True


async def test_a_cancelled_reader_leaves_the_watch_usable(verbs: Verbs) -> None:
    watch = verbs.watch("configmaps", resource_version=await version(verbs))
    waiting = asyncio.ensure_future(anext(watch))
    await asyncio.wait([waiting], timeout=0)
    waiting.cancel()
    await asyncio.wait([waiting])

    await verbs.create("configmaps", config_map("a"))

    assert seen(await take(watch, 1)) == [("ADDED", "a")]
    watch.close()


async def test_quiet_watches_get_bookmarks_if_they_want_them() -> None:
    clock = VirtualClock()
    async with Cluster(None, clock=clock) as cluster:
        verbs = Verbs(cluster)
        watch = verbs.watch("secrets", resource_version=str(cluster.store.revision), allow_bookmarks=True)
        waiting = asyncio.ensure_future(anext(watch))
        await clock.settle()
        await verbs.create("configmaps", config_map("a"))

        await clock.advance(61)
        event = await waiting

        assert event.type == "BOOKMARK"
        assert event.object["metadata"]["resourceVersion"] == str(cluster.store.revision)
        assert (event.object["kind"], event.object["apiVersion"]) == ("Secret", "v1")


async def test_a_watch_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with Cluster(tmp_path, clock=SystemClock()) as cluster:
        verbs = Verbs(cluster)
        start = await version(verbs)
        await verbs.create("configmaps", config_map("a", labels={"on": "yes"}))
        await verbs.patch("configmaps", "a", {"metadata": {"labels": {"on": "no"}}})
        await verbs.create("configmaps", config_map("b"))
        await verbs.delete("configmaps", "b")

    async with Cluster(tmp_path, clock=SystemClock()) as cluster:
        verbs = Verbs(cluster)
        everything = await take(verbs.watch("configmaps", resource_version=start), 4)
        selected = await take(verbs.watch("configmaps", resource_version=start, label_selector="on=yes"), 2)

    assert seen(everything) == [("ADDED", "a"), ("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "b")]
    assert seen(selected) == [("ADDED", "a"), ("DELETED", "a")]


async def test_a_watch_from_before_a_compaction_and_a_restart_has_expired(tmp_path: Path) -> None:
    async with Cluster(tmp_path, clock=SystemClock()) as cluster:
        verbs = Verbs(cluster)
        start = await version(verbs)
        await verbs.create("configmaps", config_map("a"))
        await verbs.delete("configmaps", "a")
        await cluster.store.compact(cluster.store.revision)

    async with Cluster(tmp_path, clock=SystemClock()) as cluster:
        error = await refusal(anext(Verbs(cluster).watch("configmaps", resource_version=start)))

    assert error.code == 410


async def test_a_version_of_another_life_of_the_server_has_expired(verbs: Verbs) -> None:
    """Waiting for it would silently miss what happened since; clients list again instead."""
    error = await refusal(anext(verbs.watch("configmaps", resource_version="100000")))

    assert (error.code, error.reason) == (410, "Expired")


async def test_both_kinds_of_event_watch_the_same_objects(verbs: Verbs) -> None:
    watch = verbs.watch("events.events.k8s.io")
    pending = asyncio.ensure_future(take(watch, 1))
    await asyncio.wait([pending], timeout=0)

    about = {"kind": "ConfigMap", "namespace": "default", "name": "a"}
    await verbs.create(
        "events",
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "e"},
            "involvedObject": about,
            "message": "all well",
            "reason": "Synced",
        },
    )

    (event,) = await pending
    assert (event.object["apiVersion"], event.object["note"]) == ("events.k8s.io/v1", "all well")
    assert event.object["regarding"] == about
    stored = await verbs.patch("events.events.k8s.io", "e", {"note": "better"})
    assert stored.object["note"] == "better"
    assert (await verbs.get("events", "e"))["message"] == "better"
    watch.close()
