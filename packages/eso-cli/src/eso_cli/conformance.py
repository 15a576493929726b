"""`eso conformance`: runs the conformance suite against a running provider and prints each result."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from eso_cli.progress import Progress
from eso_cli.terminal import echo
from eso_conformance import CaseResult, Fixture, FixtureError, Profile, Target, UnreachableError, Verdict, load, run
from eso_conformance.subject import Identity, read_identity

_MARKS = {Verdict.PASSED: "pass", Verdict.FAILED: "FAIL", Verdict.NOT_APPLICABLE: "skip"}


@dataclass(frozen=True, slots=True)
class ConformanceOptions:
    target: str
    profiles: tuple[Profile, ...]
    tls_dir: Path
    server_name: str = ""
    fixture: Path | None = None
    token_file: Path | None = None


async def conform(options: ConformanceOptions) -> int:
    """Return 0 if every applicable case passed, 1 if one failed, 2 if none could be run."""
    try:
        fixture = load(options.fixture) if options.fixture else None
        target = _target(options)
        results = [result async for result in _printed(target, options.profiles, fixture)]
    except (FixtureError, UnreachableError) as problem:
        echo(f"eso conformance: {problem}", err=True)
        return 2
    counts = {verdict: sum(result.verdict is verdict for result in results) for verdict in Verdict}
    echo(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    if not counts[Verdict.PASSED] and not counts[Verdict.FAILED]:
        return 2
    return 1 if counts[Verdict.FAILED] else 0


async def _printed(target: Target, profiles: tuple[Profile, ...], fixture: Fixture | None) -> AsyncIterator[CaseResult]:
    progress, count = Progress(), 0
    progress.show(f"testing the provider at {target.address}")
    try:
        async for result in run(target, profiles, fixture):
            why = f"  ({result.why})" if result.why else ""
            progress.echo(f"{_MARKS[result.verdict]}  {result.kind}  {result.case}{why}")
            count += 1
            progress.show(f"testing the provider at {target.address}: {count} cases done")
            yield result
    finally:
        progress.clear()


def _target(options: ConformanceOptions) -> Target:
    folder = options.tls_dir
    try:
        identity: Identity = read_identity(folder)
        issuer = folder.parent / "issuer"  # exists if `eso provider serve` created the certificates
        authority = ((issuer / "tls.crt").read_bytes(), (issuer / "tls.key").read_bytes()) if issuer.is_dir() else None
    except OSError as problem:
        raise UnreachableError(
            f"{problem.filename}: {problem.strerror}; --tls-dir names the folder with ca.crt, tls.crt and tls.key"
        ) from problem
    return Target(options.target, identity, options.server_name, authority, options.token_file)
