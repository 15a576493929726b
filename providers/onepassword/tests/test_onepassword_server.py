"""The stand-in server behaves as the vendor's unmodified client expects of a Connect server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from onepasswordconnectsdk.client import Client, new_client
from onepasswordconnectsdk.errors import FailedToRetrieveItemException, FailedToRetrieveVaultException
from onepasswordconnectsdk.models import Field, Item, ItemVault

from eso_provider_onepassword.testing.connect import TOKEN, ConnectServer


@pytest.fixture
def client(server: ConnectServer) -> Client:
    return new_client(server.url, TOKEN)


def made(server: ConnectServer, *fields: Any, **more: Any) -> Item:
    return Item(
        vault=ItemVault(id=server.vault("team").id), title="made", category="LOGIN", fields=list(fields), **more
    )


def test_vaults_by_id_by_name_and_all(server: ConnectServer, client: Client) -> None:
    number = server.vault("team").id
    server.vault("other")

    assert {vault.name for vault in client.get_vaults()} == {"team", "other"}
    assert client.get_vault(number).content_version == 1
    assert client.get_vault_by_title("team").id == number


def test_items_by_id_by_title_and_all(server: ConnectServer, client: Client) -> None:
    team = server.vault("team")
    number = team.put("login", {"password": "first"}, tags=["blue"])
    team.put("other", {"password": "second"})

    assert {item.title for item in client.get_items(team.id)} == {"login", "other"}
    assert [item.id for item in client.get_items(team.id, 'tag eq "blue"')] == [number]
    assert client.get_item(number, "team").fields[0].value == "first"
    assert client.get_item("login", team.id).id == number


def test_summaries_have_no_values(server: ConnectServer, client: Client) -> None:
    server.vault("team").put("login", {"password": "first"})

    response = client.build_request("GET", f"/v1/vaults/{server.vault('team').id}/items")

    assert "first" not in response.text
    assert response.json()[0]["version"] == 1


def test_an_item_is_created_changed_and_deleted(server: ConnectServer, client: Client) -> None:
    team = server.vault("team")

    created = client.create_item(team.id, made(server, Field(label="password", value="one", type="CONCEALED")))
    created.fields[0].value = "two"
    changed = client.update_item(created.id, team.id, created)
    versions = (created.version, changed.version, client.get_vault(team.id).content_version)
    client.delete_item(created.id, team.id)

    assert versions == (1, 2, 3)
    assert changed.fields[0].value == "two"
    assert team.titles() == []


def test_files_are_listed_and_downloaded(server: ConnectServer, client: Client, tmp_path: Path) -> None:
    team = server.vault("team")
    number = team.attach("certificate", {"tls.crt": b"\x00cert"})

    (file,) = client.get_files(number, team.id)
    client.download_file(file.id, number, team.id, str(tmp_path))

    assert (file.name, file.size) == ("tls.crt", 5)
    assert client.get_file_content(file.id, number, team.id, file.content_path) == b"\x00cert"
    assert (tmp_path / "tls.crt").read_bytes() == b"\x00cert"


@pytest.mark.parametrize(
    ("token", "status"),
    [pytest.param("wrong", "401", id="a wrong token"), pytest.param("limited", "403", id="another vault")],
)
def test_refusals(token: str, status: str, server: ConnectServer) -> None:
    server.tokens["limited"] = {"other"}

    with pytest.raises(FailedToRetrieveVaultException, match=status):
        new_client(server.url, token).get_vault(server.vault("team").id)


def test_what_does_not_exist(server: ConnectServer, client: Client) -> None:
    with pytest.raises(FailedToRetrieveItemException, match="404"):
        client.get_item_by_id("a" * 26, server.vault("team").id)
    with pytest.raises(FailedToRetrieveItemException, match="Found 0"):
        client.get_item_by_title("no-such", server.vault("team").id)


def test_a_server_that_lags_shows_the_former_state_first(server: ConnectServer, client: Client) -> None:
    team = server.vault("team")
    number = team.put("login", {"password": "old"})
    server.lag = 1
    item = client.get_item(number, team.id)
    item.fields[0].value = "new"

    client.update_item(number, team.id, item)

    assert [client.get_item(number, team.id).fields[0].value for _ in range(2)] == ["old", "new"]
