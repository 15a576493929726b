"""`eso provider list`: the installed providers with their maturity, or those that stores and generators need.

    objects (of a cluster, of files or of standard input) -> needs -> a row for each provider

`--needed` reads stores and generators only. What no provider of this project serves has a row without a name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eso_api.kinds import KINDS
from eso_api.stores.projectproviders import REMOVED_UPSTREAM
from eso_cli.connecting import connected
from eso_cli.preflight import stored_in
from eso_cli.terminal import echo, printable
from eso_sdk.installed import ProviderNameError, installed, load
from eso_tools.manifests import InputError
from eso_tools.objects import role_of
from eso_tools.preflight.gathering import Gatherer
from eso_tools.preflight.providercheck import SOURCES, ProviderNeed, needs_of, project_name
from eso_tools.preflight.snapshot import Snapshot
from eso_tools.providers import offers
from kuberun.errors import KubeError

ALL_INSTALLED, MISSING, UNUSABLE = 0, 1, 2
"""Exit codes of `--needed`; the last one if a file or the API server cannot be used."""


@dataclass(frozen=True, slots=True)
class ListOptions:
    kubeconfig: Path | None = None
    context: str = ""
    as_json: bool = False
    files: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Known:
    """One installed provider; `version` and `maturity` are empty if it cannot be loaded."""

    name: str
    version: str = ""
    maturity: str = ""

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "version": self.version, "maturity": self.maturity}


@dataclass(frozen=True, slots=True)
class Needed:
    """One provider that is needed; `name` is empty if this project has none for it."""

    name: str
    known: Known | None
    needs: list[ProviderNeed] = field(default_factory=list)

    @property
    def cells(self) -> tuple[str, ...]:
        here = "no" if self.known is None else "yes"
        maturity = "" if self.known is None else self.known.maturity
        what = ", ".join(f"{need} ({need.counts})" for need in self.needs)
        return (self.name or "-", here, maturity or "-", printable(what))

    def as_json(self) -> dict[str, Any]:
        known = {} if self.known is None else self.known.as_json()
        needs = [{"what": str(need), "objects": [str(source) for source in need.sources]} for need in self.needs]
        return {**known, "name": self.name, "installed": self.known is not None, "needs": needs}


def list_installed(options: ListOptions) -> int:
    """Print the installed providers; return 0."""
    rows = _known()
    if options.as_json:
        echo(json.dumps([row.as_json() for row in rows], indent=2))
    else:
        _print_table(("NAME", "VERSION", "MATURITY"), ((row.name, row.version, row.maturity) for row in rows))
    return ALL_INSTALLED


async def list_needed(options: ListOptions) -> int:
    """Print the providers that the objects need; return the exit code."""
    try:
        snapshot = await _snapshot(options)
    except (InputError, KubeError) as problem:
        _warn(printable(str(problem)))
        return UNUSABLE
    for gap in snapshot.gaps:
        _warn(f"{gap.what}: {printable(gap.why)}; what they need is not listed")
    for unread in snapshot.unread_files:
        _warn(printable(unread))
    rows = rows_of(needs_of(snapshot.objects), {row.name: row for row in _known()})
    if options.as_json:
        echo(json.dumps([row.as_json() for row in rows], indent=2))
    elif rows:
        _print_table(("PROVIDER", "INSTALLED", "MATURITY", "NEEDED FOR"), (row.cells for row in rows))
    else:
        echo("no store or generator needs a provider")
    for row in rows:
        if row.known is None:
            _warn(_advice(row))
    return MISSING if any(row.known is None for row in rows) else ALL_INSTALLED


def rows_of(needs: Iterable[ProviderNeed], known: dict[str, Known]) -> list[Needed]:
    """Group the needs by provider: by name, and those without a provider at the end."""
    packages = offers(known, lambda _problem: None)  # `_known` has warned about it
    rows: dict[str, Needed] = {}
    for need in needs:
        name = packages.get(need.want) or project_name(need.want) or ""
        row = rows.setdefault(name or str(need), Needed(name, known.get(name)))
        row.needs.append(need)
    return sorted(rows.values(), key=lambda row: (not row.name, row.name))


def _advice(row: Needed) -> str:
    if row.name:
        return (
            f"provider {row.name} is not installed beside eso: install eso-provider-{row.name},"
            f" or in a cluster set providers.{row.name}.enabled=true of the chart external-secrets"
        )
    if any(not need.want.group and need.want.name in REMOVED_UPSTREAM for need in row.needs):
        return f"{', '.join(map(str, row.needs))}: upstream removed this backend; move the values to another one"
    return f"{', '.join(map(str, row.needs))}: this project has no provider for it; write one (eso provider new NAME)"


def _known() -> list[Known]:
    found: list[Known] = []
    for name in installed():
        try:
            provider = load(name)
        except ProviderNameError as problem:
            _warn(str(problem))
            found.append(Known(name))
        else:
            found.append(Known(name, provider.version, provider.maturity.value))
    return found


async def _snapshot(options: ListOptions) -> Snapshot:
    """Read the objects: of the files if there are any, otherwise of the cluster."""
    if options.files:
        unread: list[str] = []
        objects = tuple(stored_in(options.files, unread))
        return Snapshot(objects=objects, unread_files=tuple(unread))
    async with connected(options.kubeconfig, options.context, command="provider list") as (client, _):
        return await Gatherer(client).gather_objects([custom for custom in KINDS if role_of(custom) in SOURCES])


def _print_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    lines = [heads, *([cell or "-" for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    for line in lines:
        echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _warn(text: str) -> None:
    echo(f"eso provider list: {text}", err=True)
