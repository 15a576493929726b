"""The examples, applied with kubectl to a server that has our CRDs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from eso_api.kinds import AnyKind, installed_kinds
from kuberun.testing.kubectl import Kubectl
from kuberun.testing.rawapi import RawApi

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("our_crds")]

ROOT = Path(__file__).resolve().parents[2]
KIND_OF: dict[tuple[str, str], AnyKind] = {
    (kind.resource(version).api_version, kind.name): kind for kind in installed_kinds() for version in kind.versions
}


def documents() -> Iterator[dict[str, Any]]:
    for path in sorted((ROOT / "examples").rglob("*.yaml")):
        yield from yaml.load_all(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)


@pytest.fixture(scope="module")
def applied(kubectl: Kubectl, our_crds: str) -> Iterator[str]:  # noqa: ARG001 - the CRDs come first
    yield kubectl("apply", "-R", "-f", "examples")
    # Other tests run operators on this server, which would go on refreshing the examples. Namespaces stay: other tests
    # use the same names, and a namespace that is being deleted accepts nothing.
    ours = yaml.safe_dump_all(one for one in documents() if one["kind"] != "Namespace")
    kubectl("delete", "-f", "-", "--ignore-not-found", "--wait=false", stdin=ours)


def test_every_crd_is_applied_from_the_client_side(our_crds: str) -> None:
    assert len(our_crds.splitlines()) == len(installed_kinds())


def test_every_example_is_accepted(applied: str) -> None:
    """R66-R69, R77-R95, R176-R191: the manifests of the source documents apply."""
    assert len(applied.splitlines()) == len(list(documents()))


@pytest.mark.usefixtures("applied")
def test_applying_again_changes_nothing(kubectl: Kubectl) -> None:
    again = kubectl("apply", "-R", "-f", "examples").splitlines()

    # kubectl sends these two again each time: stringData is never stored, and status goes through its own door.
    assert {line.partition(" ")[0] for line in again if not line.endswith(" unchanged")} <= {
        "secret/update-policy-source",
        "awssecretmanager.provider.secretstore.external-secrets.io/my-aws-store",
    }


@pytest.mark.usefixtures("applied")
@pytest.mark.parametrize(
    "document",
    [
        pytest.param(document, id=f"{document['kind']} {document['metadata']['name']}")
        for document in documents()
        if (document["apiVersion"], document["kind"]) in KIND_OF
    ],
)
async def test_an_example_is_stored_as_it_was_written_and_decodes(api: RawApi, document: dict[str, Any]) -> None:
    kind = KIND_OF[document["apiVersion"], document["kind"]]
    resource = kind.resource(document["apiVersion"].rpartition("/")[2])
    metadata = document["metadata"]

    reply = await api.get(resource.path(metadata.get("namespace", ""), metadata["name"]))

    assert reply.status == 200, reply.body
    assert reply.body.get("spec") == document.get("spec")
    assert msgspec.convert(reply.body, kind.type).metadata.name == metadata["name"]


@pytest.mark.usefixtures("applied")
def test_kubectl_get_shows_store_interval_and_type_R30(kubectl: Kubectl) -> None:  # noqa: N802 - the row's name
    table = kubectl("get", "es", "-n", "production", "db-connection", "generated-db-password").splitlines()

    assert table[0].split() == ["NAME", "STORETYPE", "STORE", "REFRESH", "INTERVAL", "STATUS", "READY", "LAST", "SYNC"]
    assert table[1].split() == ["db-connection", "SecretStore", "aws-sm", "1h"]
    assert table[2].split() == ["generated-db-password", "0"]


@pytest.mark.usefixtures("applied")
def test_kubectl_explains_a_field(kubectl: Kubectl) -> None:
    text = kubectl("explain", "externalsecrets.spec.refreshInterval")

    assert "Time between refreshes" in " ".join(text.split())


@pytest.mark.usefixtures("applied")
def test_a_v1beta1_manifest_is_read_as_v1_R35(kubectl: Kubectl) -> None:  # noqa: N802 - the row's name
    text = kubectl(
        "get", "externalsecrets.v1.external-secrets.io", "service-identity", "-n", "production", "-o", "json"
    )

    assert json.loads(text)["spec"]["refreshInterval"] == 0


@pytest.mark.usefixtures("applied")
def test_external_secrets_are_selected_by_store(kubectl: Kubectl) -> None:
    selector = "--field-selector=spec.secretStoreRef.name=vault-kv,spec.target.name=app-dotenv"

    assert kubectl("get", "es", "-A", selector, "-o", "name").split() == [
        "externalsecret.external-secrets.io/app-env-file"
    ]


@pytest.mark.usefixtures("applied")
def test_all_our_objects_are_found_by_category(kubectl: Kubectl) -> None:
    names = kubectl("get", "external-secrets-generators", "-n", "platform", "-o", "name").split()

    assert "grafana.generators.external-secrets.io/example" in names
