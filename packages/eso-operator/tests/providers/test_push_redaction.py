"""The values that the operator masks in the errors of a push."""

from __future__ import annotations

from eso_api.values import SecretBytes
from eso_operator.providers.redaction import secrets_of_push
from eso_wire.values import Credential, PushBatch, PushItem, RemoteRef


def test_values_and_what_their_metadata_refers_to_are_masked() -> None:
    resolved = (Credential("/policy", SecretBytes(b"of the policy")),)
    item = PushItem("1", RemoteRef("db"), SecretBytes(b"of the Secret"), resolved=resolved)

    assert set(secrets_of_push(PushBatch((item,)))) == {b"of the Secret", b"of the policy"}
