"""What `eso preflight` says about CRDs: who owns them, which versions they store, who converts and who serves them."""

from __future__ import annotations

from typing import Any

import pytest

from eso_api.kinds import KINDS, provider_kinds
from eso_tools.preflight.crdcheck import chart_crds, conversions, stored_versions, unknown_kinds, unowned_crds
from eso_tools.preflight.findings import CheckResult, Detail, Level
from eso_tools.preflight.snapshot import Definition, Owner, Release, Running, Snapshot, Stored, Workload, WorkloadRole
from eso_tools.providers import Want
from kubebase.meta import ObjectKey

B, W, F = Level.BLOCKER, Level.WARNING, Level.FACT
RELEASE, OTHER = Owner("external-secrets", "external-secrets"), Owner("platform", "crds")
CRD = "externalsecrets.external-secrets.io"
VAULTS = "vaults.provider.secretstore.external-secrets.io"
OF_VAULT = {"vault": provider_kinds()["vault"]}
CORE = len(KINDS)
LABELS = {"app.kubernetes.io/name": "external-secrets", "app.kubernetes.io/instance": "external-secrets"}
KEY = ObjectKey("external-secrets", "external-secrets")
GO = Workload(KEY, WorkloadRole.GO_OPERATOR, selector={"matchLabels": LABELS}, owner=RELEASE)
RENDERED = Workload(KEY, WorkloadRole.GO_OPERATOR, selector={"matchLabels": LABELS})
GO_WEBHOOK = Workload(ObjectKey("external-secrets", "external-secrets-webhook"), WorkloadRole.GO_WEBHOOK)
OURS = Workload(KEY, WorkloadRole.OURS)
STORE = Stored(
    next(kind for kind in KINDS if kind.name == "SecretStore"),
    {
        "apiVersion": "external-secrets.io/v1",
        "kind": "SecretStore",
        "metadata": {"name": "vault", "namespace": "team"},
        "spec": {"provider": {"vault": {}}},
    },
)


def release(*crds: str, values: Any = None, converted: frozenset[str] = frozenset()) -> Release:
    return Release(RELEASE, "external-secrets-2.9.0", values or {}, dict.fromkeys(crds, True), converted)


def told(findings: Any) -> list[tuple[Level, str]]:
    return [(finding.level, finding.text) for finding in findings]


# --- what the chart brings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        pytest.param(
            {}, f"{CORE} CRDs of the core and 0 of no provider: it replaces 1 and creates {CORE - 1}", id="none"
        ),
        pytest.param(
            {"objects": (STORE,), "packages": {Want("", "vault"): "vault"}},
            f"{CORE} CRDs of the core and 5 of provider vault: it replaces 1 and creates {CORE + 4}",
            id="a provider that a store needs",
        ),
        pytest.param(
            {"values": {"providers": {"vault": {"enabled": True}, "aws": {"enabled": False}}}},
            f"{CORE} CRDs of the core and 5 of provider vault: it replaces 1 and creates {CORE + 4}",
            id="a provider that the values enable",
        ),
        pytest.param(
            {"values": {"providers": {"shared": {"enabled": True, "names": ["vault"]}}}},
            f"{CORE} CRDs of the core and 5 of provider vault: it replaces 1 and creates {CORE + 4}",
            id="a provider in the shared Deployment",
        ),
        pytest.param(
            {"values": {"crds": {"createPushSecret": False, "createClusterGenerator": False}}},
            f"{CORE - 2} CRDs of the core and 0 of no provider: it replaces 1 and creates {CORE - 3}",
            id="CRDs that the values leave out",
        ),
    ],
)
def test_crds_that_the_chart_brings_itself_are_a_fact(fields: Any, text: str) -> None:
    snapshot = Snapshot("v1.36.0", definitions=(Definition(CRD, owner=RELEASE),), provider_kinds=OF_VAULT, **fields)

    (finding,) = chart_crds(snapshot)

    assert (finding.level, finding.text, finding.next) == (F, f"our chart has {text}", "")


