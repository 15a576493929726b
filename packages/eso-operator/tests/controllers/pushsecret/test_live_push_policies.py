"""updatePolicy, deletionPolicy and what keeps foreign values safe, on a live API server."""

from dataclasses import replace
from typing import Any

import pytest

from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_testkit.operator.pushsecrets import entry
from eso_testkit.operator.samples import samples_of
from eso_testkit.operator.storingprovider import WRITES, denied, storing
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Operation, PushPrecondition
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import SECRETS

pytestmark = pytest.mark.live

PUSHES = PUSH_SECRET.resource()
STORES = SECRET_STORE.resource()
FINALIZER = "pushsecret.externalsecrets.io/finalizer"


@pytest.mark.parametrize(
    "before", [pytest.param("", id="nothing there"), pytest.param("x", id="a foreign value there")]
)
@pytest.mark.parametrize("delete", ["Delete", "None"])
@pytest.mark.parametrize("update", ["Replace", "IfNotExists"])
async def test_update_and_deletion_policy(staged: Any, update: str, delete: str, before: str) -> None:
    """R1, R2, R3, R4, R5, R17: the values before the PushSecret, while it exists, and after its deletion."""
    ours = update == "Replace" or not before
    during = {"db": b"p" if ours else b"x"}
    after = {} if ours and delete == "Delete" else during
    async with staged() as stage:
        if before:
            stage.provider.put("db", b"x")
        await stage.source(password="p")

        found = await stage.push("db", entry("password", "db"), updatePolicy=update, deletionPolicy=delete)
        assert stage.provider.values == during
        assert (FINALIZER in found["metadata"].get("finalizers", [])) is (delete == "Delete")
        await stage.bench.delete(PUSHES, "db")
        await stage.gone("db")

        assert stage.provider.values == after


async def test_existing_values_are_kept_and_reported(staged: Any) -> None:
    """R3, R8; seed 2: only missing values are pushed; a condition names the others, which are not recorded as ours."""
    async with staged() as stage:
        stage.provider.put("old", b"theirs")
        await stage.source(password="p")

        found = await stage.push(
            "db",
            entry("password", "old"),
            entry("password", "new"),
            updatePolicy="IfNotExists",
            deletionPolicy="Delete",
        )

        assert stage.provider.values == {"old": b"theirs", "new": b"p"}
        assert {item.precondition for item in stage.provider.pushes[0].items} == {PushPrecondition.IF_ABSENT}
        exists = await stage.condition("db", "SecretAlreadyExists")
        assert exists is not None
        assert (exists["status"], "old" in exists["message"], "new" in exists["message"]) == ("True", True, False)
        assert list(found["status"]["syncedPushSecrets"]["SecretStore/store"]) == ["new"]
        del stage.provider.stored["old"]
        await stage.force("db")
        await stage.holds(old="p", new="p")
        await eventually(lambda: _without(stage, "SecretAlreadyExists"), "the condition stays")


async def _without(stage: Any, type_: str) -> bool:
    return await stage.condition("db", type_) is None


async def test_without_create_only_a_check_comes_first_and_the_weaker_guarantee_is_stated(staged: Any) -> None:
    async with staged(storing(operations=WRITES | {Operation.EXISTS})) as stage:
        stage.provider.put("old", b"theirs")
        await stage.source(password="p")

        await stage.apply("db", entry("password", "old"), entry("password", "new"), updatePolicy="IfNotExists")

        await stage.ready("db", "SecretStore store cannot create atomically")
        assert stage.provider.values == {"old": b"theirs", "new": b"p"}
        assert stage.provider.calls["CheckSecrets"] == 1


async def test_a_check_that_fails_pushes_nothing(staged: Any) -> None:
    """Seed 3, E12."""
    provider = storing(operations=WRITES | {Operation.EXISTS}, check_errors={"one": denied("one")})
    async with staged(provider) as stage:
        await stage.source(password="p")
        await stage.apply("db", entry("password", "one"), entry("password", "two"), updatePolicy="IfNotExists")

        await stage.broken("db", "AccessDenied", "one")

        assert (provider.pushes, provider.values) == ([], {})


