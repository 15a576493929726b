"""All checks of `eso preflight`, and the report that they make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from eso_tools.preflight.clustercheck import api_server, permissions, unread_files
from eso_tools.preflight.crdcheck import chart_crds, conversions, stored_versions, unknown_kinds, unowned_crds
from eso_tools.preflight.findings import Findings, Level, Report
from eso_tools.preflight.flagcheck import flags
from eso_tools.preflight.helmcheck import helm_ownership, operators, selectors, webhooks
from eso_tools.preflight.identitycheck import process_identities
from eso_tools.preflight.objectcheck import dropped_fields, refused_objects
from eso_tools.preflight.providercheck import providers
from eso_tools.preflight.pushcheck import chosen_namespaces
from eso_tools.preflight.snapshot import Snapshot
from eso_tools.preflight.valuecheck import chart_values

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
