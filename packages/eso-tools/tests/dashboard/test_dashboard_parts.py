"""The parts of the dashboard without a server: flags, viewers, calls, lists."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_operator.flags import parse as parse_operator
from eso_operator.providers.metrics import ProviderMetrics
from eso_operator.settings import SettingsError
from eso_operator.telemetry.webserver import AccessReviews, User
from eso_tools.dashboard.calls import OperatorMetrics, calls_of
from eso_tools.dashboard.settings import MetricsEndpoint, parse, split_flags
from eso_tools.dashboard.viewers import MAX_NAMESPACES, Authorizer, visible
from eso_tools.dashboard.views import PAGE_ROWS, objects_view, url_of
from eso_tools.status.following import FollowedObjects
from eso_tools.status.overview import Gap, Health, Missing, ObjectId, Overview, Row
from kubebase.meta import Kind, ObjectKey, Page
from kubebase.testing.clock import START as NOW
from kubebase.testing.clock import VirtualClock
from kuberun.client import Client
from kuberun.connection import Connection, Credential, FixedCredentials
from kuberun.errors import Forbidden, NotFound, Unreachable
from kuberun.testing.source import FakeCollection, Fault


def row(name: str, namespace: str = "team", health: Health = Health.GOOD, reason: str = "SecretSynced") -> Row:
    identity = ObjectId(EXTERNAL_SECRET.group, EXTERNAL_SECRET.name, ObjectKey(namespace, name))
    return Row(identity, EXTERNAL_SECRET, health, reason)


# --- settings ---------------------------------------------------------------------------------------------------------


def test_without_flags_it_listens_on_loopback_only() -> None:
    assert parse([]).url == "http://127.0.0.1:8090/"


def test_the_operator_loads_no_module_of_pages_and_accepts_the_flags_that_it_had() -> None:
    loaded = "import sys, eso_operator.main; print(*[name in sys.modules for name in ('jinja2', 'eso_tools')])"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True, timeout=60)
    flags = ["--dashboard-addr=:8443", "--dashboard-auth", "--dashboard-cert-dir=/etc/dashboard-tls"]

    assert done.stdout.split() == ["False", "False"]
    assert {flag: "eso dashboard" in reason for flag, reason in parse_operator(flags, {}).ignored} == dict.fromkeys(
        ("--dashboard-addr", "--dashboard-auth", "--dashboard-cert-dir"), True
    )


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        (["--dashboard-addr=0", "--concurrent=4"], ["--dashboard-addr=0"]),
        (
            ["--concurrent", "4", "--dashboard-addr", ":8090", "--dashboard-auth"],
            ["--dashboard-addr", ":8090", "--dashboard-auth"],
        ),
        (["--dashboard-auth", "true", "--namespace", "team"], ["--dashboard-auth", "true"]),
    ],
)
def test_flags_of_dashboard_and_operator_are_told_apart(given: list[str], ours: list[str]) -> None:
    assert split_flags(given)[0] == ours
    assert sorted([*split_flags(given)[0], *split_flags(given)[1]]) == sorted(given)


def test_a_token_for_the_metrics_needs_tls() -> None:
    with pytest.raises(SettingsError, match="a token must not travel in the clear"):
        parse(["--metrics-url=http://metrics:8080/metrics", "--metrics-token-file=/token"])


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
    assert parse(arguments).listen.port == 8090


@pytest.mark.parametrize("address", [":8090", "0.0.0.0:8090", "10.0.0.1:8090", "dashboard.example:8090", "[::]:8090"])
def test_other_addresses_need_authentication(address: str) -> None:
    with pytest.raises(SettingsError, match=r"listen on 127\.0\.0\.1, or require a token with --dashboard-auth"):
        parse([f"--dashboard-addr={address}"])


# --- viewers ----------------------------------------------------------------------------------------------------------


CONNECTION = Connection("https://api.example", FixedCredentials(Credential("Bearer ours")))


class Rules(AccessReviews):
    """AccessReviews that allow what a set of (verb, plural, namespace) says, and count the requests."""

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
    return await Authorizer(rules, CONNECTION, clock or VirtualClock()).viewer("good")


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
    authorizer = Authorizer(rules, CONNECTION, clock)

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
    authorizer = Authorizer(rules, CONNECTION, VirtualClock())

    assert [await authorizer.viewer(token) for token in ("", "x" * 20_000)] == [None, None]
    assert rules.asked == 0


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


# --- calls and followed objects ---------------------------------------------------------------------------------------


def test_calls_are_summed_over_methods_with_their_latency() -> None:
    registry = CollectorRegistry()
    metrics = ProviderMetrics(registry)
    for seconds in (0.1, 0.2, 0.3):
        metrics.started("Get", "team/aws")
        metrics.handled("Get", "team/aws", code="OK", reason="", seconds=seconds)
    metrics.started("Find", "team/aws")
    metrics.handled("Find", "team/aws", code="UNAVAILABLE", reason="X", seconds=3.0)
    metrics.started("Get", "team/aws")
    metrics.breaker("team/aws", "open")
    metrics.budgets(2)

    calls = calls_of(generate_latest(registry).decode())

    aws = calls.providers["team/aws"]
    assert (aws.calls, aws.failed, aws.breaker, aws.running) == (4, 1, "open", 1)
    assert aws.mean == pytest.approx(0.9)
    assert aws.high == 5.0
    assert calls.refused == 2
    assert (calls.of(("aws", "team/aws")).calls, calls.of(("gcp",)).calls) == (4, 0)


async def test_calls_that_are_not_known_are_named_with_what_to_do() -> None:
    unset = await OperatorMetrics(MetricsEndpoint(), VirtualClock()).calls()
    gone = await OperatorMetrics(MetricsEndpoint("http://127.0.0.1:1/metrics"), VirtualClock()).calls()

    assert "--metrics-url" in unset.unknown
    assert gone.unknown.startswith("Calls are not known: http://127.0.0.1:1/metrics cannot be read")


class Stores(FakeCollection):
    """SecretStores."""

    async def list_page(self, **query: Any) -> Page[Any]:
        page = await super().list_page(**query)
        return replace(page, items=[_store(each) for each in page.items])

    def decode(self, raw: bytes) -> Any:
        return _store(super().decode(raw))


def _store(obj: Any) -> Any:
    return msgspec.convert({**msgspec.to_builtins(obj), "spec": {"provider": {"fake": {}}}}, SECRET_STORE.type)


class NotInstalled(FakeCollection):
    async def list_page(self, **_: Any) -> Page[Any]:
        raise NotFound(404, "NotFound", "no such resource")


class OneKind(Client):
    """A cluster that has SecretStores only, and no Lease that may be read."""

    def __init__(self, stores: FakeCollection) -> None:
        self._stores = stores

    def source(self, kind: Kind[Any], *_: Any, **__: Any) -> Any:
        return self._stores if kind.resource == SECRET_STORE.resource() else NotInstalled()

    async def list(self, *_: Any, **__: Any) -> Page[Any]:
        raise Forbidden(403, "Forbidden", "no")


async def test_a_row_is_made_again_only_if_its_object_changed() -> None:
    clock, stores = VirtualClock(), Stores()
    followed = FollowedObjects(OneKind(stores), clock)
    stores.put("a")
    before = followed.stale()
    running = asyncio.ensure_future(followed.run())
    await clock.settle()
    first = await followed.overview()
    stores.put("b")
    await clock.settle()
    later = await followed.overview()
    running.cancel()

    assert (before, followed.stale()) == (
        "The objects are still being read. This page does not show all of them yet.",
        "",
    )
    assert [each.name for each in later.rows] == ["a", "b"]
    assert later.rows[0] is first.rows[0]
    assert {gap.why for gap in later.gaps} == {Missing.NOT_INSTALLED}


async def test_pages_say_how_old_they_are_while_the_api_server_does_not_answer() -> None:
    clock, stores = VirtualClock(), Stores()
    followed = FollowedObjects(OneKind(stores), clock)
    running = asyncio.ensure_future(followed.run())
    await clock.settle()
    current = clock.now() - followed.as_of()

    stores.refusals.extend(Unreachable("gone") for _ in range(1000))
    stores.disturb(Fault.CUT)
    await clock.advance(5)
    soon = followed.stale()
    await clock.advance(235)
    late, age = followed.stale(), clock.now() - followed.as_of()
    stores.refusals.clear()
    await clock.advance(60)
    again = followed.stale()
    running.cancel()

    assert (current.total_seconds(), soon) == (0, "")
    assert late == "The API server does not answer. This page shows the state of 4 min ago."
    assert 235 < age.total_seconds() <= 240
    assert again == ""
