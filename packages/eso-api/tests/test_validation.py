"""The rules of the CRDs as functions: the same verdicts, with the violating field."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from eso_api.externalsecret import ExternalSecretSpec
from eso_api.pushsecret import PushSecretSpec
from eso_api.v2.connection import ProviderConfig
from eso_api.validation import (
    external_secret_problems,
    provider_config_problems,
    push_secret_problems,
    template_problems,
)

DATA = [{"secretKey": "password", "remoteRef": {"key": "app"}}]
GENERATOR = {"generatorRef": {"kind": "Password", "name": "p"}}
TOKEN_TYPE = "kubernetes.io/service-account-token"


def external_secret(**spec: Any) -> list[str]:
    """Return the problems of an ExternalSecret that is valid except for these fields."""
    whole = {"secretStoreRef": {"name": "store"}, "data": DATA, **spec}
    return [str(problem) for problem in external_secret_problems(msgspec.convert(whole, ExternalSecretSpec))]


def push_secret(**spec: Any) -> list[str]:
    whole = {"secretStoreRefs": [{"name": "store"}], "selector": {"secret": {"name": "source"}}, **spec}
    return [str(problem) for problem in push_secret_problems(msgspec.convert(whole, PushSecretSpec))]


def template_from(target: str, **template: Any) -> dict[str, Any]:
    return {"template": {"templateFrom": [{"literal": "a: b", "target": target}], **template}}


@pytest.mark.parametrize(
    ("spec", "paths"),
    [
        pytest.param({}, [], id="a plain object is fine"),
        pytest.param({"target": {"deletionPolicy": "Delete", "creationPolicy": "Merge"}}, ["spec.target"], id="R42"),
        pytest.param({"target": {"deletionPolicy": "Delete", "creationPolicy": "None"}}, ["spec.target"], id="R43"),
        pytest.param({"target": {"deletionPolicy": "Merge", "creationPolicy": "None"}}, ["spec.target"], id="R44"),
        pytest.param(
            {"target": {"deletionPolicy": "Delete", "creationPolicy": "CreateOrMerge"}},
            ["spec.target"],
            id="delete with create-or-merge",
        ),
        pytest.param({"target": {"deletionPolicy": "Delete"}}, [], id="delete with the default owner"),
        pytest.param({"target": {"deletionPolicy": "Delete", "creationPolicy": "Orphan"}}, [], id="delete with orphan"),
        pytest.param({"target": {"creationPolicy": "None"}}, [], id="none with the default retain"),
        pytest.param({"data": []}, ["spec"], id="nothing to fetch"),
        pytest.param({"data": [], "dataFrom": [{"sourceRef": GENERATOR}]}, [], id="a generator alone"),
        pytest.param(
            {"target": {"template": {"type": "bootstrap.kubernetes.io/token"}}},
            ["spec.target.template.type"],
            id="bootstrap token",
        ),
        pytest.param(
            {
                "target": {
                    "template": {
                        "type": TOKEN_TYPE,
                        "metadata": {"annotations": {"kubernetes.io/service-account.name": "admin"}},
                    }
                }
            },
            ["spec.target.template.metadata.annotations"],
            id="token of a chosen service account",
        ),
        pytest.param(
            {"target": template_from("ANNOTATIONS", type=TOKEN_TYPE)},
            ["spec.target.template.templateFrom[0].target"],
            id="token with templated annotations, any case",
        ),
        pytest.param({"target": template_from("data", type=TOKEN_TYPE)}, [], id="token with templated data"),
        pytest.param({"target": template_from("Labels")}, [], id="labels of a Secret"),
        pytest.param({"target": template_from("")}, [], id="no target means data"),
        pytest.param(
            {"target": template_from("metadata.ownerReferences")},
            ["spec.target.template.templateFrom[0].target"],
            id="a path into a Secret",
        ),
        pytest.param(
            {"target": {"manifest": {"apiVersion": "v1", "kind": "Secret"}, **template_from("type")}},
            ["spec.target.template.templateFrom[0].target"],
            id="a path into a Secret spelled as manifest",
        ),
        pytest.param(
            {"target": {"manifest": {"apiVersion": "v1", "kind": "ConfigMap"}, **template_from("spec.a[0]")}},
            [],
            id="a path into another kind",
        ),
        pytest.param({"dataFrom": [{}]}, ["spec.dataFrom[0]"], id="an entry without a source"),
        pytest.param(
            {"dataFrom": [{"extract": {"key": "a"}, "find": {}}]}, ["spec.dataFrom[0]"], id="extract with find"
        ),
        pytest.param(
            {"dataFrom": [{"extract": {"key": "a"}, "sourceRef": GENERATOR}]},
            ["spec.dataFrom[0]"],
            id="extract with generator",
        ),
        pytest.param({"dataFrom": [{"sourceRef": {}}]}, ["spec.dataFrom[0].sourceRef"], id="an empty source"),
        pytest.param(
            {"dataFrom": [{"extract": {"key": "a"}, "sourceRef": {"storeRef": {"name": "s"}}}]},
            [],
            id="extract from another store",
        ),
        pytest.param(
            {"data": DATA * 3}, ["spec.data[1].secretKey", "spec.data[2].secretKey"], id="the same key thrice"
        ),
        pytest.param({"data": DATA * 2, "target": {"deletionPolicy": "Merge"}}, [], id="the same key with merge"),
        pytest.param({"secretStoreRef": {"kind": "Provider", "name": "p"}}, [], id="R180 a Provider by kind alone"),
        pytest.param(
            {"secretStoreRef": {"kind": "SecretsManager", "name": "s"}},
            ["spec.secretStoreRef.kind"],
            id="another kind without apiVersion",
        ),
        pytest.param(
            {"secretStoreRef": {"apiVersion": "aws.example/v1", "kind": "SecretsManager", "name": "s"}},
            [],
            id="R184 another kind with apiVersion",
        ),
        pytest.param(
            {"data": [{**DATA[0], "sourceRef": {"storeRef": {"kind": "Odd"}}}]},
            ["spec.data[0].sourceRef.storeRef.kind"],
            id="another kind in one entry",
        ),
        pytest.param(
            {"dataFrom": [{"sourceRef": {"generatorRef": {"kind": "Odd", "name": "g"}}}]},
            ["spec.dataFrom[0].sourceRef.generatorRef.kind"],
            id="an unknown generator",
        ),
        pytest.param({"refreshInterval": "1d"}, ["spec.refreshInterval"], id="a bad interval"),
        pytest.param({"refreshInterval": -5}, [], id="a negative interval means once"),
        pytest.param(
            {"syncWindows": {"kind": "allow", "windows": [{"schedule": "@daily", "duration": "1x"}]}},
            ["spec.syncWindows.windows[0].duration"],
            id="a bad window",
        ),
    ],
)
def test_external_secret_rules(spec: dict[str, Any], paths: list[str]) -> None:
    assert [problem.partition(": ")[0] for problem in external_secret(**spec)] == paths


def test_every_broken_rule_is_reported_at_once() -> None:
    problems = external_secret(
        data=[], target={"deletionPolicy": "Delete", "creationPolicy": "None", **template_from("type")}
    )

    assert len(problems) == 3


def test_template_rules_can_be_asked_alone() -> None:
    spec = msgspec.convert({"target": template_from("type")}, ExternalSecretSpec)

    assert len(template_problems(spec.target)) == 1


@pytest.mark.parametrize(
    ("spec", "paths"),
    [
        pytest.param({}, [], id="a plain object is fine"),
        pytest.param({"selector": {}}, ["spec.selector"], id="no source"),
        pytest.param({"selector": {"secret": {"name": "s"}, **GENERATOR}}, ["spec.selector"], id="two sources"),
        pytest.param({"selector": {"secret": {}}}, ["spec.selector.secret"], id="no Secret named"),
        pytest.param({"selector": {"secret": {"selector": {}}}}, [], id="Secrets by label"),
        pytest.param(
            {"selector": {"generatorRef": {"kind": "Odd", "name": "g"}}},
            ["spec.selector.generatorRef.kind"],
            id="an unknown generator",
        ),
        pytest.param({"secretStoreRefs": [{}]}, ["spec.secretStoreRefs[0]"], id="a store without name or selector"),
        pytest.param(
            {"secretStoreRefs": [{"kind": "Odd", "name": "s"}]}, ["spec.secretStoreRefs[0].kind"], id="an odd kind"
        ),
        pytest.param({"dataTo": [{}]}, ["spec.dataTo[0].storeRef"], id="dataTo without store"),
        pytest.param({"dataTo": [{"storeRef": {"name": "store"}}]}, [], id="dataTo to a named store"),
        pytest.param(
            {"dataTo": [{"storeRef": {"name": "other"}}]}, ["spec.dataTo[0].storeRef"], id="dataTo to a foreign store"
        ),
        pytest.param(
            {"dataTo": [{"storeRef": {"kind": "ClusterSecretStore", "name": "store"}}]},
            ["spec.dataTo[0].storeRef"],
            id="dataTo to a store of another kind",
        ),
        pytest.param({"dataTo": [{"storeRef": {"labelSelector": {}}}]}, [], id="dataTo by label"),
        pytest.param(
            {
                "dataTo": [
                    {
                        "storeRef": {"name": "store"},
                        "remoteKey": "all",
                        "rewrite": [{"regexp": {"source": "a", "target": "b"}}],
                    }
                ]
            },
            ["spec.dataTo[0].rewrite"],
            id="one remote secret and a rewrite",
        ),
        pytest.param(
            {"dataTo": [{"storeRef": {"name": "store"}, "rewrite": [{}]}]},
            ["spec.dataTo[0].rewrite[0]"],
            id="an empty rewrite",
        ),
        pytest.param({"refreshInterval": "soon"}, ["spec.refreshInterval"], id="a bad interval"),
    ],
)
def test_push_secret_rules(spec: dict[str, Any], paths: list[str]) -> None:
    assert [problem.partition(": ")[0] for problem in push_secret(**spec)] == paths


REF = {"providerRef": {"kind": "Fake", "name": "f"}}


@pytest.mark.parametrize(
    ("config", "paths"),
    [
        pytest.param(REF, [], id="discovery by kind"),
        pytest.param({**REF, "address": "grpc://p:1"}, [], id="R82 by address"),
        pytest.param({**REF, "address": "http+unix:///p.sock"}, [], id="R83 a socket parses"),
        pytest.param({**REF, "address": "nowhere"}, ["spec.providerConfig.address"], id="a bad address"),
        pytest.param(
            {**REF, "address": "p:1", "classRef": {"name": "c"}}, ["spec.providerConfig"], id="address and class"
        ),
        pytest.param({}, ["spec.providerConfig"], id="no configuration"),
        pytest.param({**REF, "inline": {"kind": "F", "spec": {}}}, ["spec.providerConfig"], id="two configurations"),
    ],
)
def test_provider_config_rules(config: dict[str, Any], paths: list[str]) -> None:
    problems = provider_config_problems(msgspec.convert(config, ProviderConfig))

    assert [problem.path for problem in problems] == paths
