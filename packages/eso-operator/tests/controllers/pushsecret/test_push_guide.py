"""The guide on pushing tells the truth: its manifest, its reasons, its warning (R10)."""

import re
from pathlib import Path

import msgspec
import pytest
import yaml

from eso_api.pushsecret import PUSH_SECRET, PushSecret
from eso_operator.controllers.pushsecret import snapshot, status

GUIDE = Path(__file__).resolve().parents[5] / "docs" / "guides" / "push-secrets.md"
TEXT = GUIDE.read_text(encoding="utf-8")


def test_the_manifest_fits_its_type() -> None:
    block = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)[0]
    document = yaml.safe_load(block)

    push = msgspec.convert(document, PushSecret)

    assert document["apiVersion"] == PUSH_SECRET.resource().api_version
    assert push.spec.deletion_policy == "Delete"


@pytest.mark.parametrize(
    "reason",
    [
        status.SYNCED,
        status.ERRORED,
        status.ALREADY_EXISTS,
        status.ORPHANED,
        status.LEFT_ALONE,
        snapshot.SOURCE_DELETED,
    ],
)
def test_every_reason_is_explained(reason: str) -> None:
    assert f"`{reason}`" in TEXT


def test_the_warning_about_idempotency_is_there() -> None:
    """R10: where the policy is explained, and apart from the text."""
    section = TEXT.partition("\n## IfNotExists\n")[2].partition("\n## ")[0]

    assert re.search(r"^> \*\*.*not idempotent", section, re.MULTILINE)


def test_kubectl_explains_both_policies() -> None:
    """R10: in the API's own text, with the default."""
    (version,) = PUSH_SECRET.crd()["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]

    text = spec["updatePolicy"]["description"]

    assert "Replace (default)" in text
    assert [value for value in spec["updatePolicy"]["enum"] if value not in text] == []
