"""kill -9 of the operator before or after any outside call of a push, and of the deletion that follows.

A seed draws policies and two calls at which the operator dies: one while it pushes, one while it cleans up. Afterwards
one operator lives. No value may be lost, nothing foreign overwritten or deleted, and nothing recorded stays behind.
"""

from __future__ import annotations

import base64
import os
import random
import secrets
from collections.abc import AsyncIterator
from typing import Any

import pytest

from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_api.values import SecretBytes
from eso_operator.testing.keepingprovider import KeepingProvider, keeping
from eso_operator.testing.providerhost import ProviderHost
from eso_operator.testing.pushsecrets import entry
from eso_wire.tls import TlsMaterial
from kuberun.meta import JsonObject, Resource
from kuberun.testing.builders import NAMESPACES, SECRETS, document

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

PUSHES = PUSH_SECRET.resource()
SEEDS_BY_DEFAULT = 8
"""Two for each pair of policies."""
LAST_CALL = 7
POLICIES = [(update, delete) for update in ("Replace", "IfNotExists") for delete in ("Delete", "None")]
NAME = "subject"


@pytest.fixture
async def backend(ground: Any) -> AsyncIterator[KeepingProvider]:
    """A provider that keeps what is pushed, and outlives every operator."""
    material = TlsMaterial(ground.files["ca.crt"], ground.files["tls.crt"], SecretBytes(ground.files["tls.key"]))
    provider = keeping()
    host = ProviderHost(provider, material, port=ground.port)
    await host.start()
    yield provider
    await host.stop()


@pytest.mark.parametrize("seed", range(int(os.environ.get("ESO_CRASH_SEEDS", SEEDS_BY_DEFAULT))))
async def test_pushes_survive_kills(seed: int, api: Any, ground: Any, backend: KeepingProvider) -> None:
    draw = random.Random(seed)  # noqa: S311 - a test that can be repeated
    update, delete = POLICIES[seed % len(POLICIES)]
    namespace = f"push-kill-{seed}-{secrets.token_hex(3)}"
    ours, theirs, taken = f"{namespace}/ours", f"{namespace}/theirs", f"{namespace}/taken"
    backend.put(theirs, b"theirs", "somebody")
    backend.put(taken, b"before")
    await _create(api, NAMESPACES, namespace)
    await _prepare(api, namespace)
    remote = [entry("password", ours), entry("password", taken)]
    spec = {
        "updatePolicy": update,
        "deletionPolicy": delete,
        "secretStoreRefs": [{"name": "backend"}],
        "selector": {"secret": {"name": "source"}},
        "data": remote,
    }
    await _create(api, PUSHES, NAME, namespace, spec=spec)

    async def is_ready() -> bool:
        conditions = (await _find(api, namespace) or {}).get("status", {}).get("conditions", [])
        return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)

    async with ground.nursery.life(namespace, _crash(draw)) as life:
        await life.until(is_ready)
    async with ground.nursery.life(namespace) as survivor:
        assert await survivor.until(is_ready)
        await survivor.until_quiet()
    found = await _find(api, namespace)
    assert found is not None
    recorded = set(found["status"].get("syncedPushSecrets", {}).get("SecretStore/backend", {}))
    replaced = b"value" if update == "Replace" else b"before"
    assert backend.values == {ours: b"value", theirs: b"theirs", taken: replaced}
    assert taken not in recorded or update == "Replace"

    await api.delete(PUSHES.path(namespace, NAME))

    async def is_gone() -> bool:
        return await _find(api, namespace) is None

    async with ground.nursery.life(namespace, _crash(draw)) as life:
        await life.until(is_gone)
    async with ground.nursery.life(namespace) as survivor:
        assert await survivor.until(is_gone)
    kept = {ours: b"value", theirs: b"theirs", taken: replaced}
    removed = recorded if delete == "Delete" else set()
    assert backend.values == {key: value for key, value in kept.items() if key not in removed}


def _crash(draw: random.Random) -> str:
    return f"{draw.choice(('before', 'after'))} {draw.randint(1, LAST_CALL)}"


async def _prepare(api: Any, namespace: str) -> None:
    store = {"provider": {"fake": {"data": [{"key": "a", "value": "b"}]}}}
    value = base64.b64encode(b"value").decode()
    await _create(api, SECRET_STORE.resource(), "backend", namespace, spec=store)
    await _create(api, SECRETS, "source", namespace, data={"password": value})


async def _create(api: Any, resource: Resource, name: str, namespace: str = "", **fields: Any) -> None:
    answer = await api.post(resource.path(namespace), document(resource, name, namespace, **fields))
    assert answer.status == 201, answer.body


async def _find(api: Any, namespace: str) -> JsonObject | None:
    answer = await api.get(PUSHES.path(namespace, NAME))
    return dict(answer.body) if answer.status == 200 else None
