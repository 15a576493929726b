"""Database credentials with leases, on a real PostgreSQL behind a real OpenBao."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from eso_api.generators.vault import VaultDynamicSecretSpec
from eso_provider_vault.dynamic import VaultDynamicSecretGenerator
from eso_provider_vault.testing.openbao import OpenBao, Postgres, database_engine
from eso_provider_vault.testing.sessions import make
from eso_wire.values import GenerateRequest
from kubebase.clock import SystemClock

REVOKES = 'path "sys/leases/revoke" { capabilities = ["update"] }\n'


@pytest.fixture(scope="module")
def database(bao: OpenBao) -> Iterator[Postgres]:
    with database_engine(bao) as server:
        yield server


def identity(bao: OpenBao, name: str, *, rules: str = REVOKES, **token: Any) -> dict[str, Any]:
    """Make a user who may ask for credentials; returns the generator's spec."""
    bao.policy(name, 'path "database/creds/app" { capabilities = ["read"] }\n' + rules)
    bao.enable_auth(name, "userpass")
    bao.must("POST", f"auth/{name}/users/ann", {"password": "pass", "token_policies": name, **token})
    auth = {"userPass": {"path": name, "username": "ann", "secretRef": {"name": "p", "key": "p"}}}
    return {"path": "database/creds/app", "provider": {"server": bao.url, "auth": auth}}


@asynccontextmanager
async def generator(spec: dict[str, Any]) -> AsyncIterator[VaultDynamicSecretGenerator]:
    sent = {"/provider/auth/userPass/secretRef": "pass"}
    session = make(VaultDynamicSecretGenerator, VaultDynamicSecretSpec, spec, sent)
    try:
        await session.open()
        yield session
    finally:
        await session.close()


async def test_credentials_work_after_their_session_and_its_short_login_until_they_are_cleaned_up(
    bao: OpenBao, database: Postgres
) -> None:
    spec = identity(bao, "database-short", token_ttl="2s")
    async with generator(spec) as session:
        made = await session.generate(GenerateRequest(idempotency_key="short"))
    user, password = (made.data[name].reveal().decode() for name in ("username", "password"))

    await SystemClock().sleep(3)  # the login would have ended by now
    assert database.accepts(user, password)
    async with generator(spec) as restarted:
        assert made.state is not None
        await restarted.cleanup(made.state)

    assert user not in database.users()


async def test_without_the_right_to_revoke_a_renewal_ends_the_lease(bao: OpenBao, database: Postgres) -> None:
    async with generator(identity(bao, "database-default", rules="")) as session:
        made = await session.generate(GenerateRequest(idempotency_key="default"))
        user = made.data["username"].reveal().decode()
        assert user in database.users()
        assert made.state is not None

        await session.cleanup(made.state)

    for _ in range(100):
        if user not in database.users():
            break
        await SystemClock().sleep(0.1)
    assert user not in database.users()


async def test_fifty_generations_make_one_login_and_fifty_leases(bao: OpenBao, database: Postgres) -> None:
    spec = identity(bao, "database-many")
    before = len(database.users())
    mark = bao.mark()

    async with generator(spec) as session:
        states = [(await session.generate(GenerateRequest(idempotency_key=f"many-{n}"))).state for n in range(50)]
        assert len(database.users()) == before + 50
        for state in states:
            assert state is not None
            await session.cleanup(state)

    assert bao.audited(mark).logins == 1
    assert len(database.users()) == before
