"""References inside the metadata of a PushSecret, on a live API server."""

from __future__ import annotations

from typing import Any

import pytest

from eso_api.values import SecretBytes
from eso_testkit.operator.pushsecrets import entry
from eso_testkit.operator.storingprovider import storing
from eso_wire.values import CredentialKind, CredentialPath
from kubebase.meta import Resource

pytestmark = pytest.mark.live

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
POLICY = CredentialPath("/spec/policySourceRef", CredentialKind.OBJECT_KEY)
METADATA = {"spec": {"policySourceRef": {"kind": "ConfigMap", "name": "policy", "key": "json"}}}


def policies(stage: Any) -> list[bytes]:
    """Return the resolved reference of each push."""
    found = [
        credential.value for batch in stage.provider.pushes for item in batch.items for credential in item.resolved
    ]
    return [value.reveal() for value in found if isinstance(value, SecretBytes)]


async def test_objects_that_metadata_names_go_with_the_push_and_their_changes_with_the_next_refresh(
    staged: Any,
) -> None:
    async with staged(storing(metadata_references=(POLICY,))) as stage:
        await stage.source(password="p")
        await stage.bench.create(CONFIG_MAPS, "policy", data={"json": "first"})
        await stage.push("push", entry("password", "db", metadata=METADATA), refreshInterval="1s")

        assert policies(stage) == [b"first"]

        await stage.bench.patch(CONFIG_MAPS, "policy", {"data": {"json": "second"}})
        await stage.until(lambda: policies(stage) == [b"first", b"second"], "the changed policy is not pushed")


async def test_an_entry_whose_reference_leads_nowhere_fails_alone_and_heals(staged: Any) -> None:
    async with staged(storing(metadata_references=(POLICY,))) as stage:
        await stage.source(password="p", user="u")
        await stage.apply("push", entry("password", "db", metadata=METADATA), entry("user", "name"))

        await stage.broken("push", "there is no ConfigMap", "policy", "create it")
        await stage.holds(name="u")

        await stage.bench.create(CONFIG_MAPS, "policy", data={"json": "first"})
        await stage.ready("push")
        await stage.holds(name="u", db="p")
