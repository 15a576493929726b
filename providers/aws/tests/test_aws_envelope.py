"""The envelope of push metadata: strict, and its errors quote nothing."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from eso_provider_aws.api import decoded
from eso_sdk.push import MetadataSpec
from eso_wire.errors import ErrorReason, ProviderError

HEAD = {"apiVersion": "kubernetes.external-secrets.io/v1alpha1", "kind": "PushSecretMetadata"}


class Tier(MetadataSpec, frozen=True, kw_only=True):
    type: Literal["Standard", "Advanced"] = "Standard"


class Spec(MetadataSpec, frozen=True, kw_only=True):
    tags: dict[str, str] | None = None
    tier: Tier = Tier()
    push_format: str = ""


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        pytest.param(None, Spec(), id="no metadata means the defaults"),
        pytest.param(HEAD, Spec(), id="an envelope without spec means the defaults"),
        pytest.param(HEAD | {"spec": {"pushFormat": "string"}}, Spec(push_format="string"), id="camel case"),
        pytest.param(HEAD | {"spec": {"tags": {}}}, Spec(tags={}), id="no tags at all are told from no word of tags"),
    ],
)
def test_metadata_is_decoded(metadata: dict[str, Any] | None, expected: Spec) -> None:
    assert decoded(metadata, Spec, "db") == expected


@pytest.mark.parametrize(
    ("metadata", "named"),
    [
        pytest.param({"spec": {}}, "apiVersion", id="no apiVersion"),
        pytest.param(HEAD | {"kind": "canary"}, "kind PushSecretMetadata", id="another kind"),
        pytest.param(HEAD | {"apiVersion": "canary"}, "apiVersion kubernetes", id="another apiVersion"),
        pytest.param(HEAD | {"more": "canary"}, "`more`", id="an unknown field beside spec"),
        pytest.param(HEAD | {"spec": {"descripton": "canary"}}, "`descripton`", id="an unknown field in spec"),
        pytest.param(HEAD | {"spec": {"tier": {"kind": "canary"}}}, "metadata.spec.tier", id="an unknown field below"),
        pytest.param(HEAD | {"spec": {"tier": {"type": "canary"}}}, "metadata.spec.tier.type", id="an unknown choice"),
        pytest.param(HEAD | {"spec": {"tier": {"type": "a'canary"}}}, "tier.type", id="an unknown choice with a quote"),
        pytest.param(HEAD | {"spec": {"tags": {"a": 1}}}, "metadata.spec.tags", id="a tag that is no text"),
        pytest.param(HEAD | {"spec": {"tags": {"managed-by": "canary"}}}, "managed-by", id="the mark"),
    ],
)
def test_metadata_that_is_not_understood_is_refused_by_field_and_without_its_value(
    metadata: dict[str, Any], named: str
) -> None:
    with pytest.raises(ProviderError) as refused:
        decoded(metadata, Spec, "db")
    assert refused.value.reason is ErrorReason.INVALID_REQUEST
    assert named in refused.value.message
    assert "canary" not in refused.value.message
    assert refused.value.message.startswith('metadata of "db"')
