"""How the flags of the operator in Go act here: `eso_operator/process/flagverdicts.py` knows. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from eso_operator.process.flagverdicts import FlagVerdict, Verdict, contradiction, examine, flags_in
from eso_tools.preflight.chartvalues import flags_set_by
from eso_tools.preflight.findings import Detail, Finding, Findings, Level, counted
from eso_tools.preflight.snapshot import Release, Role, Snapshot, Workload
from kubebase.meta import JsonObject

SENTENCES: Final = (
    (
        Verdict.REFUSED,
        "with a value that this operator refuses at its start",
        "change the value, or leave the flag out",
    ),
    (Verdict.UNKNOWN, "unknown to this operator, which refuses it at its start", "leave the flag out"),
    (Verdict.DIFFERENT, "with another meaning here", "check that the effect is still what you want"),
    (Verdict.WITHOUT_EFFECT, "accepted without a function", "leave the flag out, or keep it: it is only logged"),
)
_STOPPING: Final = frozenset({Verdict.REFUSED, Verdict.UNKNOWN})


def flags(snapshot: Snapshot) -> Findings:
    """Report flags of the operator in Go that mean something else here, or nothing.

    `chart_values` reports those that chart values set.
    """
    for workload in (each for each in snapshot.workloads if each.role is Role.GO_OPERATOR):
        set_by_values = flags_set_by(_values(workload, snapshot))
        given = [(name, value) for name, value in flags_in(workload.arguments) if name not in set_by_values]
        judged = [examine(name, value) for name, value in given]
        yield from findings_for(judged, str(workload))
        if not any(each.verdict in _STOPPING for each in judged) and (problem := contradiction(workload.arguments)):
            says = f"{workload}: flags that this operator refuses together: {problem}"
            yield Finding(Level.WARNING, says, next="change one of these flags")
        same = sum(each.verdict is Verdict.ACCEPTED for each in judged)
        if same:
            yield Finding(Level.FACT, f"{workload}: {counted(same, 'flag')} with the same meaning here")


def _values(workload: Workload, snapshot: Snapshot) -> JsonObject:
    """Return the chart values that `chart_values` judges for this Deployment."""
    if snapshot.values is not None:
        return snapshot.values
    releases = [each for each in snapshot.releases if isinstance(each, Release) and each.owner == workload.owner]
    return releases[0].values if releases else {}


def findings_for(judged: Iterable[FlagVerdict], origin: str) -> Findings:
    """Yield one finding for each verdict but `ACCEPTED`."""
    by_verdict: dict[Verdict, list[FlagVerdict]] = {}
    for each in judged:
        by_verdict.setdefault(each.verdict, []).append(each)
    for verdict, says, advice in SENTENCES:
        if chosen := by_verdict.get(verdict):
            details = tuple(Detail(each.flag, says=each.says) for each in chosen)
            yield Finding(Level.WARNING, f"{origin}: {counted(len(chosen), 'flag')} {says}", details, advice)
