"""Finds, denials, quotas, the address rule, and messages without values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from eso_provider_azure.provider import PROVIDER
from eso_provider_azure.testing.server import SECRET, AzureServer
from eso_provider_azure.testing.sessions import OWNED, store
from eso_provider_azure.vault import Vault
from eso_sdk.testing import InMemory
from eso_sdk.testing.server import push, read
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import FindQuery
from kubebase.testing.clock import VirtualClock


@pytest.fixture(scope="module")
def many(azure: AzureServer) -> AzureServer:
    contents = azure.vault("kv-many").contents
    for number in range(60):
        contents.put(f"app-{number:02}", f"value-{number}", tags={"team": "blue" if number % 2 else "red"})
    contents.put("app-off", "x", attributes={"enabled": False})
    return azure


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        pytest.param(FindQuery(name_regexp="^app-0[0-3]$"), ["app-00", "app-01", "app-02", "app-03"], id="by name"),
        pytest.param(
            FindQuery(name_regexp="^app-0[0-3]$", tags={"team": "blue"}), ["app-01", "app-03"], id="by name and tags"
        ),
        pytest.param(FindQuery(name_regexp="no such name"), [], id="nothing"),
        pytest.param(FindQuery(name_regexp="app-off"), [], id="disabled ones are left out"),
        pytest.param(FindQuery(name_regexp="^app-5[89]", path="ignored"), ["app-58", "app-59"], id="a path is ignored"),
    ],
)
async def test_a_find_lists_pages_and_reads_matches(
    query: FindQuery, keys: list[str], many: AzureServer, provider: InMemory
) -> None:
    many.calls.clear()

    found = await provider.find(store("kv-many"), query)

    assert [each.key for each in found] == keys
    assert all(each.value.reveal() == f"value-{int(each.key[-2:])}".encode() for each in found)
    listed = [call for call in many.requests("GET kv-many* /secrets") if "Authorization" in call.headers]
    assert len(listed) == 3


async def test_an_invalid_expression_is_an_error(many: AzureServer, provider: InMemory) -> None:
    many.calls.clear()
    with pytest.raises(ProviderError) as refused:
        await provider.find(store("kv-many"), FindQuery(name_regexp="("))

    assert refused.value.reason is ErrorReason.INVALID_REQUEST
    assert many.requests("GET *") == []


DENIALS: Mapping[str, tuple[str, str]] = {
    "db": ("secrets/get", "Key Vault Secrets User"),
    "key/db": ("keys/get", "Key Vault Crypto User"),
    "cert/db": ("certificates/get", "Key Vault Certificate User"),
}


@pytest.mark.parametrize("key", DENIALS)
async def test_a_denial_names_vault_object_and_role(key: str, azure: AzureServer, provider: InMemory) -> None:
    permission, role = DENIALS[key]
    azure.vault("kv-denied").denied = {permission}

    (failed,) = await read(provider, store("kv-denied"), key)

    assert isinstance(failed, ProviderError)
    assert failed.reason is ErrorReason.PERMISSION_DENIED
    assert "https://kv-denied.vault.azure.net" in failed.message
    assert '"db"' in failed.message
    assert f'grant the role "{role}"' in failed.message


@pytest.mark.parametrize(
    ("denial", "text"),
    [
        pytest.param("ForbiddenByRbac", 'grant the role "Key Vault Secrets User"', id="no role"),
        pytest.param("AccessDenied", "get on secrets in the access policy of the vault", id="no access policy"),
        pytest.param("ForbiddenByPolicy", "get on secrets in the access policy of the vault", id="a policy for users"),
        pytest.param("ForbiddenByFirewall", "denied by the network rules", id="another address"),
        pytest.param("ForbiddenByConnection", "denied by the network rules", id="no private link"),
    ],
)
async def test_every_denial_says_what_to_change_and_quotes_nothing(
    denial: str, text: str, azure: AzureServer, provider: InMemory
) -> None:
    vault = azure.vault("kv-closed")
    vault.denied, vault.denial = {"secrets/get"}, denial

    (failed,) = await read(provider, store("kv-closed"), "db")

    assert isinstance(failed, ProviderError)
    assert (failed.reason, failed.backend_code) == (ErrorReason.PERMISSION_DENIED, denial)
    assert 'secret "db" in vault https://kv-closed.vault.azure.net' in failed.message
    assert text in failed.message
    assert "appid" not in failed.message


async def test_a_denied_write_list_and_address_name_what_to_change(azure: AzureServer, provider: InMemory) -> None:
    vault = azure.vault("kv-denied")
    vault.denied = {"secrets/set", "secrets/list"}

    (written,) = await push(provider, store("kv-denied"), ("new", "", "x"))
    with pytest.raises(ProviderError) as listed:
        await provider.find(store("kv-denied"), FindQuery(name_regexp="."))
    vault.denied, vault.denial = {"secrets/get"}, "ForbiddenByFirewall"
    (blocked,) = await read(provider, store("kv-denied"), "db")

    assert '"Key Vault Secrets Officer", or set on secrets' in written.message
    assert '"Key Vault Secrets User", or list on secrets' in listed.value.message
    assert isinstance(blocked, ProviderError)
    assert "network rules of the vault" in blocked.message


async def test_a_quota_pauses_all_calls_to_the_vault(azure: AzureServer, provider: InMemory) -> None:
    vault = azure.vault("kv-busy")
    vault.contents.put("db", "x")
    assert await read(provider, store("kv-busy"), "db") == [b"x"]
    vault.quota = 0
    azure.calls.clear()

    (limited,) = await read(provider, store("kv-busy"), "db")
    vault.quota = -1
    (paused,) = await read(provider, store("kv-busy"), "db")

    assert isinstance(limited, ProviderError)
    assert isinstance(paused, ProviderError)
    assert (limited.reason, limited.retry_after) == (ErrorReason.RATE_LIMITED, 7)
    assert paused.reason is ErrorReason.RATE_LIMITED
    assert "HTTP 429" in limited.message
    assert 0 < paused.retry_after <= 7
    assert len(azure.requests("* kv-busy*")) == 1


async def test_a_limit_without_a_time_pauses_for_a_second(azure: AzureServer, provider: InMemory) -> None:
    vault = azure.vault("kv-curt")
    vault.quota, vault.retry_after = 0, ""

    (limited,) = await read(provider, store("kv-curt"), "db")

    assert isinstance(limited, ProviderError)
    assert (limited.reason, limited.retry_after) == (ErrorReason.RATE_LIMITED, 1)


async def test_pauses_grow_with_limits_in_a_row_and_start_again_after_an_answer() -> None:
    clock, anything = VirtualClock(), cast(Any, None)
    vault = Vault("https://kv-one.vault.azure.net", anything, anything, clock)
    pauses = []

    for _ in range(7):
        pauses.append(vault.pause(0).retry_after)
        vault.pause(0)  # of a call at the same time
        await clock.advance(pauses[-1])
    named = vault.pause(7).retry_after
    await clock.advance(named)
    vault.served()

    assert pauses == [1, 2, 4, 8, 16, 32, 32]
    assert (named, vault.pause(0).retry_after) == (7, 1)


async def test_stores_may_not_reach_this_machine(azure: AzureServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HTTPS_PROXY")
    address = f"https://127.0.0.1:{azure.ports['tls']}"
    custom = {"activeDirectoryEndpoint": address, "keyVaultEndpoint": address}
    azure.calls.clear()
    async with InMemory(PROVIDER) as provider:
        call = store(vaultUrl=address, environmentType="AzureStackCloud", customCloudConfig=custom)

        (failed,) = await read(provider, call, "db")

    assert isinstance(failed, ProviderError)
    assert failed.reason is ErrorReason.CONFIG_INVALID
    assert failed.message.startswith("/customCloudConfig/activeDirectoryEndpoint: resolves to a loopback address")
    assert azure.calls == []


async def test_messages_and_logs_have_neither_values_nor_tokens(
    azure: AzureServer, provider: InMemory, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    vault = azure.vault("kv-canary")
    vault.contents.put("db", "CANARY-stored", tags=OWNED)
    vault.contents.put("theirs", "CANARY-theirs")
    results = [
        *await read(provider, store("kv-canary"), "theirs/x", "absent"),
        *await push(provider, store("kv-canary"), ("theirs", "", "CANARY-pushed"), ("db", "a.b", "CANARY-property")),
        *await push(provider, store("kv-canary"), ("long", "", "CANARY-" * 5_000)),
    ]
    wrong = {"/authSecretRef/clientId": "client", "/authSecretRef/clientSecret": "CANARY-secret"}
    results += await read(provider, store("kv-canary", wrong), "db")

    errors = [each.message for each in results if isinstance(each, ProviderError)]
    assert len(errors) == 6
    text = " ".join([*errors, *capfd.readouterr(), caplog.text])
    assert "CANARY" not in text
    assert SECRET not in text
    assert not any(token in text for token in azure.entra.grants)


async def test_calls_are_counted_under_the_names_that_dashboards_know(azure: AzureServer, provider: InMemory) -> None:
    azure.vault("kv-counted").contents.put("db", "x")

    await read(provider, store("kv-counted"), "db", "absent")
    await provider.find(store("kv-counted"), FindQuery(name_regexp="^none$"))

    counted = provider.metrics.exposition().decode()
    series = 'externalsecret_provider_api_calls_count{{call="{}",provider="Azure/KeyVault",status="{}"}} 1.0'
    for call, status in (("GetSecret", "success"), ("GetSecret", "error"), ("GetSecrets", "success")):
        assert series.format(call, status) in counted
