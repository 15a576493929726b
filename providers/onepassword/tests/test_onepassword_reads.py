"""Reads through a Connect server: what a reference names, in which vault, and what is reported if it is not there."""

from __future__ import annotations

import pytest

from eso_provider_onepassword.testing.connect import ConnectServer
from eso_provider_onepassword.testing.sessions import connect, failure, find, read, read_map
from eso_sdk.testing import InMemory
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import GetItem, RemoteRef


@pytest.fixture
def filled(server: ConnectServer) -> ConnectServer:
    team = server.vault("team")
    team.put("login", {"username": "anna", "password": "first", "a.b": "dotted"}, tags=["blue", "prod"])
    team.attach("certificate", {"tls.crt": b"\x00cert", "tls.key": b"key"}, tags=["blue"])
    team.attach("mixed", {"notes.txt": b"of a login"}, category="LOGIN", fields=[{"label": "password", "value": "x"}])
    server.vault("shared").put("login", {"password": "of shared"}, tags=["blue"])
    server.vault("shared").put("only-here", {"password": "other", "extra": "more"}, tags=["blue", "prod"])
    return server


@pytest.mark.parametrize(
    ("ref", "value"),
    [
        pytest.param("login", b"first", id="the default field is password"),
        pytest.param("login#username", b"anna", id="a property is a label"),
        pytest.param("login#field/username", b"anna", id="with the prefix field"),
        pytest.param("login#a.b", b"dotted", id="dots in a label have no meaning"),
        pytest.param("certificate", b"\x00cert", id="the default of a document is its first file"),
        pytest.param("certificate#tls.key", b"key", id="a property of a document is a file"),
        pytest.param("certificate#file/tls.key", b"key", id="with the prefix file"),
        pytest.param("mixed#file/notes.txt", b"of a login", id="a file of an item that is no document"),
        pytest.param("only-here", b"other", id="an item of the second vault"),
    ],
)
async def test_a_reference_names_a_field_or_a_file(
    ref: str, value: bytes, filled: ConnectServer, provider: InMemory
) -> None:
    assert await read(provider, connect(filled, "team", "shared"), ref) == [value]


@pytest.mark.parametrize(("order", "value"), [(("team", "shared"), b"first"), (("shared", "team"), b"of shared")])
async def test_the_first_vault_that_has_a_title_wins(
    order: tuple[str, ...], value: bytes, filled: ConnectServer, provider: InMemory
) -> None:
    assert await read(provider, connect(filled, *order), "login") == [value]


async def test_ids_are_found_in_every_vault(filled: ConnectServer, provider: InMemory) -> None:
    number = filled.vault("shared").put("by id", {"password": "found"})

    assert await read(provider, connect(filled, "team", "shared"), number) == [b"found"]


async def test_a_title_that_looks_like_an_id_is_found(server: ConnectServer, provider: InMemory) -> None:
    server.vault("team").put("abcdefghijklmnopqrstuvwxyz", {"password": "titled"})

    assert await read(provider, connect(server), "abcdefghijklmnopqrstuvwxyz") == [b"titled"]


async def test_a_vault_may_be_named_by_its_id(filled: ConnectServer, provider: InMemory) -> None:
    assert await read(provider, connect(filled, filled.vault("shared").id), "login") == [b"of shared"]


@pytest.mark.parametrize(
    ("ref", "reason", "text"),
    [
        pytest.param(
            "no-such", ErrorReason.SECRET_NOT_FOUND, 'no item "no-such" in vaults "team", "shared"', id="no such item"
        ),
        pytest.param("logn", ErrorReason.SECRET_NOT_FOUND, "login", id="a similar title is suggested"),
        pytest.param("a" * 26, ErrorReason.SECRET_NOT_FOUND, "no item", id="no such id"),
        pytest.param("login#nothing", ErrorReason.PROPERTY_NOT_FOUND, '"nothing"', id="no such field"),
        pytest.param("certificate#nothing", ErrorReason.PROPERTY_NOT_FOUND, '"nothing"', id="no such file"),
        pytest.param("twice", ErrorReason.INVALID_REQUEST, 'vault "team" has 2 items', id="two items of one title"),
        pytest.param("doubled", ErrorReason.INVALID_REQUEST, '2 parts named "password"', id="two equal labels"),
        pytest.param(
            RemoteRef("login", version="1"), ErrorReason.VERSION_NOT_FOUND, "remoteRef.version", id="a version"
        ),
    ],
)
async def test_what_cannot_be_read_is_explained(
    ref: RemoteRef | str, reason: ErrorReason, text: str, filled: ConnectServer, provider: InMemory
) -> None:
    team = filled.vault("team")
    team.put("twice", {"password": "CANARY-1"})
    team.put("twice", {"password": "CANARY-2"}, id="b" * 26)
    team.put("doubled", fields=[{"label": "password", "value": "CANARY-3"}] * 2)

    error = await failure(provider, connect(filled, "team", "shared"), ref)

    assert error.reason is reason
    assert text in error.message
    assert "CANARY" not in error.message


