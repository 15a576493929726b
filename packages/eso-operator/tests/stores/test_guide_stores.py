"""The stores that the guide names, AWS Secrets Manager, Vault and fake, by their v1 manifests as they stand (R41)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import yaml

from eso_api.references import GeneratorRef, StoreRef
from eso_operator.stores.resolve import resolve
from eso_operator.stores.resolved import Form, Reason, ResolutionError, ResolvedStore, ServiceKey
from eso_testkit.operator.clusters import (
    ANYTHING,
    CORE,
    SETTINGS,
    EveryConnection,
    caller,
    cluster,
    namespace_object,
    provider_service,
    ready,
    serving,
)
from eso_wire.values import Handshake, KindId, KindInfo, KindRole, Operation
from eso_wire.versions import CURRENT, SUPPORTED
from kubebase.meta import JsonObject

GUIDE = Path(__file__).parents[4] / "examples" / "guide"
KEYS = ("aws", "vault", "fake")
PROVIDERS = [provider_service(f"provider-{key}", CORE, v1_keys=key) for key in KEYS]


def handshake() -> Handshake:
    """A provider of all three, so that only the key of the manifest decides which one is asked."""
    kinds = tuple(
        KindInfo(
            KindId(f"{key}.example.com", "v1", key.capitalize()),
            KindRole.STORE,
            frozenset(Operation),
            v1_provider_key=key,
        )
        for key in KEYS
    )
    return Handshake(CURRENT, SUPPORTED, "all", "1", "i", kinds)


def stores() -> Iterator[JsonObject]:
    for path in sorted(GUIDE.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if document["kind"] in ("SecretStore", "ClusterSecretStore"):
                yield document


GUIDE_STORES = [
    pytest.param(document, id=f"{document['kind']} {document['metadata']['name']} of {key}")
    for document in stores()
    for key in document["spec"]["provider"]
]


def resolved(document: JsonObject, *around: JsonObject) -> ResolvedStore:
    metadata = {"uid": "uid", "generation": 1, **document["metadata"]}
    namespace = metadata.get("namespace", "production")
    objects = ({**document, "metadata": metadata, "status": ready()}, namespace_object(namespace, env="production"))
    return resolve(
        StoreRef(kind=document["kind"], name=metadata["name"]),
        caller(namespace),
        need=ANYTHING,
        view=cluster(*objects, *around, handshakes=EveryConnection(handshake())),
        settings=SETTINGS,
    )


@pytest.mark.parametrize("document", GUIDE_STORES)
def test_a_store_of_the_guide_goes_to_its_provider_with_its_configuration_unedited(document: JsonObject) -> None:
    ((key, spec),) = document["spec"]["provider"].items()

    target = resolved(document, *PROVIDERS)

    assert (target.form, target.endpoint.service) == (Form.V1, ServiceKey(CORE, f"provider-{key}"))
    assert target.config.kind.group == f"{key}.example.com"
    assert target.config.spec is not None
    assert json.loads(target.config.spec) == spec


@pytest.mark.parametrize("document", GUIDE_STORES)
def test_a_store_of_the_guide_without_its_provider_says_what_to_install(document: JsonObject) -> None:
    (key,) = document["spec"]["provider"]

    with pytest.raises(ResolutionError) as raised:
        resolved(document)

    assert raised.value.reason is Reason.NOT_INSTALLED
    assert f"eso-provider-{key}" in raised.value.message


@pytest.mark.parametrize("file", ["generator-ecr.yaml", "generator-password.yaml", "generator-uuid.yaml"])
def test_a_generator_of_the_guide_goes_to_the_provider_that_serves_it(file: str) -> None:
    """R18, R19, R20: whichever provider brings the kind; the manifest is sent as it stands."""
    generator, consumer = yaml.safe_load_all((GUIDE / file).read_text(encoding="utf-8"))
    kind = KindId("generators.external-secrets.io", "v1alpha1", generator["kind"])
    ref = msgspec.convert(consumer["spec"]["dataFrom"][0]["sourceRef"]["generatorRef"], GeneratorRef)
    service = provider_service("provider-any", CORE, kinds=str(kind))
    answers = EveryConnection(serving(kind, role=KindRole.GENERATOR))

    target = resolve(
        ref,
        caller("production"),
        need=ANYTHING,
        view=cluster({**generator, "status": {}}, service, handshakes=answers),
        settings=SETTINGS,
    )

    assert (target.form, target.config.kind) == (Form.V1_GENERATOR, kind)
    assert target.config.spec is not None
    assert json.loads(target.config.spec) == generator["spec"]


def test_the_guide_names_all_three() -> None:
    assert {key for document in stores() for key in document["spec"]["provider"]} == set(KEYS)
