"""Which PushSecrets `eso preflight` finds to choose a namespace that their store does not allow."""

from __future__ import annotations

from typing import Any

import pytest

from eso_api.kinds import KINDS
from eso_tools.preflight.checks import judge
from eso_tools.preflight.findings import CheckResult, Level
from eso_tools.preflight.objectcheck import chosen_namespaces
from eso_tools.preflight.snapshot import Snapshot, Stored

ENTRY = {"metadata": {"spec": {"remoteNamespace": "elsewhere"}}}
BY_NAME = {"kind": "ClusterSecretStore", "name": "shared"}


def stored(kind: str, name: str, spec: Any) -> Stored:
    custom = next(each for each in KINDS if each.name == kind)
    home = {"namespace": "team"} if custom.namespaced else {}
    head = {"apiVersion": custom.resource().api_version, "kind": kind}
    return Stored(custom, {**head, "metadata": {"name": name, **home}, "spec": spec})


def store(**block: Any) -> Stored:
    return stored("ClusterSecretStore", "shared", {"provider": {"kubernetes": block}})


def push(reference: Any = BY_NAME, **spec: Any) -> Stored:
    return stored("PushSecret", "db", {"secretStoreRefs": [reference], "data": [ENTRY], **spec})


def found(*objects: Stored) -> list[CheckResult]:
    return list(chosen_namespaces(Snapshot(objects=objects)))


@pytest.mark.parametrize(
    ("obj", "detail"),
    [
        pytest.param(
            push(), "PushSecret team/db: spec.data[0].metadata.spec.remoteNamespace: elsewhere", id="a PushSecret"
        ),
        pytest.param(
            push({"kind": "ClusterSecretStore", "labelSelector": {"matchLabels": {"a": "b"}}}),
            "PushSecret team/db: spec.data[0].metadata.spec.remoteNamespace: elsewhere",
            id="a PushSecret that selects stores by labels",
        ),
        pytest.param(
            push(data=[], dataTo=[{**ENTRY, "storeRef": BY_NAME}]),
            "PushSecret team/db: spec.dataTo[0].metadata.spec.remoteNamespace: elsewhere",
            id="many keys at once",
        ),
        pytest.param(
            stored("ClusterPushSecret", "db", {"pushSecretSpec": push().obj["spec"]}),
            "ClusterPushSecret db: spec.pushSecretSpec.data[0].metadata.spec.remoteNamespace: elsewhere",
            id="a ClusterPushSecret",
        ),
    ],
)
def test_a_namespace_that_the_store_does_not_allow_is_a_warning_with_the_field_to_set(obj: Stored, detail: str) -> None:
    (finding,) = found(store(remoteNamespace="shared"), obj)

    assert finding.level is Level.WARNING
    assert [str(each) for each in finding.details] == [detail]
    assert "allowedRemoteNamespaces=[elsewhere] in ClusterSecretStore shared" in finding.next


@pytest.mark.parametrize(
    "objects",
    [
        pytest.param((store(allowedRemoteNamespaces=["elsewhere"]), push()), id="it is allowed"),
        pytest.param((store(allowedRemoteNamespaces=["*"]), push()), id="every namespace is allowed"),
        pytest.param((store(remoteNamespace="elsewhere"), push()), id="it is the namespace of the store"),
        pytest.param((store(), push({"kind": "ClusterSecretStore", "name": "other"})), id="another store"),
        pytest.param((store(), push({"name": "shared"})), id="a store of the namespace"),
        pytest.param(
            (stored("ClusterSecretStore", "shared", {"provider": {"fake": {}}}), push()), id="another provider"
        ),
        pytest.param((store(), push(data=[{"metadata": None}, {}, None])), id="no metadata"),
        pytest.param((store(), stored("PushSecret", "db", None)), id="no spec"),
    ],
)
def test_nothing_is_reported_if(objects: tuple[Stored, ...]) -> None:
    assert found(*objects) == []


def test_the_report_has_the_finding() -> None:
    report = judge(Snapshot(objects=(store(), push())))

    assert "chosen_namespaces" in [name for name, _ in report.findings]