def test_crds_that_no_chart_installs_must_be_installed_first() -> None:
    snapshot = Snapshot("v1.36.0", definitions=(Definition(CRD),), values={"installCRDs": False})

    (finding,) = chart_crds(snapshot)

    assert finding.level is W
    assert f"has installCRDs=false, and {CORE - 1} of {CORE} CRDs of the core" in finding.text
    assert len(finding.details) == CORE - 1
    assert "eso crds" in finding.next


# --- owners -----------------------------------------------------------------------------------------------------------

HELD = {"owner": RELEASE, "managed_by_helm": True}


@pytest.mark.parametrize(
    ("definition", "fields", "expected"),
    [
        pytest.param(Definition(CRD, **HELD), {"releases": (release(),)}, [], id="annotated with the release"),  # type: ignore[arg-type]  # keywords of many types
        pytest.param(Definition(CRD), {"releases": (release(CRD),)}, [], id="in the manifest of the release"),
        pytest.param(Definition(CRD), {"releases": (release(),)}, [B], id="of no release, while one is upgraded"),
        pytest.param(
            Definition(CRD, owner=RELEASE), {"releases": (release(),)}, [B], id="annotated, and without Helm's label"
        ),
        pytest.param(
            Definition(CRD, owner=OTHER, managed_by_helm=True), {"releases": (release(),)}, [B], id="of another release"
        ),
        pytest.param(
            Definition(CRD, owner=OTHER, managed_by_helm=True),
            {"releases": (release(values={"installCRDs": False}),)},
            [],
            id="of another release, and not installed by ours",
        ),
        pytest.param(Definition(CRD), {"workloads": ()}, [F], id="of no release, before a first installation"),
        pytest.param(Definition(CRD), {}, [W], id="of no release, beside an operator in Go that Helm did not install"),
        pytest.param(Definition(CRD), {"workloads": (OURS,)}, [], id="beside our operator, which Helm did not install"),
    ],
)
def test_a_crd_that_belongs_to_another_owner_stops_helm(
    definition: Definition, fields: Any, expected: list[Level]
) -> None:
    findings = list(unowned_crds(Snapshot("v1.36.0", definitions=(definition,), **{"workloads": (GO,), **fields})))

    assert [each.level for each in findings] == expected
    for finding in findings:
        assert "Helm refuses to install our chart, because 1 object of it exists outside this release" in finding.text
        whose = f"Helm release {definition.owner}" if definition.owner else "no Helm release"
        assert finding.details == (Detail(f"CRD {CRD}", text=f"belongs to {whose}"),)
        assert "--take-ownership" in finding.next


def test_a_deployment_that_a_tool_rendered_is_named_beside_its_crds() -> None:
    (finding,) = unowned_crds(Snapshot("v1.36.0", definitions=(Definition(CRD),), workloads=(RENDERED,)))

    assert [each.subject for each in finding.details] == [f"CRD {CRD}", str(RENDERED)]


def test_crds_of_providers_stay_with_their_owner() -> None:
    snapshot = Snapshot(
        "v1.36.0",
        definitions=(Definition(VAULTS, owner=OTHER, managed_by_helm=True),),
        values={"providers": {"vault": {"enabled": True}}},
        provider_kinds=OF_VAULT,
    )

    (left,), (brought,) = unowned_crds(snapshot), chart_crds(snapshot)

    assert (left.level, left.details) == (W, (Detail(f"CRD {VAULTS}", text="belongs to Helm release platform/crds"),))
    assert brought.text.endswith(f"it replaces 0 and creates {CORE + 4}")


# --- versions and conversion ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "versions", "expected"),
    [
        pytest.param(CRD, ("v1beta1", "v1"), [], id="versions that we serve"),
        pytest.param(CRD, ("v1alpha1", "v1"), [B], id="a version that we do not serve"),
        pytest.param("others.external-secrets.io", ("v1alpha1",), [], id="a kind that we do not replace"),
        pytest.param(VAULTS, ("v0",), [B], id="of a provider"),
    ],
)
def test_stored_versions_that_cannot_be_replaced(name: str, versions: tuple[str, ...], expected: list[Level]) -> None:
    definition = Definition(name, storage=versions[-1], stored_versions=versions)

    findings = list(stored_versions(Snapshot(definitions=(definition,), provider_kinds=OF_VAULT)))

    assert [each.level for each in findings] == expected


