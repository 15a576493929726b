"""Errors about push metadata name fields, never what stands in them."""

import pytest

from eso_provider_kubernetes.secretwrites import read_metadata
from eso_wire.errors import ProviderError


@pytest.mark.parametrize(
    "wrong", [pytest.param("it's private", id="an apostrophe"), pytest.param("private", id="plain")]
)
def test_a_wrong_policy_is_not_quoted(wrong: str) -> None:
    plain = {
        "apiVersion": "kubernetes.external-secrets.io/v1alpha1",
        "kind": "PushSecretMetadata",
        "spec": {"sourceMergePolicy": wrong},
    }

    with pytest.raises(ProviderError, match="sourceMergePolicy") as refused:
        read_metadata(plain, "db")

    assert "private" not in refused.value.message
