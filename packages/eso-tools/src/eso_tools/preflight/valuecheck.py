"""What becomes of the values of Go's chart: from `--values`, or else from the records of the Helm releases. Pure.

Only names of values are printed: a value may be a password in `extraEnv`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from eso_operator.process.flagverdicts import FlagVerdict, Verdict, examine
from eso_tools.preflight.chartvalues import EXTRA_ARGS, SWITCHED_ON, VALUES, Fate, leaves, row_of
from eso_tools.preflight.findings import Detail, Finding, Findings, Level, counted
from eso_tools.preflight.flagcheck import findings_for
from eso_tools.preflight.snapshot import Release, Role, Snapshot
from kubebase.meta import JsonObject

_ADVICE: Final = {
    Fate.DIFFERENT: "read each sentence, and write what you need into the values of our charts",
    Fate.WITHOUT_FUNCTION: "leave them out",
}


def chart_values(snapshot: Snapshot) -> Findings:
    """Report values that mean something else here, have no function, or are unknown."""
    if snapshot.values is not None:
        yield from judge(snapshot.values, "--values")
        return
    owners = {each.owner for each in snapshot.workloads if each.role is Role.GO_OPERATOR}
    for release in snapshot.releases:
        if isinstance(release, Release) and release.owner in owners:
            yield from judge(release.values, f"Helm release {release.owner}")


def judge(values: JsonObject, origin: str) -> Findings:
    """Judge one tree of values."""
    by_fate: dict[Fate, dict[str, list[str]]] = {}
    unknown: list[str] = []
    flags: list[FlagVerdict] = list(_extra_flags(values.get(EXTRA_ARGS)))
    for path, value in leaves({name: value for name, value in values.items() if name != EXTRA_ARGS}):
        if (covering := row_of(path)) is None:
            unknown.append(path)
            continue
        row = VALUES[covering]
        is_quiet = row.quiet is not None and value is row.quiet
        if row.flag and not is_quiet:
            judged = examine(row.flag, _flag_text(value))
            flags.append(FlagVerdict(f"{path} ({judged.flag})", judged.verdict, judged.says))
        else:
            fate = Fate.SAME if is_quiet else row.fate
            by_fate.setdefault(fate, {}).setdefault(covering, []).append(path)
    for fate in (Fate.DIFFERENT, Fate.WITHOUT_FUNCTION):
        if rows := by_fate.get(fate):
            details = tuple(
                Detail(_shown(paths, covering), says=VALUES[covering].says) for covering, paths in rows.items()
            )
            count = counted(sum(map(len, rows.values())), "chart value")
            yield Finding(Level.WARNING, f"{origin}: {count} {fate.value}", details, _ADVICE[fate])
    yield from findings_for(flags, origin)
    if unknown:
        details = tuple(Detail(path) for path in sorted(unknown))
        says = f"{origin}: {counted(len(unknown), 'chart value')} that neither chart knows"
        yield Finding(Level.WARNING, says, details, "check the spelling, or leave them out")
    same = sum(map(len, by_fate.get(Fate.SAME, {}).values())) + sum(each.verdict is Verdict.ACCEPTED for each in flags)
    yield Finding(Level.FACT, f"{origin}: {counted(same, 'chart value')} {Fate.SAME.value}")


def _extra_flags(extra: Any) -> Iterator[FlagVerdict]:
    if not isinstance(extra, dict):
        return
    for name, value in extra.items():
        flag = f"{EXTRA_ARGS}.{name}"
        if value == 0:  # also False
            yield FlagVerdict(flag, Verdict.DIFFERENT, SWITCHED_ON)
        else:
            judged = examine(name, None if value in (None, "") else _flag_text(value))
            yield FlagVerdict(flag, judged.verdict, judged.says)


def _flag_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shown(paths: list[str], covering: str) -> str:
    return paths[0] if len(paths) == 1 else f"{covering} ({counted(len(paths), 'value')})"
