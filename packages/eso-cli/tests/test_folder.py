"""Manifests that `eso up -f` follows: an invalid one is reported with its line, and the others are applied."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import yaml

from eso_cli.folder import Folder, FolderLog
from kubebase.meta import JsonObject
from kubebase.testing.clock import VirtualClock
from localkube.manifests import install
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
        self.told: list[str] = []
        self.folder = Folder([place], kube.cluster, FolderLog(self.said.append, self.told.append))
        self.put("a-good.yaml", GOOD.replace("NAME", "good"))
        self.put("z-last.yaml", GOOD.replace("NAME", "last"))

    def put(self, name: str, text: str) -> Path:
        file = self.place / name
        file.write_text(text)
        return file

    async def applied(self) -> set[str]:
        self.said.clear()
        await self.folder.apply_changes()
        return await self.there("default")

    async def there(self, namespace: str, kind: tuple[str, str] = ("v1", "ConfigMap")) -> set[str]:
        served = self.kube.cluster.catalog.find_kind(*kind)
        assert served is not None
        listed = await self.kube.cluster.list(served, ListQuery(namespace))
        return {each["metadata"]["name"] for each in listed.items}

    async def install(self, *manifests: str) -> None:
        """Apply manifests as another client would, while the folder is followed."""
        await install(self.kube.cluster, [yaml.safe_load(manifest) for manifest in manifests])


@pytest.fixture
async def followed(tmp_path: Path) -> AsyncIterator[Followed]:
    place = tmp_path / "manifests"
    place.mkdir()
    async with LocalKube(tmp_path / "data") as kube:
        yield Followed(kube, place)


async def test_subfolders_are_followed_and_hidden_ones_are_not(followed: Followed) -> None:
    for place, name in (("below", "nested"), (".hidden", "secret")):
        (followed.place / place).mkdir()
        followed.put(f"{place}/it.yml", GOOD.replace("NAME", name))

    assert await followed.applied() == {*KEPT, "nested"}


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
        pytest.param(
            f"---\n{GOOD}dta: {{a: {HUSH}}}\n".replace("NAME", "x"),
            ":5: dta: there is no such field; did you mean data?",
            id="a field that does not exist",
        ),
    ],
)
async def test_an_invalid_document_is_reported_and_the_others_are_applied(
    followed: Followed, text: str, said: str
) -> None:
    file = followed.put("bad.yaml", text)

    there = await followed.applied()

    assert there >= KEPT
    (told,) = followed.said
    assert told.startswith(f"{file}{said}")
    assert told.endswith(("it is tried again when a file changes", "until it works or a file changes"))
    assert HUSH not in told


async def test_valid_documents_are_applied_and_an_invalid_one_once_it_is_corrected(followed: Followed) -> None:
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


async def test_files_that_are_not_manifests_are_ignored(followed: Followed) -> None:
    followed.put("notes.txt", "not: [yaml")
    (followed.place / ".#a-good.yaml").symlink_to("editor@nowhere")  # an editor's lock
    (followed.place / "deeper").mkdir()

    await followed.applied()

    assert followed.said == []


TOO_LONG = "x" * 300
"""No system looks at such a name: a link to it can be made, and not be followed."""


async def test_an_unreadable_file_does_not_stop_the_others(followed: Followed) -> None:
    (followed.place / "broken.yaml").symlink_to(TOO_LONG)

    assert await followed.applied() >= KEPT


async def test_an_unreadable_place_is_reported_once_and_applied_when_readable(
    followed: Followed, tmp_path: Path
) -> None:
    other, away = tmp_path / "other.yaml", tmp_path / "away"
    other.write_text(GOOD.replace("NAME", "other"))
    folder = Folder(
        [followed.place, other], followed.kube.cluster, FolderLog(followed.said.append, followed.told.append)
    )
    followed.place.rename(away)
    followed.place.symlink_to(TOO_LONG)

    for _ in range(3):
        await folder.apply_changes()
    before = await followed.there("default")
    followed.place.unlink()
    away.rename(followed.place)
    await folder.apply_changes()
    after = await followed.there("default")

    assert (before & KEPT, before >= {"other"}) == (set(), True)
    assert after >= KEPT | {"other"}
    (said,) = followed.said
    assert said.startswith(f"{followed.place}: File name too long; it is looked at again")


AWAY = GOOD.replace("NAME", "away").replace("default", "later")
NAMESPACE = "apiVersion: v1\nkind: Namespace\nmetadata: {name: later}\n"
WIDGETS = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  names: {kind: Widget, plural: widgets}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
"""
WIDGET = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: one, namespace: later}\n"


async def test_what_is_about_to_be_applied_is_announced_before(followed: Followed) -> None:
    announced: list[tuple[set[str], bool]] = []

    async def before(objects: Sequence[JsonObject]) -> None:
        announced.append(({each["metadata"]["name"] for each in objects}, "good" in await followed.there("default")))

    folder = Folder(
        [followed.place], followed.kube.cluster, FolderLog(followed.said.append, followed.told.append), before
    )
    followed.put("good.yaml", GOOD.replace("NAME", "good"))

    await folder.apply_changes()

    (names, was_there), *_ = announced
    assert "good" in names
    assert not was_there
    assert "good" in await followed.there("default")


async def test_namespaces_and_kinds_go_first_whatever_file_they_are_in(followed: Followed) -> None:
    followed.put("a-uses.yaml", f"{WIDGET}---\n{AWAY}")
    followed.put("b-kinds.yaml", WIDGETS)
    followed.put("c-namespaces.yaml", NAMESPACE)

    await followed.applied()

    assert followed.said == []
    assert await followed.there("later") == {"away"}
    assert await followed.there("later", ("example.com/v1", "Widget")) == {"one"}


async def test_a_rejected_object_is_reported_once_and_retried_until_it_works(followed: Followed) -> None:
    file = followed.put("a-uses.yaml", f"{WIDGET}---\n{AWAY}")
    await followed.applied()
    first = list(followed.said)

    for _ in range(3):
        await followed.folder.retry_refused()
    quiet = list(followed.said)
    await followed.install(NAMESPACE, WIDGETS)
    await followed.folder.retry_refused()

    assert len(first) == 2
    assert quiet == first
    assert followed.told == [f"{file}:1: Widget one is applied now", f"{file}:5: ConfigMap away is applied now"]
    assert await followed.there("later") == {"away"}
    assert await followed.there("later", ("example.com/v1", "Widget")) == {"one"}


async def test_a_new_reason_is_reported(followed: Followed) -> None:
    followed.put("a-uses.yaml", WIDGET)
    await followed.applied()

    await followed.install(WIDGETS)
    await followed.folder.retry_refused()

    assert len(followed.said) == 2
    assert "later" in followed.said[1]


async def test_following_retries_rejected_objects_with_back_off(followed: Followed) -> None:
    tries: list[float] = []
    clock = VirtualClock()

    class Counted(Folder):
        async def retry_refused(self) -> None:
            tries.append(clock.monotonic())

    folder = Counted([followed.place], followed.kube.cluster, FolderLog(followed.said.append, followed.told.append))
    followed.put("a-uses.yaml", AWAY)
    await folder.apply_changes()

    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(folder.follow(clock))
        await clock.advance(100)
        following.cancel()

    assert tries == [1, 3, 7, 15, 31, 61, 91]
