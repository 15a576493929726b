"""References inside the metadata of a push: followed in the PushSecret's own namespace."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eso_operator.stores.credentials import Followed, follow_metadata
from eso_operator.stores.resolved import Reason, ResolutionError, ResolvedStore
from eso_testkit.operator.boundstores import bound_store
from eso_testkit.operator.clusters import NotedReads, caller
from eso_wire.values import CredentialKind, CredentialPath
from kubebase.meta import ObjectKey

POLICY = CredentialPath("/spec/resourcePolicy/policySourceRef", CredentialKind.OBJECT_KEY)


def target(*paths: CredentialPath) -> ResolvedStore:
    base = bound_store().resolved
    config = replace(base.config, metadata_references=paths)
    return replace(base, config=config, caller=caller("team", "PushSecret", "db"), auth_namespace="elsewhere")


def metadata(**reference: Any) -> dict[str, Any]:
    named = {"kind": "ConfigMap", "name": "policy", "key": "json", **reference}
    return {"spec": {"resourcePolicy": {"policySourceRef": named}}}


@pytest.mark.parametrize("kind", ["ConfigMap", "Secret"])
async def test_a_reference_is_read_from_the_namespace_of_the_push_secret(kind: str) -> None:
    reader = NotedReads()

    followed = await follow_metadata(target(POLICY), metadata(kind=kind), reader)

    assert [credential.pointer for credential in followed.credentials] == [POLICY.pattern]
    assert (reader.config_maps if kind == "ConfigMap" else reader.secrets) == [ObjectKey("team", "policy")]
    assert [(source.kind, source.namespace, source.name) for source in followed.sources] == [(kind, "team", "policy")]


@pytest.mark.parametrize(
    ("paths", "given"),
    [
        pytest.param((), metadata(), id="the provider follows none"),
        pytest.param((POLICY,), None, id="no metadata"),
        pytest.param((POLICY,), {"spec": {}}, id="metadata without a reference"),
    ],
)
async def test_nothing_is_read_where_nothing_is_referred_to(
    paths: tuple[CredentialPath, ...], given: dict[str, Any] | None
) -> None:
    reader = NotedReads()

    assert await follow_metadata(target(*paths), given, reader) == Followed()
    assert reader.namespaces == set()


@pytest.mark.parametrize(
    ("reference", "missing", "reason", "says"),
    [
        pytest.param({"namespace": "other"}, (), Reason.CROSS_NAMESPACE, "namespace other", id="another namespace"),
        pytest.param({"kind": "Pod"}, (), Reason.INVALID_CONFIG, "must be Secret or ConfigMap", id="another kind"),
        pytest.param({}, ("policy",), Reason.CREDENTIALS_NOT_FOUND, "no ConfigMap team/policy", id="it is missing"),
    ],
)
async def test_a_reference_that_cannot_be_followed_names_the_push_secret(
    reference: dict[str, Any], missing: tuple[str, ...], reason: Reason, says: str
) -> None:
    reader = NotedReads(missing=frozenset(ObjectKey("team", name) for name in missing))

    with pytest.raises(ResolutionError, match=says) as caught:
        await follow_metadata(target(POLICY), metadata(**reference), reader)

    assert caught.value.reason is reason
    assert "PushSecret team/db" in caught.value.message
