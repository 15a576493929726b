"""Is the cluster itself ready: version of the API server, definitions, and what could not be looked at. Pure."""

from __future__ import annotations

import re
from typing import Final

from eso_api.kinds import KINDS
from eso_cli.preflight.findings import Detail, Finding, Findings, Level, counted, named
from eso_cli.preflight.snapshot import DEFINITIONS, DEPLOYMENTS, Gap, Snapshot

_RULES_SINCE: Final = (1, 25)
_RATCHETING_SINCE: Final = (1, 30)
_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)")
_REPLACE: Final = "eso crds > crds.yaml; kubectl create -f crds.yaml; kubectl replace -f crds.yaml"
_VERSIONS: Final = {kind.crd_name: kind.versions for kind in KINDS}


def api_server(snapshot: Snapshot) -> Findings:
    """Report an API server that is too old for rules in CRDs."""
    found = _VERSION.match(snapshot.version)
    if found is None:
        return
    version, says = (int(found[1]), int(found[2])), f"the API server is {snapshot.version}"
    if version < _RULES_SINCE:
        says += ", which does not check the rules (CEL) of our CRDs"
        yield Finding(Level.BLOCKER, says, next="upgrade it to 1.30 or newer")
    elif version < _RATCHETING_SINCE:
        says += ", which refuses every update of a stored object that breaks a newer rule, also of its status"
        yield Finding(Level.WARNING, says, next="change the objects named here first, or upgrade it to 1.30 or newer")
    else:
        yield Finding(Level.FACT, says)


def stored_versions(snapshot: Snapshot) -> Findings:
    """Report CRDs with stored versions that ours do not have: the API server would refuse to replace them."""
    details = tuple(
        Detail(each.name, "status.storedVersions", f"has {', '.join(strange)}")
        for each in snapshot.definitions
        if (
            strange := [
                version for version in each.stored_versions if version not in _VERSIONS.get(each.name, (version,))
            ]
        )
    )
    if details:
        yield Finding(
            Level.BLOCKER,
            f"{counted(len(details), 'CRD')} with stored versions that ours do not have: they cannot be replaced",
            details,
            "rewrite each object in the current version (kubectl get … -o yaml | kubectl replace -f -), then remove the"
            " old version from status.storedVersions (kubectl patch crd … --subresource=status)",
        )


def unknown_kinds(snapshot: Snapshot) -> Findings:
    """Report CRDs of the operator in Go that this operator does not know, and missing CRDs."""
    here = {each.name for each in snapshot.definitions}
    if strange := sorted(here - _VERSIONS.keys() - _provider_definitions(here)):
        says = (
            f"{counted(len(strange), 'CRD')} that this operator does not know; their objects stay and are not handled"
        )
        yield Finding(Level.WARNING, says, named(strange), "leave these CRDs in the cluster; do not delete them")
    if not snapshot.sees(DEFINITIONS):
        return
    missing = sorted(_VERSIONS.keys() - here)
    if missing:
        says = f"{counted(len(missing), 'CRD')} of this operator not installed yet"
        yield Finding(Level.FACT, says, next=_REPLACE)
    else:
        yield Finding(Level.FACT, f"all {len(_VERSIONS)} CRDs of this operator are installed")


def _provider_definitions(names: set[str]) -> set[str]:
    """Return the CRDs of provider packages of this project: their groups begin with `provider.` or have it inside."""
    return {name for name in names if "provider." in name.partition(".")[2]}


def permissions(snapshot: Snapshot) -> Findings:
    """Report what could not be looked at. Without the essential resources, "ready" would be a guess."""
    for level, says in (
        (Level.BLOCKER, "that must be looked at to call the cluster ready, and could not be"),
        (Level.WARNING, "that could not be looked at, or not completely"),
    ):
        chosen = [gap for gap in snapshot.gaps if _is_essential(gap) is (level is Level.BLOCKER)]
        if chosen:
            details = tuple(Detail(gap.what, says=gap.why) for gap in chosen)
            yield Finding(
                level,
                f"{counted(len(chosen), 'resource')} {says}",
                details,
                "run this command as a user who may list them",
            )


def unread_files(snapshot: Snapshot) -> Findings:
    """Report files of a folder that could not be read."""
    if names := snapshot.unread_files:
        says = f"{counted(len(names), 'file')} that could not be read as YAML"
        yield Finding(
            Level.WARNING, says, named(names), "if these are templates of a chart, render them and judge those"
        )


def _is_essential(gap: Gap) -> bool:
    return gap.what in _ESSENTIAL and not gap.partly


_ESSENTIAL: Final = frozenset({str(DEFINITIONS), str(DEPLOYMENTS), *_VERSIONS})
