"""Live objects on the private API server of a plan: which are copied, and what decides the next refresh."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eso_operator.certificates.secrets import PART_LABEL
from eso_tools.plan.live import ReadOnlyTransport, RecordedObjects
from eso_tools.plan.recording import Recording
from eso_tools.plan.seeding import Seeder, copied, copied_status, updated
from eso_tools.plan.simulation import ReadThrough
from kubebase.meta import JsonObject, ObjectKey, raw
from kuberun import config
from kuberun.client import Client
from kuberun.errors import Forbidden, NotFound
from kuberun.requests import Request
from kuberun.testing.builders import SECRETS
from kuberun.transport import AiohttpTransport
from localkube.server import LocalKube

READY = [{"type": "Ready", "status": "True"}]
STATUS = {
    "refreshTime": "2026-01-01T00:00:00Z",
    "syncedResourceVersion": "1-abc",
    "conditions": READY,
    "binding": {"name": "target"},
    "outcomes": [],
}
ALL_BUT_OUTCOMES = {name: part for name, part in STATUS.items() if name != "outcomes"}


def made(kind: str = "ExternalSecret", **spec: Any) -> JsonObject:
    return {"kind": kind, "metadata": {"name": "it", "labels": {"new": "1"}}, "spec": spec}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(
            {"refreshInterval": "1h"}, {"binding": {"name": "target"}}, id="a periodic refresh is due at once"
        ),
        pytest.param({}, {"binding": {"name": "target"}}, id="the default is periodic"),
        pytest.param({"refreshPolicy": "CreatedOnce"}, ALL_BUT_OUTCOMES, id="created once stays created"),
        pytest.param({"refreshPolicy": "OnChange"}, ALL_BUT_OUTCOMES, id="on change stays as it is"),
        pytest.param({"refreshInterval": "0"}, ALL_BUT_OUTCOMES, id="an interval of 0 reads once"),
    ],
)
def test_the_status_keeps_what_the_next_refresh_depends_on(spec: JsonObject, expected: JsonObject) -> None:
    assert copied_status(made(**spec), STATUS) == expected


def test_an_object_that_never_synced_is_due_under_every_policy() -> None:
    failed = {**STATUS, "conditions": [{"type": "Ready", "status": "False"}]}

    assert copied_status(made(refreshPolicy="CreatedOnce"), failed) == {"binding": {"name": "target"}}


@pytest.mark.parametrize(
    ("spec", "generation"),
    [
        pytest.param({"a": 1}, 4, id="the same spec"),
        pytest.param({"a": 2}, 5, id="a changed spec"),
    ],
)
def test_a_manifest_is_an_update_of_the_live_object(spec: JsonObject, generation: int) -> None:
    metadata = {"name": "it", "uid": "u", "generation": 4, "labels": {"old": "1"}}

    found = updated(made(**spec), {"metadata": metadata, "spec": {"a": 1}})["metadata"]

    assert (found["uid"], found["generation"], found["labels"]) == ("u", generation, {"old": "1", "new": "1"})


def test_a_copy_is_safe_from_garbage_collection_and_keeps_its_owner() -> None:
    owner = {"apiVersion": "external-secrets.io/v1", "kind": "ExternalSecret", "name": "es", "uid": "u"}
    metadata = {"name": "it", "ownerReferences": [owner], "finalizers": ["f"], "deletionTimestamp": "now"}

    found = copied({"kind": "Secret", "metadata": metadata, "status": {}, "data": {"a": "b"}})

    assert found == {
        "kind": "Secret",
        "metadata": {"name": "it", "ownerReferences": [{**owner, "apiVersion": "external-secrets.io/elsewhere"}]},
        "data": {"a": "b"},
    }
    assert metadata["finalizers"] == ["f"]


class Answering:
    """A transport that answers everything."""

    async def request(self, request: Request) -> bytes:
        return request.method.encode()

    def stream(self, request: Request) -> Any:
        raise NotImplementedError(request)

    async def close(self) -> None:
        """Close nothing."""


TOKEN = "/api/v1/namespaces/app/serviceaccounts/reader/token"


@pytest.mark.parametrize(
    ("method", "path", "tokens", "passes"),
    [
        pytest.param("GET", "/api/v1/namespaces/app/secrets/a", False, True, id="a read"),
        pytest.param("POST", "/api/v1/namespaces/app/secrets", True, False, id="a create"),
        pytest.param("PATCH", "/api/v1/namespaces/app/secrets/a", True, False, id="a patch"),
        pytest.param("DELETE", "/api/v1/namespaces/app/secrets/a", True, False, id="a deletion"),
        pytest.param("POST", TOKEN, False, False, id="a token that is not allowed"),
        pytest.param("POST", TOKEN, True, True, id="a token that is allowed"),
    ],
)
async def test_only_reads_and_allowed_tokens_reach_the_cluster(
    method: str, path: str, *, tokens: bool, passes: bool
) -> None:
    transport = ReadOnlyTransport(Answering(), tokens=tokens)

    if passes:
        assert await transport.request(Request(method, path)) == method.encode()
    else:
        with pytest.raises(Forbidden):
            await transport.request(Request(method, path))


def secret(name: str, **labels: str) -> JsonObject:
    metadata = {"name": name, "namespace": "team", "uid": f"uid-of-{name}", "labels": labels}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"token": "YQ=="}}


async def test_the_operator_finds_live_credentials_but_no_keys_of_another_operator(tmp_path: Path) -> None:
    live = RecordedObjects(Recording(objects=[secret("login"), secret("issuer", **{PART_LABEL: "issuer"})]))
    async with LocalKube() as kube:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(kube.kubeconfig_text)
        plain = AiohttpTransport(config.load(kubeconfig))
        transport = ReadThrough(plain, Seeder(kube.cluster, live, "default"), Answering())
        client = Client(transport)
        try:
            found = await client.get(raw(SECRETS), ObjectKey("team", "login"))
            for name in ("issuer", "absent"):
                with pytest.raises(NotFound):
                    await client.get(raw(SECRETS), ObjectKey("team", name))
            response = await transport.request(Request("POST", TOKEN))
        finally:
            await client.close()

    assert found["data"] == {"token": "YQ=="}
    assert response == b"POST"  # by the cluster's own transport
