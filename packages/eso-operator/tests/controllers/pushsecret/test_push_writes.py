"""The effects of PushSecrets on each other's values, by the order of their writes."""

from __future__ import annotations

import pytest

from eso_api.pushsecret import PushSecret
from eso_operator.controllers.pushsecret.ownership import Decision, ValueConflict, Writes
from eso_operator.controllers.pushsecret.record import PushSecretRecord, RemoteKey, RemoteValue, shared_key
from eso_operator.memory import Memory
from eso_testkit.operator.pushsecrets import push_secret
from kubebase.meta import ObjectKey

STORE = "SecretStore/store"
WHOLE = RemoteKey(STORE, "db", "")
USER, PASSWORD = RemoteKey(STORE, "db", "user"), RemoteKey(STORE, "db", "password")
ONE, TWO, THREE = (ObjectKey("team-a", name) for name in ("one", "two", "three"))


class Scene:
    """Writes, one after the other; `woken` are the PushSecrets that were woken."""

    def __init__(self) -> None:
        self.writes = Writes(Memory(PushSecretRecord))
        self.woken: list[ObjectKey] = []
        self.writes.on_change(self.woken.append)

    def write(self, key: ObjectKey, value: str, remote: RemoteKey = WHOLE, version: str = "") -> None:
        self.woken.clear()
        order = self.writes.next_order()
        known = RemoteValue(b"push", version, value=value.encode(), order=order, made=version)
        self.writes.wrote(_push(key), {remote: known}, {})

    def withdraw(self, key: ObjectKey) -> None:
        self.woken.clear()
        self.writes.clear(_push(key))

    def decide(self, key: ObjectKey, remote: RemoteKey = WHOLE) -> Decision:
        return self.writes.decide(key, remote)

    def conflicts(self, key: ObjectKey) -> list[ValueConflict]:
        return list(self.writes.conflicts(key, self.writes.values(_push(key))))


def _push(key: ObjectKey) -> PushSecret:
    return push_secret(metadata={"namespace": key.namespace, "name": key.name})


def test_the_last_writer_holds_the_place_and_both_clash() -> None:
    scene = Scene()
    scene.write(ONE, "a")
    scene.write(TWO, "b")

    assert (scene.decide(ONE), scene.decide(TWO)) == (Decision.YIELD, Decision.KEEP)
    assert scene.conflicts(ONE) == [ValueConflict(WHOLE, (TWO,))]
    assert scene.conflicts(TWO) == [ValueConflict(WHOLE, (ONE,))]
    assert scene.woken == [ONE]


def test_equal_values_neither_clash_nor_wake_anybody() -> None:
    scene = Scene()
    scene.write(ONE, "a")
    scene.write(TWO, "a")

    assert (scene.decide(ONE), scene.decide(TWO)) == (Decision.KEEP, Decision.KEEP)
    assert (scene.conflicts(ONE), scene.conflicts(TWO), scene.woken) == ([], [], [])


def test_a_policy_that_accepts_any_value_never_clashes() -> None:
    """Under IfNotExists there is no digest to compare."""
    scene = Scene()
    scene.write(ONE, "")
    scene.write(TWO, "b")

    assert (scene.conflicts(ONE), scene.conflicts(TWO), scene.decide(ONE)) == ([], [], Decision.KEEP)


def test_a_value_is_free_again_when_the_last_writer_withdraws() -> None:
    scene = Scene()
    scene.write(ONE, "a")
    scene.write(TWO, "b")
    assert not scene.writes.has_freed(ONE)
    scene.withdraw(TWO)

    assert (scene.decide(ONE), scene.writes.has_freed(ONE), scene.woken) == (Decision.PUSH_AGAIN, True, [ONE])
    scene.write(ONE, "a")
    assert (scene.decide(ONE), scene.writes.has_freed(ONE)) == (Decision.KEEP, False)


def test_a_value_is_held_again_when_the_last_writer_comes_to_agree() -> None:
    scene = Scene()
    scene.write(ONE, "a")
    scene.write(TWO, "b")
    scene.write(TWO, "a")

    assert (scene.decide(ONE), scene.conflicts(ONE), scene.woken) == (Decision.KEEP, [], [ONE])


def test_an_earlier_writer_that_withdraws_frees_nothing() -> None:
    scene = Scene()
    scene.write(ONE, "a")
    scene.write(TWO, "b")
    scene.withdraw(ONE)

    assert (scene.decide(TWO), scene.conflicts(TWO), scene.woken) == (Decision.KEEP, [], [TWO])


def test_the_last_of_three_writers_decides() -> None:
    scene = Scene()
    for key, value in ((ONE, "a"), (TWO, "b"), (THREE, "a")):
        scene.write(key, value)

    assert [scene.decide(key) for key in (ONE, TWO, THREE)] == [Decision.KEEP, Decision.YIELD, Decision.KEEP]
    assert scene.conflicts(TWO) == [ValueConflict(WHOLE, (ONE, THREE))]


def test_one_more_writer_of_a_contended_place_wakes_no_object() -> None:
    """Thousands of children of one ClusterPushSecret may write one place."""
    scene = Scene()
    for key, value in ((ONE, "a"), (TWO, "b"), (THREE, "c")):
        scene.write(key, value)

    assert (scene.woken, scene.decide(TWO)) == ([], Decision.YIELD)


def test_a_change_that_leaves_them_different_wakes_no_object() -> None:
    scene = Scene()
    scene.write(ONE, "a")
    scene.write(TWO, "b")
    scene.write(TWO, "c")

    assert (scene.woken, scene.decide(ONE)) == ([], Decision.YIELD)


