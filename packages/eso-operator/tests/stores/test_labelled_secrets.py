"""Webhooks read only Secrets that are labelled for them.

The author of a webhook chooses where their content is sent.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from eso_api.references import GeneratorRef
from eso_api.v2.owned import STORE_CONFIG_GROUP
from eso_operator.stores.credentials import bind
from eso_operator.stores.resolve import resolve
from eso_operator.stores.resolved import Reason, ReferenceRule, ResolutionError, ResolvedStore
from eso_testkit.operator.boundstores import bound_store
from eso_testkit.operator.clusters import (
    ANYTHING,
    CORE,
    SETTINGS,
    EveryConnection,
    NotedReads,
    caller,
    cluster,
    obj,
    provider_service,
    serving,
)
from eso_wire.values import CredentialKind, CredentialPath, KindId, KindRole

PATHS = (
    CredentialPath("/auth/ntlm/passwordSecret", CredentialKind.SECRET_KEY),
    CredentialPath("/secrets/*/secretRef", CredentialKind.WHOLE_SECRET),
    CredentialPath("/caProvider", CredentialKind.CA_PROVIDER),
)
V1 = KindId("generators.external-secrets.io", "v1alpha1", "Webhook")
V2 = KindId("provider.generator.external-secrets.io", "v2alpha1", "Webhook")
OTHER = KindId("generators.external-secrets.io", "v1alpha1", "MFA")
WHOLE = {"secrets": [{"name": "auth", "secretRef": {"name": "token", "key": "any"}}]}
ONE_KEY = {"auth": {"ntlm": {"passwordSecret": {"name": "token", "key": "k"}}}}
CA = {"caProvider": {"type": "Secret", "name": "ca", "key": "ca.crt"}}


def target(kind: KindId, spec: object) -> ResolvedStore:
    base = bound_store().resolved
    config = replace(
        base.config,
        kind=kind,
        spec=json.dumps(spec).encode(),
        credentials=PATHS,
        rule=ReferenceRule.IGNORE_EXPLICIT,
    )
    return replace(base, config=config, auth_namespace="team")


@pytest.mark.parametrize("kind", [V1, V2], ids=["v1alpha1", "v2alpha1"])
@pytest.mark.parametrize("spec", [WHOLE, ONE_KEY], ids=["whole", "one key"])
@pytest.mark.parametrize(
    ("labels", "allowed"),
    [
        pytest.param({"external-secrets.io/type": "webhook"}, True, id="labelled"),
        pytest.param({"external-secrets.io/type": "other"}, False, id="labelled for something else"),
        pytest.param({}, False, id="not labelled"),
    ],
)
async def test_a_webhook_reads_what_is_labelled(
    kind: KindId, spec: object, labels: dict[str, str], allowed: bool
) -> None:
    reader = NotedReads(labels=labels)

    if allowed:
        assert len((await bind(target(kind, spec), reader)).config.credentials) == 1
        return
    with pytest.raises(ResolutionError) as raised:
        await bind(target(kind, spec), reader)

    assert raised.value.reason is Reason.CREDENTIALS_DENIED
    assert "Secret team/token" in raised.value.message
    assert '"external-secrets.io/type: webhook"' in raised.value.message
    assert raised.value.subject.name == "token"


@pytest.mark.parametrize(
    ("kind", "spec"),
    [pytest.param(OTHER, WHOLE, id="another kind"), pytest.param(V1, CA, id="a CA bundle, which is public")],
)
async def test_nothing_else_needs_a_label(kind: KindId, spec: object) -> None:
    bound = await bind(target(kind, spec), NotedReads(labels={}))

    assert len(bound.config.credentials) == 1


@pytest.mark.parametrize(
    ("holder", "spec"),
    [
        pytest.param((V1.api_version, "Webhook"), WHOLE, id="v1alpha1"),
        pytest.param(
            (V1.api_version, "ClusterGenerator"), {"kind": "Webhook", "generator": {"webhookSpec": WHOLE}}, id="cluster"
        ),
        pytest.param((V2.api_version, "Webhook"), WHOLE, id="a provider's own kind"),
        pytest.param(
            ("generator.external-secrets.io/v2alpha1", "Generator"),
            {"providerConfig": {"inline": {"apiVersion": V2.api_version, "kind": "Webhook", "spec": WHOLE}}},
            id="v2, inline",
        ),
    ],
)
async def test_no_way_to_a_webhook_goes_around_the_label(holder: tuple[str, str], spec: object) -> None:
    namespace = "" if holder[1] == "ClusterGenerator" else "team"
    served = serving(V1, V2, role=KindRole.GENERATOR, credentials=PATHS)
    documents = (obj(*holder, "g", namespace, spec=spec), provider_service("p", CORE))
    view = cluster(*documents, handshakes=EveryConnection(served))
    ref = GeneratorRef(api_version=holder[0], kind=holder[1], name="g")

    resolved = resolve(ref, caller("team"), need=ANYTHING, view=view, settings=SETTINGS)
    with pytest.raises(ResolutionError) as raised:
        await bind(resolved, NotedReads(labels={}))

    assert raised.value.reason is Reason.CREDENTIALS_DENIED


@pytest.mark.parametrize(
    ("kind", "v1_key"),
    [
        pytest.param(KindId(STORE_CONFIG_GROUP, "v2alpha1", "Webhook"), "", id="the namespaced kind"),
        pytest.param(KindId(STORE_CONFIG_GROUP, "v2alpha1", "ClusterWebhook"), "", id="the cluster-scoped kind"),
        pytest.param(KindId("example.com", "v1", "Caller"), "webhook", id="a v1 block, whatever kind serves it"),
    ],
)
async def test_a_webhook_store_reads_only_what_is_labelled(kind: KindId, v1_key: str) -> None:
    of_store = target(kind, WHOLE)
    of_store = replace(of_store, config=replace(of_store.config, v1_key=v1_key))

    assert len((await bind(of_store, NotedReads())).config.credentials) == 1
    with pytest.raises(ResolutionError) as raised:
        await bind(of_store, NotedReads(labels={}))

    assert raised.value.reason is Reason.CREDENTIALS_DENIED
