"""Run cases against a provider and report each result.

Cases of one kind run one after another, so that a report reads from top to bottom and a failure can be repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from grpc import aio

from eso_conformance import fixture as fixtures
from eso_conformance.cases import Case, NotApplicable, Profile, Violation
from eso_conformance.fixture import Fixture, KindFixture
from eso_conformance.groups import cases_of
from eso_conformance.groups.errors import validate
from eso_conformance.subject import Subject, Target, TokenError, channel_to, detail_of, read_token, shake_hands
from eso_wire._generated import provider_pb2 as pb

CASE_SECONDS = 30.0
_ROLE_OF = {Profile.GENERATOR: pb.KIND_ROLE_GENERATOR}


class Verdict(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    NOT_APPLICABLE = "not applicable"


class UnreachableError(Exception):
    """The provider cannot be called; the text says why."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The result of one case."""

    kind: str
    case: Case
    verdict: Verdict
    why: str = ""


async def run(target: Target, profiles: Sequence[Profile], fixture: Fixture | None = None) -> AsyncIterator[CaseResult]:
    """Run every case of the profiles on every kind they apply to."""
    async with channel_to(target) as channel:
        handshake = await greet(target, channel)
        known = fixture or fixtures.installed(handshake.provider_name)
        for profile in profiles:
            for kind in kinds_for(profile, handshake, known):
                subject = Subject(target, channel, handshake, kind, fixture_of(kind, known))
                await _usable(subject, profile)
                for case in cases_of(profile):
                    yield await attempt(case, subject)


async def greet(target: Target, channel: aio.Channel) -> pb.HandshakeResponse:
    """Return the provider's handshake, or raise an error with the reason."""
    try:
        if target.token_file is not None:
            read_token(target.token_file)
        handshake = await shake_hands(channel)
    except aio.AioRpcError as error:
        raise UnreachableError(f"{target.address}: {error.code().name}: {error.details()}") from error
    except TokenError as problem:
        raise UnreachableError(f"{problem}; --token-file names a file with the token of a service account") from None
    if not handshake.kinds:
        raise UnreachableError(f"{target.address}: the provider serves no kind")
    return handshake


async def _usable(subject: Subject, profile: Profile) -> None:
    """Stop before the first case if the configuration is refused: fifty failures would hide that one reason."""
    if profile is Profile.TLS:
        return
    try:
        response = await validate(subject)
    except aio.AioRpcError as error:
        detail = detail_of(error)
        if detail is None or detail.reason != pb.ERROR_REASON_CREDENTIALS_REJECTED:
            return  # the cases report it
        raise UnreachableError(
            f"{subject.name} refuses the calls of this run: {detail.message[:300]};"
            " give the token of a service account with --token-file"
        ) from None
    if response.error.reason == pb.ERROR_REASON_CONFIG_INVALID:
        raise UnreachableError(
            f"{subject.name} refuses the configuration of this run: {response.error.message[:300]};"
            " give one that works with --fixture"
        )


def kinds_for(profile: Profile, handshake: pb.HandshakeResponse, known: Fixture) -> list[pb.KindInfo]:
    """Return the kinds of a profile; with a fixture, those it describes. TLS is the same for all, so one is enough."""
    role = _ROLE_OF.get(profile, pb.KIND_ROLE_STORE)
    kinds = [kind for kind in handshake.kinds if kind.role == role]
    if profile in (Profile.READ, Profile.TLS) and not kinds:
        kinds = list(handshake.kinds)
    described = [kind for kind in kinds if known.of(kind.gvk.group, kind.gvk.kind)]
    return (described or kinds)[: 1 if profile is Profile.TLS else None]


def fixture_of(kind: pb.KindInfo, known: Fixture) -> KindFixture:
    return known.of(kind.gvk.group, kind.gvk.kind) or KindFixture(kind=kind.gvk.kind)


async def attempt(case: Case, subject: Subject) -> CaseResult:
    """Run one case with a time limit; every way it can end is a result."""
    try:
        async with asyncio.timeout(CASE_SECONDS):
            await case.check(subject)
    except NotApplicable as reason:
        return CaseResult(subject.name, case, Verdict.NOT_APPLICABLE, str(reason))
    except Violation as reason:
        return CaseResult(subject.name, case, Verdict.FAILED, str(reason))
    except TimeoutError:
        return CaseResult(subject.name, case, Verdict.FAILED, f"no answer within {CASE_SECONDS:.0f} s")
    except aio.AioRpcError as error:
        return CaseResult(subject.name, case, Verdict.FAILED, _failed_call(error, subject))
    except Exception as error:  # noqa: BLE001 - a provider's answer may break any line of a case
        return CaseResult(
            subject.name, case, Verdict.FAILED, f"the answer cannot be understood ({type(error).__name__})"
        )
    return CaseResult(subject.name, case, Verdict.PASSED)


def _failed_call(error: aio.AioRpcError, subject: Subject) -> str:
    detail = detail_of(error)
    if detail is None:
        return f"a call failed with {error.code().name} and no ErrorDetail"
    return f"a call failed as a whole with {error.code().name}, {subject.describe_error(detail)}"
