"""Conditions: one per type, with a time that only changes with the status."""

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubebase.clock import rfc3339
from kubebase.meta import Condition
from kubebase.testing.clock import START
from kuberun.status import MAX_MESSAGE_BYTES, find_condition, is_false, remove_condition, same_verdict, set_condition

NOW = START
LATER = START + timedelta(hours=1)


def ready(status: str = "True", reason: str = "Fine", **fields: str) -> Condition:
    return Condition(type="Ready", status=status, reason=reason, **fields)  # type: ignore[arg-type]  # strings only


OTHER = Condition(type="Other", status="True", last_transition_time=rfc3339(NOW))


def test_a_new_condition_gets_the_time_and_the_last_place() -> None:
    (other, new) = set_condition([OTHER], ready(), LATER)

    assert other is OTHER
    assert new == ready(last_transition_time=rfc3339(LATER))


@pytest.mark.parametrize(
    ("new", "since"),
    [
        pytest.param(ready(), NOW, id="the same again"),
        pytest.param(ready(reason="Better"), NOW, id="another reason for the same status"),
        pytest.param(ready(message="more"), NOW, id="another message for the same status"),
        pytest.param(ready("False"), LATER, id="another status"),
        pytest.param(ready("Unknown"), LATER, id="unknown is another status"),
    ],
)
def test_the_time_moves_only_with_the_status(new: Condition, since: object) -> None:
    before = set_condition([], ready(), NOW)

    (after,) = set_condition(before, new, LATER)

    assert (after.status, after.reason, after.message) == (new.status, new.reason, new.message)
    assert after.last_transition_time == rfc3339(since)  # type: ignore[arg-type]  # a datetime


def test_setting_what_is_there_changes_nothing() -> None:
    before = [OTHER, *set_condition([], ready(), NOW)]

    assert set_condition(before, ready(), LATER) == before


def test_the_place_is_kept_and_doubles_are_dropped() -> None:
    double = ready("Unknown", last_transition_time=rfc3339(NOW))

    after = set_condition([ready(last_transition_time=rfc3339(NOW)), OTHER, double], ready("False"), LATER)

    assert [(condition.type, condition.status) for condition in after] == [("Ready", "False"), ("Other", "True")]


def test_a_condition_without_time_gets_one() -> None:
    (after,) = set_condition([ready()], ready(), LATER)

    assert after.last_transition_time == rfc3339(LATER)


def test_a_message_is_cut_to_what_the_api_takes() -> None:
    (after,) = set_condition([], ready(message="ü" * MAX_MESSAGE_BYTES), NOW)

    assert len(after.message.encode()) <= MAX_MESSAGE_BYTES


def test_looking_up() -> None:
    conditions = [OTHER, ready("False")]

    assert find_condition(conditions, "Ready") is conditions[1]
    assert find_condition(conditions, "Missing") is None
    assert is_false(conditions, "Ready")
    assert not is_false(conditions, "Missing")
    assert remove_condition(conditions, "Ready") == [OTHER]


def test_the_same_verdict_does_not_look_at_the_time() -> None:
    assert same_verdict(ready(), ready(last_transition_time=rfc3339(LATER)))
    assert not same_verdict(ready(), ready(message="more"))
    assert not same_verdict(ready(), None)
    assert same_verdict(None, None)


TYPES = st.sampled_from(["A", "B", "C"])
STATUSES = st.sampled_from(["True", "False", "Unknown"])


@settings(deadline=None)
@given(st.lists(st.tuples(TYPES, STATUSES), max_size=20))
def test_after_any_sequence_there_is_one_condition_of_each_type_with_its_last_status(
    sequence: list[tuple[str, str]],
) -> None:
    conditions: list[Condition] = []
    for step, (type_, status) in enumerate(sequence):
        conditions = set_condition(conditions, Condition(type=type_, status=status), NOW + timedelta(seconds=step))

    assert {condition.type: condition.status for condition in conditions} == dict(sequence)
    assert len(conditions) == len(dict(sequence))
