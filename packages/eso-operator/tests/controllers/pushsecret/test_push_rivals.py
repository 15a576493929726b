"""The effects of PushSecrets on each other's values, by the order of their writes."""

from __future__ import annotations

import pytest

from eso_operator.controllers.pushsecret.ownership import UNSHARED, Clash, Footing, Rivals, Standing
from eso_operator.controllers.pushsecret.record import Known, Place, RemoteKey
from kubebase.meta import ObjectKey

STORE = "SecretStore/store"
WHOLE = Place(STORE, "db", "")
USER, PASSWORD = Place(STORE, "db", "user"), Place(STORE, "db", "password")
ONE, TWO, THREE = (ObjectKey("team-a", name) for name in ("one", "two", "three"))


class Scene:
    """Writes, one after the other; `woken` are the PushSecrets that were woken."""

    def __init__(self) -> None:
        self.rivals = Rivals()
        self.woken: list[ObjectKey] = []
        self.rivals.listen(self.woken.append)
        self._values: dict[ObjectKey, dict[Place, Known]] = {}

    def write(self, key: ObjectKey, value: str, place: Place = WHOLE, version: str = "") -> None:
        known = Known(b"push", version, value=value.encode(), order=self.rivals.next_order(), made=version)
        self._replace(key, {**self._values.get(key, {}), place: known})

    def withdraw(self, key: ObjectKey) -> None:
        self._replace(key, {})

    def standing(self, key: ObjectKey, place: Place = WHOLE) -> Standing:
        return self.rivals.footing(key, place).standing

    def clashes(self, key: ObjectKey) -> list[Clash]:
        return list(self.rivals.clashes(key, self._values.get(key, {})))

    def _replace(self, key: ObjectKey, values: dict[Place, Known]) -> None:
        self.woken.clear()
        self.rivals.update(key, self._values.get(key, {}), values)
        self._values[key] = values


def test_the_last_writer_holds_the_place_and_both_clash() -> None:
    scene = Scene()
    scene.write(ONE, "a")
    scene.write(TWO, "b")

    assert (scene.standing(ONE), scene.standing(TWO)) == (Standing.LOST, Standing.HELD)
    assert scene.clashes(ONE) == [Clash(WHOLE, (TWO,))]
    assert scene.clashes(TWO) == [Clash(WHOLE, (ONE,))]
    assert scene.woken == [ONE]


def test_equal_values_neither_clash_nor_wake_anybody() -> None:
    scene = Scene()
    scene.write(ONE, "a")
    scene.write(TWO, "a")

    assert (scene.standing(ONE), scene.standing(TWO)) == (Standing.HELD, Standing.HELD)
    assert (scene.clashes(ONE), scene.clashes(TWO), scene.woken) == ([], [], [])


def test_a_policy_that_accepts_any_value_never_clashes() -> None:
    """Under IfNotExists there is no digest to compare."""
    scene = Scene()
    scene.write(ONE, "")
    scene.write(TWO, "b")

    assert (scene.clashes(ONE), scene.clashes(TWO), scene.standing(ONE)) == ([], [], Standing.HELD)


def test_a_value_is_free_again_when_the_last_writer_withdraws() -> None:
    scene = Scene()
    scene.write(ONE, "a")
    scene.write(TWO, "b")
    assert not scene.rivals.freed(ONE)
    scene.withdraw(TWO)

    assert (scene.standing(ONE), scene.rivals.freed(ONE), scene.woken) == (Standing.FREED, True, [ONE])
    scene.write(ONE, "a")
    assert (scene.standing(ONE), scene.rivals.freed(ONE)) == (Standing.HELD, False)


def test_a_value_is_held_again_when_the_last_writer_comes_to_agree() -> None:
    scene = Scene()
    scene.write(ONE, "a")
    scene.write(TWO, "b")
    scene.write(TWO, "a")

    assert (scene.standing(ONE), scene.clashes(ONE), scene.woken) == (Standing.HELD, [], [ONE])


def test_an_earlier_writer_that_withdraws_frees_nothing() -> None:
    scene = Scene()
    scene.write(ONE, "a")
    scene.write(TWO, "b")
    scene.withdraw(ONE)

    assert (scene.standing(TWO), scene.clashes(TWO), scene.woken) == (Standing.HELD, [], [TWO])


def test_the_last_of_three_writers_decides() -> None:
    scene = Scene()
    for key, value in ((ONE, "a"), (TWO, "b"), (THREE, "a")):
        scene.write(key, value)

    assert [scene.standing(key) for key in (ONE, TWO, THREE)] == [Standing.HELD, Standing.LOST, Standing.HELD]
    assert scene.clashes(TWO) == [Clash(WHOLE, (ONE, THREE))]


