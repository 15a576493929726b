"""A PushSecret that is gone does nothing more, whatever a cache that lags behind still shows. On a live API server."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_operator.testing.keepingprovider import keeping
from eso_operator.testing.operators import eventually
from eso_operator.testing.pushsecrets import entry
from eso_operator.testing.transports import LaggingWatch

pytestmark = pytest.mark.live

PUSHES = PUSH_SECRET.resource()
STORES = SECRET_STORE.resource()


async def test_a_place_that_is_somebody_elses_by_now_is_not_emptied_again(staged: Any) -> None:
    """The backend keeps no owners, so nothing but us protects the value."""
    watch = LaggingWatch("pushsecrets")

    async def lag() -> None:
        watch.flowing.clear()

    with capture_logs() as lines:
        async with staged(keeping(marks_owners=False), through=watch.over) as stage:
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

            await eventually(looked_again, "nobody looked at what the cache still shows")
            watch.flowing.set()
            await stage.push("other", entry("password", "other"))
            assert stage.provider.values == {"db": b"theirs", "other": b"p"}
