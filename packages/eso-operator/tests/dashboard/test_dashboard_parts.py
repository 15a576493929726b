"""The parts of the dashboard without a server: settings, viewers, calls, lists."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_operator.dashboard.calls import calls_of
from eso_operator.dashboard.snapshots import Snapshots
from eso_operator.dashboard.viewers import MAX_NAMESPACES, AnonymousViewer, Authorizer, ViewerClient, visible
from eso_operator.dashboard.views import PAGE_ROWS, objects_view, url_of
from eso_operator.flags import parse
from eso_operator.insight.overview import Gap, Health, Missing, ObjectId, Overview, Row
from eso_operator.providers.limits import InFlight
from eso_operator.providers.metrics import ProviderMetrics
from eso_operator.settings import SettingsError
from eso_operator.telemetry.webserver import User
from kubebase.meta import ObjectKey, Resource
from kubebase.testing.clock import START as NOW
from kubebase.testing.clock import VirtualClock
from kuberun.errors import Forbidden, Unreachable
from kuberun.informer import Informer
from kuberun.testing.source import FakeCollection, Fault
from kuberun.watch import Applied


def row(name: str, namespace: str = "team", health: Health = Health.GOOD, reason: str = "SecretSynced") -> Row:
    identity = ObjectId(EXTERNAL_SECRET.group, EXTERNAL_SECRET.name, ObjectKey(namespace, name))
    return Row(identity, EXTERNAL_SECRET, health, reason)


# --- settings ---------------------------------------------------------------------------------------------------------


def test_the_dashboard_is_off_by_default_and_its_modules_are_not_loaded_then() -> None:
    modules = ("jinja2", "eso_operator.dashboard.pages")
    loaded = f"import sys, eso_operator.main; print(*[name in sys.modules for name in {modules}])"
    told = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True, timeout=60)

    assert parse([], {}).dashboard.listen.disabled
    assert told.stdout.split() == ["False", "False"]


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["--dashboard-addr=127.0.0.1:8090"], id="loopback"),
        pytest.param(["--dashboard-addr=[::1]:8090"], id="loopback of IPv6"),
        pytest.param(["--dashboard-addr=localhost:8090"], id="localhost"),
        pytest.param(["--dashboard-addr=:8090", "--dashboard-auth"], id="every address with authentication"),
    ],
)
def test_safe_addresses_are_accepted(arguments: list[str]) -> None:
    assert parse(arguments, {}).dashboard.listen.port == 8090


@pytest.mark.parametrize("address", [":8090", "0.0.0.0:8090", "10.0.0.1:8090", "dashboard.example:8090", "[::]:8090"])
def test_other_addresses_need_authentication(address: str) -> None:
    with pytest.raises(SettingsError, match=r"listen on 127\.0\.0\.1, or require a token with --dashboard-auth"):
        parse([f"--dashboard-addr={address}"], {})


# --- viewers ----------------------------------------------------------------------------------------------------------


class Rules:
    """Reviews that allow what a set of (verb, plural, namespace) says, and count the questions."""

    def __init__(self, *allowed: tuple[str, str, str]) -> None:
        self._allowed = set(allowed)
        self.asked = 0

    async def user(self, token: str) -> User | None:
        self.asked += 1
        return User("ada", {"user": "ada"}) if token == "good" else None

    async def allowed(self, user: User, attributes: Any) -> bool:
        assert user.name == "ada"
        self.asked += 1
        asked = attributes["resourceAttributes"]
        return (asked["verb"], asked["resource"], asked.get("namespace", "")) in self._allowed


async def viewer_of(rules: Rules, clock: VirtualClock | None = None) -> Any:
    return await Authorizer(rules, clock or VirtualClock()).viewer("good")  # type: ignore[arg-type]  # a fake


async def test_a_viewer_of_one_namespace_sees_its_rows_and_knows_that_there_are_more() -> None:
    viewer = await viewer_of(Rules(("list", "externalsecrets", "team")))

    seen = await visible(Overview((row("a"), row("b", "other"))), viewer)

    assert [each.name for each in seen.rows] == ["a"]
    assert seen.gaps == (Gap(EXTERNAL_SECRET, Missing.PARTLY),)


async def test_the_number_of_questions_for_one_viewer_is_bounded_and_the_chosen_namespace_comes_first() -> None:
    rules = Rules(("list", "externalsecrets", "zz"))
    viewer = await viewer_of(rules)
    rows = (*(row("x", f"n{number:04}") for number in range(1000)), row("mine", "zz"))

    seen = await visible(Overview(rows), viewer, "zz")

    assert [each.name for each in seen.rows] == ["mine"]
    assert rules.asked <= 1 + 1 + MAX_NAMESPACES


async def test_answers_are_kept_for_a_minute() -> None:
    rules, clock = Rules(("list", "externalsecrets", "")), VirtualClock()
    authorizer = Authorizer(rules, clock)  # type: ignore[arg-type]  # a fake

    for _ in range(3):
        viewer = await authorizer.viewer("good")
        assert viewer is not None
        assert await viewer.may("list", EXTERNAL_SECRET.resource(), "")
    asked = rules.asked
    await clock.advance(61)
    await authorizer.viewer("good")

    assert (asked, rules.asked) == (2, 3)


async def test_a_token_that_is_missing_or_too_long_is_never_sent_on() -> None:
    rules = Rules()
    authorizer = Authorizer(rules, VirtualClock())  # type: ignore[arg-type]  # a fake

    assert [await authorizer.viewer(token) for token in ("", "x" * 20_000)] == [None, None]
    assert rules.asked == 0


async def test_a_client_reads_for_a_viewer_only_what_they_may_read() -> None:
    client = ViewerClient(None, await viewer_of(Rules()))  # type: ignore[arg-type]  # it is never asked
    secrets = Resource("", "v1", "secrets", "Secret")

    with pytest.raises(Forbidden):
        await client.get(SECRET_STORE.kind(), ObjectKey("team", "vault"))
    with pytest.raises(Forbidden):
        await client.list(SECRET_STORE.kind())
    assert await AnonymousViewer().may("get", secrets, "team")


# --- lists ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        pytest.param({}, ["bad", "good", "new"], id="problems first, then by name"),
        pytest.param({"q": "TEAM/go"}, ["good"], id="a part of namespace and name"),
        pytest.param({"q": "secretnotfound externalsecret"}, ["bad"], id="all words, also of cause and kind"),
        pytest.param({"state": "waiting"}, ["new"], id="a state"),
        pytest.param({"namespace": "elsewhere"}, [], id="another namespace"),
        pytest.param({"kind": "pushsecrets.external-secrets.io"}, [], id="another kind"),
        pytest.param({"page": "99"}, ["bad", "good", "new"], id="a page beyond the last"),
        pytest.param({"page": "-1"}, ["bad", "good", "new"], id="no page number"),
    ],
)
def test_objects_are_found_by_words_state_kind_and_namespace(asked: dict[str, str], names: list[str]) -> None:
    rows = (
        row("good"),
        row("new", health=Health.WAITING, reason=""),
        row("bad", health=Health.BAD, reason="SecretNotFound"),
    )

    shown = objects_view(Overview(rows), asked, NOW)

    assert sorted(each["name"] for each in shown["rows"]) == names
    assert not names or shown["rows"][0]["name"] == names[0] or asked.get("q")


def test_a_long_list_has_pages_that_keep_the_question() -> None:
    rows = tuple(row(f"s{number:04}") for number in range(PAGE_ROWS + 1))

    first = objects_view(Overview(rows), {"q": "s", "page": ""}, NOW)
    second = objects_view(Overview(rows), {"q": "s", "page": "1"}, NOW)

    assert (len(first["rows"]), first["after"], first["before"]) == (PAGE_ROWS, "/objects?q=s&page=1", "")
    assert (len(second["rows"]), second["after"], second["before"]) == (1, "", "/objects?q=s&page=0")


def test_addresses_of_objects_are_encoded() -> None:
    assert url_of(row('a"/../b', "x<y")).endswith("/x%3Cy/a%22%2F..%2Fb")


# --- calls and snapshots ----------------------------------------------------------------------------------------------


def test_calls_are_summed_over_methods_with_their_latency_and_slots() -> None:
    registry = CollectorRegistry()
    metrics = ProviderMetrics(registry)
    for seconds in (0.1, 0.2, 0.3):
        metrics.handled("Get", "team/aws", code="OK", reason="", seconds=seconds)
    metrics.handled("Find", "team/aws", code="UNAVAILABLE", reason="X", seconds=3.0)
    metrics.breaker("team/aws", "open")
    metrics.budgets(2)
    slots = InFlight("team/aws", VirtualClock(), slots=64, max_waiting=10)

    calls = calls_of(registry, lambda: [slots])

    aws = calls.providers["team/aws"]
    assert (aws.calls, aws.failed, aws.breaker, aws.slots, aws.running) == (4, 1, "open", 64, 0)
    assert aws.mean == pytest.approx(0.9)
    assert aws.high == 5.0
    assert calls.refused == 2
    assert (calls.of(("aws", "team/aws")).calls, calls.of(("gcp",)).calls) == (4, 0)


async def test_a_snapshot_is_shared_for_a_second_and_then_shows_changes() -> None:
    clock = VirtualClock()
    informer: Informer[Any] = Informer(FakeCollection(), clock=clock, name="stores")
    snapshots = Snapshots({SECRET_STORE: informer}, clock)

    def put(name: str, version: str) -> None:
        fields = {"metadata": {"name": name, "resourceVersion": version}, "spec": {"provider": {"fake": {}}}}
        informer.cache.apply(Applied(msgspec.convert(fields, SECRET_STORE.type)))

    put("a", "1")
    first = await snapshots.overview()
    put("b", "2")
    same = await snapshots.overview()
    await clock.advance(2)
    later = await snapshots.overview()

    assert same is first
    assert [each.name for each in later.rows] == ["a", "b"]
    assert later.rows[0] is first.rows[0]


async def test_pages_say_that_objects_are_still_being_read_until_all_are() -> None:
    clock = VirtualClock()
    informer: Informer[Any] = Informer(FakeCollection(), clock=clock, name="stores")
    snapshots = Snapshots({SECRET_STORE: informer}, clock)
    before = snapshots.stale()

    running = asyncio.ensure_future(informer.run())
    await clock.settle()
    after = snapshots.stale()
    running.cancel()

    assert before == "The operator is still reading the objects. This page does not show all of them yet."
    assert after == ""


async def test_pages_say_how_old_they_are_while_the_api_server_does_not_answer() -> None:
    clock, collection = VirtualClock(), FakeCollection()
    informer: Informer[Any] = Informer(collection, clock=clock, name="stores", draw=lambda: 0.5)
    snapshots = Snapshots({SECRET_STORE: informer}, clock)
    running = asyncio.ensure_future(informer.run())
    await clock.settle()

    collection.refusals.extend(Unreachable("gone") for _ in range(1000))
    collection.disturb(Fault.CUT)
    await clock.advance(5)
    soon = snapshots.stale()
    await clock.advance(235)
    late = snapshots.stale()
    collection.refusals.clear()
    await clock.advance(60)
    again = snapshots.stale()
    running.cancel()

    assert soon == ""
    assert late == "The API server does not answer the operator. This page shows the state of 4 min ago."
    assert again == ""
