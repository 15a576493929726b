"""The reads for an explanation: only metadata of Secrets, and only objects that the user may read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from eso_api.crd import CustomKind
from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import CLUSTER_SECRET_STORE, SECRET_STORE
from eso_api.v2.providerclass import CLUSTER_PROVIDER_CLASS
from eso_testkit.operator.operators import BACKEND, Bench
from eso_tools.objects import ReadState
from eso_tools.why.explanation import Mark, explanation_of
from eso_tools.why.inputs import Inputs, gather
from kubebase.meta import ObjectKey
from kubebase.testing.clock import START as NOW
from kuberun import config
from kuberun.client import Client
from kuberun.errors import Forbidden
from kuberun.requests import Metadata, Request
from kuberun.testing.builders import SECRETS
from kuberun.testing.rawapi import MERGE_PATCH
from kuberun.transport import AiohttpTransport, Transport

pytestmark = pytest.mark.live

CANARY = "CANARY-hunter2"
LATELY = "2029-12-31T23:58:00Z"
STORE = {"provider": {"vault": {"server": "x"}}}
ENTRY = {"secretKey": "pw", "remoteRef": {"key": "db/pw"}}
TEMPLATE = {"templateFrom": [{"secret": {"name": "templates", "items": [{"key": "k"}]}}]}
READS: dict[str, Any] = {"secretStoreRef": {"name": "vault"}, "data": [ENTRY], "target": {"template": TEMPLATE}}
LABELS = {"team": "blue"}
BLUE = {"matchLabels": LABELS}


class Spy:
    """A transport that records requests and responses, and rejects forbidden requests."""

    def __init__(self, inner: Transport, forbidden: str) -> None:
        self._inner = inner
        self._forbidden = forbidden
        self.asked: list[Request] = []
        self.responses: list[bytes] = []

    async def request(self, request: Request) -> bytes:
        self.asked.append(request)
        if self._forbidden in request.path:
            raise Forbidden(403, "Forbidden", "no")
        self.responses.append(await self._inner.request(request))
        return self.responses[-1]

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._inner.stream(request)

    async def close(self) -> None:
        await self._inner.close()


async def gathered(bench: Bench, kind: CustomKind[Any], name: str, forbidden: str = "none") -> tuple[Inputs, Spy]:
    spy = Spy(AiohttpTransport(config.load(bench.kubeconfig)), forbidden)
    client = Client(spy)
    try:
        found = await gather(client, kind, ObjectKey(bench.namespace, name))
    finally:
        await client.close()
    assert isinstance(found, Inputs)
    return found, spy


@pytest.fixture
async def scene(bench: Bench) -> Bench:
    """A store, an ExternalSecret that reads it, and its Secret."""
    await bench.create(SECRET_STORE.resource(), "vault", metadata={"labels": LABELS}, spec=STORE)
    await bench.create(EXTERNAL_SECRET.resource(), "db", spec=READS)
    await bench.create(SECRETS, "templates", stringData={"k": CANARY})
    await bench.create(SECRETS, "db", metadata={"labels": LABELS}, stringData={"pw": CANARY})
    return bench


async def test_only_the_metadata_of_secrets_is_requested(scene: Bench) -> None:
    _, spy = await gathered(scene, EXTERNAL_SECRET, "db")

    asked = [request for request in spy.asked if "/secrets/" in request.path]
    assert sorted(request.path.rpartition("/")[2] for request in asked) == ["db", "templates"]
    assert {request.accept for request in asked} == {Metadata.ONLY}
    assert not any(CANARY.encode() in response for response in spy.responses)


@pytest.mark.parametrize(
    ("forbidden", "unknown"),
    [
        pytest.param("/secrets/", "Secret db: you may not read it", id="Secrets"),
        pytest.param("/secretstores/", "SecretStore vault: you may not read it", id="stores"),
        pytest.param("/clusterproviderclasses", "provider: not known: clusterproviderclasses", id="classes"),
        pytest.param("/services", "provider: ProviderNotInstalled: ", id="Services"),
    ],
)
async def test_an_object_that_may_not_be_read_stays_unknown_and_stops_nothing(
    scene: Bench, forbidden: str, unknown: str
) -> None:
    found, _ = await gathered(scene, EXTERNAL_SECRET, "db", forbidden)

    findings = [finding for step in explanation_of(found, NOW).steps for finding in step]
    assert any(finding.what.startswith(unknown) for finding in findings if finding.mark is not Mark.GOOD), [
        finding.what for finding in findings
    ]


async def test_a_push_by_label_is_followed_to_every_store_and_secret(scene: Bench) -> None:
    spec = {"secretStoreRefs": [{"labelSelector": BLUE}], "selector": {"secret": {"selector": BLUE}}}
    await scene.create(PUSH_SECRET.resource(), "all", spec=spec)

    found, _ = await gathered(scene, PUSH_SECRET, "all")

    assert [str(source.summary) for source in found.sources] == ["SecretStore vault"]
    assert [str(summary) for summary in found.objects] == ["Secret db"]


async def test_a_rule_of_the_resolver_is_the_cause_before_an_operator_says_so(scene: Bench) -> None:
    name, elsewhere = scene.namespace, [{"namespaces": ["elsewhere"]}]
    await scene.create(CLUSTER_SECRET_STORE.resource(), name, spec={**STORE, "conditions": elsewhere})
    refs = {"secretStoreRef": {"kind": "ClusterSecretStore", "name": name}, "data": [ENTRY]}
    await scene.create(EXTERNAL_SECRET.resource(), "denied", spec=refs)
    try:
        found, _ = await gathered(scene, EXTERNAL_SECRET, "denied")
    finally:
        await scene.delete(CLUSTER_SECRET_STORE.resource(), name)

    cause = explanation_of(found, NOW).cause
    assert cause is not None
    assert (cause.subject, cause.state) == (f"ClusterSecretStore {name}", "NamespaceDenied")


async def test_a_store_that_does_not_exist_is_explained_with_a_similar_one(scene: Bench) -> None:
    await scene.create(EXTERNAL_SECRET.resource(), "typo", spec={**READS, "secretStoreRef": {"name": "valut"}})

    found, _ = await gathered(scene, EXTERNAL_SECRET, "typo")

    cause = explanation_of(found, NOW).cause
    assert cause is not None
    assert cause.what.endswith("did you mean SecretStore vault?"), cause.what


async def test_a_class_that_declares_nothing_is_found_by_what_its_provider_reported(scene: Bench) -> None:
    name, resource = scene.namespace, CLUSTER_PROVIDER_CLASS.resource()
    await scene.create(resource, name, spec={"address": f"grpc://p.{name}.svc:8080"})
    served = {"group": "g", "version": "v1", "kind": "Vault", "v1ProviderKey": "vault"}
    down = {"type": "Ready", "status": "False", "reason": "Refused", "message": "m", "lastTransitionTime": LATELY}
    status = {"status": {"kinds": [served], "conditions": [down]}}
    try:
        response = await scene.api.patch(f"{resource.path('', name)}/status", status, MERGE_PATCH)
        found, _ = await gathered(scene, EXTERNAL_SECRET, "db")
    finally:
        await scene.delete(resource, name)

    assert response.status == 200
    cause = explanation_of(found, NOW).cause
    assert cause is not None
    assert cause.what == f"provider ClusterProviderClass {name}: Refused: m"


async def test_a_kind_of_a_provider_is_explained(scene: Bench) -> None:
    await scene.create(BACKEND.resource(), "own", spec={"url": "x"})

    found, _ = await gathered(scene, BACKEND, "own")

    assert [(source.summary.read_state, str(source.summary)) for source in found.sources] == [
        (ReadState.FOUND, "Backend own")
    ]
