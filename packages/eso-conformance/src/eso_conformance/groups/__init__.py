"""The cases, one group of behaviours per file."""

from eso_conformance.cases import Case, Profile
from eso_conformance.groups import (
    acknowledging,
    errors,
    finding,
    generating,
    handshake,
    reading,
    robustness,
    scoping,
    subscribing,
    transport,
    writing,
)

CASES: tuple[Case, ...] = (
    *handshake.CASES,
    *reading.CASES,
    *finding.CASES,
    *errors.CASES,
    *scoping.CASES,
    *robustness.CASES,
    *writing.CASES,
    *generating.CASES,
    *subscribing.CASES,
    *acknowledging.CASES,
    *transport.CASES,
)


def cases_of(profile: Profile) -> tuple[Case, ...]:
    return tuple(case for case in CASES if case.profile is profile)
