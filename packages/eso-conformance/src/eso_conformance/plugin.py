"""The suite as a pytest plugin: the author of a provider names its address, and gets one test per case.

    @pytest.fixture
    def conformance_target() -> Target: ...              # start the provider here

    test_conformance = conformance_tests("read", "write")

Without a fixture of that name, `--provider-target` and `--provider-tls` name the provider.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from eso_conformance import fixture as fixtures
from eso_conformance.cases import Case, Profile
from eso_conformance.fixture import Fixture
from eso_conformance.groups import cases_of
from eso_conformance.runner import Verdict, attempt, fixture_of, greet, kinds_for
from eso_conformance.subject import Subject, Target, channel_to, read_identity


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("eso-conformance", "conformance of External Secrets providers")
    group.addoption("--provider-target", help="host:port of the provider under test")
    group.addoption("--provider-tls", type=Path, help="folder with ca.crt, tls.crt and tls.key of the client")
    group.addoption("--provider-server-name", default="", help="name in the provider's certificate, if not the host")
    group.addoption("--provider-token-file", type=Path, help="token of a service account, if the provider requires one")


@pytest.fixture
def conformance_target(request: pytest.FixtureRequest) -> Target:
    """Return the address of the provider; redefine this fixture to start one."""
    address, folder = request.config.getoption("--provider-target"), request.config.getoption("--provider-tls")
    if not address or not folder:
        pytest.skip("no provider was named: give --provider-target and --provider-tls, or define conformance_target")
    return Target(
        address,
        read_identity(folder),
        request.config.getoption("--provider-server-name"),
        token_file=request.config.getoption("--provider-token-file"),
    )


@pytest.fixture
def conformance_fixture() -> Fixture | None:
    """Return the inputs for the provider; redefine this fixture unless the installed provider has its own."""
    return None


def conformance_tests(*profiles: str) -> Callable[..., Awaitable[None]]:
    """Make one test for each case of these profiles."""
    cases = [case for profile in profiles for case in cases_of(Profile(profile))]

    @pytest.mark.parametrize("case", cases, ids=str)
    async def test_conformance(case: Case, conformance_target: Target, conformance_fixture: Fixture | None) -> None:
        await check(case, conformance_target, conformance_fixture)

    return test_conformance


async def check(case: Case, target: Target, fixture: Fixture | None = None) -> None:
    """Run one case on every kind it applies to; fail with the reason, skip if it applies to none."""
    async with channel_to(target) as channel:
        handshake = await greet(target, channel)
        known = fixture or fixtures.installed(handshake.provider_name)
        results = [
            await attempt(case, Subject(target, channel, handshake, kind, fixture_of(kind, known)))
            for kind in kinds_for(case.profile, handshake, known)
        ]
    failed = [f"{result.kind}: {result.why}" for result in results if result.verdict is Verdict.FAILED]
    if failed:
        pytest.fail("; ".join(failed), pytrace=False)
    if all(result.verdict is Verdict.NOT_APPLICABLE for result in results):
        pytest.skip("; ".join(f"{result.kind}: {result.why}" for result in results) or "no kind of that role")