def test_one_more_writer_of_a_contended_place_wakes_no_object() -> None:
    """Thousands of children of one ClusterPushSecret may write one place."""
    scene = Scene()
    for key, value in ((ONE, "a"), (TWO, "b"), (THREE, "c")):
        scene.write(key, value)

    assert (scene.woken, scene.standing(TWO)) == ([], Standing.LOST)


def test_a_change_that_leaves_them_different_wakes_no_object() -> None:
    scene = Scene()
    scene.write(ONE, "a")
    scene.write(TWO, "b")
    scene.write(TWO, "c")

    assert (scene.woken, scene.standing(ONE)) == ([], Standing.LOST)


def test_later_versions_of_the_remote_key_are_expected_and_earlier_ones_are_not() -> None:
    scene = Scene()
    scene.write(ONE, "a", USER, "v1")
    scene.write(TWO, "b", PASSWORD, "v2")

    assert scene.rivals.footing(ONE, USER, "v2") == Footing(expected=True)
    assert scene.rivals.footing(ONE, USER, "v3") == UNSHARED
    assert scene.rivals.footing(TWO, PASSWORD, "v1") == UNSHARED


def test_a_later_property_of_the_same_push_secret_makes_an_expected_version() -> None:
    """Without PUSH_GROUPED every property is a write of its own, and makes a version of its own."""
    scene = Scene()
    scene.write(ONE, "a", USER, "v1")
    scene.write(ONE, "b", PASSWORD, "v2")

    assert scene.rivals.footing(ONE, USER, "v2") == Footing(expected=True)


def test_a_property_is_pushed_again_after_another_push_secret_wrote_the_whole() -> None:
    """The whole may not have it."""
    scene = Scene()
    scene.write(ONE, "a", USER)
    scene.write(TWO, "b", WHOLE)

    assert (scene.standing(ONE, USER), scene.rivals.freed(ONE), scene.woken) == (Standing.FREED, True, [ONE])
    scene.write(ONE, "a", USER)
    assert (scene.standing(ONE, USER), scene.standing(TWO), scene.woken) == (Standing.HELD, Standing.HELD, [])


def test_namespaced_stores_of_one_name_have_nothing_in_common() -> None:
    scene = Scene()
    scene.write(ONE, "a")
    scene.write(ObjectKey("team-b", "two"), "b")

    assert scene.clashes(ONE) == []


SHARED = Place("ClusterSecretStore/store", "db", "")
NEIGHBOURS = [ObjectKey(f"team-{letter}", "push") for letter in "bcdef"]


@pytest.mark.parametrize("guess", [pytest.param("a", id="the same value"), pytest.param("b", id="another value")])
def test_across_namespaces_nothing_depends_on_the_values(guess: str) -> None:
    """A tenant could otherwise guess a value of another tenant."""
    scene, other = Scene(), NEIGHBOURS[0]
    scene.write(ONE, "a", SHARED, "v1")
    scene.write(other, guess, SHARED, "v2")

    assert scene.woken == [ONE]
    assert (scene.clashes(ONE), scene.clashes(other)) == ([Clash(SHARED, (other,))], [Clash(SHARED, (ONE,))])
    assert scene.rivals.footing(ONE, SHARED, "v2") == Footing(Standing.LOST, expected=True)
    assert scene.rivals.footing(other, SHARED, "v2") == Footing(Standing.HELD)
    scene.withdraw(other)
    assert (scene.standing(ONE, SHARED), scene.rivals.freed(ONE), scene.woken) == (Standing.FREED, True, [ONE])


def test_across_namespaces_a_policy_that_accepts_any_value_never_clashes() -> None:
    scene, other = Scene(), NEIGHBOURS[0]
    scene.write(ONE, "", SHARED)
    scene.write(other, "b", SHARED)

    assert (scene.clashes(ONE), scene.clashes(other), scene.standing(ONE, SHARED)) == ([], [], Standing.HELD)


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

    assert (scene.rivals._keys, scene.rivals._overwritten) == ({}, {})


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
    one, other = Place(STORE, "db", outer), Place(STORE, "db", inner)

    assert one.contains(other) is contains
    assert one.overlaps(other) is (contains or outer == inner or not inner)
    assert not one.overlaps(Place(STORE, "other", inner))


@pytest.mark.parametrize(
    ("store", "namespace"),
    [
        pytest.param("SecretStore/s", "team-a", id="a namespaced store"),
        pytest.param("ClusterSecretStore/s", "", id="a cluster-scoped store"),
        pytest.param("fake.example.com/ClusterFake/s", "", id="a provider's own cluster-scoped kind"),
    ],
)
def test_a_remote_key_belongs_to_the_namespace_of_its_store(store: str, namespace: str) -> None:
    assert RemoteKey.of(Place(store, "db", "p"), "team-a") == RemoteKey(namespace, store, "db")