@pytest.mark.parametrize(
    ("operations", "spec", "words"),
    [
        pytest.param(WRITES, {"updatePolicy": "IfNotExists"}, "IfNotExists", id="neither create only nor check"),
        pytest.param(WRITES - {Operation.DELETE}, {"deletionPolicy": "Delete"}, "DELETE", id="no deletion"),
        pytest.param(WRITES - {Operation.PUSH}, {}, "PUSH", id="no push at all"),
        pytest.param(
            WRITES - {Operation.PUSH_WHOLE_SECRET},
            {"data": [entry("", "whole")]},
            "PUSH_WHOLE_SECRET",
            id="no whole Secrets",
        ),
    ],
)
async def test_a_policy_that_a_provider_cannot_follow_is_not_implemented(
    staged: Any, operations: Any, spec: Any, words: str
) -> None:
    """R7: reported before anything is written."""
    async with staged(storing(operations=operations)) as stage:
        await stage.source(password="p")
        await stage.apply("db", entry("password", "db"), **spec)

        found = await stage.broken("db", "NotImplemented", words)

        assert stage.provider.values == {}
        assert found["status"]["outcomes"][0]["reason"] == "NotImplemented"


async def test_only_entries_that_push_a_whole_secret_are_blamed_for_it(staged: Any) -> None:
    async with staged(storing(operations=WRITES - {Operation.PUSH_WHOLE_SECRET})) as stage:
        await stage.source(password="p")
        await stage.apply("db", entry("password", "db"), entry("", "whole"))

        found = await stage.broken("db", "NotImplemented", "cannot take a whole Secret")

        said = {outcome["remoteKey"]: outcome["message"] for outcome in found["status"]["outcomes"]}
        assert set(said) == {"db", "whole"}
        for message in said.values():
            assert "which is what spec.data[1] would push, so nothing is pushed there" in message
        assert stage.provider.values == {}


# --- ownership --------------------------------------------------------------------------------------------------------


async def test_a_value_without_our_mark_is_neither_overwritten_nor_deleted(staged: Any) -> None:
    """The condition says which remote key it is and what to do."""
    async with staged() as stage:
        stage.provider.put("app/db", b"theirs", "terraform")
        await stage.source(password="p")

        await stage.apply("db", entry("password", "app/db"), deletionPolicy="Delete")
        sentence = 'remote key "app/db" exists and was not created by External Secrets'
        await stage.broken("db", "Conflict", f"{sentence}; delete it or choose another remoteKey")
        await stage.bench.delete(PUSHES, "db")
        await stage.gone("db")

        assert stage.provider.values == {"app/db": b"theirs"}


async def test_pushed_values_carry_the_mark_of_the_existing_operator(staged: Any) -> None:
    """`managed-by: external-secrets`, whichever PushSecret they come from; deletions name it too."""
    async with staged() as stage:
        await stage.source(password="p")
        await stage.push("one", entry("password", "one"), deletionPolicy="Delete")
        await stage.push("two", entry("password", "two"), deletionPolicy="Delete")
        owners = {kept.owner for kept in stage.provider.stored.values()}
        await stage.bench.delete(PUSHES, "one")
        await stage.gone("one")

        assert owners == {"external-secrets"}
        assert {item.owner_token for batch in stage.provider.deletions for item in batch.items} == {"external-secrets"}


async def test_a_record_of_what_is_not_ours_does_not_delete_it(staged: Any) -> None:
    """The existing operator records what it skipped as its own; the owner's mark protects it then."""
    async with staged() as stage:
        stage.provider.put("foreign", b"theirs", "another")
        await stage.source(password="p")
        await stage.push("db", entry("password", "db"), deletionPolicy="Delete", refreshInterval="0")
        status = {"syncedPushSecrets": {"SecretStore/store": {"foreign": entry("password", "foreign")}}}
        path = PUSHES.path(stage.bench.namespace, "db") + "/status"
        assert (await stage.bench.api.patch(path, {"status": status})).status == 200

        await stage.bench.delete(PUSHES, "db")
        await stage.gone("db")

        assert stage.provider.values == {"foreign": b"theirs"}
        await stage.event("db", "Normal", "LeftAlone", "foreign")


