"""Do the CRDs of the cluster fit those of the chart that would be installed? Pure.

The chart brings the CRDs of the core and of each enabled provider. A CRD that the chart creates or replaces by itself
is a fact. Problems are the CRDs that Helm or the API server would refuse to replace, and what would be left behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eso_api.kinds import KINDS, AnyKind
from eso_tools.preflight.findings import CheckResult, Detail, Findings, Level, counted
from eso_tools.preflight.ourchart import Installation, installations
from eso_tools.preflight.snapshot import DEFINITIONS, DEPLOYMENTS, Definition, Snapshot, WorkloadRole
from eso_tools.providers import Want


def stored_versions(snapshot: Snapshot) -> Findings:
    """Report CRDs with stored versions that ours do not have: the API server would refuse to replace them."""
    versions = {kind.crd_name: kind.versions for kind in _all_kinds(snapshot)}
    refused = {
        each: strange
        for each in snapshot.definitions
        if (
            strange := [
                version for version in each.stored_versions if version not in versions.get(each.name, (version,))
            ]
        )
    }
    details = tuple(
        Detail(
            each.name, "status.storedVersions", f"has {', '.join(strange)}; ours has {', '.join(versions[each.name])}"
        )
        for each, strange in refused.items()
    )
    if not details:
        return
    text = (
        f"{counted(len(details), 'CRD')} with a stored version that our CRD does not have: the API server refuses to"
        " replace such a CRD"
    )
    if old := [each.name for each, strange in refused.items() if each.storage in strange]:
        advice = (
            "upgrade the operator in Go first, to a release that stores a version of ours: it stores"
            f" {', '.join(old)} in an older one"
        )
    else:
        first = next(iter(refused))
        advice = (
            "write the objects of each in the current version, then remove the old version from its status, for"
            f" example: kubectl get {first.name} --all-namespaces -o yaml | kubectl replace -f - && kubectl patch crd"
            f" {first.name}"
            f' --subresource=status --type=merge -p \'{{"status":{{"storedVersions":["{first.storage}"]}}}}\''
        )
    yield CheckResult(Level.BLOCKER, text, details, advice)


def unowned_crds(snapshot: Snapshot) -> Findings:
    """Report objects that belong to others: Helm refuses those of the core, and our chart leaves those of providers."""
    for installation in installations(snapshot):
        if installation.record is None and snapshot.of(WorkloadRole.OURS):
            continue
        if details := tuple(_refused(installation, snapshot)):
            text = (
                f"{installation}: Helm refuses to install our chart, because {counted(len(details), 'object')} of it"
                f" {'exists' if len(details) == 1 else 'exist'} outside this release"
            )
            advice = (
                "add --take-ownership to `helm upgrade --install` (Helm 3.17 or newer); or leave the CRDs with their"
                f" owner: set installCRDs=false, and replace them yourself: {_by_hand(installation)}"
            )
            # Without a release it is not known whether Helm will install the chart at all.
            alone = Level.WARNING if snapshot.of(WorkloadRole.GO_OPERATOR) else Level.FACT
            yield CheckResult(Level.BLOCKER if installation.record else alone, text, details, advice)
        if installation.installs_crds and (left := _left_to_owners(installation, snapshot)):
            text = f"{counted(len(left), 'CRD')} of providers outside {installation}: our chart leaves them as they are"
            advice = f"upgrade those of another release there; replace the others yourself: {_by_hand(installation)}"
            yield CheckResult(Level.WARNING, text, tuple(_owner_of(each) for each in left), advice)


def _refused(installation: Installation, snapshot: Snapshot) -> Iterable[Detail]:
    core = installation.core_crds(snapshot.definitions) if installation.installs_crds else ()
    for each in snapshot.definitions:
        if each.name in core and not installation.owns(each):
            yield _owner_of(each)
    for workload in snapshot.workloads:
        if (
            workload.role is WorkloadRole.GO_OPERATOR
            and workload.owner is None
            and workload.key == installation.deployment
        ):
            yield Detail(str(workload), text="belongs to no Helm release")


def _left_to_owners(installation: Installation, snapshot: Snapshot) -> list[Definition]:
    names = installation.provider_crds(snapshot.provider_kinds)
    return [each for each in snapshot.definitions if each.name in names and not installation.owns(each)]


def _owner_of(definition: Definition) -> Detail:
    whose = f"Helm release {definition.owner}" if definition.owner else "no Helm release"
    return Detail(f"CRD {definition.name}", text=f"belongs to {whose}")


def chart_crds(snapshot: Snapshot) -> Findings:
    """Say which CRDs the chart brings; with `installCRDs=false`, report those that the administrator must install."""
    if not snapshot.sees(DEFINITIONS):
        return
    here = {each.name for each in snapshot.definitions}
    for installation in installations(snapshot):
        core, its = installation.core_crds(snapshot.definitions), installation.provider_crds(snapshot.provider_kinds)
        which = f"{counted(len(core), 'CRD')} of the core and {len(its)} of {_listed(installation.providers)}"
        missing = sorted((core | its) - here)
        if installation.installs_crds:
            left = {each.name for each in _left_to_owners(installation, snapshot)}
            there = len((core | its) & here - left)
            text = f"our chart has {which}: it replaces {there} and creates {len(missing)}"
            yield CheckResult(Level.FACT, text)
        elif missing:
            text = f"{installation} has installCRDs=false, and {len(missing)} of {which} do not exist"
            details = tuple(Detail(f"CRD {name}") for name in missing)
            yield CheckResult(
                Level.WARNING, text, details, f"install them before the upgrade: {_by_hand(installation)}"
            )
        else:
            yield CheckResult(Level.FACT, f"{which} exist; installCRDs=false leaves them as they are")


def _by_hand(installation: Installation) -> str:
    """Return the commands that install and replace these CRDs; `kubectl apply` would keep parts of the old ones."""
    chosen = " ".join(["--core", *(f"--provider {name}" for name in installation.providers)])
    return f"eso crds {chosen} > crds.yaml; kubectl create -f crds.yaml; kubectl replace -f crds.yaml"


def _listed(providers: Sequence[str]) -> str:
    if not providers:
        return "no provider"
    return f"{'provider' if len(providers) == 1 else 'providers'} {', '.join(providers)}"


def unknown_kinds(snapshot: Snapshot) -> Findings:
    """Report kinds of External Secrets that nothing serves after the migration."""
    known = {kind.crd_name for kind in _all_kinds(snapshot)}
    served = {want for each in snapshot.running for want in each.serves}
    unserved = [
        each for each in snapshot.definitions if each.name not in known and Want(each.group, each.kind) not in served
    ]
    used = [each for each in unserved if snapshot.unknown.get(each.name)]
    if used:
        count = sum(snapshot.unknown[each.name] for each in used)
        text = f"{counted(count, 'object')} of {counted(len(used), 'kind')} that this operator does not handle"
        details = tuple(
            Detail(f"CRD {each.name}", text=counted(snapshot.unknown[each.name], "object")) for each in used
        )
        advice = (
            "find another way for what they do, or keep the operator in Go for them; the objects and CRDs stay as long"
            " as you do not delete the CRDs"
        )
        yield CheckResult(Level.WARNING, text, details, advice)
    if idle := [each for each in unserved if each not in used and not _is_of_provider(each)]:
        text = f"{counted(len(idle), 'CRD')} without objects that this operator does not handle"
        yield CheckResult(Level.FACT, text, tuple(Detail(f"CRD {each.name}") for each in idle))


def _is_of_provider(definition: Definition) -> bool:
    """Return whether a CRD has a group of provider packages."""
    return "provider." in definition.group


def conversions(snapshot: Snapshot) -> Findings:
    """Report conversion webhooks. Helm removes one only if the stored manifest of the release has it."""
    converted = [each for each in snapshot.definitions if each.conversion]
    if not converted:
        return
    details = tuple(Detail(f"CRD {each.name}", text=f"served by {each.conversion}") for each in converted)
    left = [each.name for each in converted if not any(_replaces(one, each) for one in installations(snapshot))]
    remove = "; ".join(
        f'kubectl patch crd {name} --type=json -p \'[{{"op": "remove", "path": "/spec/conversion"}}]\'' for name in left
    )
    serves = bool(snapshot.of(WorkloadRole.GO_WEBHOOK)) or not snapshot.sees(DEPLOYMENTS)
    if not serves:
        text = (
            f"{counted(len(converted), 'CRD')} with a conversion webhook whose server does not run: other versions"
            " cannot be read"
        )
        advice = f"remove the webhooks now: {remove}" if remove else "start its server again, or upgrade the release"
        yield CheckResult(Level.BLOCKER, text, details, advice)
    elif left:
        chosen = tuple(detail for detail, each in zip(details, converted, strict=True) if each.name in left)
        text = (
            f"{counted(len(left), 'CRD')} with a conversion webhook that an upgrade would leave behind without its"
            " server: other versions could not be read"
        )
        yield CheckResult(Level.WARNING, text, chosen, f"right after the upgrade, remove the webhooks: {remove}")
    else:
        text = f"{counted(len(converted), 'CRD')} with a conversion webhook, which the upgrade removes"
        yield CheckResult(Level.FACT, text, details)


def _replaces(installation: Installation, definition: Definition) -> bool:
    record = installation.record
    return installation.installs_crds and record is not None and definition.name in record.converted


def _all_kinds(snapshot: Snapshot) -> Iterable[AnyKind]:
    return (*KINDS, *(kind for kinds in snapshot.provider_kinds.values() for kind in kinds))
