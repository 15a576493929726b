"""Provider classes on a live API server: made from Services, filled from handshakes."""

import secrets as randomness
from typing import Any

import pytest

from eso_api.v2.providerclass import CLUSTER_PROVIDER_CLASS, PROVIDER_CLASS
from eso_testkit.operator.operators import BACKEND_ID, LABEL, SERVICE, SERVICES, Bench, scripted
from eso_wire.versions import ProtocolVersion
from kubebase.meta import Condition, JsonObject
from kubebase.testing.waiting import eventually

pytestmark = pytest.mark.live

CLASSES = PROVIDER_CLASS.resource()
CLUSTER_CLASSES = CLUSTER_PROVIDER_CLASS.resource()


def connected(condition: Condition) -> bool:
    return (condition.status, condition.reason) == ("True", "Connected")


async def test_a_labelled_service_gets_a_class_that_shows_what_its_provider_said(bench: Bench) -> None:
    """R169: the certificate's end is shown, too."""
    async with bench.operator() as operator:
        await bench.install(scripted(), provider_v1_keys="fake")

        await bench.ready(CLASSES, SERVICE, connected)

        async def complete() -> JsonObject | None:
            found = await bench.find(CLASSES, SERVICE)
            return found if found and "certificate" in found["status"] else None

        found = await eventually(complete, "the certificate is not shown")
        text = operator.metrics.exposition().decode()
        assert f'eso_provider_certificate_expiry_timestamp_seconds{{service="{bench.namespace}/{SERVICE}"}}' in text
    assert found["spec"]["v1ProviderKeys"] == ["fake"]
    assert (found["status"]["protocol"], found["status"]["providerVersion"]) == ("2.2", "1")
    assert BACKEND_ID.kind in [kind["kind"] for kind in found["status"]["kinds"]]
    assert found["status"]["certificate"]["notAfter"]
    assert found["status"]["endpoints"] == 1


async def test_an_incompatible_provider_is_named_on_its_class_with_both_ranges(bench: Bench) -> None:
    """R141."""
    async with bench.operator():
        await bench.install(scripted(speaks=(ProtocolVersion(9, 0),)))

        await bench.ready(
            CLASSES,
            SERVICE,
            lambda c: c.reason == "ProviderIncompatible" and "9.0" in c.message and "2.1, 2.2" in c.message,
        )


async def test_the_class_goes_when_the_label_goes(bench: Bench) -> None:
    async with bench.operator():
        await bench.install(scripted())
        await bench.ready(CLASSES, SERVICE, connected)

        await bench.patch(SERVICES, SERVICE, {"metadata": {"labels": dict.fromkeys(LABEL)}})

        async def gone() -> bool:
            return await bench.find(CLASSES, SERVICE) is None

        await eventually(gone, "the class stayed")


async def test_a_class_that_a_user_wrote_is_not_changed_by_a_service_of_the_same_name(bench: Bench) -> None:
    spec = {"address": f"grpc://{SERVICE}:8080", "v1ProviderKeys": ["mine"]}
    async with bench.operator():
        await bench.create(CLASSES, SERVICE, spec=spec)
        await bench.install(scripted(), provider_v1_keys="fake")

        found = await bench.ready(CLASSES, SERVICE, connected)

    assert found["spec"] == spec
    assert "ownerReferences" not in found["metadata"]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        pytest.param({"address": "grpc://203.0.113.1:8080"}, "AddressDenied", id="an address that is no Service"),
        pytest.param({"address": "unix:///run/provider.sock"}, "FeatureDisabled", id="a Unix socket, R83"),
        pytest.param(
            {"address": "grpc://nowhere:8080", "tls": {"mode": "SecretRef", "secretRef": {"name": "missing"}}},
            "CertificateSecretNotFound",
            id="certificates that are not there, R84",
        ),
    ],
)
async def test_a_class_that_cannot_be_reached_says_why(bench: Bench, spec: dict[str, Any], reason: str) -> None:
    name = f"class-{randomness.token_hex(4)}"
    async with bench.operator():
        await bench.create(CLUSTER_CLASSES, name, spec=spec)
        try:
            await bench.ready(CLUSTER_CLASSES, name, lambda c: c.reason == reason)
        finally:
            await bench.delete(CLUSTER_CLASSES, name)
