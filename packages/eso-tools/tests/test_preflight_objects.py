"""Which objects `eso preflight` says this operator would refuse or change."""

from __future__ import annotations

from typing import Any

import pytest

from eso_api.kinds import KINDS
from eso_tools.preflight.findings import Level
from eso_tools.preflight.objectcheck import dropped_fields, problems_of, refused_objects
from eso_tools.preflight.snapshot import Snapshot, Stored, Workload, WorkloadRole
from kubebase.meta import ObjectKey

CANARY = "CANARY-8f3a"
ENTRY = {"secretKey": "a", "remoteRef": {"key": "k"}}
GOOD = {"secretStoreRef": {"name": "s"}, "data": [ENTRY]}
PUSH = {"secretStoreRefs": [{"name": "s"}], "selector": {"secret": {"name": "x"}}}


def stored(kind: str, spec: Any, *, version: str = "", status: Any = None, name: str = "o") -> Stored:
    custom = next(each for each in KINDS if each.name == kind)
    home = {"namespace": "team"} if custom.namespaced else {}
    api_version = f"{custom.group}/{version}" if version else custom.resource().api_version
    metadata = {"name": name, **home, "uid": "u", "resourceVersion": "7", "managedFields": [{"manager": "m"}]}
    obj = {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}
    return Stored(custom, {**obj, "status": status} if status else obj)


def ready(status: str) -> Any:
    return {"conditions": [{"type": "Ready", "status": status}]}


def templated(text: str, **fields: Any) -> Any:
    return {**GOOD, "target": {"template": {"data": {"a": text}, **fields}}}


@pytest.mark.parametrize(
    ("kind", "spec", "field", "text"),
    [
        pytest.param("ExternalSecret", {**GOOD, "refreshInterval": CANARY}, "spec.refreshInterval", "", id="a pattern"),
        pytest.param(
            "ExternalSecret",
            {**GOOD, "target": {"deletionPolicy": "Delete", "creationPolicy": "Merge"}},
            "spec.target",
            "cannot be combined",
            id="a CEL rule of our CRD",
        ),
        pytest.param(
            "ExternalSecret",
            {**GOOD, "secretStoreRef": {"kind": "Odd", "name": "s"}},
            "spec.secretStoreRef.kind",
            "supported values",
            id="an alternative of our schema",
        ),
        pytest.param(
            "ExternalSecret",
            {**GOOD, "data": [ENTRY, ENTRY]},
            "spec.data[1].secretKey",
            "is given twice",
            id="a controller's rule for keys",
        ),
        pytest.param(
            "ExternalSecret",
            {"secretStoreRef": {"name": "s"}},
            "spec",
            "either data or dataFrom",
            id="a controller's rule",
        ),
        pytest.param(
            "ClusterExternalSecret",
            {"externalSecretSpec": {"secretStoreRef": {"name": "s"}}},
            "spec.externalSecretSpec",
            "either data or dataFrom",
            id="a controller's rule, for the children",
        ),
        pytest.param(
            "PushSecret",
            {**PUSH, "dataTo": [{"storeRef": {"name": "other"}}]},
            "spec.dataTo[0].storeRef",
            "is not one of",
            id="a controller's rule for pushing",
        ),
        pytest.param(
            "SecretStore", {"provider": {"fake": {}, "vault": {}}}, "spec.provider", "", id="a store with two providers"
        ),
        pytest.param(
            "SecretStore",
            {"provider": {"vault": {"server": "https://v", "caBundle": CANARY}}},
            "spec.provider.vault.caBundle",
            "must be of type byte",
            id="a format, whose message repeats the value twice",
        ),
        pytest.param("Password", {"length": "ten"}, "spec.length", "", id="a generator with a wrong type"),
        pytest.param(
            "ExternalSecret",
            templated("{{ .a | nope }}"),
            "spec.target.template.data.a",
            '"nope" not defined',
            id="a template",
        ),
        pytest.param(
            "ExternalSecret",
            templated("a", templateFrom=[{"literal": "{{ if }}"}]),
            "spec.target.template.templateFrom[0].literal",
            "does not parse",
            id="a literal template",
        ),
        pytest.param(
            "ExternalSecret",
            templated("a", metadata={"labels": {"l": "{{"}, "annotations": {}}),
            "spec.target.template.metadata.labels.l",
            "does not parse",
            id="a template of a label",
        ),
        pytest.param(
            "PushSecret",
            {**PUSH, "template": {"data": {"a": "{{ end }}"}}},
            "spec.template.data.a",
            "",
            id="a pushed template",
        ),
        pytest.param(
            "ExternalSecret",
            {**GOOD, "dataFrom": [{"find": {"name": {"regexp": "(?=a)"}}}]},
            "spec.dataFrom[0].find.name.regexp",
            "RE2",
            id="an expression that RE2 does not know",
        ),
        pytest.param(
            "ExternalSecret",
            {**GOOD, "dataFrom": [{"extract": {"key": "k"}, "rewrite": [{"regexp": {"source": "(", "target": ""}}]}]},
            "spec.dataFrom[0].rewrite[0].regexp.source",
            "RE2",
            id="an expression of a rewrite",
        ),
        pytest.param(
            "ExternalSecret",
            {**GOOD, "dataFrom": [{"extract": {"key": "k"}, "rewrite": [{"transform": {"template": "{{"}}]}]},
            "spec.dataFrom[0].rewrite[0].transform.template",
            "does not parse",
            id="a template of a rewrite",
        ),
        pytest.param(
            "PushSecret",
            {**PUSH, "dataTo": [{"storeRef": {"name": "s"}, "match": {"regexp": "["}}]},
            "spec.dataTo[0].match.regexp",
            "RE2",
            id="an expression of a push",
        ),
        pytest.param(
            "ClusterSecretStore",
            {"provider": {"chef": {}}, "conditions": [{"namespaceRegexes": ["a", "*"]}]},
            "spec.conditions[0].namespaceRegexes[1]",
            "RE2",
            id="an expression of a condition",
        ),
    ],
)
def test_a_refused_object_is_named_with_field_and_reason(kind: str, spec: Any, field: str, text: str) -> None:
    problems = problems_of(stored(kind, spec))

    assert field in {problem.path for problem in problems}
    assert any(text in problem.message for problem in problems)
    assert CANARY not in str(problems)


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        pytest.param("ExternalSecret", GOOD, id="an ExternalSecret"),
        pytest.param("ExternalSecret", templated("{{ .a | upper }}"), id="a template with a function"),
        pytest.param("PushSecret", PUSH, id="a PushSecret"),
        pytest.param("SecretStore", {"provider": {"chef": {"anything": 1}}}, id="a provider without a schema of ours"),
        pytest.param("Password", {"length": 12, "digits": 2, "symbols": 1}, id="a generator"),
    ],
)
def test_a_stored_object_that_works_is_accepted(kind: str, spec: Any) -> None:
    """Metadata of the API server and the status of the operator in Go are accepted."""
    assert problems_of(stored(kind, spec, status=ready("True"))) == []


