"""Run the conformance suite on the process of a provider, as tests do; and the names of cases that may not apply."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eso_conformance import CaseResult, Fixture, Profile, Target, Verdict, read_identity, run
from eso_conformance.fixture import from_plain
from eso_operator.certificates.local import LocalCertificates
from eso_sdk.installed import load
from eso_testkit.cli.providerprocess import local_certificates, provider_running
from eso_wire.values import KindRole

FIXTURE_VALUES = "get: gives every known value of the fixture"
EXISTS = "exists: tells what is there from what is not, without giving the value"
VERSIONS = "get: reports a missing version as not found"
UNOFFERED_OPERATIONS = "errors: answers every operation it does not offer with UNSUPPORTED_OPERATION"
UNOFFERED_IF_ABSENT = "push: refuses a precondition it does not offer instead of ignoring it"
REFERENCES = "namespaces: refuses a reference of a namespaced configuration to another namespace"
BINARY = "push: stores a value byte for byte, also when it is no text"
IF_ABSENT = {
    "push: leaves an existing value alone with IF_ABSENT, and says SKIPPED_EXISTS",
    "push: lets exactly one of many simultaneous IF_ABSENT pushes win",
}
OWNERSHIP = {
    "ownership: deletes nothing that another owner pushed",
    "ownership: overwrites nothing that another owner pushed, and says OWNERSHIP_CONFLICT",
}
FIND = {
    "find: finds nothing with a pattern that matches nothing, and still says `last`",
    "find: gives exactly the keys that match, each once",
    "find: keeps to the page size",
    "find: ends the stream with `last`, in the last page and in no other",
}
STATE = {
    "generate: gives state as JSON, if it gives any",
    "cleanup: succeeds, and succeeds again when everything is gone already",
}


@dataclass(frozen=True, slots=True)
class Candidate:
    """The command of a provider, its fixture, and the cases that do not apply."""

    command: Callable[[Path], tuple[str, ...]]
    known: Callable[[Path], Mapping[str, Any]] | None = None
    without: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By profile: the cases that apply to none of its kinds."""
    backend: Callable[[], AbstractContextManager[Mapping[str, Any] | None]] = nullcontext
    """Runs what the provider needs, and gives the fixture that goes with it."""
    flags: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ("read", "write", "tls")

    @property
    def expected(self) -> dict[str, Judgement]:
        """By profile: no case fails, and those that do not apply are known."""
        return {profile: Judgement([], self.without.get(profile, frozenset())) for profile in self.profiles}

    async def judged(self, name: str, folder: Path, fixture: Mapping[str, Any] | None) -> dict[str, Judgement]:
        """Run every profile on one process of that provider; return what each showed."""
        tried = await self.tried(name, folder, fixture)
        return {profile: judged(results) for profile, results in tried.items()}

    async def tried(self, name: str, folder: Path, fixture: Mapping[str, Any] | None) -> dict[str, list[CaseResult]]:
        """Run every profile on one process of that provider; return the results of each."""
        made = local_certificates(folder / "certificates", name)
        plain = self.known(folder) if self.known else fixture
        known: Fixture | None = from_plain(plain) if plain else None
        running = provider_running(self.command(folder), folder / "process", *self.flags, made=made)
        found: dict[str, list[CaseResult]] = {}
        async with running as provider:
            target = target_of(provider.address, made)
            for profile in self.profiles:
                runs = [_results(target, profile, part) for part in _parts(name, profile, known)]
                found[profile] = [one for results in await asyncio.gather(*runs) for one in results]
        return found


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a run showed: the failures in words, and the cases that applied to no kind."""

    failed: list[str]
    unapplied: frozenset[str]


def judged(results: list[CaseResult]) -> Judgement:
    """Summarise the results of a run. Without a single passed case, all of them count as unapplied."""
    applied = {str(one.case) for one in results if one.verdict is Verdict.PASSED}
    failed = [f"{one.kind}: {one.case}: {one.why}" for one in results if one.verdict is Verdict.FAILED]
    return Judgement(failed, frozenset(str(one.case) for one in results) - applied)


def _parts(name: str, profile: str, known: Fixture | None) -> list[Fixture | None]:
    """Split a fixture by kind for subscriptions: their cases mostly wait for changes, and kinds can wait together."""
    if profile != "subscribe" or known is None:
        return [known]
    stores = {info.kind.kind for info in load(name).kind_infos if info.role is KindRole.STORE}
    return [Fixture(kinds=[one]) for one in known.kinds if one.kind in stores]


async def _results(target: Target, profile: str, known: Fixture | None) -> list[CaseResult]:
    return [one async for one in run(target, [Profile(profile)], known)]


def target_of(address: str, made: LocalCertificates) -> Target:
    issuer = made.server.parent / "issuer"
    authority = ((issuer / "tls.crt").read_bytes(), (issuer / "tls.key").read_bytes())
    return Target(address, read_identity(made.client), authority=authority)
