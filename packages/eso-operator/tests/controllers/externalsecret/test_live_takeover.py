"""A cluster that the Go operator ran before: nothing is rewritten, and what changes later changes rightly."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from eso_api.externalsecret import ExternalSecret
from eso_api.values import SecretBytes
from eso_operator.controllers.refresh import current_version
from eso_operator.targets.metadata import (
    CREATED_BY_LABEL,
    FINALIZER,
    HASH_ANNOTATION,
    MANAGED_LABEL,
    created_by,
    data_digest,
)
from eso_testkit.operator.operators import Bench
from eso_testkit.operator.scenes import ES, Scene, encoded, running, scene
from kubebase.clock import SystemClock, rfc3339
from kubebase.meta import JsonObject
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import SECRETS, document
from kuberun.testing.rawapi import MERGE_PATCH

pytestmark = pytest.mark.live

MANAGER = "externalsecrets.external-secrets.io/db"
KEYS = {"user": "user", "password": "db"}
BACKEND = {"db": "v1", "user": "u1"}


@asynccontextmanager
async def taken_over(
    bench: Bench, held: dict[str, str], refreshed: datetime, **target: Any
) -> AsyncIterator[tuple[Scene, JsonObject]]:
    """Our operator on what the Go operator left behind: an ExternalSecret that synced, and the Secret it wrote."""
    async with scene(bench, BACKEND) as before:
        provider = before.provider
    before.provider.requests.clear()
    metadata = {"labels": {"app": "shop"}, "annotations": {"note": "x"}, "finalizers": [FINALIZER]}
    es = await before.apply("db", KEYS, metadata=metadata, target=target)
    secret = await _go_secret(bench, es, held)
    await _go_status(bench, es, refreshed)
    async with running(bench, provider) as stage:
        await stage.until_idle()
        yield stage, secret


async def _go_secret(bench: Bench, es: JsonObject, held: dict[str, str]) -> JsonObject:
    """Written with plain creates and updates under the field manager of the ExternalSecret."""
    typed = msgspec.convert(es, ExternalSecret)
    policy = typed.spec.target.creation_policy
    owner = {"apiVersion": ES.api_version, "kind": ES.kind, "name": "db", "uid": es["metadata"]["uid"]}
    owned = {"ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}]}
    labels = {"app": "shop", MANAGED_LABEL: "true"}
    if policy == "Owner":
        labels[CREATED_BY_LABEL] = created_by(typed)
    digest = data_digest({key: SecretBytes(value.encode()) for key, value in held.items()})
    metadata = {"labels": labels, "annotations": {"note": "x", HASH_ANNOTATION: digest}}
    body = document(
        SECRETS,
        "db",
        bench.namespace,
        metadata={**metadata, **(owned if policy == "Owner" else {})},
        data=encoded(held),
        type="example.com/login",
    )
    answer = await bench.api.post(f"{SECRETS.path(bench.namespace)}?fieldManager={MANAGER}", body)
    assert answer.status == 201, answer.body
    return dict(answer.body)


async def _go_status(bench: Bench, es: JsonObject, refreshed: datetime) -> None:
    ready = {"type": "Ready", "status": "True", "reason": "SecretSynced", "message": "secret synced"}
    status = {
        "refreshTime": rfc3339(refreshed),
        "syncedResourceVersion": current_version(msgspec.convert(es, ExternalSecret)),
        "conditions": [{**ready, "lastTransitionTime": rfc3339(refreshed)}],
        "binding": {"name": "db"},
    }
    path = ES.path(bench.namespace, "db") + "/status"
    answer = await bench.api.patch(path, {"status": status}, MERGE_PATCH)
    assert answer.status == 200, answer.body


def just_now() -> datetime:
    return SystemClock().now() - timedelta(minutes=10)


def asked(stage: Scene) -> int:
    return sum(item.ref.key in BACKEND for batch in stage.provider.requests for item in batch)


def operations(secret: JsonObject) -> list[str]:
    return [entry["operation"] for entry in secret["metadata"]["managedFields"] if entry["manager"] == MANAGER]


async def test_a_fresh_object_is_neither_read_from_the_backend_nor_written(bench: Bench) -> None:
    held = {"user": "u1", "password": "v1"}
    async with taken_over(bench, held, just_now()) as (stage, secret):
        assert asked(stage) == 0
        assert stage.api_calls.writes(bench.namespace, "/db") == []
        assert await stage.secret("db") == secret


async def test_a_refresh_of_unchanged_content_writes_the_status_and_not_the_secret(bench: Bench) -> None:
    held = {"user": "u1", "password": "v1"}
    async with taken_over(bench, held, just_now()) as (stage, secret):
        await stage.change("db", refreshInterval="2h")  # any change is a refresh

        async def noticed() -> bool:
            return bool((await stage.status("db"))["syncedResourceVersion"].startswith("2-"))

        await eventually(noticed, "it is not refreshed")
        assert asked(stage) == 2
        assert stage.api_calls.writes(bench.namespace, "/secrets/db") == []
        assert await stage.secret("db") == secret


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param("Owner", {"user": "u1", "password": "v2"}, id="owner"),
        pytest.param("Merge", {"user": "u1", "password": "v2"}, id="merge: what the Go operator wrote is ours"),
    ],
)
async def test_changed_content_takes_the_bookkeeping_over(bench: Bench, policy: str, expected: dict[str, str]) -> None:
    """Obsolete keys, labels and annotations that the Go operator wrote are removed; the type stays."""
    held = {"user": "u1", "password": "v1", "gone": "x"}
    async with taken_over(bench, held, just_now(), creationPolicy=policy) as (stage, _):
        stage.backend(db="v2")
        removed = {"labels": {"app": None}, "annotations": {"note": None}}
        await stage.bench.patch(ES, "db", {"metadata": removed})

        await stage.until("db", expected)
        now = await stage.secret("db")
        assert now is not None
        assert operations(now) == ["Apply"]
        assert now["type"] == "example.com/login"
        assert "app" not in now["metadata"]["labels"]
        assert "note" not in now["metadata"]["annotations"]
        assert ("ownerReferences" in now["metadata"]) is (policy == "Owner")
        assert len(stage.api_calls.writes(bench.namespace, "/secrets/db")) == 2  # bookkeeping once, then the content

        stage.backend(db="v3")
        await stage.force("db")
        await stage.until("db", {**expected, "password": "v3"})
        assert len(stage.api_calls.writes(bench.namespace, "/secrets/db")) == 3