async def test_a_push_secret_that_is_created_again_still_owns_its_values(staged: Any) -> None:
    async with staged() as stage:
        await stage.source(password="one")
        await stage.push("db", entry("password", "db"))
        await stage.bench.delete(PUSHES, "db")
        await stage.gone("db")
        await stage.edit(password="two")

        await stage.push("db", entry("password", "db"))

        assert stage.provider.values == {"db": b"two"}


# --- compare before write ---------------------------------------------------------------------------------------------


async def test_an_unchanged_value_is_not_pushed_again(staged: Any) -> None:
    """Interval after interval the backend is asked, and not written to; the status is not written either."""
    async with staged() as stage:
        await stage.source(password="p")
        await stage.push("db", entry("password", "db"), refreshInterval="1s")
        checks = stage.provider.calls["CheckSecrets"]
        await stage.until(lambda: stage.provider.calls["CheckSecrets"] >= checks + 2, "it is not refreshed")
        before = await stage.bench.find(PUSHES, "db")
        checks = stage.provider.calls["CheckSecrets"]
        await stage.until(lambda: stage.provider.calls["CheckSecrets"] >= checks + 1, "it is not refreshed")

        assert len(stage.provider.pushes) == 1
        after = await stage.bench.find(PUSHES, "db")
        assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


@pytest.mark.parametrize("damage", ["changed", "deleted"])
async def test_damage_at_the_other_end_is_repaired_at_the_next_interval(staged: Any, damage: str) -> None:
    """R1, R2, R4: unless another policy is asked for, every refresh puts the value back."""
    async with staged() as stage:
        await stage.source(password="p")
        await stage.push("db", entry("password", "db"), refreshInterval="1s")

        if damage == "changed":
            stage.provider.put("db", b"wrong")
        else:
            del stage.provider.stored["db"]

        await stage.holds(db="p")


async def test_under_if_not_exists_a_changed_source_is_not_pushed_over_its_own_value(staged: Any) -> None:
    """R6: once pushed, the remote value is the truth; it is still ours to delete."""
    async with staged() as stage:
        await stage.source(password="one")
        await stage.push("db", entry("password", "db"), updatePolicy="IfNotExists", deletionPolicy="Delete")
        await stage.edit(password="two")
        await stage.until(lambda: stage.provider.calls["CheckSecrets"] >= 1, "it was not looked at")
        await stage.push("other", entry("password", "other"))

        assert stage.provider.values == {"db": b"one", "other": b"two"}
        assert await stage.condition("db", "SecretAlreadyExists") is None
        await stage.bench.delete(PUSHES, "db")
        await stage.gone("db")
        assert stage.provider.values == {"other": b"two"}


async def test_under_if_not_exists_the_remote_value_outlives_its_source_and_is_not_replaced_by_the_next(
    staged: Any,
) -> None:
    """R6: a Secret that is lost and created again has another password, while all users have the first one."""
    async with staged() as stage:
        await stage.source(password="first")
        await stage.push("db", entry("password", "db"), updatePolicy="IfNotExists")
        await stage.bench.delete(SECRETS, "source")
        await stage.broken("db", "source does not exist")
        assert stage.provider.values == {"db": b"first"}

        await stage.source(password="second")
        await stage.ready("db")

        assert stage.provider.values == {"db": b"first"}


async def test_after_a_restart_what_is_fresh_is_not_pushed(staged: Any, bench: Any) -> None:
    provider = storing()
    async with staged(provider, tidy=False) as stage:
        await stage.source(password="p")
        await stage.push("db", entry("password", "db"))
    async with bench.operator(replace(bench.settings, namespace=bench.namespace)):
        await stage.push("other", entry("password", "other"))

        assert [item.remote.key for batch in provider.pushes for item in batch.items] == ["db", "other"]


