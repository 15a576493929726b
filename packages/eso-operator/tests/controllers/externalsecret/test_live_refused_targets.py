"""Refused targets: keys made of values are not named, and what grants rights is not written. On a live server."""

import json

import pytest

from eso_testkit.operator.scenes import ES, STORE, Scene
from kubebase.meta import JsonObject

pytestmark = [pytest.mark.live, pytest.mark.asyncio(loop_scope="module")]

VALUE = "hunter2hunter2"
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap"}


def literal(text: str, target: str) -> JsonObject:
    return {"templateFrom": [{"literal": text, "target": target}]}


@pytest.mark.parametrize(
    ("target", "said"),
    [
        pytest.param(
            {"template": literal("{{ .password }} x: y", "Data")}, "data[…]: Invalid value", id="a key of a Secret"
        ),
        pytest.param(
            {"template": literal("{{ .password }} x: y", "Labels")}, "metadata.labels: Invalid value", id="a label"
        ),
        pytest.param(
            {"template": literal("a: {{ .password }} x", "Labels")}, "metadata.labels: Invalid value", id="its value"
        ),
        pytest.param(
            {"manifest": CONFIG_MAP, "template": literal("{{ .password }} x: y", "data")},
            "data[…]: Invalid value",
            id="a key of a ConfigMap",
        ),
    ],
)
async def test_a_key_that_was_made_of_a_value_is_not_named(stage: Scene, target: JsonObject, said: str) -> None:
    stage.backend(db=VALUE)

    await stage.apply("db", {"password": "db"}, target=target)

    reason = "ResourceSyncedError" if "manifest" in target else "SecretSyncedError"
    es = await stage.broken("db", said, reason=reason)
    assert VALUE not in json.dumps(es)


@pytest.mark.parametrize(
    "api_version",
    ["/v1", "//v1", "v1/", "../v1", "apis/../v1", "v1%2f..", "v1?limit=1", "v1#", "V1", "a b/v1"],
)
async def test_the_api_server_refuses_what_is_no_api_version(stage: Scene, api_version: str) -> None:
    """An empty group in front of a slash was taken for another kind than Secret, and written as one."""
    target = {"manifest": {"apiVersion": api_version, "kind": "Secret"}, "template": literal("x", "type")}
    document = {
        "apiVersion": ES.api_version,
        "kind": ES.kind,
        "metadata": {"name": "db"},
        "spec": {"secretStoreRef": {"name": STORE}, "target": target},
    }

    answer = await stage.bench.api.post(ES.path(stage.bench.namespace), document)

    assert answer.status == 422, answer.body
    assert "apiVersion" in answer.body["message"]


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [
        pytest.param("external-secrets.io/v1alpha1", "PushSecret", id="takes other Secrets away"),
        pytest.param("external-secrets.io/v1", "ExternalSecret", id="goes around who may write it"),
        pytest.param("rbac.authorization.k8s.io/v1", "RoleBinding", id="gives rights"),
    ],
)
async def test_the_operator_writes_nothing_for_others_that_grants_something(
    stage: Scene, api_version: str, kind: str
) -> None:
    """The operator's rights would be used: a user who may write an ExternalSecret may lack the right to write these."""
    stage.backend(db=VALUE)

    await stage.apply("db", {"password": "db"}, target={"manifest": {"apiVersion": api_version, "kind": kind}})

    await stage.broken("db", f"{kind} of {api_version} may not be a target", reason="ResourceSyncedError")
