"""A PushSecret that is gone does nothing more, whatever a cache that lags behind still shows. On a live API server.

Nor does it leave anything behind, if another operator let it go while this one was pushing.
"""

from typing import Any

import pytest
from structlog.testing import capture_logs

from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_testkit.operator.pushsecrets import entry
from eso_testkit.operator.storingprovider import denied, storing
from eso_testkit.operator.transports import LaggingWatch, LostWrites, unserved
from kubebase.testing.waiting import eventually

pytestmark = pytest.mark.live

PUSHES = PUSH_SECRET.resource()
STORES = SECRET_STORE.resource()


async def test_a_place_with_a_new_owner_is_not_emptied_again(staged: Any) -> None:
    """The backend stores no owners, so only the operator protects the value."""
    watch = LaggingWatch("pushsecrets")

    async def lag() -> None:
        watch.flowing.clear()

    with capture_logs() as lines:
        async with staged(storing(marks_owners=False), through=watch.over) as stage:
            await stage.source(password="p")
            await stage.push("db", entry("password", "db"), deletionPolicy="Delete")
            stage.provider.meanwhile["DeleteSecrets"] = lag
            await stage.bench.delete(PUSHES, "db")
            await stage.gone("db")
            stage.provider.put("db", b"theirs")

            before = len(lines)

            await stage.bench.patch(STORES, "store", {"metadata": {"annotations": {"turn": "1"}}})

            async def looked_again() -> bool:
                return any("SecretStore" in line.get("reason", "") for line in lines[before:])

            await eventually(looked_again, "no reconcile looked at what the cache still shows")
            watch.flowing.set()
            await stage.push("other", entry("password", "other"))
            assert stage.provider.values == {"db": b"theirs", "other": b"p"}


@pytest.mark.parametrize("policy", ["Replace", "IfNotExists"])
@pytest.mark.parametrize(
    "losing",
    [
        pytest.param("", id="gone when the status is written"),
        pytest.param("/pushsecrets/db/status", id="gone at the next look"),
    ],
)
async def test_a_push_that_lands_after_another_operator_released_the_object_is_undone(
    staged: Any, losing: str, policy: str
) -> None:
    writes = LostWrites()

    async with staged(through=writes.over) as stage:

        async def another_operator_ends_it() -> None:
            await _ended(stage)
            writes.losing = losing

        stage.provider.meanwhile["PushSecrets"] = another_operator_ends_it
        await stage.source(password="p")

        await stage.apply("db", entry("password", "db"), deletionPolicy="Delete", updatePolicy=policy)
        await stage.until(lambda: bool(stage.provider.pushes), "it is not pushed")

        await stage.holds()


async def test_a_push_that_lands_after_the_object_went_is_undone_though_the_backend_refuses_for_a_while(
    staged: Any,
) -> None:
    async with staged() as stage:
        stage.provider.meanwhile["PushSecrets"] = lambda: _ended(stage)
        stage.provider.delete_errors["db"] = denied("db")
        await stage.source(password="p")

        await stage.apply("db", entry("password", "db"), deletionPolicy="Delete")
        await stage.until(lambda: bool(stage.provider.deletions), "it is not taken back")
        assert stage.provider.values == {"db": b"p"}
        stage.provider.delete_errors.clear()

        await stage.holds()


async def test_a_kind_that_is_not_served_for_a_while_is_no_object_that_went(staged: Any) -> None:
    """As while an API server starts: it does not know custom resources yet, and says 404."""
    writes = LostWrites(unserved)

    async def hide() -> None:
        writes.losing = "/pushsecrets/db/status"

    async with staged(through=writes.over) as stage:
        stage.provider.meanwhile["PushSecrets"] = hide
        await stage.source(password="p")

        await stage.apply("db", entry("password", "db"), deletionPolicy="Delete")
        await stage.until(lambda: writes.lost > 0, "no status was written")
        writes.losing = ""
        await stage.ready("db")

        assert stage.provider.deletions == []


async def _ended(stage: Any) -> None:
    """As by an operator that saw no value of it."""
    await stage.bench.delete(PUSHES, "db")
    await stage.bench.patch(PUSHES, "db", {"metadata": {"finalizers": None}})