def test_later_versions_of_the_remote_key_are_expected_and_earlier_ones_are_not() -> None:
    scene = Scene()
    scene.write(ONE, "a", USER, "v1")
    scene.write(TWO, "b", PASSWORD, "v2")

    assert scene.writes.is_expected(ONE, USER, "v2")
    assert not scene.writes.is_expected(ONE, USER, "v3")
    assert not scene.writes.is_expected(TWO, PASSWORD, "v1")


def test_a_later_property_of_the_same_push_secret_makes_an_expected_version() -> None:
    """Without PUSH_GROUPED every property is a write of its own, and makes a version of its own."""
    scene = Scene()
    scene.write(ONE, "a", USER, "v1")
    scene.write(ONE, "b", PASSWORD, "v2")

    assert scene.writes.is_expected(ONE, USER, "v2")


def test_a_property_is_pushed_again_after_another_push_secret_wrote_the_whole() -> None:
    """The whole may not have it."""
    scene = Scene()
    scene.write(ONE, "a", USER)
    scene.write(TWO, "b", WHOLE)

    assert (scene.decide(ONE, USER), scene.writes.has_freed(ONE), scene.woken) == (Decision.PUSH_AGAIN, True, [ONE])
    scene.write(ONE, "a", USER)
    assert (scene.decide(ONE, USER), scene.decide(TWO), scene.woken) == (Decision.KEEP, Decision.KEEP, [])


def test_namespaced_stores_of_one_name_have_nothing_in_common() -> None:
    scene = Scene()
    scene.write(ONE, "a")
    scene.write(ObjectKey("team-b", "two"), "b")

    assert scene.conflicts(ONE) == []


SHARED = RemoteKey("ClusterSecretStore/store", "db", "")
NEIGHBOURS = [ObjectKey(f"team-{letter}", "push") for letter in "bcdef"]


@pytest.mark.parametrize("guess", [pytest.param("a", id="the same value"), pytest.param("b", id="another value")])
def test_across_namespaces_nothing_depends_on_the_values(guess: str) -> None:
    """A tenant could otherwise guess a value of another tenant."""
    scene, other = Scene(), NEIGHBOURS[0]
    scene.write(ONE, "a", SHARED, "v1")
    scene.write(other, guess, SHARED, "v2")

    assert scene.woken == [ONE]
    assert (scene.conflicts(ONE), scene.conflicts(other)) == (
        [ValueConflict(SHARED, (other,))],
        [ValueConflict(SHARED, (ONE,))],
    )
    assert scene.writes.is_expected(ONE, SHARED, "v2")
    assert scene.decide(ONE, SHARED) is Decision.YIELD
    assert not scene.writes.is_expected(other, SHARED, "v2")
    assert scene.decide(other, SHARED) is Decision.KEEP
    scene.withdraw(other)
    assert (scene.decide(ONE, SHARED), scene.writes.has_freed(ONE), scene.woken) == (Decision.PUSH_AGAIN, True, [ONE])


def test_across_namespaces_a_policy_that_accepts_any_value_never_clashes() -> None:
    scene, other = Scene(), NEIGHBOURS[0]
    scene.write(ONE, "", SHARED)
    scene.write(other, "b", SHARED)

    assert (scene.conflicts(ONE), scene.conflicts(other), scene.decide(ONE, SHARED)) == ([], [], Decision.KEEP)


def test_of_many_namespaces_only_those_whose_situation_changes_are_woken() -> None:
    """Thousands of children of one ClusterPushSecret may come and go."""
    scene, woken = Scene(), []
    for key in NEIGHBOURS:
        scene.write(key, "same", SHARED)
        woken.append(list(scene.woken))
    scene.withdraw(NEIGHBOURS[1])
    woken.append(list(scene.woken))
    scene.withdraw(NEIGHBOURS[-1])
    woken.append(list(scene.woken))

    assert woken == [[], [NEIGHBOURS[0]], [], [], [], [], [NEIGHBOURS[3]]]


def test_nothing_is_kept_of_push_secrets_that_withdrew() -> None:
    scene = Scene()
    scene.write(ONE, "a")
    scene.write(TWO, "b")
    scene.withdraw(TWO)
    scene.withdraw(ONE)

    assert (scene.writes._writers, scene.writes._overwritten) == ({}, {})


@pytest.mark.parametrize(
    ("outer", "inner", "contains"),
    [
        pytest.param("", "user", True, id="a property of the whole"),
        pytest.param("a", "a.b", True, id="a path below a property"),
        pytest.param("a", "ab", False, id="a name that begins alike"),
        pytest.param("a", "a", False, id="the same place"),
        pytest.param("user", "", False, id="the whole is not within a property"),
    ],
)
def test_places_within_places(outer: str, inner: str, contains: bool) -> None:
    one, other = RemoteKey(STORE, "db", outer), RemoteKey(STORE, "db", inner)

    assert one.contains(other) is contains
    assert one.overlaps(other) is (contains or outer == inner or not inner)
    assert not one.overlaps(RemoteKey(STORE, "other", inner))


@pytest.mark.parametrize(
    ("store", "namespace"),
    [
        pytest.param("SecretStore/s", "team-a", id="a namespaced store"),
        pytest.param("ClusterSecretStore/s", "", id="a cluster-scoped store"),
        pytest.param("fake.example.com/ClusterFake/s", "", id="a provider's own cluster-scoped kind"),
    ],
)
def test_a_remote_key_belongs_to_the_namespace_of_its_store(store: str, namespace: str) -> None:
    assert shared_key(RemoteKey(store, "db", "p"), "team-a") == (namespace, RemoteKey(store, "db", ""))
