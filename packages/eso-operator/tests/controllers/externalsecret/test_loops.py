"""The refreshes that count as turns of a loop, and those that do not."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from eso_api.externalsecret import ExternalSecret
from eso_api.values import SecretBytes
from eso_operator.controllers.contention import NOT_CONTENDED, Contended, PushedKey
from eso_operator.controllers.externalsecret.checks import refresh_due
from eso_operator.controllers.externalsecret.controller import target_of
from eso_operator.controllers.externalsecret.loops import CHANGING_ROUNDS, LOOP_ROUNDS, PACE_SECONDS, Loops
from eso_operator.controllers.externalsecret.status import Synced, report_of
from eso_operator.controllers.refresh import NotDue
from eso_operator.sources.entries import ReadEntry, entries_of
from eso_operator.sources.fetch import Fetched
from eso_operator.targets.metadata import TARGET_INDEX, field_manager_of
from eso_operator.targets.target import Overwritten
from eso_operator.wiring_controllers import Memories
from eso_testkit.operator.externalsecrets import entry, external_secret, snapshot, synced
from kubebase.meta import Condition, Object, ObjectKey
from kubebase.testing.clock import START
from kuberun.cache import Cache
from kuberun.controller import Requeue
from kuberun.watch import Applied, Deleted

TARGET = {"name": "shared", "creationPolicy": "Merge"}
PUSH = ObjectKey("default", "back")


class Scene:
    """ExternalSecrets of one namespace, and what PushSecrets have pushed from Secrets."""

    def __init__(self, *objects: ExternalSecret) -> None:
        by_namespace = {"namespace": lambda es: [es.metadata.namespace]}
        self.objects: Cache[ExternalSecret] = Cache({TARGET_INDEX: target_of, **by_namespace})
        for each in objects:
            self.objects.apply(Applied(each))
        self.memory = Memories().external_secrets
        self.pushed: dict[str, list[PushedKey]] = {}
        self.woken: list[ObjectKey] = []
        self._order = 0
        secrets: Cache[Object] = Cache()
        self.loops = Loops(
            self.objects,
            secrets,
            self.memory,
            pushed_from=lambda secret, _: self.pushed.get(secret.name, []),
            next_order=self.order,
        )
        self.loops.listen(self.woken.append)

    def order(self) -> int:
        self._order += 1
        return self._order

    def push(self, secret: str, remote_key: str, by: ObjectKey = PUSH) -> None:
        self.pushed[secret] = [PushedKey("SecretStore/store", remote_key, by, self.order())]

    def overwrite(self, es: ExternalSecret, value: str, *others: str) -> Contended | None:
        """Refresh, and overwrite what the others wrote."""
        managers = frozenset(map(field_manager_of, others))
        overwritten = Overwritten(frozenset({"password"}), managers, value) if others else None
        self.loops.refreshed(es, Fetched({}), Synced(changed=True, overwritten=overwritten), START)
        return self.loops.verdict(es)

    def refresh(self, es: ExternalSecret, *, changed: bool = True, **values: str) -> Contended | None:
        """Refresh with these values, by the secret key of their entries."""
        wants = [want for want in entries_of(es.spec) if getattr(want, "key", "") in values]
        read = tuple(ReadEntry(want, SecretBytes(values[want.key].encode())) for want in wants)  # type: ignore[union-attr]  # entries of data
        self.loops.refreshed(es, Fetched({}, read=read), Synced(changed=changed), START)
        return self.loops.verdict(es)


def writer(name: str, **fields: Any) -> ExternalSecret:
    return external_secret(target=TARGET, metadata={"name": name, "uid": f"uid-{name}"}, **fields)


def reader(name: str, **keys: str) -> ExternalSecret:
    entries = [entry(key, remote) for key, remote in keys.items()]
    return external_secret(metadata={"name": name, "uid": f"uid-{name}"}, data=entries)


def reason(found: Contended | None) -> str | None:
    return None if found is None else found.reason


# --- different values -------------------------------------------------------------------------------------------------


def test_the_same_value_over_that_of_another_again_and_again_is_a_loop() -> None:
    one, two = writer("one"), writer("two")
    scene = Scene(one, two)

    reasons = [reason(scene.overwrite(one, "v", "two")) for _ in range(LOOP_ROUNDS)]

    assert reasons == [""] * (LOOP_ROUNDS - 1) + ["DifferentValues"]
    found = scene.loops.verdict(one) or NOT_CONTENDED
    assert "ExternalSecret two also writes key password of Secret shared" in found.message


def test_a_new_value_each_time_is_a_rotation_until_it_goes_on_for_long() -> None:
    one, two = writer("one"), writer("two")
    scene = Scene(one, two)

    reasons = [reason(scene.overwrite(one, str(number), "two")) for number in range(CHANGING_ROUNDS)]

    assert reasons == [""] * (CHANGING_ROUNDS - 1) + ["DifferentValues"]


def test_a_refresh_that_overwrites_nothing_ends_the_loop() -> None:
    one, two = writer("one"), writer("two")
    scene = Scene(one, two)
    for _ in range(LOOP_ROUNDS):
        scene.overwrite(one, "v", "two")

    assert scene.overwrite(one, "v") is NOT_CONTENDED
    assert scene.memory.of(one.key, one.metadata.uid).held_until is None
    assert scene.overwrite(one, "v", "two") is NOT_CONTENDED


def test_values_of_a_deleted_external_secret_do_not_count() -> None:
    one = writer("one")
    scene = Scene(one)

    assert [scene.overwrite(one, "v", "two") for _ in range(LOOP_ROUNDS)] == [NOT_CONTENDED] * LOOP_ROUNDS


def test_the_loop_is_over_when_the_other_one_is_gone() -> None:
    one, two = writer("one"), writer("two")
    scene = Scene(one, two)
    for _ in range(LOOP_ROUNDS):
        scene.overwrite(one, "v", "two")

    scene.objects.apply(Deleted(two))

    assert scene.loops.verdict(one) is NOT_CONTENDED


def test_one_that_only_restores_its_keys_is_in_the_loop_too() -> None:
    one, two, three = writer("one"), writer("two"), writer("three")
    scene = Scene(one, two, three)
    for _ in range(LOOP_ROUNDS):
        scene.overwrite(one, "v", "two")

    assert (reason(scene.loops.verdict(two)), scene.loops.verdict(three)) == ("DifferentValues", None)


def test_after_a_restart_a_loop_that_goes_on_stays_reported_and_the_unknown_is_left_alone() -> None:
    before = [Condition(type="Contended", status="True", reason="DifferentValues", message="before")]
    one = synced(writer("one"), conditions=before)
    scene = Scene(one, writer("two"))

    assert scene.loops.verdict(one) is None
    assert reason(scene.overwrite(one, "v", "two")) == "DifferentValues"


def test_keys_that_a_template_computed_are_not_named() -> None:
    """They may contain values."""
    one, two = writer("one", data=[entry("other", "db")]), writer("two")
    scene = Scene(one, two)

    found = [scene.overwrite(one, "v", "two") for _ in range(LOOP_ROUNDS)][-1]

    assert found is not None
    assert "ExternalSecret two also writes keys of Secret shared" in found.message


# --- feeding itself ---------------------------------------------------------------------------------------------------


def restart_slot(scene: Scene, es: ExternalSecret, number: int, *, remote_key: str = "db") -> Contended | None:
    """The target changed; it is pushed, and read again."""
    found = scene.refresh(es, value="+" * number)
    scene.push(es.metadata.name, remote_key)
    return found


def test_a_value_that_is_pushed_and_read_with_a_change_is_a_loop() -> None:
    app = reader("app", value="db")
    scene = Scene(app)
    scene.push("app", "db")

    reasons = [reason(restart_slot(scene, app, number)) for number in range(LOOP_ROUNDS + 1)]

    assert reasons == [""] * LOOP_ROUNDS + ["FeedsItself"]
    assert (scene.loops.fed_by(PUSH), scene.woken) == ([app.key], [PUSH])
    assert scene.refresh(app, changed=False, value="x") is NOT_CONTENDED
    assert (scene.loops.fed_by(PUSH), scene.woken) == ([], [PUSH, PUSH])


def test_a_loop_leads_through_other_targets_of_the_namespace() -> None:
    app, other = reader("app", value="db"), reader("other", value="there")
    scene = Scene(app, other)

    for number in range(LOOP_ROUNDS + 1):
        scene.refresh(app, value="+" * number)
        scene.push("app", "there")
        scene.push("other", "db", ObjectKey("default", "last"))

    found = scene.refresh(app, value="+" * 9) or NOT_CONTENDED
    assert found.reason == "FeedsItself"
    assert "PushSecret last" in found.message


@pytest.mark.parametrize(
    ("remote_key", "pushes"),
    [
        pytest.param("copy", True, id="pushed where it is not read"),
        pytest.param("db", False, id="read where others write"),
    ],
)
def test_changes_that_come_from_elsewhere_are_no_loop(remote_key: str, pushes: bool) -> None:
    app = reader("app", value="db")
    scene = Scene(app)
    scene.push("app", remote_key)

    for number in range(CHANGING_ROUNDS):
        found = scene.refresh(app, value=str(number))
        if pushes:
            scene.push("app", remote_key)

        assert found is NOT_CONTENDED


def test_a_change_of_another_value_that_is_read_is_no_turn() -> None:
    app = reader("app", value="db", token="token")
    scene = Scene(app)
    scene.push("app", "db")

    for number in range(CHANGING_ROUNDS):
        found = scene.refresh(app, value=str(number), token=str(number))
        scene.push("app", "db")

        assert found is NOT_CONTENDED


def test_an_edit_of_the_external_secret_starts_the_count_again() -> None:
    app = reader("app", value="db")
    scene = Scene(app)
    scene.push("app", "db")
    for number in range(LOOP_ROUNDS + 1):
        restart_slot(scene, app, number)
    meta = msgspec.structs.replace(app.metadata, generation=2)

    edited = msgspec.structs.replace(app, metadata=meta)

    assert restart_slot(scene, edited, 9) is NOT_CONTENDED


def test_nothing_is_kept_of_a_forgotten_object() -> None:
    app = reader("app", value="db")
    scene = Scene(app)
    scene.push("app", "db")
    for number in range(LOOP_ROUNDS + 1):
        restart_slot(scene, app, number)

    scene.memory.forget(app.key)

    assert (scene.loops.fed_by(PUSH), scene.loops._fed) == ([], {})


# --- the pace ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "waits"),
    [
        pytest.param(timedelta(0), PACE_SECONDS, id="at once"),
        pytest.param(timedelta(seconds=50), PACE_SECONDS - 50, id="shortly before its time"),
    ],
)
@pytest.mark.parametrize("before", [None, 1.0], ids=["its interval has passed", "its backend announced a change"])
def test_an_object_in_a_loop_refreshes_at_its_pace(after: timedelta, waits: float, before: float | None) -> None:
    es = synced(external_secret(refreshInterval="1s"), START - timedelta(seconds=5))
    held = START + timedelta(seconds=PACE_SECONDS)

    due = refresh_due(snapshot(es, START + after, held_until=held, notified_at=before))

    assert due == NotDue("it is fresh", waits)


def test_an_edited_object_in_a_loop_refreshes_at_once() -> None:
    es = synced(external_secret(refreshInterval="1s"))
    edited = msgspec.structs.replace(es, metadata=msgspec.structs.replace(es.metadata, generation=2))

    due = refresh_due(snapshot(edited, held_until=START + timedelta(seconds=PACE_SECONDS)))

    assert not isinstance(due, NotDue)


def test_an_object_in_a_loop_is_looked_at_again_soon() -> None:
    """Nothing else notices that the loop is over."""
    found = Contended("DifferentValues", "why")

    report = report_of(snapshot(synced(external_secret(refreshInterval="1h"))), NotDue("it is fresh", 3000.0), found)

    assert isinstance(report.result, Requeue)
    assert report.result.delay == PACE_SECONDS
    assert [each.reason for each in report.events] == ["Contended"]
