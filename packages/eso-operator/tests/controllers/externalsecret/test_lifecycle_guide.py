"""The guide on lifecycle policies tells the truth: every policy there is, and which of them go together."""

import re
from pathlib import Path

import msgspec
import pytest
import yaml

from eso_api.externalsecret import EXTERNAL_SECRET, ExternalSecret
from eso_api.validation import external_secret_problems
from kubebase.meta import JsonObject

TEXT = (Path(__file__).resolve().parents[5] / "docs" / "guides" / "lifecycle-policies.md").read_text(encoding="utf-8")
SAMPLE: JsonObject = yaml.safe_load(re.findall(r"^```yaml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)[0])
SPEC = EXTERNAL_SECRET.crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
TARGET = SPEC["target"]["properties"]


def rows(field: str) -> dict[str, str]:
    """Return the guide's table about a field: the text for each value."""
    table = TEXT.partition(f"\n| `{field}` |")[2].partition("\n\n")[0]
    return dict(re.findall(r"^\| `(\w+)` \| (.+?) \|$", table, re.MULTILINE))


@pytest.mark.parametrize(
    ("field", "schema"),
    [("refreshPolicy", SPEC), ("creationPolicy", TARGET), ("deletionPolicy", TARGET)],
    ids=["refreshPolicy", "creationPolicy", "deletionPolicy"],
)
def test_every_value_of_a_policy_is_explained_and_the_default_comes_first(field: str, schema: JsonObject) -> None:
    sample = msgspec.convert({**SAMPLE, "spec": {"data": SAMPLE["spec"]["data"]}}, ExternalSecret).spec
    defaults = {
        "refreshPolicy": sample.refresh_policy,
        "creationPolicy": sample.target.creation_policy,
        "deletionPolicy": sample.target.deletion_policy,
    }

    assert set(rows(field)) == set(schema[field]["enum"])
    assert next(iter(rows(field))) == defaults[field]


def test_the_revert_of_what_people_do_to_an_orphan_is_written_down() -> None:
    """R52."""
    said = rows("creationPolicy")["Orphan"]

    assert "not watched" in said
    assert "reverted only at the next refresh" in said


def test_the_table_of_combinations_is_what_is_accepted() -> None:
    """R42, R43, R44."""
    header, _, *lines = TEXT.partition("\n| | ")[2].splitlines()
    creation = re.findall(r"`(\w+)`", header)
    said = {
        (deletion, policy): answer == "yes"
        for line in lines
        for deletion, *answers in [re.findall(r"\w+", line)]
        for policy, answer in zip(creation, answers, strict=True)
    }

    accepted = {pair: not problems(*pair) for pair in said}

    assert said == accepted
    assert len(said) == len(TARGET["creationPolicy"]["enum"]) * len(TARGET["deletionPolicy"]["enum"])


def problems(deletion: str, creation: str) -> list[object]:
    policies = {"deletionPolicy": deletion, "creationPolicy": creation}
    document = {**SAMPLE, "spec": {**SAMPLE["spec"], "target": policies}}
    return list(external_secret_problems(msgspec.convert(document, ExternalSecret).spec))
