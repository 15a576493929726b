"""Black-box tests of a provider, over the wire.

async for result in run(Target("127.0.0.1:8080", read_identity(folder)), [Profile.READ]):
    print(result.verdict, result.case, result.why)
"""

from eso_conformance.cases import Case, Profile
from eso_conformance.fixture import Fixture, FixtureError, load
from eso_conformance.groups import CASES, cases_of
from eso_conformance.runner import CaseResult, UnreachableError, Verdict, run
from eso_conformance.subject import Identity, Target, read_identity

__all__ = [
    "CASES",
    "Case",
    "CaseResult",
    "Fixture",
    "FixtureError",
    "Identity",
    "Profile",
    "Target",
    "UnreachableError",
    "Verdict",
    "cases_of",
    "load",
    "read_identity",
    "run",
]
