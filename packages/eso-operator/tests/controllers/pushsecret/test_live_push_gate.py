"""PushSecrets while the gate V2Stores is off: records stay, and a deletion waits until the gate is on again (R153)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eso_api.pushsecret import PUSH_SECRET
from eso_api.v2.secretstore import SECRET_STORE_V2
from eso_operator.controllers.pushsecret.controller import FINALIZER
from eso_operator.controllers.pushsecret.ownership import GONE_LIMIT
from eso_operator.settings import FeatureGate
from eso_operator.wiring import Operator
from eso_testkit.operator.operators import BACKEND, Bench
from eso_testkit.operator.pushsecrets import entry
from eso_testkit.operator.storingprovider import storing
from kubebase.clock import SystemClock
from kubebase.meta import Condition, ObjectKey
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import SECRETS

pytestmark = pytest.mark.live

PUSHES = PUSH_SECRET.resource()
STORES = SECRET_STORE_V2.resource()
KEY = f"{STORES.group}/{STORES.kind}/store"
NAMES = ("kept", "deleted", "given-up", "source-less")


def is_ready(condition: Condition) -> bool:
    return condition.status == "True"


async def pushed(bench: Bench) -> None:
    """A v2 store, and PushSecrets that have pushed to it."""
    await bench.create(BACKEND.resource(), "config", spec={"url": "https://backend"})
    config = {"kind": "Backend", "name": "config"}
    await bench.create(STORES, "store", spec={"providerConfig": {"providerRef": config}})
    for name in NAMES:
        await bench.create(SECRETS, name, stringData={"key": f"value of {name}"})
        spec = {
            "secretStoreRefs": [{"apiVersion": STORES.api_version, "kind": STORES.kind, "name": "store"}],
            "selector": {"secret": {"name": name}},
            "deletionPolicy": "Delete",
            "data": [entry("key", name)],
        }
        await bench.create(PUSHES, name, spec=spec)
        await bench.ready(PUSHES, name, is_ready)


async def test_no_record_is_lost_while_v2_kinds_are_off(bench: Bench) -> None:
    provider, alone = storing(), replace(bench.settings, namespace=bench.namespace)
    off = replace(alone, gates=alone.gates - {FeatureGate.V2_STORES})
    async with bench.operator(alone):
        await bench.install(provider)
        await pushed(bench)
    pushes = len(provider.pushes)

    async with bench.operator(off) as operator:
        await bench.delete(SECRETS, "source-less")
        for name in ("deleted", "given-up"):
            await bench.delete(PUSHES, name)
            await bench.ready(PUSHES, name, says_what_to_do)
        await bench.patch(PUSHES, "given-up", {"spec": {"deletionPolicy": "None"}})
        await eventually(lambda: gone(bench, "given-up"), "a user cannot give the values up")
        await eventually(lambda: tried_often(operator, bench), "the deletion is not tried again")
        for name in ("kept", "deleted", "source-less"):
            found = await bench.find(PUSHES, name) or {}
            assert list(found["status"]["syncedPushSecrets"]) == [KEY]
            assert FINALIZER in found["metadata"]["finalizers"]
    assert set(provider.values) == set(NAMES)

    async with bench.operator(alone):
        await eventually(lambda: gone(bench, "deleted"), "the deletion does not go on")
        await bench.ready(PUSHES, "kept", is_ready)
        await eventually(lambda: holds(provider.values, "kept", "given-up"), "values of a deleted source stay")

    assert len(provider.pushes) == pushes
    for name in ("kept", "source-less"):
        await bench.patch(PUSHES, name, {"metadata": {"finalizers": None}})


def says_what_to_do(condition: Condition) -> bool:
    return condition.status == "False" and all(word in condition.message for word in ("V2Stores", "deletionPolicy"))


async def gone(bench: Bench, name: str) -> bool:
    return await bench.find(PUSHES, name) is None


async def holds(values: dict[str, bytes], *names: str) -> bool:
    return set(values) == set(names)


async def tried_often(operator: Operator, bench: Bench) -> bool:
    """Return whether it was tried more often, and for longer, than with a store that no longer exists."""
    record = operator.memories.push_secrets.find(ObjectKey(bench.namespace, "deleted"))
    tried = None if record is None else record.removals.get(KEY)
    return tried is not None and GONE_LIMIT.is_over(tried.made - 1, SystemClock().monotonic() - tried.since)