@pytest.mark.parametrize(
    ("storage", "advice"),
    [
        pytest.param("v1", f"kubectl patch crd {CRD} --subresource=status", id="objects can be written again"),
        pytest.param("v1alpha1", "upgrade the operator in Go first", id="the old version is stored today"),
    ],
)
def test_the_way_out_depends_on_the_version_that_is_stored_today(storage: str, advice: str) -> None:
    definition = Definition(CRD, storage=storage, stored_versions=("v1alpha1", "v1"))

    (finding,) = stored_versions(Snapshot(definitions=(definition,)))

    assert finding.details == (Detail(CRD, "status.storedVersions", "has v1alpha1; ours has v1, v1beta1"),)
    assert advice in finding.next


CONVERTED = Definition(CRD, conversion="external-secrets/webhook")
IN_MANIFEST = release(CRD, converted=frozenset({CRD}))
WITHOUT_CRDS = release(CRD, values={"installCRDs": False}, converted=frozenset({CRD}))


@pytest.mark.parametrize(
    ("workloads", "records", "level", "advice"),
    [
        pytest.param((GO, GO_WEBHOOK), (IN_MANIFEST,), F, "", id="the upgrade removes it"),
        pytest.param((GO, GO_WEBHOOK), (release(CRD),), W, "kubectl patch crd", id="the manifest does not have it"),
        pytest.param(
            (GO, GO_WEBHOOK), (WITHOUT_CRDS,), W, "kubectl patch crd", id="the chart does not replace the CRD"
        ),
        pytest.param((GO,), (release(CRD),), B, "kubectl patch crd", id="its server does not run"),
    ],
)
def test_conversion_webhooks_that_would_be_left_behind(
    workloads: tuple[Workload, ...], records: tuple[Release, ...], level: Level, advice: str
) -> None:
    findings: list[CheckResult] = list(
        conversions(Snapshot("v1.36.0", definitions=(CONVERTED,), workloads=workloads, releases=records))
    )

    assert [each.level for each in findings] == [level]
    assert findings[0].details == (Detail(f"CRD {CRD}", text="served by external-secrets/webhook"),)
    assert advice in findings[0].next


# --- kinds that nothing serves ----------------------------------------------------------------------------------------


def gadgets(group: str) -> Definition:
    return Definition(f"gadgets.{group}", served=("v1",), kind="Gadget")


@pytest.mark.parametrize(
    ("group", "objects", "running", "expected"),
    [
        pytest.param("generators.external-secrets.io", 3, (), [(W, "3 objects of 1 kind")], id="objects of Go's kinds"),
        pytest.param("generators.external-secrets.io", 0, (), [(F, "1 CRD without objects")], id="no objects"),
        pytest.param(
            "provider.secretstore.external-secrets.io", 1, (), [(W, "1 object of 1 kind")], id="of a provider"
        ),
        pytest.param("provider.secretstore.external-secrets.io", 0, (), [], id="of a provider, without objects"),
        pytest.param(
            "provider.secretstore.external-secrets.io",
            1,
            (Running("Service a/b", frozenset({Want("provider.secretstore.external-secrets.io", "Gadget")})),),
            [],
            id="of a provider that runs",
        ),
    ],
)
def test_objects_of_kinds_that_nothing_serves(group: str, objects: int, running: Any, expected: Any) -> None:
    definition = gadgets(group)
    snapshot = Snapshot(
        "v1.36.0", definitions=(definition, Definition(CRD)), running=running, unknown={definition.name: objects}
    )

    found = told(unknown_kinds(snapshot))

    assert [(level, text[: len(begin)]) for (level, text), (_, begin) in zip(found, expected, strict=True)] == expected
