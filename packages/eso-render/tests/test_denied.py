"""Objects that are never written, whatever the template."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import msgspec
import pytest

from eso_api.externalsecret import SECRET_TYPE_LABEL, SERVICE_ACCOUNT_NAME, Target
from eso_api.values import SecretBytes
from eso_render.errors import TargetError
from eso_render.manifest import render_manifest
from eso_render.secret import refuse_token, render_secret, user_labels
from kubebase.meta import JsonObject, ObjectMeta


@pytest.mark.parametrize(
    ("type_", "annotations", "refused"),
    [
        pytest.param("kubernetes.io/service-account-token", {SERVICE_ACCOUNT_NAME: "robot"}, True, id="gets a token"),
        pytest.param("bootstrap.kubernetes.io/token", {}, True, id="lets a node in"),
        pytest.param("kubernetes.io/service-account-token", {}, False, id="of no account"),
        pytest.param("Opaque", {SERVICE_ACCOUNT_NAME: "robot"}, False, id="is no token"),
    ],
)
def test_a_rendered_secret_is_looked_at_once_more(type_: str, annotations: dict[str, str], refused: bool) -> None:
    with pytest.raises(TargetError) if refused else nullcontext():
        refuse_token(type_, annotations)


ALLOWED = {SECRET_TYPE_LABEL: "webhook"}
VALUES = {"a": SecretBytes(b"b")}
OWNER = ObjectMeta(name="es", namespace="team", labels=ALLOWED)


@pytest.mark.parametrize(
    "template",
    [
        pytest.param({"metadata": {"labels": ALLOWED}}, id="written out"),
        pytest.param(
            {"templateFrom": [{"literal": f"{SECRET_TYPE_LABEL}: webhook", "target": "Labels"}]}, id="rendered"
        ),
    ],
)
@pytest.mark.parametrize("manifest", [None, {"apiVersion": "v1", "kind": "Secret"}], ids=["Secret", "manifest"])
def test_a_template_cannot_let_its_target_be_sent_to_a_webhook(
    template: JsonObject, manifest: JsonObject | None
) -> None:
    target = msgspec.convert({"template": template, "manifest": manifest}, Target)

    render: Any = render_secret if manifest is None else render_manifest

    with pytest.raises(TargetError, match="is reserved"):
        render(target, VALUES, owner=OWNER)


def test_a_manifest_is_not_merged_into_a_secret_that_may_be_sent_to_a_webhook() -> None:
    target = msgspec.convert({"manifest": {"apiVersion": "v1", "kind": "Secret"}}, Target)
    metadata = {"name": "es", "namespace": "team", "labels": ALLOWED}
    existing = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {}}

    with pytest.raises(TargetError, match="is reserved"):
        render_manifest(target, VALUES, owner=OWNER, existing=existing)


def test_the_label_of_an_external_secret_is_not_copied_to_its_target() -> None:
    target = Target()

    assert render_secret(target, VALUES, owner=OWNER).labels == user_labels(ALLOWED) == {}
