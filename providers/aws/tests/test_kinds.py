"""The AWS provider's kinds (R88, R184, R185)."""

from typing import Any

import msgspec
import pytest

from eso_api.kinds import AnyKind, installed_kinds
from eso_provider_aws.kinds import AWS_SECRET_MANAGER, KINDS, SECRETS_MANAGER
from eso_provider_aws.provider import PROVIDER, CertificateManager, ParameterStore, SecretsManager
from eso_sdk.provider import served_kind
from eso_wire.values import CallerDependence, KindInfo, SpecCondition


def test_the_kinds_are_found_through_the_entry_point() -> None:
    assert set(KINDS) <= set(installed_kinds())


def test_the_example_of_the_proposal_decodes_R88() -> None:  # noqa: N802 - the row's name
    manifest = {
        "spec": {
            "role": "arn:aws:iam::123456789012:role/external-secrets",
            "region": "eu-central-1",
            "auth": {"secretRef": {"accessKeyIDSecretRef": {"name": "awssm-secret", "key": "access-key"}}},
        },
        "status": {},
    }

    spec = msgspec.convert(manifest, AWS_SECRET_MANAGER[0].type).spec

    assert spec.region == "eu-central-1"
    assert spec.auth is not None
    assert spec.auth.secret_ref is not None
    assert spec.auth.secret_ref.access_key_id_secret_ref is not None
    assert spec.auth.secret_ref.access_key_id_secret_ref.key == "access-key"


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.crd_name) for kind in KINDS])
def test_region_is_all_a_configuration_needs(kind: AnyKind) -> None:
    schema = kind.crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

    assert schema["properties"]["spec"]["required"] == ["region"]


def test_a_cluster_twin_keeps_the_common_behaviour_in_one_place_R186() -> None:  # noqa: N802 - the row's name
    manifest = {"spec": {"region": "eu", "common": {"authenticationScope": "ManifestNamespace", "refreshInterval": 60}}}

    common = msgspec.convert(manifest, SECRETS_MANAGER[1].type).spec.common

    assert common is not None
    assert (common.authentication_scope, common.refresh_interval) == ("ManifestNamespace", 60)


def test_blocks_of_v1_that_name_parameter_store_are_served_by_its_kind() -> None:
    served = {info.kind.kind: info.v1_when for info in PROVIDER.kind_infos if info.v1_provider_key == "aws"}

    assert served["ParameterStore"] == SpecCondition("/service", ("ParameterStore",))


@pytest.mark.parametrize(
    ("store", "expected"),
    [
        pytest.param(SecretsManager, {"region": "eu", "deletion": {"recoveryWindowInDays": 7}}, id="SecretsManager"),
        pytest.param(ParameterStore, {"region": "eu"}, id="ParameterStore"),
        pytest.param(CertificateManager, {"region": "eu"}, id="CertificateManager"),
    ],
)
def test_a_v1_block_in_the_words_of_its_kind(store: type[Any], expected: dict[str, Any]) -> None:
    """R167: `eso migrate` writes it."""
    block = {"service": served_kind(store).owned[0].name, "region": "eu", "secretsManager": {"recoveryWindowInDays": 7}}

    assert served_kind(store).own_spec(block) == expected


@pytest.mark.parametrize(
    "info", [pytest.param(info, id=info.kind.kind) for info in PROVIDER.kind_infos if "Parameter" in info.kind.kind]
)
def test_sessions_with_tags_of_their_namespace_are_kept_apart(info: KindInfo) -> None:
    assert info.caller_dependences == (CallerDependence("/sessionTagsPolicy", ("", "None")),)
