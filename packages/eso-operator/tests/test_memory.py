"""Records of objects: which object gets which, and that forgetting and evicting undo the same."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from eso_operator.changes.followers import Followers, WatchedKey, topic_of
from eso_operator.controllers.externalsecret.record import ExternalSecretRecord
from eso_operator.controllers.pushsecret.ownership import Writes
from eso_operator.controllers.pushsecret.record import PushSecretRecord, RemoteKey, RemoteValue
from eso_operator.dependencies import ANY_PROVIDER, Dependant, Dependencies
from eso_operator.memory import Memory
from eso_operator.telemetry.subsystems import Subsystem
from eso_operator.wiring_controllers import EVICTED_SECONDS, Memories, requeue_evicted
from eso_testkit.operator.boundstores import bound_store
from eso_testkit.operator.pushsecrets import push_secret
from eso_wire.values import RemoteRef
from kubebase.meta import ObjectKey
from kubebase.testing.clock import VirtualClock
from kuberun.workqueue import WorkQueue

ONE, TWO, THREE = (ObjectKey("team", name) for name in ("one", "two", "three"))


@dataclass(slots=True, eq=False)
class Note:
    uid: str = ""
    text: str = ""


def test_an_object_never_gets_the_record_of_another_one_of_its_name() -> None:
    memory = Memory(Note)
    memory.of(ONE, "first").text = "of the first"

    assert memory.known(ONE, "second") is None
    assert memory.of(ONE, "second").text == ""
    assert memory.known(ONE, "first") is None


def test_a_record_that_was_made_by_name_becomes_that_of_the_object() -> None:
    memory = Memory(Note)
    memory.at(ONE).text = "kept"

    assert memory.of(ONE, "uid").text == "kept"


def test_a_plain_look_makes_no_record() -> None:
    memory = Memory(Note)

    assert (memory.find(ONE), memory.known(ONE, "uid"), len(memory)) == (None, None, 0)


@pytest.mark.parametrize(
    "another",
    [
        pytest.param(lambda memory: memory.forget(ONE), id="it is forgotten"),
        pytest.param(lambda memory: memory.evict_oldest(), id="it is evicted"),
        pytest.param(lambda memory: memory.of(TWO, "uid"), id="the bound evicts it"),
        pytest.param(lambda memory: memory.of(ONE, "another"), id="another object has its name"),
    ],
)
def test_every_way_to_lose_a_record_undoes_the_same(another: object) -> None:
    memory, undone = Memory(Note, limit=1), list[tuple[ObjectKey, str]]()
    memory.on_forget(lambda key, record: undone.append((key, record.text)))
    memory.of(ONE, "uid").text = "lost"

    another(memory)  # type: ignore[operator]  # one of the above

    assert undone == [(ONE, "lost")]


def test_index_entries_of_an_object_without_a_record_are_removed_too() -> None:
    memory, undone = Memory(Note), list[ObjectKey]()
    memory.on_forget(lambda key, _: undone.append(key))

    memory.forget(ONE)

    assert undone == [ONE]


def test_the_record_that_was_used_longest_ago_is_evicted() -> None:
    memory = Memory(Note, limit=2)
    memory.of(ONE, "1")
    memory.of(TWO, "2")
    memory.of(ONE, "1")

    memory.of(THREE, "3")

    assert [key in memory for key in (ONE, TWO, THREE)] == [True, False, True]


async def test_an_evicted_object_is_looked_at_again_after_a_while_and_no_index_points_to_it_before() -> None:
    memories = Memories(external_secrets=Memory(ExternalSecretRecord, limit=1))
    memory, clock = memories.external_secrets, VirtualClock()
    dependencies, followers = Dependencies(memories.by_controller), Followers(memory)
    queue = WorkQueue(clock)
    requeue_evicted(memories.by_controller[Subsystem.EXTERNAL_SECRET], queue)
    for key in (ONE, TWO):
        dependencies.record(Dependant(Subsystem.EXTERNAL_SECRET, key), [ANY_PROVIDER])
        followers.subscribe(key, [WatchedKey(bound_store(), {topic_of(RemoteRef("db")): ""})])

    (stream,) = followers.streams_of([TWO])
    assert dependencies.dependants(ANY_PROVIDER) == [Dependant(Subsystem.EXTERNAL_SECRET, TWO)]
    assert (followers.all_of(stream), len(followers)) == ([TWO], 1)
    assert queue.take_now() is None
    await clock.advance(EVICTED_SECONDS)
    assert (await queue.take()).key == ONE


def test_values_of_an_evicted_push_secret_are_not_compared_with_those_of_others() -> None:
    memory = Memory(PushSecretRecord, limit=1)
    writes, key = Writes(memory), RemoteKey("SecretStore/store", "db", "")
    one, two = (push_secret(metadata={"name": name, "uid": name}) for name in ("one", "two"))
    writes.wrote(one, {key: RemoteValue(b"1", "", value=b"1", order=1)}, {})
    writes.wrote(two, {key: RemoteValue(b"2", "", value=b"2", order=2)}, {})

    assert writes.values(one) == {}
    assert writes.conflicts(two.key, writes.values(two)) == []
