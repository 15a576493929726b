"""Status as a difference: one patch or none."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from kubebase.meta import Condition, Kind, Object, ObjectMeta
from kubebase.testing.clock import START
from kuberun.client import Client
from kuberun.connection import Connection, Credential, FixedCredentials
from kuberun.errors import Conflict
from kuberun.status import is_stale, set_condition, status_patch, write_status
from kuberun.testing import scriptedserver as script
from kuberun.testing.builders import WIDGETS, metadata
from kuberun.testing.scriptedserver import ScriptedServer, scripted_server
from kuberun.transport import AiohttpTransport


class Status(msgspec.Struct, omit_defaults=True, rename="camel"):
    conditions: list[Condition] = []
    refresh_time: str | None = None
    counts: dict[str, int] = {}


class Widget(Object, kw_only=True):
    status: Status = msgspec.field(default_factory=Status)


WIDGET = Kind(WIDGETS, Widget)
READY = Condition(type="Ready", status="True")


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as running:
        running.will(script.json({"metadata": {"name": "one"}}))
        yield running


@pytest.fixture
async def client(server: ScriptedServer) -> AsyncIterator[Client]:
    made = Client(AiohttpTransport(Connection(server.url, FixedCredentials(Credential()))))
    yield made
    await made.close()


def widget(**status: Any) -> Widget:
    return Widget(metadata=metadata(resource_version="7"), status=Status(**status))


async def test_all_changes_of_a_status_are_one_patch(server: ScriptedServer, client: Client) -> None:
    obj = widget(refresh_time="then", counts={"a": 1, "b": 1})

    new = Status(conditions=set_condition([], READY, START), counts={"a": 1, "b": 2})
    written = await write_status(client, WIDGET, obj, new)

    assert written.metadata.name == "one"
    (received,) = server.received
    assert received.method == "PATCH"
    assert received.target == "/apis/example.com/v1/namespaces/default/widgets/one/status"
    assert received.headers["Content-Type"] == "application/merge-patch+json"
    assert received.json == {
        "metadata": {"resourceVersion": "7"},
        "status": {
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2030-01-01T00:00:00Z"}],
            "refreshTime": None,
            "counts": {"b": 2},
        },
    }


async def test_nothing_changed_nothing_sent(server: ScriptedServer, client: Client) -> None:
    obj = widget(conditions=set_condition([], READY, START), counts={"a": 1})

    new = Status(conditions=set_condition(obj.status.conditions, READY, START), counts={"a": 1})
    written = await write_status(client, WIDGET, obj, new)

    assert written is obj
    assert server.received == []


async def test_a_conflict_is_for_the_controller_to_retry(server: ScriptedServer, client: Client) -> None:
    server.responses.clear()
    server.will(script.failure(409, "Conflict"))

    with pytest.raises(Conflict):
        await write_status(client, WIDGET, widget(), Status(refresh_time="now"))

    assert len(server.received) == 1


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(None, {"a": 1}, {"a": 1}, id="no status before"),
        pytest.param({"a": 1}, None, {"a": None}, id="no status after"),
        pytest.param(None, {}, None, id="an empty one is none"),
        pytest.param(Status(), Status(refresh_time="now"), {"refreshTime": "now"}, id="typed"),
    ],
)
def test_the_patch_of_two_statuses(old: Any, new: Any, expected: Any) -> None:
    patch = status_patch(ObjectMeta(name="x", resource_version="7"), old, new)

    assert patch == (None if expected is None else {"metadata": {"resourceVersion": "7"}, "status": expected})


@pytest.mark.parametrize(
    ("written", "seen", "behind"),
    [
        pytest.param("5", "5", True, id="the version written on"),
        pytest.param("12", "5", True, id="two writes while the cache heard of none"),
        pytest.param("5", "12", False, id="the write, or a later one"),
        pytest.param("b", "a", False, id="versions without an order"),
        pytest.param("b", "b", True, id="versions without an order, the one written on"),
    ],
)
def test_a_cache_is_behind_every_write_of_ours_it_has_not_heard_of(*, written: str, seen: str, behind: bool) -> None:
    assert is_stale(seen, written) is behind
