"""Messages of older peers stay readable, and the contract they were built against still exists (R140).

The fixtures are recorded by golden/record.py and never changed.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from eso_testkit.wire.contract import Shape, broken, describe
from eso_testkit.wire.samples import Sample, samples

GOLDEN = Path(__file__).parent / "golden"
SAMPLES = {sample.name: sample for sample in samples()}
FIXTURES = sorted(GOLDEN.glob("v*/*.hex"))


def golden_shape(version: Path) -> Shape:
    shape: Shape = json.loads((version / "contract.json").read_text(encoding="utf-8"))
    return shape


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: f"{path.parent.name} {path.stem}")
def test_a_recorded_message_still_means_the_same(path: Path) -> None:
    sample = SAMPLES[path.stem]
    raw = bytes.fromhex(path.read_text(encoding="utf-8"))

    value = sample.decode(sample.message_type.FromString(raw))

    assert value == sample.value


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=lambda sample: sample.name)
def test_every_sample_has_a_recording_of_this_version(sample: Sample) -> None:
    """A sample without a recording was added later: run golden/record.py."""
    assert any(path.stem == sample.name for path in FIXTURES)


@pytest.mark.parametrize("version", sorted(GOLDEN.glob("v*")), ids=lambda path: path.name)
def test_nothing_of_a_recorded_contract_is_gone_or_changed(version: Path) -> None:
    assert broken(golden_shape(version), describe()) == []


@pytest.mark.parametrize(
    ("section", "name", "member", "now", "problem"),
    [
        pytest.param(
            "messages",
            "RemoteRef",
            "field 2",
            None,
            "RemoteRef: field 2 (version: string) is gone",
            id="a field was removed",
        ),
        pytest.param(
            "messages",
            "RemoteRef",
            "field 2",
            "version: int64",
            "RemoteRef: field 2 was version: string and is now version: int64",
            id="a type was changed",
        ),
        pytest.param(
            "messages",
            "RemoteRef",
            "field 2",
            "revision: string",
            "RemoteRef: field 2 was version: string and is now revision: string",
            id="a field was renamed",
        ),
        pytest.param(
            "enums",
            "ValueShape",
            "value 2",
            "VALUE_SHAPE_LIST",
            "ValueShape: value 2 was VALUE_SHAPE_MAP and is now VALUE_SHAPE_LIST",
            id="an enum value was renumbered",
        ),
        pytest.param(
            "services",
            "SecretStoreProvider",
            "FindSecrets",
            "FindSecretsRequest -> FindSecretsResponse",
            "SecretStoreProvider: FindSecrets was FindSecretsRequest -> stream FindSecretsResponse"
            " and is now FindSecretsRequest -> FindSecretsResponse",
            id="a stream became a single answer",
        ),
    ],
)
def test_a_breaking_change_is_named(section: str, name: str, member: str, now: str | None, problem: str) -> None:
    golden = describe()
    changed = copy.deepcopy(golden)
    if now is None:
        del changed[section][name][member]
    else:
        changed[section][name][member] = now

    assert broken(golden, changed) == [problem]


def test_a_removed_type_is_named() -> None:
    golden = describe()
    changed = copy.deepcopy(golden)
    del changed["messages"]["NotModified"]

    assert broken(golden, changed) == ["NotModified is gone"]


def test_an_addition_breaks_nothing() -> None:
    golden = describe()
    grown = copy.deepcopy(golden)
    grown["messages"]["RemoteRef"]["field 5"] = "region: string"
    grown["messages"]["Extra"] = {"field 1": "name: string"}
    grown["services"]["SecretStoreProvider"]["Rotate"] = "GetSecretsRequest -> GetSecretsResponse"

    assert broken(golden, grown) == []
