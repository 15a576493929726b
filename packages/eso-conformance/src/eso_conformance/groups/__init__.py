"""The cases, one group of behaviours per file."""

from eso_conformance.cases import Case, Profile
from eso_conformance.groups.errors import ERRORS, SCOPING
from eso_conformance.groups.reading import FINDING, READING
from eso_conformance.groups.robustness import ROBUSTNESS
from eso_conformance.groups.subscribing import ACKNOWLEDGING, SUBSCRIBING
from eso_conformance.groups.transport import HANDSHAKE, TRANSPORT
from eso_conformance.groups.writing import GENERATING, WRITING

CASES: tuple[Case, ...] = (
    *HANDSHAKE,
    *READING,
    *FINDING,
    *ERRORS,
    *SCOPING,
    *ROBUSTNESS,
    *WRITING,
    *GENERATING,
    *SUBSCRIBING,
    *ACKNOWLEDGING,
    *TRANSPORT,
)


def cases_of(profile: Profile) -> tuple[Case, ...]:
    return tuple(case for case in CASES if case.profile is profile)
