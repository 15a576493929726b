"""Runs `eso preflight`: reads files and the cluster, judges, prints, and returns the exit code."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import typer

from eso_api.kinds import KINDS, AnyKind, provider_kinds
from eso_cli.connecting import connected
from eso_cli.terminal import echo, printable, sign
from eso_sdk.installed import installed, load
from eso_tools.manifests import STDIN, InputError, read_documents, read_manifests, without_manifests
from eso_tools.preflight.checks import judge
from eso_tools.preflight.findings import CheckResult, Level, Report, counted
from eso_tools.preflight.gathering import Gatherer
from eso_tools.preflight.snapshot import Snapshot, Stored
from eso_tools.providers import offers
from kubebase.meta import JsonObject
from kuberun.errors import KubeError

MAX_DETAILS: Final = 10
MAX_JSON_DETAILS: Final = 1000
_SIGNS: Final = {Level.BLOCKER: ("✗", "x"), Level.WARNING: ("!", "!"), Level.FACT: ("✓", "+")}
"""Signs, and their plain forms for a terminal that cannot show them."""
_COLOURS: Final = {
    Level.BLOCKER: typer.colors.RED,
    Level.WARNING: typer.colors.YELLOW,
    Level.FACT: typer.colors.GREEN,
}


def lines(report: Report) -> Iterator[str]:
    """Yield the page; the verdict is the last line. `echo` strips the colours if the output is not a terminal."""
    for _, finding in report.findings:
        yield f"{_styled(finding.level)} {printable(finding.text)}"
        yield from _details(finding)
        if finding.next:
            yield f"    next: {printable(finding.next)}"
    yield ""
    yield f"{_styled(Level.FACT if report.ready else Level.BLOCKER)} {verdict(report)}"


def verdict(report: Report) -> str:
    blockers, warnings = (report.count(level) for level in (Level.BLOCKER, Level.WARNING))
    counts = f"{counted(blockers, 'blocker')}, {counted(warnings, 'warning')}"
    return f"ready: {counts}" if report.ready else f"not ready: {counts}"


def as_json(report: Report) -> dict[str, Any]:
    """The report for tools."""
    return {
        "ready": report.ready,
        "verdict": verdict(report),
        "findings": [{"check": check, **_fields(finding)} for check, finding in report.findings],
    }


def _details(finding: CheckResult) -> Iterator[str]:
    for detail in finding.details[:MAX_DETAILS]:
        yield f"    {printable(str(detail))}"
    if (more := len(finding.details) - MAX_DETAILS) > 0:
        yield f"    and {more} more; `eso preflight -o json` lists them"


def _fields(finding: CheckResult) -> dict[str, Any]:
    return {
        "level": finding.level.value,
        "says": printable(finding.text),
        "details": [
            {"subject": printable(each.subject), "field": printable(each.field), "says": printable(each.text)}
            for each in finding.details[:MAX_JSON_DETAILS]
        ],
        "detailsCount": len(finding.details),
        "next": printable(finding.next),
    }


def _styled(level: Level) -> str:
    return typer.style(sign(*_SIGNS[level]), fg=_COLOURS[level])


READY, BLOCKED, UNUSABLE = 0, 1, 2
"""Exit codes: no blocker; at least one; unknown, because of an option, a file or the API server."""

_SUFFIXES: Final = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class PreflightOptions:
    kubeconfig: Path | None = None
    context: str = ""
    as_json: bool = False
    values: Path | None = None
    files: tuple[Path, ...] = ()

    @property
    def reads_cluster(self) -> bool:
        """Manifests alone are judged without a cluster, unless the user names one."""
        return not self.files or self.kubeconfig is not None or bool(self.context)


async def run(options: PreflightOptions) -> int:
    """Print the report; return the exit code."""
    try:
        values = _values(options.values) if options.values is not None else None
        unread: list[str] = []
        written = tuple(stored_in(options.files, unread))
        of_providers = provider_kinds(lambda name, problem: _warn(f"the kinds of provider {name}: {problem}"))
        kinds = (*KINDS, *(kind for of_one in of_providers.values() for kind in of_one))
        gathered = await _cluster(options, kinds) if options.reads_cluster else Snapshot()
    except (InputError, KubeError) as problem:
        _warn(str(problem))
        return UNUSABLE
    packages = offers(installed(), _warn)
    snapshot = replace(
        gathered,
        objects=(*gathered.objects, *written),
        values=values,
        packages=packages,
        provider_kinds=of_providers,
        maturities={name: load(name).maturity.value for name in set(packages.values())},
        unread_files=tuple(unread),
    )
    report = judge(snapshot)
    echo(json.dumps(as_json(report), indent=2) if options.as_json else "\n".join(lines(report)), coloured=True)
    return READY if report.ready else BLOCKED


def _warn(text: str) -> None:
    echo(f"eso preflight: {printable(text)}", err=True)


async def _cluster(options: PreflightOptions, kinds: Sequence[AnyKind]) -> Snapshot:
    async with connected(options.kubeconfig, options.context, command="preflight") as (client, _):
        return await Gatherer(client).gather(kinds)


def _values(file: Path) -> JsonObject:
    documents = read_documents(str(file))
    merged: JsonObject = {}
    for document in documents:
        if not isinstance(document.content, dict):
            raise document.problem((), "the values of a chart are a map")
        merged |= document.content
    return merged


def stored_in(places: Sequence[Path], unread: list[str]) -> Iterator[Stored]:
    """Yield the objects of our kinds in files, and in folders and their subfolders; `-` is standard input.

    A folder may hold templates of charts, which are not YAML: they are added to `unread`.
    """
    for place in places:
        before, objects = len(unread), 0
        for file in _files(place):
            try:
                documents = read_manifests(str(file))
            except InputError as problem:
                if file == place:
                    raise
                unread.append(str(problem))
                continue
            for document in documents:
                match document.content:
                    case {"apiVersion": str(api_version), "kind": str(kind), "metadata": dict()}:
                        objects += 1
                        if (custom := _custom(api_version, kind)) is not None:
                            yield Stored(custom, document.content, document.at(()))
                    case _:
                        continue
        if not objects and len(unread) == before:
            raise InputError(without_manifests(place))


def _files(place: Path) -> list[Path]:
    if str(place) == STDIN:
        return [place]
    if not place.exists():
        raise InputError(f"{place}: No such file or directory")
    if not place.is_dir():
        return [place]
    return sorted(file for file in place.rglob("*") if file.suffix in _SUFFIXES and file.is_file())


def _custom(api_version: str, kind: str) -> AnyKind | None:
    group = api_version.rpartition("/")[0]
    return next((custom for custom in KINDS if (custom.group, custom.name) == (group, kind)), None)
