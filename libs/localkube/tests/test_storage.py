"""The store: revisions, views, history, compaction, encryption, and what happens when a commit fails."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest

from kubebase.clock import SystemClock
from kubebase.testing.clock import VirtualClock
from localkube.errors import StatusError
from localkube.storage import Change, HistoryLimits, Key, ObjectStorage, StorageError

CANARY = "CANARY-7f3a"


def key(name: str, namespace: str = "default", resource: str = "configmaps") -> Key:
    return Key(resource, namespace, name)


def body(name: str, **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, **fields}


def opened(path: Path | None = None, **options: Any) -> ObjectStorage:
    return ObjectStorage.open(path, clock=options.pop("clock", SystemClock()), **options)


async def put(store: ObjectStorage, name: str, **fields: Any) -> int:
    obj = body(name, **fields)
    await store.put(key(name), obj).committed()
    return int(obj["metadata"]["resourceVersion"])


def everything_in(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in directory.iterdir())


def names(entries: list[tuple[str, Any]]) -> list[str]:
    return [path for path, _ in entries]


async def test_every_write_of_any_resource_gets_the_next_revision() -> None:
    store = opened()

    first = await put(store, "a")
    other = body("b")
    await store.put(key("b", resource="secrets"), other).committed()
    await store.remove(key("a")).committed()

    assert int(other["metadata"]["resourceVersion"]) == first + 1
    assert store.revision == first + 2
    await store.close()


async def test_a_reader_sees_a_write_only_after_its_commit() -> None:
    store = opened()

    batch = store.put(key("a"), body("a"))
    seen_by_reader = store.get(key("a"))
    seen_by_writer = store.latest(key("a"))
    await batch.committed()

    assert seen_by_reader is None
    assert seen_by_writer is not None
    assert store.get(key("a")) == seen_by_writer
    await store.close()


async def test_writes_of_one_loop_turn_share_one_commit() -> None:
    store = opened()

    batches = {id(store.put(key(f"n{index}"), body(f"n{index}"))) for index in range(50)}
    await store.wait_committed()

    assert len(batches) == 1
    assert len(store.scan("configmaps")) == 50
    await store.close()


async def test_listeners_hear_every_change_once_in_revision_order() -> None:
    store = opened()
    heard: list[Change] = []
    store.listen(heard.append)

    await put(store, "a")
    await put(store, "a", data={"x": "1"})
    await store.remove(key("a")).committed()

    assert [change.type for change in heard] == ["ADDED", "MODIFIED", "DELETED"]
    assert [change.revision for change in heard] == sorted(change.revision for change in heard)
    assert heard[2].object["metadata"]["resourceVersion"] == str(heard[2].revision)
    assert heard[2].object["data"] == {"x": "1"}
    await store.close()


async def test_lists_are_in_the_byte_order_of_namespace_slash_name() -> None:
    store = opened()

    for namespace, name in (("a", "x"), ("a-b", "x"), ("a", "b"), ("b", "a")):
        store.put(Key("configmaps", namespace, name), body(name))
    await store.wait_committed()

    assert names(store.scan("configmaps")) == ["a-b/x", "a/b", "a/x", "b/a"]
    assert names(store.scan("configmaps", "a")) == ["a/b", "a/x"]
    await store.close()


async def test_an_older_snapshot_shows_objects_as_they_were() -> None:
    store = opened()
    await put(store, "kept")
    await put(store, "changed", data={"v": "old"})
    snapshot = await put(store, "removed")

    await put(store, "changed", data={"v": "new"})
    await store.remove(key("removed")).committed()
    await put(store, "added")
    await put(store, "changed", data={"v": "newest"})

    entries = store.scan_at("configmaps", "default", snapshot)
    assert names(entries) == ["default/changed", "default/kept", "default/removed"]
    assert entries[0][1].decode()["data"] == {"v": "old"}
    await store.close()


class TestRestart:
    async def test_objects_history_and_revision_survive(self, tmp_path: Path) -> None:
        store = opened(tmp_path / "d")
        start = await put(store, "a", data={"v": "1"})
        await put(store, "a", data={"v": "2"})
        await put(store, "b")
        await store.remove(key("b")).committed()
        before = [(c.type, c.revision, c.record, c.previous) for c in store.changes_since("configmaps", 0)]
        revision = store.revision
        await store.close()

        store = opened(tmp_path / "d")

        after = [(c.type, c.revision, c.record, c.previous) for c in store.changes_since("configmaps", 0)]
        assert after == before
        assert store.revision == revision
        assert [c.type for c in store.changes_since("configmaps", start)] == ["MODIFIED", "ADDED", "DELETED"]
        assert await put(store, "c") == revision + 1
        await store.close()

    async def test_the_revision_never_goes_back_even_when_nothing_is_left(self, tmp_path: Path) -> None:
        store = opened(tmp_path)
        await put(store, "a")
        await store.remove(key("a")).committed()
        await store.compact(store.revision)
        revision = store.revision
        await store.close()

        store = opened(tmp_path)

        assert store.revision == revision
        assert store.compacted == revision
        await store.close()

    async def test_a_database_of_a_newer_format_is_refused(self, tmp_path: Path) -> None:
        await opened(tmp_path).close()
        connection = sqlite3.connect(tmp_path / "localkube.db")
        connection.execute("UPDATE meta SET value = '99' WHERE name = 'schema'")
        connection.commit()
        connection.close()

        with pytest.raises(StorageError, match=r"format 99.*newer version"):
            opened(tmp_path)

    async def test_history_that_does_not_match_the_objects_is_refused(self, tmp_path: Path) -> None:
        store = opened(tmp_path)
        await put(store, "a")
        await put(store, "a", data={"v": "2"})
        await store.close()
        connection = sqlite3.connect(tmp_path / "localkube.db")
        connection.execute("UPDATE objects SET revision = revision - 1")
        connection.commit()
        connection.close()

        with pytest.raises(StorageError, match="does not match"):
            opened(tmp_path)

    async def test_a_file_that_is_no_database_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "localkube.db").write_bytes(b"not a database at all, but long enough to be looked at" * 20)

        with pytest.raises(StorageError, match="cannot be opened"):
            opened(tmp_path)


class TestDirectory:
    @pytest.mark.skipif(os.geteuid() != 0, reason="only the administrator can give a file to another user")
    @pytest.mark.parametrize("planted", [".", "admin.token", "pki", "pki/ca.key", "localkube.db", "link"])
    async def test_what_belongs_to_another_user_is_refused_and_not_changed(self, tmp_path: Path, planted: str) -> None:
        place = tmp_path / "data"
        (place / "pki").mkdir(parents=True)
        (place / "link").symlink_to("/nonexistent")
        for name in ("admin.token", "pki/ca.key", "localkube.db"):
            (place / name).write_bytes(b"")
            (place / name).chmod(0o600)
        os.lchown(place / planted, 65534, 65534)

        with pytest.raises(StorageError) as refused:
            opened(place)

        assert f"{place / planted} belongs to another user (uid 65534)" in str(refused.value)
        assert not (place / "lock").exists()
        assert (place / "localkube.db").read_bytes() == b""

    @pytest.mark.skipif(os.geteuid() != 0, reason="only the administrator can give a file to another user")
    async def test_a_link_to_a_directory_of_another_user_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "theirs").mkdir()
        os.chown(tmp_path / "theirs", 65534, 65534)
        (tmp_path / "data").symlink_to("theirs")

        with pytest.raises(StorageError, match="belongs to another user"):
            opened(tmp_path / "data")

    @pytest.mark.parametrize("mode", [0o770, 0o707])
    @pytest.mark.parametrize("planted", [".", "admin.token"])
    async def test_what_other_users_can_write_is_refused(self, tmp_path: Path, planted: str, mode: int) -> None:
        place = tmp_path / "data"
        place.mkdir(mode=0o700)
        (place / "admin.token").touch(mode=0o600)
        (place / planted).chmod(mode)

        with pytest.raises(StorageError, match=r"other users can write to .*; if its content is yours, run chmod -R"):
            opened(place)

    async def test_everything_is_private_to_the_owner(self, tmp_path: Path) -> None:
        store = opened(tmp_path / "d")
        await put(store, "a")

        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "d").iterdir()}

        assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o700
        assert set(modes.values()) == {0o600}
        assert {"localkube.db", "encryption.key", "lock"} <= modes.keys()
        await store.close()

    async def test_two_stores_never_share_a_directory(self, tmp_path: Path) -> None:
        store = opened(tmp_path)

        with pytest.raises(StorageError, match="in use by another server"):
            opened(tmp_path)

        await store.close()
        await opened(tmp_path).close()

    async def test_a_path_that_cannot_be_a_directory_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")

        with pytest.raises(StorageError, match="cannot be used"):
            opened(tmp_path / "file")


class TestEncryption:
    async def secret_in(self, path: Path) -> None:
        store = opened(path)
        await store.put(key("s", resource="secrets"), body("s", data={"p": CANARY})).committed()
        await store.put(key("s", resource="secrets"), body("s", data={"p": CANARY + "-2"})).committed()
        await store.close()

    async def test_no_secret_value_reaches_the_disk(self, tmp_path: Path) -> None:
        store = opened(tmp_path)
        await store.put(key("s", resource="secrets"), body("s", data={"p": CANARY})).committed()
        await store.put(key("c"), body("c", data={"p": "PLAIN-1"})).committed()

        written = everything_in(tmp_path)

        assert CANARY.encode() not in written
        assert b"PLAIN-1" in written  # so that the check above could have failed
        await store.close()

    async def test_secrets_and_their_history_come_back(self, tmp_path: Path) -> None:
        await self.secret_in(tmp_path)

        store = opened(tmp_path)

        record = store.get(key("s", resource="secrets"))
        assert record is not None
        assert record.decode()["data"] == {"p": CANARY + "-2"}
        assert store.changes_since("secrets", 0)[0].record.decode()["data"] == {"p": CANARY}
        await store.close()

    async def test_a_missing_key_is_an_error_and_is_not_recreated(self, tmp_path: Path) -> None:
        await self.secret_in(tmp_path)
        (tmp_path / "encryption.key").unlink()

        with pytest.raises(StorageError, match=r"encryption\.key is missing"):
            opened(tmp_path)

        assert not (tmp_path / "encryption.key").exists()

    async def test_a_wrong_key_is_an_error_and_is_not_overwritten(self, tmp_path: Path) -> None:
        await self.secret_in(tmp_path / "one")
        await self.secret_in(tmp_path / "two")
        wrong = (tmp_path / "two" / "encryption.key").read_bytes()
        (tmp_path / "one" / "encryption.key").write_bytes(wrong)

        with pytest.raises(StorageError, match="does not belong to this database"):
            opened(tmp_path / "one")

        assert (tmp_path / "one" / "encryption.key").read_bytes() == wrong

    async def test_a_mangled_key_is_an_error(self, tmp_path: Path) -> None:
        await self.secret_in(tmp_path)
        (tmp_path / "encryption.key").write_text("short")

        with pytest.raises(StorageError, match=r"256-bit|cannot be read"):
            opened(tmp_path)

    async def test_a_ciphertext_put_under_another_name_is_damaged(self, tmp_path: Path) -> None:
        await self.secret_in(tmp_path)
        connection = sqlite3.connect(tmp_path / "localkube.db")
        connection.execute("DELETE FROM history")
        connection.execute("UPDATE objects SET name = 'other'")
        connection.commit()
        connection.close()

        with pytest.raises(StorageError, match=r"default/other .* is damaged"):
            opened(tmp_path)


class TestCompaction:
    async def test_compacted_history_is_gone_and_stays_gone(self, tmp_path: Path) -> None:
        store = opened(tmp_path)
        first = await put(store, "a")
        await put(store, "a", data={"v": "2"})

        await store.compact(first)

        assert store.compacted == first
        assert [c.type for c in store.changes_since("configmaps", first)] == ["MODIFIED"]
        assert len(store.changes_since("configmaps", 0)) == 1
        await store.close()
        store = opened(tmp_path)
        assert store.compacted == first
        assert len(store.changes_since("configmaps", 0)) == 1
        await store.close()

    @pytest.mark.parametrize(
        ("limits", "kept"),
        [
            pytest.param(HistoryLimits(events=3), 3, id="by count"),
            pytest.param(HistoryLimits(size=3 * 200), 3, id="by size"),
            pytest.param(HistoryLimits(age=25.0), 2, id="by age"),
        ],
    )
    async def test_history_keeps_its_limits(self, limits: HistoryLimits, kept: int) -> None:
        clock = VirtualClock()
        store = opened(clock=clock, limits=limits)
        for index in range(10):
            await put(store, f"n{index}")
            await clock.advance(10)

        await store.keep_limits()

        assert len(store.changes_since("configmaps", store.compacted)) == kept
        assert store.compacted == store.revision - kept
        await store.close()

    async def test_a_burst_of_writes_compacts_along_the_way(self) -> None:
        store = opened(limits=HistoryLimits(events=100))

        for index in range(400):
            await put(store, f"n{index % 7}")

        assert len(store.changes_since("configmaps", 0)) <= 126
        await store.close()


class TestFailedCommit:
    @staticmethod
    def fill_the_disk(store: ObjectStorage) -> None:
        """Let SQLite believe that no page is left."""
        connection = store._database._connection
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")

    @staticmethod
    def free_the_disk(store: ObjectStorage) -> None:
        store._database._connection.execute("PRAGMA max_page_count = 1000000")

    async def test_every_waiting_write_fails_and_nothing_of_it_is_seen(self, tmp_path: Path) -> None:
        store = opened(tmp_path)
        heard: list[Change] = []
        await put(store, "before")
        store.listen(heard.append)
        self.fill_the_disk(store)

        big = [store.put(key(f"big{index}"), body(f"big{index}", data={"x": "x" * 100_000})) for index in range(3)]
        results = await asyncio.gather(*(batch.committed() for batch in big), return_exceptions=True)

        assert [type(result) for result in results] == [StatusError] * 3
        said = {(result.code, result.message) for result in results if isinstance(result, StatusError)}
        assert said == {
            (507, f"the disk of data directory {tmp_path} is full; free some space; nothing was changed"),
        }
        assert heard == []
        assert store.latest(key("big0")) is None
        assert names(store.scan("configmaps")) == ["default/before"]
        await store.close()

    async def test_the_store_goes_on_once_there_is_room(self, tmp_path: Path) -> None:
        store = opened(tmp_path)
        self.fill_the_disk(store)
        with pytest.raises(StatusError):
            await put(store, "big", data={"x": "x" * 100_000})
        self.free_the_disk(store)

        revision = await put(store, "after")

        await store.close()
        store = opened(tmp_path)
        assert names(store.scan("configmaps")) == ["default/after"]
        assert store.revision == revision
        await store.close()

    async def test_a_write_decided_on_a_failed_one_fails_too(self, tmp_path: Path) -> None:
        store = opened(tmp_path)
        self.fill_the_disk(store)

        first = store.put(key("a"), body("a", data={"x": "x" * 100_000}))
        while store._writing is None:  # let the first batch begin
            await asyncio.wait([asyncio.ensure_future(first.done.wait())], timeout=0)
            if first.done.is_set():
                break
        second = store.put(key("a"), body("a", data={"x": "small"})) if not first.done.is_set() else first
        results = await asyncio.gather(first.committed(), second.committed(), return_exceptions=True)

        assert all(isinstance(result, StatusError) for result in results)
        assert store.latest(key("a")) is None
        await store.close()


async def test_writes_after_close_are_refused_and_waiting_ones_are_kept(tmp_path: Path) -> None:
    store = opened(tmp_path)
    batch = store.put(key("a"), body("a"))

    await store.close()

    assert batch.done.is_set()
    with pytest.raises(StatusError, match="shutting down"):
        store.put(key("b"), body("b"))
    store = opened(tmp_path)
    assert names(store.scan("configmaps")) == ["default/a"]
    await store.close()


async def test_a_copied_directory_opens_like_the_original(tmp_path: Path) -> None:
    store = opened(tmp_path / "one")
    await put(store, "a")
    await store.close()

    shutil.copytree(tmp_path / "one", tmp_path / "two")

    store = opened(tmp_path / "two")
    assert names(store.scan("configmaps")) == ["default/a"]
    await store.close()


async def test_a_listener_that_fails_does_not_keep_anyone_waiting() -> None:
    store = opened()
    heard: list[Change] = []

    def broken(_: Change) -> None:
        raise RuntimeError("broken")

    store.listen(broken)
    stop = store.listen(heard.append)

    await put(store, "a")
    stop()
    await put(store, "b")

    assert [change.key.name for change in heard] == ["a"]
    await store.close()
