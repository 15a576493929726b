"""Manifests that `eso up -f` follows: what cannot be used is told with its line, and stops nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eso_cli.folder import Folder
from localkube.model import ListQuery
from localkube.server import LocalKube

GOOD = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: NAME, namespace: default, annotations: {since: 2024-01-01}}
"""
HUSH = "hunter2hunter2"
KEPT = {"good", "last"}


class Followed:
    """A folder with two good files, whose objects must be there whatever stands beside them."""

    def __init__(self, kube: LocalKube, place: Path) -> None:
        self.kube, self.place = kube, place
        self.said: list[str] = []
        self.folder = Folder([place], kube.cluster, self.said.append)
        self.put("a-good.yaml", GOOD.replace("NAME", "good"))
        self.put("z-last.yaml", GOOD.replace("NAME", "last"))

    def put(self, name: str, text: str) -> Path:
        file = self.place / name
        file.write_text(text)
        return file

    async def applied(self) -> set[str]:
        self.said.clear()
        await self.folder.apply_changes()
        kind = self.kube.cluster.catalog.find_kind("v1", "ConfigMap")
        assert kind is not None
        listed = await self.kube.cluster.list(kind, ListQuery("default"))
        return {each["metadata"]["name"] for each in listed.items}


@pytest.fixture
async def followed(tmp_path: Path) -> AsyncIterator[Followed]:
    place = tmp_path / "manifests"
    place.mkdir()
    async with LocalKube(tmp_path / "data") as kube:
        yield Followed(kube, place)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(f"a: [{HUSH}", ":2: did not find", id="no YAML"),
        pytest.param(f"a: {HUSH}", ":1: an object needs apiVersion", id="no object"),
        pytest.param(f"apiVersion: v1\nkind: List\nitems:\n- {HUSH}\n", ":4: an object needs", id="a list of texts"),
        pytest.param("apiVersion: v1\nkind: ConfigMap\nmetadata: {}\n", ":1: an object needs", id="no name"),
        pytest.param(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: [b]}\n", ":3: ", id="no namespace"
        ),
        pytest.param(
            "apiVersion: a.b/v1\nkind: Foo\nmetadata: {name: a}\n", ":1: a.b/v1 Foo is not", id="no such kind"
        ),
        pytest.param(f"---\n{GOOD}data: [{HUSH}]\n".replace("NAME", "x"), ":2: ConfigMap x was refused", id="refused"),
    ],
)
async def test_what_cannot_be_used_is_named_and_stops_nothing_else(followed: Followed, text: str, said: str) -> None:
    file = followed.put("bad.yaml", text)

    there = await followed.applied()

    assert there >= KEPT
    (told,) = followed.said
    assert told.startswith(f"{file}{said}")
    assert told.endswith("it is tried again when a file changes")
    assert HUSH not in told


async def test_documents_beside_a_bad_one_are_applied_and_it_too_once_it_is_mended(followed: Followed) -> None:
    others = [GOOD.replace("NAME", name) for name in ("before", "after")]
    followed.put("many.yaml", "---\n".join([others[0], "kind: ConfigMap\n", others[1]]))

    first = await followed.applied()
    complaints = list(followed.said)
    followed.put("many.yaml", "---\n".join([others[0], GOOD.replace("NAME", "mended"), others[1]]))
    then = await followed.applied()

    assert first >= KEPT | {"before", "after"}
    assert len(complaints) == 1
    assert then >= first | {"mended"}
    assert followed.said == []


async def test_files_that_are_no_manifests_are_left_alone(followed: Followed) -> None:
    followed.put("notes.txt", "not: [yaml")
    (followed.place / ".#a-good.yaml").symlink_to("nobody@nowhere")  # an editor's lock
    (followed.place / "deeper").mkdir()

    await followed.applied()

    assert followed.said == []
