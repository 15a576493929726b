"""Documents that cannot lie: links lead somewhere, manifests decode, the model is explained field by field."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from eso_api.kinds import KINDS, AnyKind, installed_kinds
from eso_wire.versions import CURRENT, SUPPORTED, spelled

ROOT = Path(__file__).resolve().parents[2]
MODEL = (ROOT / "examples" / "stores-v2" / "README.md").read_text(encoding="utf-8")
PROTOCOL = (ROOT / "docs" / "adr" / "0009-provider-protocol.md").read_text(encoding="utf-8")
KIND_OF: dict[tuple[str, str], AnyKind] = {
    (kind.resource(version).api_version, kind.name): kind for kind in installed_kinds() for version in kind.versions
}
NEW_KINDS = [kind for kind in KINDS if "v2alpha1" in kind.versions or kind.name.endswith(("Provider", "ProviderClass"))]


def pages() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).exists()]


def manifests() -> Iterator[Any]:
    """Objects of our kinds in the YAML of pages."""
    for page in pages():
        for block in re.findall(r"^```ya?ml\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            for document in yaml.load_all(block, Loader=yaml.CSafeLoader):
                if isinstance(document, dict) and (document.get("apiVersion"), document.get("kind")) in KIND_OF:
                    yield pytest.param(document, id=f"{page.relative_to(ROOT)}: {document['kind']}")


def test_links_between_pages_lead_somewhere() -> None:
    dead = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in pages()
        for link in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
        if "://" not in link and not (page.parent / link).exists()
    ]

    assert dead == []


@pytest.mark.parametrize("document", list(manifests()))
def test_a_manifest_in_a_page_is_one_of_its_kind(document: dict[str, Any]) -> None:
    """R76: a user who copies it gets a valid object."""
    kind = KIND_OF[document["apiVersion"], document["kind"]]

    decoded = msgspec.convert(document, kind.type)

    assert decoded.metadata.name == document["metadata"]["name"]
    assert set(document.get("spec") or {}) <= set(fields_of(kind, document["apiVersion"].rpartition("/")[2]))


@pytest.mark.parametrize("kind", NEW_KINDS, ids=lambda kind: kind.crd_name)
def test_the_model_explains_a_kind_with_all_its_fields(kind: AnyKind) -> None:
    """R76: a new field of a type must be explained on the page."""
    fields = fields_of(kind, kind.versions[0])
    fields |= fields.get("providerConfig", {}).get("properties", {})

    assert f"`{kind.name}`" in MODEL
    assert [name for name in fields if f"`{name}`" not in MODEL] == []


def test_the_model_says_how_to_get_there_and_back_and_where_to_look() -> None:
    """R73, R168, R172."""
    for title in ("From v1 stores to v2 stores", "When something does not work"):
        assert f"\n## {title}\n" in MODEL
    assert "can be undone" in MODEL


@pytest.mark.parametrize(
    ("number", "subject"),
    [
        pytest.param(1, "authentication", id="R193"),
        pytest.param(2, "conditions", id="R194"),
        pytest.param(3, "Versions", id="R195"),
        pytest.param(4, "middle ground", id="R196"),
    ],
)
def test_the_recommendation_answers_each_open_question(number: int, subject: str) -> None:
    """R192: the answers themselves are proved by the tests that name the same rows."""
    recommendation = PROTOCOL.partition("**Recommendation on references.**")[2].partition("**Rejected.**")[0]

    question, answer = re.findall(
        rf"^{number}\. \*(.+?\?)\* (.+?)(?=^\d\. |\Z)", recommendation, re.MULTILINE | re.DOTALL
    )[0]

    assert subject in question
    assert answer.strip()


def test_the_guide_on_upgrades_says_which_versions_work_together() -> None:
    """R159: `test_skew.py` and the fault tests prove the statements of the guide."""
    guide = (ROOT / "docs" / "guides" / "install.md").read_text(encoding="utf-8")
    upgrades = " ".join(guide.partition("\n## Upgrade and go back\n")[2].partition("\n## ")[0].split())

    assert f"its own version and the one before, today {spelled(SUPPORTED)}." in upgrades
    assert "`ProviderIncompatible`" in upgrades
    assert [version.minor for version in SUPPORTED] == [CURRENT.minor - 1, CURRENT.minor]


def fields_of(kind: AnyKind, version: str) -> dict[str, Any]:
    (served,) = (each for each in kind.crd()["spec"]["versions"] if each["name"] == version)
    fields: dict[str, Any] = dict(served["schema"]["openAPIV3Schema"]["properties"]["spec"].get("properties", {}))
    return fields
