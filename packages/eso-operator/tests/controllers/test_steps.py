"""The words of steps: alerts of users compare conditions, so each is spelled out here once more."""

from __future__ import annotations

import pytest

from eso_operator.controllers.outcomes import Step

WORDS = {
    Step.VALIDATE: ("invalid ExternalSecret", "invalid ExternalSecret"),
    Step.ALLOW_TARGET: ("invalid generic target", "invalid generic target"),
    Step.READ_TARGET: ("could not update secret", "could not get target resource"),
    Step.FETCH: ("could not get secret data from provider", "could not get secret data from provider"),
    Step.RENDER: ("could not update secret", "could not apply template to manifest"),
    Step.WRITE: ("could not update secret", "could not update secret"),
    Step.DELETE: ("could not delete secret", "could not delete resource"),
    Step.REMOVE_FORMER: ("could not delete orphaned secrets", "could not delete orphaned secrets"),
    Step.VALIDATE_PUSH: ("invalid PushSecret", "invalid PushSecret"),
    Step.READ_SOURCE: ("could not get source secret", "could not get source secret"),
    Step.RENDER_PUSH: ("could not set secret", "could not set secret"),
    Step.PUSH: ("could not set secret", "could not set secret"),
    Step.DELETE_PUSHED: ("could not delete secret", "could not delete secret"),
}


@pytest.mark.parametrize("step", Step, ids=lambda step: step.name)
def test_the_summary_of_a_step_does_not_change(step: Step) -> None:
    assert (step.summary, step.generic_summary) == WORDS[step]


def test_codes_are_camel_case() -> None:
    assert all(step.code.isalpha() and step.code[0].isupper() for step in Step)