def test_v1beta1_has_the_same_rules() -> None:
    assert problems_of(stored("ExternalSecret", GOOD, version="v1beta1")) == []
    assert problems_of(stored("ExternalSecret", {**GOOD, "data": [ENTRY, ENTRY]}, version="v1beta1"))


def test_a_version_that_is_not_served_is_named() -> None:
    (problem,) = problems_of(stored("ExternalSecret", GOOD, version="v1alpha1"))

    assert (problem.path, problem.message.partition("; ")[2]) == ("apiVersion", "use one of v1, v1beta1")


@pytest.mark.parametrize(
    ("status", "level"),
    [
        pytest.param(ready("True"), Level.BLOCKER, id="it works today"),
        pytest.param(None, Level.BLOCKER, id="a manifest"),
        pytest.param(ready("False"), Level.WARNING, id="it does not work today either"),
    ],
)
def test_only_an_object_that_works_today_blocks(status: Any, level: Level) -> None:
    broken = stored("ExternalSecret", {**GOOD, "data": [ENTRY, ENTRY]}, status=status)

    (finding,) = refused_objects(Snapshot(objects=(broken,)))

    assert (finding.level, finding.details[0].subject) == (level, "ExternalSecret team/o")


def test_templates_are_parsed_with_the_delimiters_of_the_running_operator() -> None:
    arguments = ("--template-left-delimiter=[[", "--template-right-delimiter", "]]")
    go = Workload(ObjectKey("n", "d"), WorkloadRole.GO_OPERATOR, arguments=arguments)
    objects = (stored("ExternalSecret", templated("[[ nope ]] {{ nope }}")),)

    (finding,) = refused_objects(Snapshot(objects=objects, workloads=(go,)))
    fine = list(
        refused_objects(Snapshot(objects=(stored("ExternalSecret", templated("{{ nope }}")),), workloads=(go,)))
    )

    assert [detail.field for detail in finding.details] == ["spec.target.template.data.a"]
    assert [each.level for each in fine] == [Level.FACT]


def test_fields_that_our_crds_do_not_have_are_warned_of() -> None:
    spec = {**GOOD, "target": {"name": "t", "future": {"x": CANARY}}, "later": 1}

    (finding,) = dropped_fields(Snapshot(objects=(stored("ExternalSecret", spec, status={"more": 1}),)))

    assert finding.level is Level.WARNING
    assert [detail.field for detail in finding.details] == ["spec.later", "spec.target.future"]
    assert CANARY not in str(finding)


def test_judging_leaves_the_snapshot_as_it_is() -> None:
    snapshot = Snapshot(objects=(stored("ExternalSecret", {**GOOD, "later": 1}),))

    list(refused_objects(snapshot))

    assert snapshot.objects[0].obj["spec"]["later"] == 1
    assert "later" not in repr(snapshot)
