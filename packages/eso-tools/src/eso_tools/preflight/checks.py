"""All checks of `eso preflight`, the report that they make, and the checks of the cluster itself. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from eso_api.kinds import KINDS
from eso_tools.preflight.chartvalues import chart_values, flags
from eso_tools.preflight.crdcheck import chart_crds, conversions, stored_versions, unknown_kinds, unowned_crds
from eso_tools.preflight.findings import CheckResult, Detail, Findings, Level, Report, counted, named
from eso_tools.preflight.helmcheck import helm_ownership, operators, selectors, webhooks
from eso_tools.preflight.identitycheck import process_identities
from eso_tools.preflight.objectcheck import chosen_namespaces, dropped_fields, refused_objects
from eso_tools.preflight.providercheck import providers
from eso_tools.preflight.snapshot import DEFINITIONS, DEPLOYMENTS, Snapshot, SnapshotGap

_RULES_SINCE: Final = (1, 25)
_RATCHETING_SINCE: Final = (1, 30)
_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)")


def api_server(snapshot: Snapshot) -> Findings:
    """Report an API server that is too old for rules in CRDs."""
    found = _VERSION.match(snapshot.version)
    if found is None:
        return
    version, text = (int(found[1]), int(found[2])), f"the API server is {snapshot.version}"
    if version < _RULES_SINCE:
        text += ", which does not check the rules (CEL) of our CRDs"
        yield CheckResult(Level.BLOCKER, text, next="upgrade it to 1.30 or newer")
    elif version < _RATCHETING_SINCE:
        text += ", which refuses every update of a stored object that breaks a newer rule, also of its status"
        yield CheckResult(
            Level.WARNING, text, next="change the objects named here first, or upgrade it to 1.30 or newer"
        )
    else:
        yield CheckResult(Level.FACT, text)


def permissions(snapshot: Snapshot) -> Findings:
    """Report what could not be looked at. Without the essential resources, "ready" would be a guess."""
    for level, text in (
        (Level.BLOCKER, "that must be looked at to call the cluster ready, and could not be"),
        (Level.WARNING, "that could not be looked at, or not completely"),
    ):
        chosen = [gap for gap in snapshot.gaps if _is_essential(gap) is (level is Level.BLOCKER)]
        if chosen:
            details = tuple(Detail(gap.what, text=gap.why) for gap in chosen)
            yield CheckResult(
                level,
                f"{counted(len(chosen), 'resource')} {text}",
                details,
                "run this command as a user who may list them",
            )


def unread_files(snapshot: Snapshot) -> Findings:
    """Report files of a folder that could not be read."""
    if names := snapshot.unread_files:
        text = f"{counted(len(names), 'file')} that could not be read as YAML"
        yield CheckResult(
            Level.WARNING, text, named(names), "if these are templates of a chart, render them and judge those"
        )


def _is_essential(gap: SnapshotGap) -> bool:
    return gap.what in _ESSENTIAL and not gap.partly


_ESSENTIAL: Final = frozenset({str(DEFINITIONS), str(DEPLOYMENTS), *(kind.crd_name for kind in KINDS)})


Check = Callable[[Snapshot], Findings]

CHECKS: Final[tuple[Check, ...]] = (
    helm_ownership,
    operators,
    selectors,
    webhooks,
    conversions,
    stored_versions,
    unowned_crds,
    providers,
    process_identities,
    chosen_namespaces,
    refused_objects,
    dropped_fields,
    flags,
    chart_values,
    unknown_kinds,
    chart_crds,
    api_server,
    permissions,
    unread_files,
)
"""In the order of the report within one level. Each works on its own."""

_ORDER: Final = tuple(Level)


def judge(snapshot: Snapshot) -> Report:
    """Run every check; blockers come first."""
    found = [(check.__name__, finding) for check in CHECKS for finding in check(snapshot)]
    return Report(tuple(sorted(found, key=lambda entry: _ORDER.index(entry[1].level))))