async def test_a_missing_vault_is_no_missing_item(filled: ConnectServer, provider: InMemory) -> None:
    """Deletion policies act on "not found": the item may exist in the vault that the token does not see."""
    error = await failure(provider, connect(filled, "taem", "team"), "login")

    assert error.reason is ErrorReason.CONFIG_INVALID
    assert '"taem"' in error.message
    assert "team" in error.message.replace("taem", "")


async def test_an_item_before_the_missing_vault_is_read(filled: ConnectServer, provider: InMemory) -> None:
    assert await read(provider, connect(filled, "team", "gone"), "login") == [b"first"]


async def test_two_vaults_of_one_name_must_be_told_apart(filled: ConnectServer, provider: InMemory) -> None:
    filled.vault("other").name = "team"

    error = await failure(provider, connect(filled, "team"), "login")

    assert (error.reason, "use the id" in error.message) == (ErrorReason.CONFIG_INVALID, True)


@pytest.mark.parametrize(
    ("ref", "found"),
    [
        pytest.param("login", {"username": b"anna", "password": b"first", "a.b": b"dotted"}, id="all fields"),
        pytest.param("login#username", {"username": b"anna"}, id="one field"),
        pytest.param("certificate", {"tls.crt": b"\x00cert", "tls.key": b"key"}, id="all files of a document"),
        pytest.param("certificate#tls.key", {"tls.key": b"key"}, id="one file"),
        pytest.param("mixed#file/", {"notes.txt": b"of a login"}, id="all files of another item"),
    ],
)
async def test_a_map_has_fields_or_files(
    ref: str, found: dict[str, bytes], filled: ConnectServer, provider: InMemory
) -> None:
    assert await read_map(provider, connect(filled), ref) == found


async def test_fields_without_a_value_or_a_label_are_in_the_map(server: ConnectServer, provider: InMemory) -> None:
    notes = {"id": "notesPlain", "label": "notesPlain", "purpose": "NOTES"}
    server.vault("team").put("login", fields=[notes, {"id": "username", "value": "anna"}])

    assert await read_map(provider, connect(server), "login") == {"notesPlain": b"", "username": b"anna"}


async def test_a_map_of_a_missing_property_is_an_error(filled: ConnectServer, provider: InMemory) -> None:
    found = await read_map(provider, connect(filled), "login#nothing")

    assert isinstance(found, ProviderError)
    assert found.reason is ErrorReason.PROPERTY_NOT_FOUND


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        pytest.param(
            {"name_regexp": "^(user|pass)"}, {"username": b"anna", "password": b"first"}, id="names of fields"
        ),
        pytest.param(
            {"name_regexp": r"\.txt$"}, {"notes.txt": b"of a login"}, id="files of an item that is no document"
        ),
        pytest.param({"name_regexp": "^tls"}, {"tls.crt": b"\x00cert", "tls.key": b"key"}, id="names of files"),
        pytest.param({"path": "only-here", "name_regexp": "."}, {"password": b"other", "extra": b"more"}, id="a title"),
        pytest.param({"path": "only"}, {}, id="a title is compared as a whole"),
        pytest.param(
            {"tags": {"blue": "", "prod": ""}},
            {"username": b"anna", "password": b"first", "a.b": b"dotted", "extra": b"more"},
            id="all tags, in all vaults",
        ),
        pytest.param({"tags": {"prod": "any"}, "name_regexp": "extra"}, {"extra": b"more"}, id="tags and names"),
        pytest.param({"name_regexp": "no such name"}, {}, id="nothing"),
    ],
)
async def test_finds(
    query: dict[str, object], keys: dict[str, bytes], filled: ConnectServer, provider: InMemory
) -> None:
    assert await find(provider, connect(filled, "team", "shared"), **query) == keys


async def test_existence_of_items_and_fields(filled: ConnectServer, provider: InMemory) -> None:
    refs = [
        RemoteRef("login"),
        RemoteRef("login", property="username"),
        RemoteRef("login", property="no"),
        RemoteRef("no"),
    ]
    items = tuple(GetItem(str(number), ref) for number, ref in enumerate(refs))

    results = await provider.check(connect(filled), items)

    assert [result.exists for result in results] == [True, True, False, False]
    assert [result.error for result in results] == [None] * 4
