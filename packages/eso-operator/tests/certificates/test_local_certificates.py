"""Certificates in folders: issued, renewed, rolled over, and never half of a set."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from eso_operator.certificates import authority, local
from eso_operator.certificates.settings import IssuerSettings, identity_of
from eso_operator.certificates.state import Identity, Lifetimes
from eso_operator.stores.resolved import ServiceKey
from eso_wire.tls import TlsMaterialError, load_material
from kubebase.testing.clock import START

LIFETIMES = Lifetimes()


def test_a_first_call_issues_a_set_that_both_sides_can_load(tmp_path: Path, identity: Identity) -> None:
    made = local.maintain(tmp_path, identity, START, LIFETIMES)

    server, client = load_material(made.server), load_material(made.client)
    assert server.ca == client.ca
    assert server.expires_at == START + LIFETIMES.leaf
    assert identity.server.identity in authority.names_of(server.certificate)
    assert authority.names_of(client.certificate) == {identity.client}


def test_a_supervised_process_is_named_by_its_address(tmp_path: Path) -> None:
    identity = identity_of(ServiceKey("eso", "p"), IssuerSettings("eso"), local=("127.0.0.1",))

    made = local.maintain(tmp_path, identity, START, LIFETIMES)

    names = authority.names_of(load_material(made.server).certificate)
    assert {"127.0.0.1", "localhost", "p.eso.svc.cluster.local"} <= names


def test_a_second_call_changes_nothing_until_something_is_due(tmp_path: Path, identity: Identity) -> None:
    made = local.maintain(tmp_path, identity, START, LIFETIMES)
    before = load_material(made.server).fingerprint

    again = local.maintain(tmp_path, identity, START + timedelta(days=54), LIFETIMES)
    unchanged = load_material(again.server).fingerprint
    renewed = local.maintain(tmp_path, identity, START + timedelta(days=55), LIFETIMES)

    assert unchanged == before
    assert load_material(renewed.server).fingerprint != before


def test_a_long_run_rolls_the_authority_over(tmp_path: Path, identity: Identity) -> None:
    made = local.maintain(tmp_path, identity, START, LIFETIMES)
    first = load_material(made.client).ca
    sizes = {1}

    while made.due < START + timedelta(days=366):
        made = local.maintain(tmp_path, identity, made.due, LIFETIMES)
        sizes.add(len(authority.split(load_material(made.client).ca)))

    assert sizes == {1, 2}
    assert load_material(made.client).ca != first


def test_keys_are_readable_by_their_owner_only(tmp_path: Path, identity: Identity) -> None:
    made = local.maintain(tmp_path, identity, START, LIFETIMES)

    assert (made.server / "tls.key").stat().st_mode & 0o077 == 0
    assert made.server.stat().st_mode & 0o077 == 0


def test_old_sets_are_swept(tmp_path: Path) -> None:
    for number in range(5):
        local.replace_set(tmp_path / "set", {"a": b"%d" % number, "b": b"%d" % number})
    local.replace_set(tmp_path / "set", {"a": b"last"})

    entries = sorted(path.name for path in (tmp_path / "set").iterdir() if not path.name.startswith(".."))
    sets = [path for path in (tmp_path / "set").iterdir() if path.is_dir() and not path.is_symlink()]
    assert entries == ["a"]
    assert (tmp_path / "set" / "a").read_bytes() == b"last"
    assert len(sets) == 2, "the present one and the one before it"


def test_a_set_that_cannot_be_written_leaves_the_one_before_it_and_nothing_else(tmp_path: Path) -> None:
    local.replace_set(tmp_path / "set", {"a": b"good"})
    before = sorted(path.name for path in (tmp_path / "set").iterdir())

    with pytest.raises(OSError, match="No such file"):
        local.replace_set(tmp_path / "set", {"a": b"new", "no/such": b"folder"})

    assert sorted(path.name for path in (tmp_path / "set").iterdir()) == before
    assert (tmp_path / "set" / "a").read_bytes() == b"good"


def test_a_reader_beside_a_writer_sees_whole_sets_only(tmp_path: Path, identity: Identity) -> None:
    """Files that load belong together; a read during a change is rejected, never misread."""
    made = local.maintain(tmp_path, identity, START, LIFETIMES)
    stopped = threading.Event()

    def renew() -> None:
        for number in range(40):
            renamed = replace(identity, client=f"{identity.client}-{number}")
            local.maintain(tmp_path, renamed, START, LIFETIMES)
        stopped.set()

    writer = threading.Thread(target=renew)
    writer.start()
    loaded, refused = 0, set()
    while not stopped.is_set():
        try:
            load_material(made.client)
            loaded += 1
        except TlsMaterialError as error:
            refused.add(str(error))
    writer.join()

    assert loaded > 0
    assert refused <= {"tls.key does not belong to tls.crt"}, "no file is ever missing or cut"


@pytest.mark.parametrize("part", ["issuer", "server", "client"])
def test_a_folder_that_was_emptied_is_filled_again(tmp_path: Path, identity: Identity, part: str) -> None:
    made = local.maintain(tmp_path, identity, START, LIFETIMES)
    (tmp_path / part / "..data").unlink()

    local.maintain(tmp_path, identity, START, LIFETIMES)

    assert load_material(made.server).ca
    assert load_material(made.client).ca