# --- stale entries ----------------------------------------------------------------------------------------------------


async def test_a_value_that_the_spec_drops_is_deleted(staged: Any) -> None:
    """Seed 4: another key, another property, another store."""
    async with staged() as stage:
        await stage.source(password="p")
        await stage.push("db", entry("password", "one"), entry("password", "two", "a"), deletionPolicy="Delete")

        await stage.change("db", data=[entry("password", "uno"), entry("password", "two", "b")])
        await stage.holds(uno="p", two__b="p")
        await stage.store("second", provider={"fake": {"data": [{"key": "a", "value": "another place"}]}})
        await stage.change("db", secretStoreRefs=[{"name": "second"}])

        await eventually(lambda: _only_store(stage, "SecretStore/second"), "the old store is still recorded")
        # In one call or several: the second change may come before the status of the first one is written.
        deleted = [item.remote for call in stage.provider.deletions for item in call.items]
        assert {(remote.key, remote.property) for remote in deleted} == {
            *(("one", ""), ("two", "a")),
            *(("uno", ""), ("two", "b")),
        }


async def _only_store(stage: Any, key: str) -> bool:
    return list((await stage.status("db")).get("syncedPushSecrets", {})) == [key]


async def test_a_deletion_that_fails_forgets_nothing(staged: Any) -> None:
    """Seed 5, E14: old and new are recorded, and it goes on once it can."""
    async with staged() as stage:
        await stage.source(password="p")
        await stage.push("db", entry("password", "one"), deletionPolicy="Delete")
        stage.provider.delete_errors["one"] = denied("one")

        await stage.change("db", data=[entry("password", "two")])
        found = await stage.broken("db", "could not delete secret", "one")
        assert sorted(found["status"]["syncedPushSecrets"]["SecretStore/store"]) == ["one", "two"]
        stage.provider.delete_errors.clear()
        await stage.force("db")

        await stage.holds(two="p")
        await stage.ready("db")


async def test_without_deletion_policy_the_finalizer_goes_and_remote_values_stay(staged: Any) -> None:
    """Seed 6."""
    async with staged() as stage:
        await stage.source(password="p")
        await stage.push("db", entry("password", "db"), deletionPolicy="Delete")

        await stage.change("db", deletionPolicy="None")
        await eventually(lambda: _free(stage), "the finalizer stays")
        await stage.bench.delete(PUSHES, "db")
        await stage.gone("db")

        assert stage.provider.values == {"db": b"p"}


async def _free(stage: Any) -> bool:
    found = await stage.bench.find(PUSHES, "db")
    return not found["metadata"].get("finalizers")


# --- sources that go --------------------------------------------------------------------------------------------------


async def test_a_deleted_source_takes_its_values_along_and_a_new_one_is_noticed(staged: Any) -> None:
    """Seed 7; a recreated source is pushed without an edit or a restart, even with interval 0 afterwards."""
    async with staged() as stage:
        await stage.source(password="one")
        await stage.push("db", entry("password", "db"), deletionPolicy="Delete")

        await stage.bench.delete(SECRETS, "source")
        await stage.broken("db", reason="SourceDeleted")
        assert stage.provider.values == {}
        await stage.event("db", "Normal", "SourceDeleted")
        await stage.source(password="two")

        await stage.holds(db="two")
        await stage.ready("db")


async def test_a_deleted_source_without_deletion_policy_is_an_error_and_heals(staged: Any) -> None:
    async with staged() as stage:
        await stage.source(password="one")
        await stage.push("db", entry("password", "db"))

        await stage.bench.delete(SECRETS, "source")
        await stage.broken("db", "could not get source secret", "source does not exist")
        assert stage.provider.values == {"db": b"one"}
        await stage.source(password="two")

        await stage.holds(db="two")


# --- stores that go ---------------------------------------------------------------------------------------------------


