"""The guide on certificates tells the truth: its manifests, its defaults, its reasons."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from eso_api.v2.providerclass import ClusterProviderClass
from eso_operator.certificates import secrets
from eso_operator.certificates.client import ClientCertificateSettings
from eso_operator.certificates.issuer import PROVIDER_LABEL
from eso_operator.certificates.problems import ProblemName
from eso_operator.certificates.settings import IssuerSettings
from eso_operator.certificates.state import Lifetimes
from eso_operator.flags import parser
from eso_operator.stores.resolved import ServiceKey
from eso_wire.probe import TlsProblemKind

GUIDE = Path(__file__).resolve().parents[4] / "docs" / "guides" / "provider-certificates.md"
TEXT = GUIDE.read_text(encoding="utf-8")
MANIFESTS: list[dict[str, Any]] = [
    document for block in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL) for document in yaml.safe_load_all(block)
]


def manifest(kind: str, name: str) -> dict[str, Any]:
    return next(each for each in MANIFESTS if (each["kind"], each["metadata"]["name"]) == (kind, name))


@pytest.mark.parametrize("document", MANIFESTS, ids=lambda each: f"{each['kind']} {each['metadata']['name']}")
def test_a_manifest_is_complete(document: dict[str, Any]) -> None:
    assert document["apiVersion"]
    assert document["spec"]


def test_the_deployment_mounts_the_secret_of_the_labelled_service() -> None:
    service = manifest("Service", "provider-aws")["metadata"]
    pod = manifest("Deployment", "provider-aws")["spec"]["template"]["spec"]

    keys = secrets.keys_of(ServiceKey(service["namespace"], service["name"]), "external-secrets")

    assert service["labels"] == {PROVIDER_LABEL: "true"}
    assert pod["volumes"][0]["secret"]["secretName"] == keys.server.name
    identity = IssuerSettings("external-secrets").client_identity
    assert f"--allowed-client={identity}" in pod["containers"][0]["args"]
    assert manifest("Certificate", "provider-aws-client")["spec"]["uris"] == [identity]


def test_the_class_names_the_secret_that_cert_manager_writes() -> None:
    document = manifest("ClusterProviderClass", "aws")

    decoded = msgspec.convert(document, ClusterProviderClass)

    assert decoded.spec.tls is not None
    assert decoded.spec.tls.secret_ref is not None
    assert decoded.spec.tls.mode == "SecretRef"
    assert decoded.spec.tls.secret_ref.name == manifest("Certificate", "provider-aws-client")["spec"]["secretName"]


UNITS = {"days": "days", "hour": "hours", "minutes": "minutes", "seconds": "seconds"}


def written(row: str) -> timedelta:
    found = re.search(rf"^\| {re.escape(row)} \| (\d+) (\w+) \|", TEXT, re.MULTILINE)
    assert found, row
    return timedelta(**{UNITS[found[2]]: int(found[1])})


def test_the_times_are_the_defaults() -> None:
    lifetimes, settings = Lifetimes(), IssuerSettings("eso")

    assert written("lifetime of a certificate") == lifetimes.leaf
    assert written("lifetime of an authority") == lifetimes.authority
    assert written("settle time: the time in which pods read a changed Secret") == lifetimes.settle
    assert written("maximum age of a connection") == lifetimes.connection_age
    assert written("interval between checks of certificates") == timedelta(seconds=settings.interval)
    assert written("interval between reads of your own Secret") == timedelta(
        seconds=ClientCertificateSettings("eso").fresh
    )
    assert written("renewal before its expiry") == lifetimes.leaf_renewal
    assert written("replacement before its expiry") == lifetimes.authority_renewal


def test_every_flag_is_one_of_the_operators() -> None:
    named = set(re.findall(r"`(--cert[a-z-]*)`", TEXT))

    assert len(named) == 7
    assert named <= set(parser()._option_string_actions)


def test_every_reason_is_explained_and_every_explained_reason_exists() -> None:
    explained = set(re.findall(r"^\| `([A-Z]\w+)` \|", TEXT, re.MULTILINE))

    assert {name.value for name in ProblemName} <= explained
    assert explained <= {name.value for name in ProblemName} | {kind.value for kind in TlsProblemKind}
