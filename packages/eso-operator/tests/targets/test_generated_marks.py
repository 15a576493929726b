"""What a target says of generated values, and when that annotation is written."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eso_api.externalsecret import ExternalSecret
from eso_operator.targets.metadata import GENERATED_PREFIX, GeneratedMark, generated_by, marked, with_states
from eso_operator.targets.target import CreateTarget, KeepTarget, LiveSecret, Untouched, UpdateTarget, choose_change
from eso_testkit.operator.externalsecrets import desired, external_secret, written_by

MARK = GeneratedMark(time="2026-11-18T10:00:00Z", version="1-abc")
OLDER = GeneratedMark(time="2026-11-17T10:00:00Z", version="1-abc")
KEY = f"{GENERATED_PREFIX}uid-db"
OLD, NEW = {"password": "old"}, {"password": "new"}


def es(**target: Any) -> ExternalSecret:
    return external_secret(target=target)


def annotation(mark: GeneratedMark) -> str:
    return msgspec.json.encode(mark).decode()


def generated(of: ExternalSecret, data: dict[str, str] = OLD, mark: GeneratedMark = OLDER) -> LiveSecret:
    """A Secret that this ExternalSecret generated before."""
    parts = {"annotations": {KEY: annotation(mark)}}
    live = written_by(of, data, metadata=parts)
    fields = live.raw["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"]["f:annotations"]
    fields[f"f:{KEY}"] = {}
    return live


def test_a_created_target_with_generated_values_says_so() -> None:
    change = choose_change(es(), None, desired(NEW), MARK)

    assert isinstance(change, CreateTarget)
    assert change.document["metadata"]["annotations"][KEY] == annotation(MARK)


def test_a_target_without_generated_values_has_no_new_annotation() -> None:
    change = choose_change(es(), None, desired(NEW))

    assert isinstance(change, CreateTarget)
    assert list(change.document["metadata"]["annotations"]) == ["reconcile.external-secrets.io/data-hash"]


@pytest.mark.parametrize("policy", ["Owner", "Orphan", "Merge", "CreateOrMerge"])
def test_new_values_come_with_a_new_annotation(policy: str) -> None:
    of = es(creationPolicy=policy)

    change = choose_change(of, generated(of), desired(NEW), MARK)

    assert isinstance(change, UpdateTarget)
    assert change.document["metadata"]["annotations"][KEY] == annotation(MARK)


def test_a_time_alone_is_no_reason_to_write() -> None:
    assert choose_change(es(), generated(es()), desired(OLD), MARK) == KeepTarget(Untouched.UNCHANGED)
    assert choose_change(es(), written_by(es(), OLD), desired(OLD), MARK) == KeepTarget(Untouched.UNCHANGED)


def test_values_that_stay_keep_their_annotation_when_something_else_is_written() -> None:
    change = choose_change(es(), generated(es()), desired(OLD, labels={"app": "db"}), MARK)

    assert isinstance(change, UpdateTarget)
    assert change.document["metadata"]["annotations"][KEY] == annotation(OLDER)


def test_values_that_are_not_generated_any_more_lose_the_annotation() -> None:
    change = choose_change(es(), generated(es()), desired(OLD))

    assert isinstance(change, UpdateTarget)
    assert KEY not in change.document["metadata"]["annotations"]


def test_the_annotation_of_another_object_stays_in_a_shared_target() -> None:
    of = es(creationPolicy="Merge")
    others = {"annotations": {f"{GENERATED_PREFIX}other": annotation(OLDER)}}

    change = choose_change(of, written_by(of, OLD, metadata=others), desired(NEW), MARK)

    assert isinstance(change, UpdateTarget)
    assert change.patch is None
    assert f"{GENERATED_PREFIX}other" not in change.document["metadata"]["annotations"]


def test_a_template_cannot_write_the_annotation() -> None:
    change = choose_change(es(), None, desired(NEW, annotations={KEY: annotation(OLDER)}))

    assert isinstance(change, CreateTarget)
    assert KEY not in change.document["metadata"]["annotations"]


def test_an_immutable_secret_keeps_what_it_says() -> None:
    of = es(immutable=True)

    change = choose_change(of, generated(of), desired(NEW, immutable=True), MARK)

    assert isinstance(change, UpdateTarget)
    assert change.document["metadata"]["annotations"][KEY] == annotation(OLDER)


@given(
    time=st.text(max_size=30),
    version=st.text(max_size=70),
    renew=st.none() | st.text(max_size=30),
    states=st.none() | st.lists(st.text(max_size=20), max_size=5).map(tuple),
)
def test_what_was_written_is_read_back(
    time: str, version: str, renew: str | None, states: tuple[str, ...] | None
) -> None:
    mark = GeneratedMark(time=time, version=version, renew_time=renew, states=states)

    assert generated_by(es(), marked(es(), {}, mark, unchanged=False)) == mark


@given(st.text(max_size=60))
def test_an_annotation_that_makes_no_sense_says_nothing(text: str) -> None:
    assert generated_by(es(), {KEY: text}) is None


def test_only_the_object_of_this_uid_is_meant() -> None:
    another = external_secret(metadata={"uid": "uid-another"})

    assert generated_by(another, marked(es(), {}, MARK, unchanged=False)) is None


def test_the_list_of_states_is_bounded() -> None:
    names = tuple(f"gen-{number}" for number in range(65))

    assert with_states(MARK, names[:64]).states == names[:64]
    assert with_states(MARK, names).states is None
