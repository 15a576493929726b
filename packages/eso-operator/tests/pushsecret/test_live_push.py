"""PushSecrets on a live API server, with a real gRPC server and real certificates behind the store."""

from typing import Any

import pytest

pytestmark = pytest.mark.live


def entry(secret_key: str, remote_key: str, prop: str = "", **fields: Any) -> dict[str, Any]:
    remote = {"remoteKey": remote_key, **({"property": prop} if prop else {})}
    return {"match": {**({"secretKey": secret_key} if secret_key else {}), "remoteRef": remote}, **fields}


async def test_a_secret_is_pushed_key_by_key(staged: Any) -> None:
    """R13, R14, R15; seed 1: the provider receives the bytes, the status names store and remote keys."""
    async with staged() as stage:
        await stage.source(password="p", user="u", other="o")

        found = await stage.push("db", entry("password", "prod/db", "password"), entry("user", "prod/user"))

        assert stage.provider.values == {"prod/db#password": b"p", "prod/user": b"u"}
        assert len(stage.provider.pushes) == 1
        await stage.event("db", "Normal", "Synced")
    synced = found["status"]["syncedPushSecrets"]
    assert sorted(synced["SecretStore/store"]) == ["prod/db/password", "prod/user"]
    assert synced["SecretStore/store"]["prod/user"]["match"]["remoteRef"] == {"remoteKey": "prod/user"}
    assert found["status"]["syncedVersions"]["SecretStore/store"]["prod/user"].startswith("v")
    assert found["status"]["syncedResourceVersion"].startswith("1-")
    assert found["status"]["refreshTime"]
