"""The reference pages: the build fails for a fact without a description, and for a description without a fact."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

import gen_docs
from eso_api.externalsecret import ExternalSecret
from eso_api.kinds import GENERATOR_KINDS, AnyKind, installed_kinds
from eso_operator.sources.entries import references_of

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
PAGES = (
    "flags.md",
    "generators/password.md",
    "kinds/passwords.generators.external-secrets.io.md",
    "metrics.md",
    "status.md",
    "templates.md",
)


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a run of the script."""

    returncode: int
    stderr: str


Generate = Callable[..., Done]


@pytest.fixture
def generate(capsys: pytest.CaptureFixture[str]) -> Generate:
    """Return the script, run in this process: a process of its own would import every provider again."""

    def run(*arguments: str | Path) -> Done:
        code = gen_docs.main([str(argument) for argument in arguments])
        return Done(code, capsys.readouterr().err)

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the reference that a test may spoil."""
    return shutil.copytree(REFERENCE, tmp_path / "reference")


def test_words_that_do_not_fit_the_code_are_refused(generate: Generate, folder: Path) -> None:
    words = yaml.safe_load((folder / "status.yaml").read_text(encoding="utf-8"))
    words["causes"]["Lost"] = words["causes"].pop("StoreNotFound")
    words["kinds"]["ExternalSecret"]["conditions"].pop("Ready True SecretDeleted")
    words["kinds"]["PushSecret"]["events"]["Forgotten"] = "never"
    words["kinds"]["States"] = words["kinds"].pop("GeneratorState")
    (folder / "status.yaml").write_text(yaml.safe_dump(words), encoding="utf-8")

    done = generate("--check", folder)

    assert done.returncode == 1
    assert [line.partition("status.yaml: ")[2] for line in done.stderr.splitlines()] == [
        "kind GeneratorState has no words",
        "kind States does not exist",
        "ExternalSecret: condition Ready True SecretDeleted has no words",
        "PushSecret: event Forgotten does not exist",
        "cause StoreNotFound has no words",
        "cause Lost does not exist",
    ]


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        pytest.param("    events:", "    event:", "unknown field `event`", id="a misspelt field"),
        pytest.param("in that version.", "in it.", "status.md", id="a page that is older than its words"),
    ],
)
def test_a_file_of_words_that_changed_is_noticed(
    generate: Generate, folder: Path, before: str, after: str, complaint: str
) -> None:
    words = folder / "status.yaml"
    text = words.read_text(encoding="utf-8")
    words.write_text(text.replace(before, after, 1), encoding="utf-8")

    done = generate("--check", folder)

    assert done.returncode == 1
    assert complaint in done.stderr


def test_pages_that_were_edited_by_hand_are_detected_and_rewritten(generate: Generate, folder: Path) -> None:
    pages = {folder / name: (folder / name).read_text(encoding="utf-8") for name in PAGES}
    for page, text in pages.items():
        page.write_text(f"{text}\nby hand\n", encoding="utf-8")

    noticed = generate("--check", folder)
    written = generate(folder)

    assert noticed.returncode == 1
    assert [str(page) for page in pages if str(page) not in noticed.stderr] == []
    assert written.returncode == 0
    assert {page: page.read_text(encoding="utf-8") for page in pages} == pages


def test_the_page_of_a_kind_that_no_longer_exists_is_removed(generate: Generate, folder: Path) -> None:
    former = folder / "kinds" / "gadgets.example.com.md"
    former.write_text("# Gadget\n", encoding="utf-8")

    noticed = generate("--check", folder)
    written = generate(folder)

    assert (noticed.returncode, written.returncode) == (1, 0)
    assert str(former) in noticed.stderr
    assert not former.exists()


@pytest.mark.parametrize("kind", installed_kinds(), ids=lambda kind: kind.crd_name)
def test_the_page_of_a_kind_has_every_field_of_its_crd(kind: AnyKind) -> None:
    page = (REFERENCE / "kinds" / f"{kind.crd_name}.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^#+ (\S+)\n(.*?)(?=^#|\Z)", page, re.MULTILINE | re.DOTALL))
    schema = kind.crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

    fields = [
        (path, name) for part in ("spec", "status") for path, name in listed(schema["properties"].get(part, {}), part)
    ]

    assert [each for each in fields if f"\n| `{each[1]}` |" not in sections.get(each[0], "")] == []


def listed(schema: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Yield every field of a schema as the object that holds it and its name."""
    for name, field in schema.get("properties", {}).items():
        yield path, name
        yield from listed(field, f"{path}.{name}")
    for inner, suffix in (("items", "[]"), ("additionalProperties", ".NAME")):
        if isinstance(schema.get(inner), dict):
            yield from listed(schema[inner], f"{path}{suffix}")


def test_the_page_of_a_kind_shows_types_defaults_and_choices() -> None:
    page = (REFERENCE / "kinds" / "externalsecrets.external-secrets.io.md").read_text(encoding="utf-8")

    for row in (
        "| `refreshPolicy` | string | `Periodic` | ",
        " One of `CreatedOnce`, `Periodic`, `OnChange`. |",
        "| `remoteRef` | [object](#specdataremoteref), required | ",
        "| `dataFrom` | [list of object](#specdatafrom) | ",
        "| `refreshInterval` | integer or string | `1h0m0s` | ",
    ):
        assert row in page


@pytest.mark.parametrize("kind", GENERATOR_KINDS, ids=lambda kind: kind.name)
def test_the_page_of_a_generator_shows_an_external_secret_that_uses_it(kind: AnyKind) -> None:
    page = (REFERENCE / "generators" / f"{kind.name.lower()}.md").read_text(encoding="utf-8")
    generator, user = yaml.safe_load_all(page.partition("```yaml\n")[2].partition("```")[0])

    spec = msgspec.convert(user, ExternalSecret).spec

    assert generator["kind"] == kind.name
    assert [(ref.kind, ref.name) for ref in references_of(spec)] == [(kind.name, generator["metadata"]["name"])]
