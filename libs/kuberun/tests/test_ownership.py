"""Owner references, finalizers and field managers."""

from collections.abc import AsyncIterator

import pytest

from kubebase.meta import OwnerReference, metadata_of
from kuberun.client import Client
from kuberun.connection import Connection, Credential, FixedCredentials
from kuberun.ownership import (
    MAX_FIELD_MANAGER_BYTES,
    add_finalizer,
    controller_of,
    controller_reference,
    field_manager,
    finalizer_added,
    finalizer_removed,
    is_controlled_by,
    owner_reference,
    remove_finalizer,
    without_owner,
)
from kuberun.testing import scriptedserver as script
from kuberun.testing.builders import WIDGETS, metadata
from kuberun.testing.scriptedserver import ScriptedServer, scripted_server
from kuberun.transport import AiohttpTransport

MINE = controller_reference(WIDGETS, metadata("me"))
PLAIN = owner_reference(WIDGETS, metadata("me"))
OTHER_PLAIN = owner_reference(WIDGETS, metadata("other"))


def test_a_reference_names_its_owner() -> None:
    expected = OwnerReference(api_version="example.com/v1", kind="Widget", name="me", uid="uid-me")

    assert expected == PLAIN
    assert (MINE.controller, MINE.block_owner_deletion) == (True, True)


def test_looking_up_owners() -> None:
    owned = metadata("x", owner_references=[OTHER_PLAIN, MINE])

    assert controller_of(owned.owner_references) == MINE
    assert controller_of([OTHER_PLAIN]) is None
    assert not is_controlled_by(owned, "uid-other")
    assert is_controlled_by(owned, "uid-me")
    assert without_owner(owned.owner_references, "uid-other") == [MINE]


def test_a_finalizer_is_added_for_the_version_seen() -> None:
    patch = finalizer_added(metadata(finalizers=["a"], resource_version="7"), "b")

    assert patch == {"metadata": {"finalizers": ["a", "b"], "resourceVersion": "7", "uid": "uid-one"}}


def test_a_finalizer_is_not_added_twice_nor_too_late() -> None:
    assert finalizer_added(metadata(finalizers=["b"]), "b") is None
    assert finalizer_added(metadata(deletion_timestamp="2030-01-01T00:00:00Z"), "b") is None


def test_a_finalizer_is_removed_for_the_version_seen() -> None:
    some = finalizer_removed(metadata(finalizers=["a", "b"]), "b")
    last = finalizer_removed(metadata(finalizers=["b"]), "b")

    assert some == {"metadata": {"finalizers": ["a"], "resourceVersion": "1", "uid": "uid-one"}}
    assert last == {"metadata": {"finalizers": None, "resourceVersion": "1", "uid": "uid-one"}}
    assert finalizer_removed(metadata(finalizers=["a"]), "b") is None


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as running:
        running.will(script.json({"metadata": {"name": "one", "finalizers": ["b"]}}))
        yield running


@pytest.fixture
async def client(server: ScriptedServer) -> AsyncIterator[Client]:
    made = Client(AiohttpTransport(Connection(server.url, FixedCredentials(Credential()))))
    yield made
    await made.close()


async def test_finalizers_are_written_only_when_needed(server: ScriptedServer, client: Client) -> None:
    kind = metadata_of(WIDGETS)

    added = await add_finalizer(client, kind, metadata(), "b")
    again = await add_finalizer(client, kind, metadata(finalizers=["b"]), "b")
    removed = await remove_finalizer(client, kind, metadata(finalizers=["b"]), "b")
    gone = await remove_finalizer(client, kind, metadata(), "b")

    assert added is not None
    assert added.metadata.finalizers == ["b"]
    assert removed is not None
    assert (again, gone) == (None, None)
    assert [received.json["metadata"]["finalizers"] for received in server.received] == [["b"], None]


@pytest.mark.parametrize(
    "text", ["", "x" * (MAX_FIELD_MANAGER_BYTES + 1), "a\nb"], ids=["empty", "long", "unprintable"]
)
def test_a_field_manager_the_server_would_refuse_is_refused_here(text: str) -> None:
    with pytest.raises(ValueError, match="a field manager has"):
        field_manager(text)


def test_a_good_field_manager_is_itself() -> None:
    assert field_manager("widgets.example.com/one") == "widgets.example.com/one"