async def test_a_store_that_is_gone_does_not_hold_an_object_for_ever(staged: Any) -> None:
    """Bounded attempts; then the object goes, and an event names what stays behind."""
    async with staged() as stage:
        await stage.source(password="p")
        await stage.push("db", entry("password", "db"), deletionPolicy="Delete")
        await stage.bench.delete(STORES, "store")
        await eventually(lambda: _freed(stage, "store"), "the store cannot be taken away")

        await stage.bench.delete(PUSHES, "db")
        await stage.gone("db")

        await stage.event("db", "Warning", "Orphaned", "SecretStore/store", "db", "stays behind")


async def _freed(stage: Any, name: str) -> bool:
    """As an impatient user does."""
    if await stage.bench.find(STORES, name) is None:
        return True
    await stage.bench.api.patch(STORES.path(stage.bench.namespace, name), {"metadata": {"finalizers": None}})
    return False


async def test_deletion_waits_for_a_backend_that_is_away(staged: Any) -> None:
    """E3: the status keeps the values that must still be deleted."""
    async with staged() as stage:
        await stage.source(password="p")
        await stage.push("db", entry("password", "one"), entry("password", "two"), deletionPolicy="Delete")
        stage.provider.delete_errors["one"] = ProviderError(ErrorReason.BACKEND_UNAVAILABLE, "the backend is away")

        await stage.bench.delete(PUSHES, "db")
        found = await stage.broken("db", "could not delete secret", "the backend is away")
        assert list(found["status"]["syncedPushSecrets"]["SecretStore/store"]) == ["one"]
        stage.provider.delete_errors.clear()

        await stage.gone("db")
        assert stage.provider.values == {}


async def test_a_store_stays_until_what_was_pushed_is_deleted(staged: Any) -> None:
    """Store and PushSecret deleted together, as when a namespace goes: both go, and nothing is left behind."""
    async with staged() as stage:
        await stage.source(password="p")
        await stage.push("db", entry("password", "db"), deletionPolicy="Delete")
        await eventually(lambda: _held(stage), "the store is not held")

        await stage.bench.delete(STORES, "store")
        await stage.bench.delete(PUSHES, "db")
        await stage.gone("db")

        assert stage.provider.values == {}
        await eventually(lambda: _freed_by_itself(stage), "the store is still there")


async def _held(stage: Any) -> bool:
    found = await stage.bench.find(STORES, "store")
    return "secretstore.externalsecrets.io/finalizer" in (found["metadata"].get("finalizers") or [])


async def _freed_by_itself(stage: Any) -> bool:
    return await stage.bench.find(STORES, "store") is None


# --- metrics ----------------------------------------------------------------------------------------------------------


async def test_series_come_and_go_with_the_object(staged: Any) -> None:
    async with staged() as stage:
        await stage.source(password="p")
        await stage.push("db", entry("password", "db"))
        labels = {"name": "db", "namespace": stage.bench.namespace, "condition": "Ready", "status": "True"}

        def shown(name: str, labels: dict[str, str]) -> float | None:
            samples = samples_of(stage.operator.metrics.objects.pages())
            return next((each.value for each in samples if (each.name, each.labels) == (name, labels)), None)

        await stage.until(lambda: shown("pushsecret_status_condition", labels) == 1, "no series")
        assert shown("pushsecret_reconcile_duration", _of(labels)) is not None
        await stage.bench.delete(PUSHES, "db")
        await stage.gone("db")

        await stage.until(lambda: shown("pushsecret_status_condition", labels) is None, "it stays")


def _of(labels: dict[str, str]) -> dict[str, str]:
    return {key: text for key, text in labels.items() if key in ("name", "namespace")}


async def test_the_controller_can_be_switched_off(staged: Any, bench: Any) -> None:
    off = replace(
        bench.settings, namespace=bench.namespace, reconcilers=replace(bench.settings.reconcilers, push_secret=False)
    )
    async with staged(settings=off) as stage:
        await stage.source(password="p")
        await stage.apply("db", entry("password", "db"), deletionPolicy="Delete")
        await stage.store("second")
        await stage.bench.ready(STORES, "second", lambda condition: condition.status == "True")

        assert await stage.status("db") == {}
        assert stage.provider.values == {}
