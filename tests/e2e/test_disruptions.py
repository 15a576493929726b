"""Killed processes, damaged targets, stores that are created late: everything recovers automatically."""

from __future__ import annotations

from typing import Any

import pytest

from eso_api.externalsecret import EXTERNAL_SECRET
from kubebase.meta import JsonObject
from kuberun.testing.builders import SECRETS

pytestmark = pytest.mark.slow

EXTERNAL_SECRETS = EXTERNAL_SECRET.resource()
OBJECTS = 8


def store(namespace: str, value: str) -> JsonObject:
    data = [{"key": f"key-{number}", "value": value} for number in range(OBJECTS)]
    return {
        "apiVersion": "external-secrets.io/v1",
        "kind": "SecretStore",
        "metadata": {"name": "backend", "namespace": namespace},
        "spec": {"provider": {"fake": {"data": data}}},
    }


def external_secret(name: str, namespace: str, key: str, interval: str = "1s") -> JsonObject:
    return {
        "apiVersion": "external-secrets.io/v1",
        "kind": "ExternalSecret",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "refreshInterval": interval,
            "secretStoreRef": {"name": "backend"},
            "data": [{"secretKey": "password", "remoteRef": {"key": key}}],
        },
    }


@pytest.mark.parametrize(
    ("words", "namespace"),
    [
        pytest.param("eso_cli.serving fake", "rolled-provider", id="the provider, R146"),
        pytest.param("-m eso_operator", "rolled-operator", id="the operator"),
    ],
)
async def test_a_process_killed_while_objects_refresh_loses_nothing(site: Any, words: str, namespace: str) -> None:
    await site.namespace(namespace)
    await site.apply(store(namespace, "first"))
    await site.apply(*(external_secret(f"one-{number}", namespace, f"key-{number}") for number in range(OBJECTS)))
    secrets = [await site.secret(f"one-{number}", namespace, {"password": "first"}.__eq__) for number in range(OBJECTS)]

    for value in ("second", "third"):
        before = site.up.component(words)
        site.kill(words)
        await site.apply(store(namespace, value))
        await site.started_again(words, before)

    for number, secret in enumerate(secrets):
        after = await site.secret(f"one-{number}", namespace, {"password": "third"}.__eq__)
        assert after["metadata"]["uid"] == secret["metadata"]["uid"]
        await site.ready(EXTERNAL_SECRETS, f"one-{number}", namespace)


async def test_a_target_that_was_changed_or_deleted_is_restored_at_once(site: Any) -> None:
    await site.namespace("drift")
    await site.apply(store("drift", "right"), external_secret("one", "drift", "key-0", "1h"))
    first = await site.secret("one", "drift", {"password": "right"}.__eq__)

    await site.patch(SECRETS, "one", {"data": {"password": "d3Jvbmc=", "added": "eA=="}}, "drift")
    repaired = await site.secret("one", "drift", {"password": "right"}.__eq__)
    await site.delete(SECRETS, "one", "drift")
    made_again = await site.secret("one", "drift", {"password": "right"}.__eq__)

    assert repaired["metadata"]["uid"] == first["metadata"]["uid"]
    assert made_again["metadata"]["uid"] != first["metadata"]["uid"]


async def test_a_store_that_comes_after_its_externalsecret_wakes_it(site: Any) -> None:
    await site.namespace("late-store")
    await site.apply(external_secret("early", "late-store", "key-0", "1h"))

    async def says_why() -> bool:
        found = await site.find(EXTERNAL_SECRETS, "early", "late-store")
        conditions = found.get("status", {}).get("conditions", [])
        return any(one["status"] == "False" and "backend" in one["message"] for one in conditions)

    await site.until(says_why, "it does not say that its store is missing")
    await site.apply(store("late-store", "here"))

    await site.ready(EXTERNAL_SECRETS, "early", "late-store")
    await site.secret("early", "late-store", {"password": "here"}.__eq__)
