"""Certificates in folders instead of Secrets, for supervised provider processes and for tests.

    FOLDER/issuer/   tls.crt tls.key ca.crt [next.* previous.crt]      stays with the supervisor
    FOLDER/server/   tls.crt tls.key ca.crt                            given to the provider process
    FOLDER/client/   tls.crt tls.key ca.crt                            given to the core

The same state machine as for Secrets (`state.py`) decides what is due, so a long-running `eso up` renews certificates
and replaces authorities as a cluster does.

A folder looks like a mounted Secret: its files are links into `..data`, which is a link to a folder with one whole set.
A change writes a new set, synced to disk, and then replaces `..data` in one rename. Each file is therefore always
complete and all change at the same moment; a reader that opened one file before that moment and another after it sees a
key that does not fit its certificate, which `eso_wire.tls.load_material` rejects and its users retry. The replaced set
stays until the next change, for readers that still use it.
"""

from __future__ import annotations

import os
import secrets as randomness
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from eso_operator.certificates import secrets
from eso_operator.certificates.issuance import carry_out, issuer_of, leaf_of, plan
from eso_operator.certificates.state import Identity, Leaf, Lifetimes, Side, State
from kubebase.clock import rfc3339

_DATA: Final = "..data"
_WRITTEN: Final = "written-at"
_MAX_ROUNDS: Final = 8


@dataclass(frozen=True, slots=True)
class LocalCertificates:
    """The folders with the certificates, and the time of the next check."""

    server: Path
    client: Path
    due: datetime


def maintain(folder: Path, identity: Identity, now: datetime, lifetimes: Lifetimes) -> LocalCertificates:
    """Issue missing certificates and renew due ones. Only one process at a time may do this in a folder."""
    for _ in range(_MAX_ROUNDS):
        state = _load(folder)
        due = plan(state, now, lifetimes, identity)
        if not due.steps:
            return LocalCertificates(folder / Side.SERVER, folder / Side.CLIENT, due.due)
        after = state
        for step in due.steps:
            after = carry_out(step, after, now, lifetimes, identity)
        _store(folder, state, after)
    raise RuntimeError(f"the certificates in {folder} do not settle")


def replace_set(folder: Path, files: Mapping[str, bytes]) -> None:
    """Replace the files of the folder with these, atomically."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = _new_set(folder, files)
    current = _target(folder)
    link = folder / "..new"
    link.unlink(missing_ok=True)
    link.symlink_to(fresh.name)
    link.rename(folder / _DATA)
    for name in files:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"{_DATA}/{name}")
    for entry in folder.iterdir():
        if entry.is_symlink() and entry.name != _DATA and entry.name not in files:
            entry.unlink()
        elif entry.is_dir() and not entry.is_symlink() and entry.name not in (fresh.name, current):
            shutil.rmtree(entry)


def _new_set(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write a whole set beside the current one, or nothing: a write to a full disk is retried."""
    fresh = folder / f"..{randomness.token_hex(8)}"
    fresh.mkdir(mode=0o700)
    try:
        for name, content in files.items():
            _write(fresh / name, content)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    return fresh


def _load(folder: Path) -> State:
    issuer, server, client = (_read(folder / part) for part in (secrets.ISSUER, secrets.SERVER, secrets.CLIENT))
    return State(
        issuer=issuer_of(issuer),
        server=leaf_of(server, server.get(_WRITTEN, b"").decode(errors="replace")),
        client=leaf_of(client, client.get(_WRITTEN, b"").decode(errors="replace")),
    )


def _store(folder: Path, before: State, after: State) -> None:
    """Store the changed sets, the issuer first: a certificate must not be in use while its authority could be lost."""
    if after.issuer is not None and after.issuer is not before.issuer:
        replace_set(folder / secrets.ISSUER, secrets.issuer_data(after.issuer))
    for side in Side:
        leaf = after.leaf(side)
        if leaf is not None and leaf is not before.leaf(side):
            replace_set(folder / side, _leaf_files(leaf))


def _leaf_files(leaf: Leaf) -> dict[str, bytes]:
    return {**secrets.leaf_data(leaf), _WRITTEN: rfc3339(leaf.written_at).encode()}


def _read(folder: Path) -> dict[str, bytes]:
    """Read one whole set: the link is followed once."""
    current = _target(folder)
    if not current:
        return {}
    return {path.name: path.read_bytes() for path in (folder / current).iterdir() if path.is_file()}


def _target(folder: Path) -> str:
    try:
        return (folder / _DATA).readlink().name
    except OSError:
        return ""


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
