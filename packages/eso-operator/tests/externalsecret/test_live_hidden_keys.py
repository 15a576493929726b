"""Keys that templates make of values are not named by those who refuse them. On a live API server."""

import json

import pytest

from eso_operator.testing.scenes import Scene
from kuberun.meta import JsonObject

pytestmark = [pytest.mark.live, pytest.mark.asyncio(loop_scope="module")]

VALUE = "hunter2hunter2"
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap"}
EXTERNAL_SECRET = {"apiVersion": "external-secrets.io/v1", "kind": "ExternalSecret"}


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
        pytest.param(
            {
                "manifest": EXTERNAL_SECRET,
                "template": literal('{"{{ .password }}": [5]}', "spec.target.template.data"),
            },
            "spec.target.template.data.…",
            id="a member of another object",
        ),
    ],
)
async def test_a_key_that_was_made_of_a_value_is_not_named(stage: Scene, target: JsonObject, said: str) -> None:
    stage.backend(db=VALUE)

    await stage.apply("db", {"password": "db"}, target=target)

    reason = "ResourceSyncedError" if "manifest" in target else "SecretSyncedError"
    es = await stage.broken("db", said, reason=reason)
    assert VALUE not in json.dumps(es)
