"""The kinds of this provider, and the v1 block that it serves."""

from __future__ import annotations

import pytest

from eso_api.generators.azure import ACR_ACCESS_TOKEN as V1_ACR_ACCESS_TOKEN
from eso_api.kinds import AnyKind, installed_kinds
from eso_provider_azure.kinds import KINDS, STORES
from eso_provider_azure.provider import PROVIDER
from eso_wire.values import KindRole


def test_the_kinds_are_found_through_the_entry_point() -> None:
    assert set(KINDS) <= set(installed_kinds())


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.name) for kind in STORES])
def test_the_url_is_all_a_configuration_needs(kind: AnyKind) -> None:
    schema = kind.crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

    assert schema["properties"]["spec"]["required"] == ["vaultUrl"]


def test_one_kind_serves_the_block_of_v1_stores() -> None:
    served = [info.kind.kind for info in PROVIDER.kind_infos if info.v1_provider_key == "azurekv"]

    assert served == ["KeyVault"]


def test_tokens_of_service_accounts_are_for_the_exchange() -> None:
    rules = {
        (info.kind.kind, path.pattern): path.audiences
        for info in PROVIDER.kind_infos
        for path in info.credentials
        if path.pattern.endswith("serviceAccountRef")
    }

    assert {kind for kind, _ in rules} == {"KeyVault", "ClusterKeyVault", "ACRAccessToken"}
    assert all("api://AzureADTokenExchange" in str(audiences) for audiences in rules.values())


def test_the_generator_of_v1_is_served_too() -> None:
    served = {info.kind.group for info in PROVIDER.kind_infos if info.role is KindRole.GENERATOR}

    assert V1_ACR_ACCESS_TOKEN.group in served
